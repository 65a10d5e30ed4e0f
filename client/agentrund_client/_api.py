"""The functions an agent calls. Every one is guarded: none raises, none blocks, whatever it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentrund_client._clean import merged, name_of, text_of
from agentrund_client._context import get_place, open_step, parent_of
from agentrund_client._discover import disabled
from agentrund_client._environment import PARENT, RUN_ID
from agentrund_client._guard import guarded, nothing
from agentrund_client._messages import prompt_keys
from agentrund_client._process import FORK_PATIENCE, main_recorder, start_recorder, the_place
from agentrund_client._run import Run
from agentrund_client._steps import Agent, Llm, Step, Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

_LEVELS = {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR", 50: "CRITICAL"}
_RESERVED = ("run.start", "run.resume", "run.end", "source.")


def _no_env() -> dict[str, str]:
    return {}


def _no_step() -> Step | Run | None:
    return None


@guarded(lambda: Run(None, owns=False))
def run(
    session_id: str | None = None,
    *,
    framework: str | None = None,
    framework_version: str | None = None,
    model: str | None = None,
    task: str | None = None,
    tags: Iterable[str] = (),
    guardrails: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Run:
    """Start a run, or resume the session's, or join the run that AGENTRUND_RUN_ID names.

    Where a run is active already (in this context, else in this process) a handle on that one is returned,
    unless another `session_id` is asked for: that is a run of its own.
    """
    if disabled():
        return Run(None, owns=False)
    session = name_of(session_id) or None
    place = get_place()
    active = main_recorder() if place is None else place.recorder
    if active is not None and not active.ended and session in {None, active.session_id}:
        return Run(active, owns=False)
    recorder = start_recorder(
        session,
        guardrails,
        meta,
        tags,
        framework=framework,
        framework_version=framework_version,
        model=model,
        task=task,
    )
    return Run(recorder, owns=True)


@guarded(lambda: Agent(None, {}))
def agent(name: Any = None, /, **fields: Any) -> Agent:
    """An agent at work, as a context manager; the fields go into `agent.start`."""
    if name is None:
        name = fields.pop("name", None)
    return Agent(name, fields)


@guarded(lambda: Llm(None, {}))
def llm(
    model: Any = None,
    /,
    *,
    name: Any = None,
    messages: Any = None,
    text: Any = None,
    tokens_in: int | None = None,
    **fields: Any,
) -> Llm:
    """A model call. `messages` is the conversation (a list of dicts or objects) or only its length.

    Set what comes back on the handle: `step.result(text, stop_reason=…, tokens_out=…, cost_usd=…)`.
    """
    opening = prompt_keys(messages, text)
    model = fields.pop("model", None) if model is None else model
    for key, value in (("model", name_of(model)), ("tokens_in", tokens_in)):
        if value is not None:
            opening[key] = value
    return Llm(name, merged(opening, fields))


@guarded(lambda: Tool(None, {}))
def tool(name: Any = None, /, **args: Any) -> Tool:
    """A tool at work, as a context manager: its arguments go into `args`, what it gives into `.output`."""
    return Tool(name, {"args": args})


@guarded(nothing)
def log(message: Any = None, /, level: Any = "INFO", **fields: Any) -> None:
    """A log line, with fields of your own. `level` is a name or one of logging's numbers."""
    shown = level.upper() if type(level) is str else _LEVELS.get(level) if isinstance(level, int) else None
    shown = shown or (name_of(level) or "INFO").upper()
    _point("log", None, merged({"level": shown, "message": text_of(message)}, fields), shown)


@guarded(nothing)
def error(error: Any = None, message: Any = None, /, **fields: Any) -> None:
    """Record a fault: an exception (with its traceback, once), or an error's type and a message."""
    place = the_place()
    if place is None:
        return
    if isinstance(error, BaseException):
        place.recorder.report(
            error, place, **({} if message is None else {"message": message} | fields) or fields
        )
        return
    error_type = error.__name__ if isinstance(error, type) else name_of(error) or "Error"
    place.recorder.emit_error(place, error_type, text_of(message), None, fields)


@guarded(nothing)
def state(name: Any = None, /, **fields: Any) -> None:
    """The agent's state changed: an event `state.update`."""
    _point("state.update", name_of(name), fields, None)


@guarded(nothing)
def event(kind: Any, name: Any = None, /, **payload: Any) -> None:
    """An event of another type (`turn.start`, your own): letters, digits, `_`, `.`, `-`, at most 64."""
    text = "".join(
        char if char.isascii() and (char.isalnum() or char in "_.-") else "_" for char in name_of(kind) or ""
    )[:64]
    _point(f"x.{text}"[:64] if not text or text.startswith(_RESERVED) else text, name_of(name), payload, None)


@guarded(lambda: False)
def flush(timeout: float = 5.0) -> bool:
    """True once everything sent so far is on the collector's stable storage.

    False after `timeout` seconds, and at once where there is no collector (the lines are in the spool then).
    """
    place = get_place()
    recorder = main_recorder() if place is None else place.recorder
    return recorder is not None and recorder.source.link.flush(float(timeout))


def current() -> Step | Run | None:
    """The innermost open step around the caller, else the active run, else None."""
    return _current()


@guarded(_no_env)
def child_env() -> dict[str, str]:
    """What a child process needs to join this run below the current step; for `subprocess`'s `env`.

    Waits up to 0.2 s for the run's id where the collector has been greeted and has not answered yet.
    """
    place = the_place()
    if place is None:
        return {}
    source = place.recorder.source
    source.link.wait_welcome(FORK_PATIENCE)
    parent = parent_of(place, source)
    if parent is None or "/" not in parent:
        parent = f"{source.id}/{parent or ''}"
    run_id = source.link.hello.get("run_id")
    return {PARENT: parent} if run_id is None else {RUN_ID: run_id, PARENT: parent}


def artifact_dir() -> Path:
    """The run's `artifacts/` folder, made when first asked for. Without a collector a private folder."""
    return _run_here().artifact_dir()


def artifact(path: Any) -> Path:
    """A path for a file below `artifact_dir()`, parent folders made."""
    return _run_here().artifact(path)


def _point(kind: str, name: str | None, payload: dict[str, Any], status: str | None) -> None:
    place = the_place()
    if place is not None:
        source = place.recorder.source
        source.emit(kind, name, payload, parent=parent_of(place, source), status=status)


@guarded(_no_step)
def _current() -> Step | Run | None:
    place = get_place()
    if place is not None and (step := open_step(place)) is not None:
        return step
    recorder = main_recorder() if place is None else place.recorder
    return None if recorder is None or recorder.ended else Run(recorder, owns=False)


@guarded(lambda: Run(None, owns=False))
def _run_here() -> Run:
    place = the_place()
    return Run(None if place is None else place.recorder, owns=False)
