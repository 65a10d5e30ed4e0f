"""The handle on a run that `run()` returns."""

from __future__ import annotations

from types import TracebackType

from agentrund_client._clean import name_of
from agentrund_client._context import Place, get_place, set_place
from agentrund_client._guard import guarded, nothing
from agentrund_client._recorder import Recorder, is_fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, Self


class Run:
    """A run, started when the handle was made. Usable as it is, or as `with` or `async with`, which ends it.

    Leaving the block ends the run `ok`, or `failed` when a fault leaves it; an earlier `end(status)` wins.
    A handle on a run that was active already (`owns` is False) does not end it.
    """

    def __init__(self, recorder: Recorder | None, *, owns: bool) -> None:
        """`recorder` is None when the client is switched off."""
        self.owns = owns
        self._recorder = recorder
        self._outer = get_place()
        if recorder is not None and (self._outer is None or self._outer.recorder is not recorder):
            set_place(Place(recorder, None))

    @property
    def run_id(self) -> str | None:
        """The run's id, None until the collector has answered."""
        return self._welcome("run_id")

    @property
    def dir(self) -> str | None:
        """The run's folder, None until the collector has answered."""
        return self._welcome("dir")

    @property
    def role(self) -> str | None:
        """`owner` or `member`, None until the collector has answered."""
        return self._welcome("role")

    @property
    def session_id(self) -> str | None:
        """The session the run was started with."""
        return None if self._recorder is None else self._recorder.session_id

    @property
    def source(self) -> str | None:
        """The source id of this process in the run."""
        return None if self._recorder is None else self._recorder.source.id

    @guarded(nothing)
    def end(self, status: Any = None, /, **fields: Any) -> None:
        """End the run: `ok`, `failed`, or without a word (then it failed if anything in it did)."""
        if self._recorder is None or not self.owns:
            return
        self._recorder.end(name_of(status), fields)
        place = get_place()
        if place is not None and place.recorder is self._recorder:
            set_place(self._outer)

    @guarded(lambda: False)
    def flush(self, timeout: float = 5.0) -> bool:
        """As the function `flush`, for this run."""
        return self._recorder is not None and self._recorder.source.link.flush(float(timeout))

    def artifact_dir(self) -> Path:
        """As the function `artifact_dir`, for this run."""
        from agentrund_client._artifacts import folder_of  # noqa: PLC0415 - pathlib costs 5 ms of import

        return folder_of(self._recorder)

    def artifact(self, path: Any) -> Path:
        """As the function `artifact`, for this run."""
        from agentrund_client._artifacts import file_of  # noqa: PLC0415 - pathlib costs 5 ms of import

        return file_of(self._recorder, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(fault)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(fault)

    @guarded(nothing)
    def _leave(self, fault: BaseException | None) -> None:
        if self._recorder is None or not self.owns or self._recorder.ended:
            return
        if fault is not None and is_fault(fault):
            self._recorder.report(fault, Place(self._recorder, None))
            self.end("failed")
        else:
            self.end("ok")

    def _welcome(self, key: str) -> str | None:
        welcome = None if self._recorder is None else self._recorder.source.link.welcome
        value = None if welcome is None else welcome.get(key)
        return value if isinstance(value, str) else None
