"""The decorator."""

from __future__ import annotations

import asyncio
import functools

import pytest


def test_plain_function(client, collector):
    @client.traced
    def add(a, b=2, *rest, c=0, **more):
        """Adds."""
        return {"sum": a + b}

    assert add.__name__ == "add"
    assert add.__doc__ == "Adds."
    with client.run():
        assert add(1, 2, 3, 4, c=5, d=6) == {"sum": 3}
    collector.wait(lambda: collector.of_type("run.end"))
    call, result, _ = collector.events
    assert call["name"] == "add"
    assert call["payload"] == {"args": {"a": 1, "b": 2, "rest": [3, 4], "c": 5, "d": 6}}
    assert result["payload"] == {"text": '{"sum": 3}'}


def test_method_without_self_and_options(client, collector):
    class Planner:
        @client.traced("plan", kind="agent", output=False)
        def plan(self, goal):
            return goal

        @client.traced(args=False)
        def quiet(self, secret):
            return None

    with client.run():
        Planner().plan("x")
        Planner().quiet("y")
    collector.wait(lambda: collector.of_type("run.end"))
    assert [(event["type"], event.get("name"), event["payload"]) for event in collector.events[:-1]] == [
        ("agent.start", "plan", {"goal": "x"}),
        ("agent.end", "plan", {}),
        ("tool.call", "quiet", {"args": {}}),
        ("tool.result", "quiet", {}),
    ]


def test_coroutine_and_model_call(client, collector):
    @client.traced(kind="llm")
    async def ask(messages, temperature):
        await asyncio.sleep(0)
        return "answer"

    with client.run():
        assert asyncio.run(ask([{"role": "user", "content": "hi"}], temperature=0)) == "answer"
    collector.wait(lambda: collector.of_type("run.end"))
    prompt, response, _ = collector.events
    assert (prompt["type"], prompt["payload"]["messages"], prompt["payload"]["text"]) == (
        "llm.prompt",
        1,
        "[user]\nhi",
    )
    assert prompt["payload"]["temperature"] == 0
    assert response["payload"] == {"text": "answer"}


def test_failure_passes(client, collector):
    @client.traced
    def broken():
        raise KeyError("k")

    with client.run(), pytest.raises(KeyError):
        broken()
    collector.wait(lambda: collector.of_type("run.end"))
    assert collector.events[1]["type"] == "tool.error"


def test_generator_surrounds_only_its_own_code(client, collector):
    @client.traced
    def numbers(n):
        got = []
        for i in range(n):
            client.log("inside")
            got.append((yield i))
        return got

    with client.run():
        generator = numbers(2)
        assert next(generator) == 0
        client.log("outside")
        assert generator.send("a") == 1
        with pytest.raises(StopIteration) as stop:
            generator.send("b")
        assert stop.value.value == ["a", "b"]
        client.log("after")
    collector.wait(lambda: collector.of_type("run.end"))
    span = collector.of_type("tool.call")[0]["span"]
    assert [(event["payload"]["message"], event.get("parent")) for event in collector.of_type("log")] == [
        ("inside", span), ("outside", None), ("inside", span), ("after", None),
    ]  # fmt: skip
    assert collector.of_type("tool.result")[0]["payload"] == {"text": '["a", "b"]', "items": 2}


def test_generator_closed_early_and_thrown_into(client, collector):
    closed = []

    @client.traced
    def numbers():
        try:
            yield 1
            yield 2
        except ValueError:
            yield "caught"
        finally:
            closed.append(True)

    with client.run():
        first = numbers()
        next(first)
        first.close()
        second = numbers()
        next(second)
        assert second.throw(ValueError("x")) == "caught"
        second.close()
    assert closed == [True, True]
    collector.wait(lambda: collector.of_type("run.end"))
    assert [event["status"] for event in collector.of_type("tool.result")] == ["ok", "ok"]


def test_async_generator(client, collector):
    @client.traced(kind="agent")
    async def stream():
        for word in ("a", "b"):
            client.log("inside")
            yield word

    async def main():
        words = []
        async for word in stream():
            client.log("outside")
            words.append(word)
        return words

    with client.run():
        assert asyncio.run(main()) == ["a", "b"]
    collector.wait(lambda: collector.of_type("run.end"))
    span = collector.of_type("agent.start")[0]["span"]
    assert [event.get("parent") for event in collector.of_type("log")] == [span, None, span, None]
    assert collector.of_type("agent.end")[0]["payload"] == {"items": 2}


class Counter:
    def __call__(self, text):
        return len(text)


@pytest.mark.parametrize("target", [functools.partial(max, 1), len, str, Counter()])
def test_things_that_are_no_plain_functions(client, collector, target):
    argument = 2 if isinstance(target, functools.partial) else "ab"
    with client.run():
        assert client.traced(target)(argument) == target(argument)
    collector.wait(lambda: collector.of_type("run.end"))
    assert collector.events[0]["payload"] == {"args": {"args": [argument]}}


def test_switched_off(client, monkeypatch):
    monkeypatch.setenv("AGENTRUND_DISABLED", "1")

    @client.traced
    def numbers():
        yield 1

    assert list(numbers()) == [1]
    with client.run() as run, client.agent("a") as step, client.tool("t"):
        step.output = 1
        client.log("x")
        client.error(ValueError())
        assert not client.flush(0)
        assert run.run_id is None
        assert client.current() is None
        assert client.child_env() == {}
        assert client.artifact_dir().is_dir()
    assert client.faults() == []
