"""Where in the run the current thread or task is: a context variable, else the process's run."""

from __future__ import annotations

from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrund_client._recorder import Recorder
    from agentrund_client._source import Source
    from agentrund_client._steps import Step


class Place:
    """A recorder and the innermost step around the caller, None at the top of the run. Never changed."""

    __slots__ = ("recorder", "step")

    def __init__(self, recorder: Recorder, step: Step | None) -> None:
        self.recorder = recorder
        self.step = step


_place: ContextVar[Place | None] = ContextVar("agentrund_place", default=None)


def get_place() -> Place | None:
    """The place of this thread or task, None where none was set (a thread that was started bare)."""
    return _place.get()


def set_place(place: Place | None) -> None:
    """Move this thread or task; tasks started from now on inherit it."""
    _place.set(place)


def open_step(place: Place) -> Step | None:
    """The innermost step that is still open: a task may outlive the step it was started in."""
    step = place.step
    while step is not None and step.closed:
        step = step.above
    return step


def parent_of(place: Place, source: Source) -> str | None:
    """The `parent` of an event sent by `source` from this place."""
    step = open_step(place)
    if step is None or step.source is None:
        return source.top
    return step.span if step.source is source else f"{step.source.id}/{step.span}"


def agent_of(place: Place) -> str | None:
    """The name of the agent around this place."""
    step = place.step
    while step is not None and step.opens != "agent.start":
        step = step.above
    return None if step is None else step.name
