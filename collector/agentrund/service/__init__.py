"""Wiring: event loop, run actors, process watch, configuration."""
