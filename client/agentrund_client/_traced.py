"""The `traced` decorator: a function's call as a step."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from types import CodeType

from agentrund_client._clean import name_of
from agentrund_client._context import get_place, set_place
from agentrund_client._guard import guarded, note_fault
from agentrund_client._messages import prompt_keys
from agentrund_client._steps import Agent, Llm, Step, Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar, overload

    F = TypeVar("F", bound=Callable[..., Any])

# The flags of a code object (inspect names them, at 10 ms of import).
_HAS_ARGS, _HAS_KWARGS, _GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x80, 0x200


if TYPE_CHECKING:

    @overload
    def traced(function: F, /) -> F: ...
    @overload
    def traced(
        name: str | None = None, /, *, kind: str = "tool", args: bool = True, output: bool = True
    ) -> Callable[[F], F]: ...


def traced(function: Any = None, /, *, kind: Any = "tool", args: Any = True, output: Any = True) -> Any:
    """Record each call of a function as a step: `@traced`, `@traced("name")`, `@traced(kind="agent")`.

    `kind` is `tool`, `agent` or `llm`. Arguments go into the opening event, the return value into the
    closing one, unless `args` or `output` is False. Plain functions, coroutines, generators and
    asynchronous generators.
    """
    if callable(function):
        return _wrap(function, None, kind, args, output)
    return lambda target: _wrap(target, function, kind, args, output)


def _wrap(function: Any, name: Any, kind: Any, args: Any, output: Any) -> Any:
    try:
        return _wrapped(function, name, kind, args, output)
    except Exception as fault:  # noqa: BLE001 - a decorator must leave the function usable
        note_fault(fault, "traced")
        return function


def _wrapped(function: Any, name: Any, kind: Any, args: Any, output: Any) -> Any:
    shown = name_of(name) or name_of(getattr(function, "__name__", None)) or type(function).__name__
    code = getattr(function, "__code__", None)
    flags = code.co_flags if isinstance(code, CodeType) else 0

    def no_step() -> Step:
        return Tool(shown, {})

    @guarded(no_step)
    def step(given: tuple[Any, ...], named: dict[str, Any]) -> Step:
        return _step(kind, shown, _bound(code, given, named) if args else {})

    if flags & _COROUTINE:
        wrapper = _coroutine(function, step, output)
    elif flags & _GENERATOR:
        wrapper = _generator(function, step)
    elif flags & _ASYNC_GENERATOR:
        wrapper = _async_generator(function, step)
    else:
        wrapper = _plain(function, step, output)
    return functools.wraps(function)(wrapper)


def _step(kind: Any, name: str, bound: dict[str, Any]) -> Step:
    if kind == "agent":
        return Agent(name, bound)
    if kind == "llm":
        return Llm(name, {**prompt_keys(bound.pop("messages", None), bound.pop("text", None)), **bound})
    return Tool(name, {"args": bound})


def _bound(code: Any, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, without `self` and `cls`."""
    if not isinstance(code, CodeType):
        return {**({"args": list(given)} if given else {}), **named}
    names = code.co_varnames[: code.co_argcount]
    bound = dict(zip(names, given, strict=False))
    if names[:1] in {("self",), ("cls",)}:
        bound.pop(names[0], None)
    rest = given[len(names) :]
    if rest and code.co_flags & _HAS_ARGS:
        bound[code.co_varnames[code.co_argcount + code.co_kwonlyargcount]] = list(rest)
    return {**bound, **named}


def _plain(function: Any, step: Any, output: Any) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        with step(given, named) as handle:
            value = function(*given, **named)
            if output:
                handle.output = value
            return value

    return call


def _coroutine(function: Any, step: Any, output: Any) -> Callable[..., Any]:
    async def call(*given: Any, **named: Any) -> Any:
        with step(given, named) as handle:
            value = await function(*given, **named)
            if output:
                handle.output = value
            return value

    return call


def _generator(function: Any, step: Any) -> Callable[..., Any]:
    """The step lasts from the first item to the end; it surrounds the generator's code, not its caller's."""

    def call(*given: Any, **named: Any) -> Generator[Any, Any, Any]:
        generator = function(*given, **named)
        handle = step(given, named)
        pause = _Pause(handle)
        advance: Callable[[], Any] = functools.partial(next, generator)
        try:
            with handle:
                while True:
                    try:
                        item = advance()
                    except StopIteration as stop:
                        handle.output = stop.value
                        return stop.value
                    try:
                        with pause:
                            sent = yield item
                    except GeneratorExit:
                        generator.close()
                        raise
                    except BaseException as thrown:  # noqa: BLE001 - handed on into the generator
                        advance = functools.partial(generator.throw, thrown)
                    else:
                        advance = functools.partial(generator.send, sent)
        finally:
            set_place(pause.outer)

    return call


def _async_generator(function: Any, step: Any) -> Callable[..., Any]:
    """As `_generator`, for `async for`."""

    async def call(*given: Any, **named: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*given, **named)
        handle = step(given, named)
        pause = _Pause(handle)
        advance: Callable[[], Any] = generator.__anext__
        try:
            with handle:
                while True:
                    try:
                        item = await advance()
                    except StopAsyncIteration:
                        return
                    try:
                        with pause:
                            sent = yield item
                    except GeneratorExit:
                        await generator.aclose()
                        raise
                    except BaseException as thrown:  # noqa: BLE001 - handed on into the generator
                        advance = functools.partial(generator.athrow, thrown)
                    else:
                        advance = functools.partial(generator.asend, sent)
        finally:
            set_place(pause.outer)

    return call


class _Pause:
    """Around a yield: the caller is where he was, not inside the generator's step. Counts the items."""

    def __init__(self, step: Step) -> None:
        self.outer = get_place()
        self._inside = self.outer
        self._step = step
        self._items = 0

    def __enter__(self) -> None:
        self._items += 1
        self._step.set(items=self._items)
        self._inside = get_place()
        set_place(self.outer)

    def __exit__(self, *_: object) -> None:
        self.outer = get_place()
        set_place(self._inside)
