"""Connections that break, collectors that stall, lines that are too long: what arrives, and what is said about the rest."""

from __future__ import annotations

import os
import signal

import pytest


def messages(collector):
    return [event["payload"]["message"] for event in collector.of_type("log")]


def test_events_follow_hello_without_waiting_for_welcome(client, collector):
    collector.welcomes = False
    with client.run():
        client.log("early")
        collector.wait(lambda: messages(collector) == ["early"])
        collector.welcomes = True
        collector.cut()
        collector.wait(lambda: len(collector.hellos) == 2)
    collector.wait(lambda: collector.of_type("run.end"))
    assert messages(collector) == ["early"]


def test_reconnect_sends_what_was_not_acked_and_nothing_twice(client, collector):
    run = client.run()
    for i in range(200):
        client.log(i)
        if i % 20 == 10:
            collector.cut()
        if i % 50 == 25:
            collector.acks = not collector.acks
    collector.acks = True
    collector.cut()
    assert run.flush(20)
    assert messages(collector) == [str(i) for i in range(200)]
    assert {hello["source"] for hello in collector.hellos} == {run.source}
    assert collector.jumps == []


def test_acked_in_welcome_is_where_sending_starts(client, collector):
    run = client.run()
    client.log("a")
    assert run.flush(20)
    collector.acks = False
    client.log("b")
    collector.wait(lambda: len(messages(collector)) == 2)  # stored, but the ack is missing
    raw = len(collector.raw)
    collector.acks = True
    collector.cut()
    collector.wait(lambda: len(collector.hellos) == 2)
    client.log("c")
    assert run.flush(20)
    assert messages(collector) == ["a", "b", "c"]
    assert not any(b'"b"' in line for line in collector.raw[raw:])
    assert collector.duplicates == 0


def test_collector_killed_and_restarted_under_load(client, collector_process):
    run = client.run()
    total = 3000
    for i in range(total):
        client.log("x", i=i)
        if i in {700, 1500, 2200}:
            collector_process.kill()
        if i in {900, 1600, 2600}:
            collector_process.start()
    assert run.flush(30)
    assert [record["payload"]["i"] for record in collector_process.records()] == list(range(total))


def test_overflow_is_counted_exactly(client, collector, monkeypatch):
    monkeypatch.setenv("AGENTRUND_BUFFER_MAX_EVENTS", "100")
    run = client.run()
    assert run.flush(20)
    collector.acks = False
    for i in range(150):
        client.log(i)
    collector.wait(lambda: len(messages(collector)) == 100)
    collector.acks = True
    client.log("after")  # the bound still holds: nothing has been acked
    collector.cut()
    assert run.flush(20)
    client.log("room again")
    assert run.flush(20)
    assert messages(collector) == [*(str(i) for i in range(100)), "room again"]
    assert collector.lost[run.source] == [(101, 151)]
    assert collector.jumps == []


def test_overflow_in_bytes_with_a_collector_that_does_not_read(client, collector, monkeypatch):
    monkeypatch.setenv("AGENTRUND_BUFFER_MAX_BYTES", "1000000")
    run = client.run()
    assert run.flush(20)
    collector.reading.clear()
    text = "x" * 50_000
    for i in range(300):
        client.log(text, i=i)
    collector.reading.set()
    assert run.flush(20)
    stored = collector.of_type("log")
    lost = sum(last - first + 1 for first, last in collector.lost[run.source])
    assert lost > 0
    assert len(stored) + lost == 300
    assert collector.jumps == []


def test_run_end_passes_the_bound(client, collector, monkeypatch):
    monkeypatch.setenv("AGENTRUND_BUFFER_MAX_EVENTS", "5")
    collector.acks = False
    with client.run():
        for i in range(20):
            client.log(i)
    collector.acks = True
    collector.cut()
    collector.wait(lambda: collector.of_type("run.end"))
    assert len(messages(collector)) == 5
    assert collector.lost[collector.hellos[0]["source"]] == [(6, 20)]


def test_large_lines_arrive_whole(client, collector):
    with client.run() as run:
        for size in (1, 100_000, 5_000_000, 1):
            client.log("é" * size)
        assert run.flush(30)
    assert [len(text) for text in messages(collector)] == [1, 100_000, 5_000_000, 1]


def test_a_line_over_the_limit_keeps_its_event_and_the_connection(client, collector):
    collector.max_line = 10_000
    with client.run() as run:
        assert run.flush(20)
        with client.tool("t") as step:
            step.output = "x" * 20_000
        client.log("next")
        assert run.flush(20)
    collector.wait(lambda: collector.of_type("run.end"))
    assert "over the collector's line limit" in collector.of_type("tool.result")[0]["payload"]["notice"]
    assert messages(collector) == ["next"]
    assert len(collector.hellos) == 1
    assert max(len(line) for line in collector.raw) < 10_000


def test_a_line_that_was_buffered_before_the_limit_was_known(client, collector):
    collector.max_line = 10_000
    collector.stop()
    os.environ["AGENTRUND_SPOOL"] = "/dev/null/none"
    with client.run() as run:
        client.log("small")
        client.log("x" * 20_000)
        client.log("small")
        collector.start()
        assert run.flush(20) or run.flush(20)
    collector.wait(lambda: collector.of_type("run.end"))
    assert messages(collector) == ["small", "small"]
    assert collector.lost[run.source] == [(2, 2)]


