"""Parents over tasks, threads and several runs."""

from __future__ import annotations

import asyncio
import contextvars
import threading


def in_thread(function, *args):
    thread = threading.Thread(target=function, args=args)
    thread.start()
    thread.join()


def by_name(collector):
    return {
        event["name"]: event for event in collector.events if event.get("name") and not event.get("status")
    }


def test_tasks_nest_below_the_step_they_were_started_in(client, collector):
    async def work(name: str):
        async with client.agent(name):
            await asyncio.sleep(0)
            async with client.tool(f"{name}-tool"):
                await asyncio.sleep(0)

    async def main():
        async with client.run(), client.agent("root"):
            await asyncio.gather(*(work(f"a{i}") for i in range(5)))

    asyncio.run(main())
    collector.wait(lambda: collector.of_type("run.end"))
    events = by_name(collector)
    for i in range(5):
        assert events[f"a{i}"]["parent"] == events["root"]["span"]
        assert events[f"a{i}-tool"]["parent"] == events[f"a{i}"]["span"]


def test_a_bare_thread_lands_in_the_run_at_its_top(client, collector):
    def worker():
        client.log("from a thread")
        with client.tool("t"):
            client.log("inside")

    with client.run(), client.agent("main"):
        in_thread(worker)
    collector.wait(lambda: collector.of_type("run.end"))
    assert len(collector.hellos) == 1
    first, inside = collector.of_type("log")
    assert "parent" not in first
    assert "parent" not in by_name(collector)["t"]
    assert inside["parent"] == by_name(collector)["t"]["span"]


def test_a_thread_with_a_copied_context_nests(client, collector):
    with client.run(), client.agent("main"):
        in_thread(contextvars.copy_context().run, client.log, "x")
    collector.wait(lambda: collector.of_type("run.end"))
    assert collector.of_type("log")[0]["parent"] == by_name(collector)["main"]["span"]


def test_a_task_that_outlives_its_step_falls_to_the_next_open_one(client, collector):
    async def main():
        gate = asyncio.Event()

        async def late():
            await gate.wait()
            client.log("late")

        with client.agent("outer"):
            with client.agent("inner"):
                task = asyncio.create_task(late())
            gate.set()
            await task

    with client.run():
        asyncio.run(main())
    collector.wait(lambda: collector.of_type("run.end"))
    assert collector.of_type("log")[0]["parent"] == by_name(collector)["outer"]["span"]


def test_run_again_is_the_same_run_and_does_not_end_it(client, collector):
    with client.run("s") as first:
        with client.run() as second, client.run("s") as third:
            assert second.source == third.source == first.source
            assert not second.owns
        client.log("still open")
        in_thread(lambda: client.run().end())
    collector.wait(lambda: collector.of_type("run.end"))
    assert [event["type"] for event in collector.events] == ["log", "run.end"]


def test_sessions_side_by_side_are_runs_of_their_own(client, collector):
    async def session(name):
        with client.run(name), client.agent(name):
            await asyncio.sleep(0)
            client.log(name)

    async def main():
        await asyncio.gather(*(session(f"s{i}") for i in range(4)))

    asyncio.run(main())
    collector.wait(lambda: len(collector.of_type("run.end")) == 4)
    assert len(set(collector.runs.values())) == 4
    for events in collector.stored.values():
        start, log, _, _ = events
        assert log["payload"]["message"] == start["name"]


def test_without_run_the_first_call_starts_one(client, collector):
    with client.agent("a"):
        pass
    collector.wait(lambda: collector.of_type("agent.end"))
    assert len(collector.hellos) == 1
    assert client.current().source == collector.hellos[0]["source"]


def test_an_event_after_the_end_is_late_and_starts_nothing(client, collector):
    with client.run():
        pass
    collector.wait(lambda: collector.of_type("run.end"))
    client.log("late")
    collector.wait(lambda: collector.of_type("log"))
    assert len({hello["source"] for hello in collector.hellos}) == 1


def test_runs_one_after_the_other(client, collector):
    with client.run():
        client.log("one")
    with client.run():
        client.log("two")
    collector.wait(lambda: len(collector.of_type("run.end")) == 2)
    assert [[event["type"] for event in events] for events in collector.stored.values()] == [
        ["log", "run.end"]
    ] * 2


def test_current(client, collector):
    assert client.current() is None
    with client.run() as run:
        assert client.current().source == run.source
        with client.agent("a") as step:
            assert client.current() is step
    assert client.current() is None


def test_many_threads_keep_their_order(client, collector):
    def worker(name):
        for i in range(300):
            client.log("x", thread=name, i=i)

    with client.run() as run:
        threads = [threading.Thread(target=worker, args=(k,)) for k in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert run.flush(20)
    logs = collector.of_type("log")
    assert [event["n"] for event in logs] == list(range(1, 16 * 300 + 1))
    for k in range(16):
        assert [event["payload"]["i"] for event in logs if event["payload"]["thread"] == k] == list(
            range(300)
        )


def test_a_step_left_in_another_order_does_not_confuse_the_place(client, collector):
    with client.run():
        outer, inner = client.agent("outer"), client.agent("inner")
        outer.__enter__()
        inner.__enter__()
        outer.__exit__(None, None, None)
        client.log("in inner")
        inner.__exit__(None, None, None)
    collector.wait(lambda: collector.of_type("run.end"))
    assert collector.of_type("log")[0]["parent"] == by_name(collector)["inner"]["span"]
