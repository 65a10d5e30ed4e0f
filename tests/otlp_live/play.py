"""Captures played against one collector, many at once, each by processes of its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from agentrund.model.otlp import Encoding
from agentrund.receivers.decode.mapping import map_item
from agentrund.receivers.decode.otlp import decode
from agentrund.views.folder import Root
from agentrund.views.verify import verify
from otlp_live.program import Process
from otlp_live.reader import RunFolder, differences, truth
from support.daemon import Daemon
from support.otlp_captures import Capture, Request
from support.otlp_replay import doubled, recoded, reversed_requests, split
from support.settled import Settled

DOORS = ("grpc", "protobuf", "json")
ARRANGEMENTS: dict[str, Callable[[list[Request]], list[Request]]] = {
    "forward": list,
    "reversed": reversed_requests,
    "doubled": doubled,
    "split": split,
}
AT_ONCE = 16
"""Programs that live at the same time."""
SETTLED_S = 90


@dataclass(frozen=True)
class Case:
    """A capture, the door it goes through, and how its requests are arranged."""

    capture: Capture
    door: str
    arrangement: str

    def requests(self) -> list[Request]:
        """What is sent."""
        encoding = Encoding.JSON if self.door == "json" else Encoding.PROTOBUF
        coded = [r if r.encoding is encoding else recoded([r])[0] for r in self.capture.requests]
        return ARRANGEMENTS[self.arrangement](coded)


@dataclass
class Outcome:
    """What came of a case."""

    case: Case
    requests: int
    refused: list[str]
    pids: set[int]
    runs: list[RunFolder] = field(default_factory=list)

    @property
    def found(self) -> dict[str, Any]:
        """What its runs say."""
        return truth(self.runs)

    @property
    def events(self) -> int:
        """Records of its runs."""
        return sum(len(run.records) for run in self.runs)

    def differences(self) -> list[str]:
        """Where its runs are not what the manifest expects, and what was not taken."""
        return [*differences(self.case.capture.expect, self.found), *self.refused]


@dataclass
class Play:
    """What came of all cases of one collector, and what is wrong with it as a whole."""

    outcomes: list[Outcome]
    problems: list[str]


def play(cases: list[Case], base: Path) -> Play:
    """Start a collector below ``base``, send everything, wait for the ends, read what is there."""
    with Daemon(base, otlp_grpc="127.0.0.1:0", http="127.0.0.1:0") as daemon:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = list(pool.map(partial(_live, daemon), cases))
        unsettled = Settled(daemon, SETTLED_S).wait()
        problems = [] if unsettled is None else [f"the collector {unsettled}"]
    problems += _give(outcomes, [RunFolder.read(daemon.run_dir(run_id)) for run_id in daemon.run_ids()])
    problems += [f"verify: {finding.path}: {finding.message}" for finding in verify(Root(daemon.root))]
    said = daemon.stderr.read_text().splitlines()
    problems += [f"the collector says: {line}" for line in said if " INFO " not in line]
    return Play(outcomes, problems)


def _live(daemon: Daemon, case: Case) -> Outcome:
    """A program's life: its processes send at the recorded pace, and end when they have sent their last."""
    capture, requests = case.capture, case.requests()
    numbers = [capture.processes[r.port] for r in requests]
    address = daemon.otlp if case.door == "grpc" else daemon.http
    processes = {number: Process(case.door, address) for number in dict.fromkeys(numbers)}
    outcome = Outcome(case, len(requests), [], {p.pid for p in processes.values()})
    killed = capture.expect.get("run_status") == "crashed"
    began = time.monotonic()
    for n, (number, request) in enumerate(zip(numbers, requests, strict=True)):
        time.sleep(max(0.0, began + request.at - requests[0].at - time.monotonic()))
        if refusal := processes[number].send(request):
            outcome.refused.append(f"{request.signal} not taken: {refusal}")
        if number not in numbers[n + 1 :]:
            (processes[number].kill if killed else processes[number].end)()
    return outcome


def _give(outcomes: list[Outcome], runs: list[RunFolder]) -> list[str]:
    """Give every run to the case whose processes told it; returns what belongs to none, or to several."""
    problems = []
    for run in runs:
        owners = [outcome for outcome in outcomes if run.pids & outcome.pids]
        if len(owners) == 1 and run.pids <= owners[0].pids:
            owners[0].runs.append(run)
        else:
            names = [outcome.case.capture.name for outcome in owners]
            problems.append(f"run {run.records[0]['run_id']} is told by {run.pids}, which are of {names}")
    return problems


def apart(captures: Iterable[Capture]) -> list[Capture]:
    """The captures with session ids that no two share: other bytes of the same length where they do."""
    captures = list(captures)
    sessions = {capture.name: _sessions(capture) for capture in captures}
    users = Counter(session for found in sessions.values() for session in found)
    return [
        replace(capture, requests=[_renamed(r, capture.name, shared) for r in capture.requests])
        if (shared := [s for s in sessions[capture.name] if users[s] > 1])
        else capture
        for capture in captures
    ]


def _sessions(capture: Capture) -> set[str]:
    items = [i for r in capture.requests for i in decode(r.signal, r.encoding, r.body) if i is not None]
    mapped = map(map_item, items)
    return {session for item in mapped if (session := getattr(item, "session", None)) is not None}


def _renamed(request: Request, salt: str, sessions: list[str]) -> Request:
    body = request.body
    for session in sessions:
        other = sha256(f"{salt} {session}".encode()).hexdigest()[: len(session)]
        body = body.replace(session.encode(), other.encode())
    return replace(request, body=body)
