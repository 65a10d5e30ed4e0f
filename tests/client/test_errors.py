"""What becomes of exceptions."""

from __future__ import annotations

import asyncio
import threading

import pytest


class Refusing(Exception):
    """An exception that makes trouble."""

    def __str__(self):
        raise RuntimeError("no")

    def __setattr__(self, name, value):
        raise AttributeError(name)


def types(collector):
    return [event["type"] for event in collector.events]


def test_one_error_event_for_any_number_of_levels(client, collector):
    with (
        pytest.raises(ZeroDivisionError),
        client.run(),
        client.agent("a"),
        client.agent("b"),
        client.tool("t"),
    ):
        _ = 1 / 0
    collector.wait(lambda: collector.of_type("run.end"))
    assert types(collector) == [
        "agent.start", "agent.start", "tool.call", "tool.error", "error", "agent.end", "agent.end", "run.end",
    ]  # fmt: skip
    tool_error, error, b_end, a_end, run_end = collector.events[3:]
    assert tool_error["payload"] == {"error_type": "ZeroDivisionError", "error": "division by zero"}
    assert error["payload"]["error_type"] == "ZeroDivisionError"
    assert "test_errors.py" in error["payload"]["text"]
    assert error["parent"] == collector.events[1]["span"]
    assert [event["status"] for event in (tool_error, error, b_end, a_end)] == ["error"] * 4
    assert "error_type" not in b_end["payload"]
    assert run_end["status"] == "failed"


def test_a_failed_model_call(client, collector):
    with client.run(), pytest.raises(TimeoutError), client.llm("m"):
        raise TimeoutError("30 s")
    collector.wait(lambda: collector.of_type("run.end"))
    assert types(collector) == ["llm.prompt", "llm.error", "run.end"]
    assert collector.events[1]["payload"] == {"error_type": "TimeoutError", "error": "30 s"}
    assert collector.events[2]["status"] == "ok"


def test_a_handled_fault_leaves_the_run_ok(client, collector):
    with client.run():
        with pytest.raises(ValueError) as caught, client.tool("t"):
            raise ValueError("x")
        client.error(caught.value)
    collector.wait(lambda: collector.of_type("run.end"))
    assert types(collector) == ["tool.call", "tool.error", "error", "run.end"]
    assert collector.events[-1]["status"] == "ok"


def test_an_exception_reported_by_hand_is_not_reported_again(client, collector):
    fault = ValueError("x")
    with pytest.raises(ValueError), client.run(), client.agent("a"):  # noqa: PT012 - reported inside
        client.error(fault, "while planning", step=3)
        raise fault
    collector.wait(lambda: collector.of_type("run.end"))
    (error,) = collector.of_type("error")
    assert error["payload"]["message"] == "while planning"
    assert error["payload"]["step"] == 3


def test_error_by_type_and_message(client, collector):
    with client.run():
        client.error("RateLimited", "try later", retry=3)
        client.error(KeyError, "k")
        client.error()
    collector.wait(lambda: collector.of_type("run.end"))
    assert [event["payload"] for event in collector.of_type("error")] == [
        {"error_type": "RateLimited", "error": "try later", "retry": 3},
        {"error_type": "KeyError", "error": "k"},
        {"error_type": "Error", "error": ""},
    ]


@pytest.mark.parametrize(("code", "status", "errors"), [(0, "ok", 0), (None, "ok", 0), (3, "failed", 1)])
def test_system_exit(client, collector, code, status, errors):
    with pytest.raises(SystemExit), client.run(), client.agent("a"):
        raise SystemExit(code)
    collector.wait(lambda: collector.of_type("run.end"))
    assert collector.of_type("run.end")[0]["status"] == status
    assert len(collector.of_type("error")) == errors


def test_keyboard_interrupt_closes_every_step(client, collector):
    with pytest.raises(KeyboardInterrupt), client.run(), client.agent("a"), client.tool("t"):
        raise KeyboardInterrupt
    collector.wait(lambda: collector.of_type("run.end"))
    assert types(collector) == ["agent.start", "tool.call", "tool.error", "error", "agent.end", "run.end"]


def test_cancellation_closes_every_step(client, collector):
    async def main():
        async def work():
            async with client.agent("a"), client.tool("t"):
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with client.run():
        asyncio.run(main())
    collector.wait(lambda: collector.of_type("run.end"))
    assert collector.of_type("tool.error")[0]["payload"]["error_type"] == "CancelledError"
    assert collector.of_type("agent.end")[0]["status"] == "error"


def test_an_exception_that_makes_trouble(client, collector):
    with pytest.raises(Refusing), client.run(), client.agent("a"), client.agent("b"):
        raise Refusing
    collector.wait(lambda: collector.of_type("run.end"))
    assert len(collector.of_type("error")) == 1
    assert collector.of_type("error")[0]["payload"]["error_type"] == "Refusing"
    assert client.faults() == []


def test_explicit_status_wins(client, collector):
    with client.run() as run:
        run.end("failed", verdict="no")
        run.end("ok")
    collector.wait(lambda: collector.of_type("run.end"))
    (end,) = collector.of_type("run.end")
    assert (end["status"], end["payload"]) == ("failed", {"verdict": "no"})


def test_failing_without_an_exception(client, collector):
    with client.run():
        with client.tool("t") as step:
            step.fail("ExitCode", "returned 1")
            step.set(code=1)
        with client.agent("a") as step:
            step.fail(ValueError("bad plan"))
    collector.wait(lambda: collector.of_type("run.end"))
    assert types(collector) == ["tool.call", "tool.error", "agent.start", "error", "agent.end", "run.end"]
    assert collector.events[1]["payload"] == {"error_type": "ExitCode", "error": "returned 1", "code": 1}
    assert collector.events[4]["status"] == "error"


def test_a_thread_that_dies(client, collector, monkeypatch):
    seen = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type))
    from agentrund_client import _process

    _process._chain_hooks()

    def work():
        raise RuntimeError("in a thread")

    with client.run():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    collector.wait(lambda: collector.of_type("run.end"))
    assert collector.of_type("error")[0]["payload"]["error"] == "in a thread"
    assert seen == [RuntimeError]


def test_user_fields_with_the_contracts_names(client, collector):
    with client.run():
        with client.agent("a", name="n", type="t", status="s", self="x"):
            client.log("m", message="x", name="n", type="t", status="s", level="ERROR")
        with client.tool("t", name="n", type="t", status="s", self="x") as step:
            step.set(name="n", type="t", status="s", self="x", text="y")
            step.output = "out"
        client.state("s", name="n", status="s", kind="k")
    collector.wait(lambda: collector.of_type("run.end"))
    assert collector.of_type("agent.start")[0]["payload"] == {
        "name": "n",
        "type": "t",
        "status": "s",
        "self": "x",
    }
    log = collector.of_type("log")[0]
    assert log["payload"] == {
        "level": "ERROR", "message": "m", "message_": "x", "name": "n", "type": "t", "status": "s",
    }  # fmt: skip
    assert collector.of_type("tool.call")[0]["payload"]["args"]["name"] == "n"
    assert collector.of_type("tool.result")[0]["payload"]["text_"] == "y"
    assert client.faults() == []
