"""A program's part in one run: its source, made anew in a forked child, and the faults it has reported."""

from __future__ import annotations

import os

from agentrund_client import _environment
from agentrund_client._clean import merged, safe_str
from agentrund_client._context import Place, get_place, parent_of
from agentrund_client._guard import traceback_of
from agentrund_client._handin import hand_in_orphans
from agentrund_client._source import Source
from agentrund_client._wire import Frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Where an exception carries the mark that it has been reported, and in which run.
_MARK = "__agentrund_reported__"


class Recorder:
    """What all handles, threads and tasks of a program share about one run."""

    def __init__(self, opening: Frame, *, run_id: str | None, parent: str | None, exports: bool) -> None:
        """`run_id` and `parent` come from the environment; `exports` passes the run on to child processes."""
        self.session_id: str | None = opening["session_id"]
        self.waited_for_fork = False
        self._opening = opening
        self._exports = exports
        source = Source(opening, run_id=run_id, parent=parent, on_welcome=self._welcome)
        self._source = self._first = source
        self._by_pid = {source.pid: source}
        if exports:
            _environment.export(_environment.PARENT, source.parent or f"{source.id}/")

    @property
    def source(self) -> Source:
        """The source of this process. Not every fork calls Python's hooks, so the pid is compared."""
        source = self._source
        return source if source.pid == os.getpid() else self.fork()

    @property
    def ended(self) -> bool:
        """Whether this process has ended its part."""
        return self.source.ended

    def fork(self) -> Source:
        """In a forked child: a source of its own in the same run. It says hello with its first event."""
        old = self._source
        if old.pid == os.getpid():
            return old
        old.link.abandon()
        child = Source(
            self._opening,
            run_id=old.link.hello.get("run_id"),
            parent=self._fork_point(old),
            on_welcome=self._welcome,
        )
        # setdefault is atomic: where two threads of a child notice the fork at once, one source wins.
        self._source = self._by_pid.setdefault(child.pid, child)
        return self._source

    def report(self, fault: BaseException, place: Place, /, **fields: Any) -> None:
        """Send an exception as one `error` event, the first time this run hears of it."""
        source = self.source
        if getattr(fault, _MARK, None) == source.id:
            return
        _mark(fault, source.id)
        text = traceback_of(fault) if fault.__traceback__ else None
        self.emit_error(place, type(fault).__name__, safe_str(fault), text, fields)

    def emit_error(
        self, place: Place, error_type: str, message: str | None, text: str | None, fields: dict[str, Any]
    ) -> None:
        """Send an `error` event; `text` is a traceback."""
        payload: dict[str, Any] = {"error_type": error_type, "error": message or ""}
        if text is not None:
            payload["text"] = text
        payload = merged(payload, fields)
        source = self.source
        source.emit("error", None, payload, parent=parent_of(place, source), status="error")

    def end(self, status: str | None, fields: dict[str, Any]) -> None:
        """Send this process's `run.end`, once; a forked child that has said nothing says nothing now."""
        source = self.source
        if source.ended:
            return
        source.ended = True
        if self._exports:
            _environment.restore()
        if source.link.n or source is self._first:
            source.emit("run.end", None, fields, status=status, must=True)
            source.link.end()

    def _fork_point(self, old: Source) -> str:
        """`source/span` of the step around the fork."""
        place = get_place()
        inside = parent_of(place, old) if place is not None and place.recorder is self else None
        if inside is None:
            return old.parent or f"{old.id}/"
        return inside if "/" in inside else f"{old.id}/{inside}"

    def _welcome(self, frame: Frame) -> None:
        hand_in_orphans()
        run_id = frame.get("run_id")
        if self._exports and isinstance(run_id, str) and not self._source.ended:
            _environment.export(_environment.RUN_ID, run_id)


def is_fault(leaving: BaseException | None) -> bool:
    """Is what leaves a block a fault? A generator that is closed early and `sys.exit(0)` are none."""
    if leaving is None or isinstance(leaving, GeneratorExit):
        return False
    return not (isinstance(leaving, SystemExit) and leaving.code in {None, 0})


def _mark(fault: BaseException, source_id: str) -> None:
    try:
        # Past a __setattr__ of the exception's own, which may refuse.
        object.__setattr__(fault, _MARK, source_id)
    except (AttributeError, TypeError):  # then it may be reported twice
        return
