"""agentrund: an out-of-process flight recorder for LLM agents."""

__version__ = "0.1.0"
