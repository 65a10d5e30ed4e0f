"""Event types: which open a step, which close one, which only the collector may write.

Source: the run-folder contract ("Event types") and the stream protocol ("event").
"""

from __future__ import annotations

from typing import Final

AGENT_START: Final = "agent.start"
AGENT_END: Final = "agent.end"
LLM_PROMPT: Final = "llm.prompt"
LLM_RESPONSE: Final = "llm.response"
LLM_ERROR: Final = "llm.error"
TOOL_CALL: Final = "tool.call"
TOOL_RESULT: Final = "tool.result"
TOOL_ERROR: Final = "tool.error"
ERROR: Final = "error"
LOG: Final = "log"

RUN_START: Final = "run.start"
RUN_RESUME: Final = "run.resume"
RUN_END: Final = "run.end"
SOURCE_JOIN: Final = "source.join"
SOURCE_EXIT: Final = "source.exit"

OPENERS: Final = frozenset({AGENT_START, LLM_PROMPT, TOOL_CALL})

CLOSES: Final = {
    AGENT_END: AGENT_START,
    LLM_RESPONSE: LLM_PROMPT,
    LLM_ERROR: LLM_PROMPT,
    TOOL_RESULT: TOOL_CALL,
    TOOL_ERROR: TOOL_CALL,
}
"""Closing type to the opening type it ends."""

LIFECYCLE: Final = frozenset({RUN_START, RUN_RESUME, RUN_END, SOURCE_JOIN, SOURCE_EXIT})
"""Records about the run and its sources, not about the agent's work."""

RESERVED: Final = frozenset({RUN_START, RUN_RESUME, SOURCE_JOIN, SOURCE_EXIT})
"""Types a client may not send."""

IDENTITY_KEYS: Final = ("source", "pid", "pid_start", "boot_id", "uid")
"""Payload keys of the lifecycle records that say which process a source is."""


def is_reserved(event_type: str) -> bool:
    """Whether only the collector writes this type (``run.start``, ``run.resume``, ``source.*``)."""
    return event_type in RESERVED or event_type.startswith("source.")
