"""Five times what can be carried, at both doors: memory keeps its limit, and what was acknowledged is stored."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.daemon import Daemon
from support.memory import MIB, forget_peak, peak
from support.overload import BATCH, OtlpSender, StreamSender
from support.raw_client import RawClient
from support.waiting import until

log = logging.getLogger(__name__)
LIMIT = 200 * MIB
SENDERS = 4
"""At each door."""
UNBOUNDED = 1e9


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0", max_memory=f"{LIMIT // MIB}MiB") as running:
        yield running


def status(daemon: Daemon) -> dict:
    return json.loads(daemon.cli("status", "--json").stdout)


def offer(senders: list, seconds: float) -> float:
    """Have them offer for so long; the seconds until all is answered."""
    began = time.monotonic()
    with ThreadPoolExecutor(len(senders)) as threads:
        list(threads.map(lambda sender: sender.offer(began + seconds), senders))
    return time.monotonic() - began


def talk(daemon: Daemon, stop: threading.Event) -> int:
    """One event after the other, each acknowledged before the next; how many."""
    n = 0
    with RawClient(daemon.socket) as client:
        client.hello("modest", session_id="modest")
        while not stop.wait(0.05):
            n += 1
            client.send({"n": n, "type": "log", "payload": {"text": "x"}})
            client.acked(n)
        client.send({"n": n + 1, "type": "run.end"})
        client.acked(n + 1)
    return n


def stored(daemon: Daemon) -> tuple[Counter[str], dict[str, set[int]]]:
    """Per sender: events told over the socket, and numbers of requests whose records are all there."""
    events: Counter[str] = Counter()
    records: dict[str, Counter[int]] = {}
    for row in daemon.rows():
        numbers = []
        for record in daemon.trace(row["run_id"]):
            payload = record["payload"]
            if "j" in (attributes := payload.get("attributes", {})):
                records.setdefault(row["session_id"], Counter())[attributes["i"]] += 1
            elif record["type"] == "log":
                numbers.append(payload.get("i"))
        assert len(set(numbers)) == len(numbers) or row["session_id"] == "modest", "stored twice"
        events[row["session_id"]] += len(numbers)
    assert all(count == BATCH for found in records.values() for count in found.values())
    return events, {name: set(found) for name, found in records.items()}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("look_s", "offer_s"), [(2, 5), (10, 60)])
def test_five_times_what_can_be_carried(daemon, look_s, offer_s):
    events, requests = StreamSender(daemon, "alone", UNBOUNDED), OtlpSender(daemon, "alone-too", UNBOUNDED)
    carried_s = offer([events, requests], look_s)
    per_s = (events.sent / carried_s, len(requests.acked) / carried_s)
    forget_peak(daemon.process.pid)
    streams = [StreamSender(daemon, f"s{n}", 5 * per_s[0] / SENDERS) for n in range(SENDERS)]
    otlp = [OtlpSender(daemon, f"o{n}", 5 * per_s[1] / SENDERS) for n in range(SENDERS)]
    stop = threading.Event()
    with ThreadPoolExecutor(1) as aside:
        modest = aside.submit(talk, daemon, stop)
        offer([*streams, *otlp], offer_s)
        stop.set()
        assert modest.result() > 0
    until(lambda: status(daemon)["otlp"]["waiting"] == 0, "the backlog")
    now = until(
        lambda: (s := status(daemon))["memory"]["held_bytes"] < MIB and s, "what was held for the disk"
    )
    answers = sum((sender.answers for sender in otlp), Counter())
    log.info(
        "carried %s a second, offered %d events, answers %s, peak %d MiB",
        [round(one) for one in per_s],
        sum(sender.sent for sender in streams),
        dict(answers),
        peak(daemon.process.pid) // MIB,
    )
    assert peak(daemon.process.pid) < LIMIT
    assert sum(sender.not_retryable for sender in otlp) == 0, answers
    assert now["otlp"]["refused"] == sum(sender.refused for sender in otlp), "refusals are counted"
    assert now["waiting_for_storage"] == now["otlp"]["outside"] == 0
    told, recorded = stored(daemon)
    for stream in streams:
        assert told[stream.name] == stream.sent == stream.acked
    for sender in otlp:
        assert sender.acked <= recorded[sender.name]