def test_unknown_run_becomes_a_run_of_its_own(client, collector, monkeypatch):
    monkeypatch.setenv("AGENTRUND_RUN_ID", "20200101_000000_dead")
    monkeypatch.setenv("AGENTRUND_PARENT", "other/3")
    with client.run() as run:
        client.log("a")
        assert run.flush(20)
        assert run.run_id == collector.runs[run.source] != "20200101_000000_dead"
    collector.wait(lambda: collector.of_type("run.end"))
    assert messages(collector) == ["a"]
    assert [hello["run_id"] for hello in collector.hellos] == ["20200101_000000_dead", None]


@pytest.mark.parametrize("code", ["not_allowed", "unsupported_version"])
def test_a_refusal_for_good_goes_into_the_spool(client, collector, place, capsys, code):
    collector.refuse = code
    with client.run() as run:
        client.log("a")
        collector.wait(lambda: collector.hellos)
        assert not run.flush(10)
        client.log("b")
    assert "refused by the test" in capsys.readouterr().err
    lines = (place / "spool" / f"{run.source}.jsonl").read_bytes().splitlines()
    assert len(lines) == 4


def test_overloaded_is_tried_again(client, collector):
    collector.refuse = "overloaded"
    with client.run() as run:
        client.log("a")
        collector.wait(lambda: len(collector.hellos) >= 3)
        collector.refuse = None
        assert run.flush(20) or run.flush(20)
    assert messages(collector) == ["a"]


def test_heartbeats_come_where_welcome_asks_for_them(client, collector):
    collector.heartbeat_s = 0.01
    with client.run():
        collector.wait(lambda: sum(frame.get("op") == "heartbeat" for frame in collector.frames) >= 5)


def test_frames_nobody_knows_do_no_harm(client, collector):
    with client.run() as run:
        assert run.flush(20)
        for frame in (
            {"op": "guard", "guardrail": "max_llm_calls", "threshold": 5, "actual": 6, "action": "stop"},
            {"op": "error", "code": "bad_event", "n": 1, "message": "no"},
            {"op": "news", "x": 1}, {"op": "ack", "n": 10**9, "seq": 1}, {"op": "flushed", "id": [1]}, {"op": None}, {},
        ):  # fmt: skip
            collector.send_all(frame)
        for connection in collector._connections:
            connection.sock.sendall(b"not json\n[1]\n\n\xff\xfe\n")
        client.log("still here")
        assert run.flush(20)
    assert messages(collector) == ["still here"]


def test_flush_waits_for_the_answer_and_not_for_ever(client, collector):
    collector.acks = False
    with client.run() as run:
        client.log("a")
        assert not run.flush(0.05)
        collector.acks = True
        assert run.flush(20)


def test_flush_without_a_collector_says_so_at_once(client, place):
    with client.run() as run:
        client.log("a")
        assert not run.flush(3600)
        assert not client.flush(3600)


def test_flush_repeated_loses_nothing(client, collector):
    with client.run() as run:
        for i in range(200):
            client.log(i)
            assert run.flush(20)
            assert len(messages(collector)) == i + 1


def test_a_signal_handler_may_log_in_the_middle_of_a_log(client, collector):
    seen = 0

    def handler(number, frame):
        nonlocal seen
        seen += 1
        client.log("from the handler", k=seen)

    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0005)
    try:
        with client.run() as run:
            logged = 0
            while seen < 100:
                client.log("x", i=logged)
                logged += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert run.flush(20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    payloads = [event["payload"] for event in collector.of_type("log")]
    assert [payload["i"] for payload in payloads if "i" in payload] == list(range(logged))
    # Sorted: a handler may be interrupted by the next signal before it has got to its own log.
    assert sorted(payload["k"] for payload in payloads if "k" in payload) == list(range(1, seen + 1))
    assert collector.jumps == []


def test_sigpipe_at_its_default_does_not_kill(run_agent):
    out, _ = run_agent(
        """
        import os, signal, socket
        from agentrund_client._channel import Channel
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.environ["AGENTRUND_SOCKET"])
        listener.listen()
        channel = Channel(os.environ["AGENTRUND_SOCKET"])
        listener.accept()[0].close()
        try:
            channel.send(b"x")
        except BrokenPipeError:
            print("alive")
        channel.close()
        listener.close()
        """
    )
    assert out == "alive\n"


def test_a_socket_closed_by_the_application_is_replaced(client, collector):
    run = client.run()
    client.log("a")
    assert run.flush(20)
    from agentrund_client import _process

    os.close(_process._main.source.link._channel.fileno())
    client.log("b")
    client.log("c")
    assert run.flush(20)
    assert messages(collector) == ["a", "b", "c"]


def test_no_path_too_long_raises(client, monkeypatch, capsys):
    monkeypatch.setenv("AGENTRUND_SOCKET", "/tmp/" + "x" * 200)
    with client.run():
        client.log("a")
    assert "over the limit of 107" in capsys.readouterr().err


def test_acks_are_read_with_pauses(client, collector, monkeypatch):
    """A wake-up for every ack would cost more than sending the event."""
    from agentrund_client._channel import Channel

    reads = []
    receive = Channel.receive
    monkeypatch.setattr(Channel, "receive", lambda self: reads.append(1) or receive(self))
    run = client.run()
    assert run.flush(20)
    reads.clear()
    for i in range(300):
        client.log(i)
        collector.wait(lambda n=i: len(messages(collector)) > n)  # so each has an ack of its own
    assert len(reads) < 150
