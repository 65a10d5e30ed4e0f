"""The three kinds of step an agent takes, as context managers: agent, model call, tool call.

Each sends its opening event when the block is entered, so that a killed process leaves its open steps behind,
and its closing event when the block is left.
"""

from __future__ import annotations

import time
from types import TracebackType

from agentrund_client._clean import merged, name_of, safe_str, text_of
from agentrund_client._context import Place, agent_of, get_place, open_step, parent_of, set_place
from agentrund_client._guard import guarded, nothing
from agentrund_client._process import the_place
from agentrund_client._recorder import Recorder, is_fault
from agentrund_client._source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Self


class Step:
    """A handle on one step: `with` or `async with`, `.set(…)`, `.output = …`, `.result(…)`, `.fail(…)`.

    A handle is entered once. Nothing on it raises, and it lets every exception of the block pass.
    """

    opens: ClassVar[str]
    closes: ClassVar[str]
    fails: ClassVar[str]

    def __init__(self, name: Any, opening: dict[str, Any]) -> None:
        self.name = name_of(name)
        self.span: str | None = None
        self.closed = False
        self.source: Source | None = None
        self.above: Step | None = None
        self._opening = opening
        self._fields: dict[str, Any] = {}
        self._output: Any = None
        self._failure: tuple[str, str] | None = None
        self._recorder: Recorder | None = None
        self._outer: Place | None = None
        self._began = 0.0

    @property
    def output(self) -> Any:
        """What the step produced: strings as they are, anything else as JSON; sent when the step ends."""
        return self._output

    @output.setter
    def output(self, value: Any) -> None:
        self._output = value

    @guarded(nothing)
    def set(self, /, **fields: Any) -> None:
        """Add fields to the closing event."""
        self._fields.update(fields)

    @guarded(nothing)
    def result(self, output: Any = None, /, **fields: Any) -> None:
        """Set the output and further fields of the closing event."""
        self._output = output
        self._fields.update(fields)

    @guarded(nothing)
    def fail(self, error: Any, message: Any = None, /) -> None:
        """Let the step fail without an exception leaving it: give a handled exception, or an error's type."""
        self._failure = _described(error, message)

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit(fault)

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit(fault)

    @guarded(nothing)
    def _enter(self) -> None:
        place = the_place()
        if place is None or self.source is not None:
            return
        self._outer = get_place()
        self._recorder = place.recorder
        self.source = source = place.recorder.source
        self.above = open_step(place)
        self.span = str(source.next_span())
        self._began = time.monotonic()
        parent = parent_of(place, source)
        set_place(Place(place.recorder, self))
        source.emit(self.opens, self._shown_name(place), self._opening, span=self.span, parent=parent)

    @guarded(nothing)
    def _exit(self, fault: BaseException | None) -> None:
        recorder, source = self._recorder, self.source
        if recorder is None or source is None or self.closed:
            return
        place = get_place()
        inside = Place(recorder, self)
        try:
            if fault is not None and is_fault(fault):
                self._failure = _described(fault, None)
                self._report(recorder, inside, fault)
        finally:
            self.closed = True
            if place is not None and place.step is self:
                set_place(self._outer)
            # A forked child that leaves its parent's block does not close the parent's step.
            if recorder.source is source:
                self._close(source, inside)

    def _close(self, source: Source, inside: Place) -> None:
        kind, payload, status = self._closing()
        dur_ms = int((time.monotonic() - self._began) * 1000)
        name = self._shown_name(inside)
        source.emit(kind, name, payload, span=self.span, status=status, dur_ms=dur_ms)

    def _closing(self) -> tuple[str, dict[str, Any], str]:
        """Type, payload and status of the closing event."""
        text = text_of(self._output)
        fields = self._fields if text is None else merged({"text": text}, self._fields)
        if self._failure is None:
            return self.closes, fields, "ok"
        error_type, error = self._failure
        return self.fails, merged({"error_type": error_type, "error": error}, fields), "error"

    def _report(self, recorder: Recorder, inside: Place, fault: BaseException) -> None:
        """Only an agent reports what leaves it as an `error` event."""

    def _shown_name(self, place: Place) -> str | None:  # noqa: ARG002 - model calls look around
        return self.name


class Agent(Step):
    """An agent at work. An exception that leaves it is one `error` event, whatever the number of levels."""

    opens, closes, fails = "agent.start", "agent.end", "agent.end"

    def _report(self, recorder: Recorder, inside: Place, fault: BaseException) -> None:
        recorder.report(fault, inside)

    def _closing(self) -> tuple[str, dict[str, Any], str]:
        # Errors are counted by error_type, and this one has been counted: the ending only has the status.
        kind, payload, status = super()._closing()
        if status == "error":
            payload = {key: value for key, value in payload.items() if key not in {"error_type", "error"}}
        return kind, payload, status

    @guarded(nothing)
    def fail(self, error: Any, message: Any = None, /) -> None:
        """The agent failed without an exception leaving it; sends the `error` event."""
        self._failure = _described(error, message)
        if self._recorder is not None:
            inside = Place(self._recorder, self)
            if isinstance(error, BaseException):
                self._recorder.report(error, inside)
            else:
                self._recorder.emit_error(inside, *self._failure, None, {})


class Llm(Step):
    """A call of a model."""

    opens, closes, fails = "llm.prompt", "llm.response", "llm.error"

    def _shown_name(self, place: Place) -> str | None:
        """Calls are shown under the agent that makes them, unless they have a name of their own."""
        return self.name if self.name is not None else agent_of(place)


class Tool(Step):
    """A call of a tool."""

    opens, closes, fails = "tool.call", "tool.result", "tool.error"


def _described(error: Any, message: Any) -> tuple[str, str]:
    """Type and message of a fault, given as an exception, an exception's type, or text."""
    if isinstance(error, BaseException):
        return type(error).__name__, safe_str(error) if message is None else text_of(message) or ""
    error_type = error.__name__ if isinstance(error, type) else name_of(error) or "Error"
    return error_type, text_of(message) or ""
