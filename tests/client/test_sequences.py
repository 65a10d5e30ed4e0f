"""Which events the calls send, in which order, with which keys."""

from __future__ import annotations

import pytest


def brief(events):
    return [(event["type"], event.get("name"), event.get("status")) for event in events]


def test_the_example_run(client, collector):
    with client.run("session-7", model="m", task="explore", tags=["nightly"]) as run:
        with client.agent("planner", goal="x"):
            with client.llm("m", messages=[{"role": "user", "content": "hi"}], tokens_in=3) as call:
                call.result("hello", stop_reason="end_turn", tokens_out=2, cost_usd=0.01)
            with client.tool("search", query="q") as step:
                step.output = {"hits": 3}
            client.log("done", level="warning", left=2)
            client.state("memory", size=7)
        assert run.flush(20)
        assert (run.run_id, run.role) == (collector.runs[run.source], "owner")
    collector.wait(lambda: collector.of_type("run.end"))
    events = collector.events
    assert brief(events) == [
        ("agent.start", "planner", None),
        ("llm.prompt", "planner", None),
        ("llm.response", "planner", "ok"),
        ("tool.call", "search", None),
        ("tool.result", "search", "ok"),
        ("log", None, "WARNING"),
        ("state.update", "memory", None),
        ("agent.end", "planner", "ok"),
        ("run.end", None, "ok"),
    ]
    assert [event["n"] for event in events] == list(range(1, 10))
    payloads = [event["payload"] for event in events]
    assert payloads[0] == {"goal": "x"}
    assert payloads[1] == {
        "messages": 1, "input": [{"role": "user", "content": "hi"}], "text": "[user]\nhi", "model": "m", "tokens_in": 3,
    }  # fmt: skip
    assert payloads[2] == {"text": "hello", "stop_reason": "end_turn", "tokens_out": 2, "cost_usd": 0.01}
    assert payloads[3] == {"args": {"query": "q"}}
    assert payloads[4] == {"text": '{"hits": 3}'}
    assert payloads[5] == {"level": "WARNING", "message": "done", "left": 2}
    assert payloads[6] == {"size": 7}
    hello = collector.hellos[0]
    assert hello["session_id"] == "session-7"
    assert (hello["model"], hello["task"], hello["tags"]) == ("m", "explore", ["nightly"])


@pytest.mark.parametrize("kind", ["agent", "llm", "tool"])
def test_parents_and_spans(client, collector, kind):
    with client.run(), getattr(client, kind)("outer"), client.tool("inner"):
        client.log("x")
    collector.wait(lambda: collector.of_type("run.end"))
    outer, inner, log, inner_end, outer_end, _ = collector.events
    assert "parent" not in outer
    assert inner["parent"] == outer["span"]
    assert log["parent"] == inner["span"]
    assert (inner_end["span"], outer_end["span"]) == (inner["span"], outer["span"])
