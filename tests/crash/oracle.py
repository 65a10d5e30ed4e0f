"""The judge: ten invariants over all run folders and all ledgers, with nothing of the product's own code.

I1 every acknowledged event is stored, once. I2 no event is stored twice. I3 every line is strict JSON in
UTF-8 that ends in a newline. I4 seq goes up by one from 1, over attempts. I5 each producer's order is
kept. I6 agent.logs and outline.md speak of the same seqs as the trace. I7 every blob a line names is
there, with the content its name says. I8 no run is "running" without a living producer. I9 nothing
outside the root has changed. I10 analytics.json says what a recount of the trace says.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash.ledger import Account, digest

_ANCHOR = re.compile(rb"^#(\d+) ", re.MULTILINE)
_MENTIONED = re.compile(rb"#(\d{4,})")
_BLOB = re.compile(r"blobs/([0-9a-f]{8,40})\.txt")


@dataclass(slots=True, frozen=True)
class Violation:
    """An invariant that does not hold, and where."""

    invariant: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.where}: {self.what}"


@dataclass(slots=True, frozen=True)
class Stored:
    """An event of a sender as it was found in a trace."""

    run_id: str
    seq: int
    producer: str
    n: int
    digest: str


def judge(root: Path, accounts: list[Account], *, returned: bool = False) -> list[Violation]:
    """Everything that is wrong once all producers are gone.

    ``returned``: the collector was there all the time, so a call of the thin client that returned counts as
    acknowledged, whatever became of its process.
    """
    found: list[Violation] = []
    stored: list[Stored] = []
    rows, wrong = _rows(root)
    found += wrong
    for folder in sorted((root / "runs").iterdir()) if (root / "runs").is_dir() else []:
        records, wrong = _trace(folder)
        found += wrong
        found += _transcript(folder, records)
        events, wrong = _events(folder, records)
        stored += events
        found += wrong
        row = rows.get(folder.name)
        if row is None:
            found.append(Violation("I8", folder.name, "has no row in the index"))
        else:
            found += _ended(folder, records, row)
    found += _against_ledgers(stored, accounts, returned=returned)
    return found


# -- one file at a time -------------------------------------------------------------------------------


def _strict(line: bytes) -> Any:
    """Raises ValueError for what is no strict JSON."""

    def refuse(name: str) -> None:
        raise ValueError(f"not JSON: {name}")

    return json.loads(line.decode("utf-8"), parse_constant=refuse)


def _rows(root: Path) -> tuple[dict[str, dict[str, Any]], list[Violation]]:
    path = root / "index.jsonl"
    if not path.exists():
        return {}, []
    rows, wrong = {}, []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = _strict(line)
        except ValueError as error:
            wrong.append(Violation("I3", f"index.jsonl:{number}", str(error)))
            continue
        rows[row["run_id"]] = row
    return rows, wrong


def _trace(folder: Path) -> tuple[list[dict[str, Any]], list[Violation]]:
    path = folder / "trace.jsonl"
    if not path.exists():
        return [], [Violation("I3", folder.name, "has no trace")]
    data = path.read_bytes()
    records: list[dict[str, Any]] = []
    wrong = []
    if not data.endswith(b"\n"):
        wrong.append(Violation("I3", f"{folder.name}/trace.jsonl", f"torn tail {data[-60:]!r}"))
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            record = _strict(line)
        except ValueError as error:
            wrong.append(Violation("I3", f"{folder.name}/trace.jsonl:{number}", str(error)))
            continue
        if record["seq"] != number:
            wrong.append(
                Violation("I4", f"{folder.name}/trace.jsonl:{number}", f"seq {record['seq']}, not {number}")
            )
        records.append(record)
    attempts = [record["attempt"] for record in records]
    late = [bool(record.get("src") and record["src"].get("late")) for record in records]
    on_time = [attempt for attempt, is_late in zip(attempts, late, strict=True) if not is_late]
    if on_time != sorted(on_time):
        wrong.append(Violation("I4", folder.name, "attempts do not grow"))
    return records, wrong


def _transcript(folder: Path, records: list[dict[str, Any]]) -> Iterator[Violation]:
    seqs = [record["seq"] for record in records]
    logs = folder / "agent.logs"
    found = [int(n) for n in _ANCHOR.findall(logs.read_bytes())] if logs.exists() else []
    if found != seqs:
        yield Violation("I6", f"{folder.name}/agent.logs", f"{len(found)} anchors for {len(seqs)} records")
    outline = folder / "outline.md"
    if outline.exists():
        beyond = {int(n) for n in _MENTIONED.findall(outline.read_bytes())} - set(seqs)
        if beyond:
            yield Violation("I6", f"{folder.name}/outline.md", f"speaks of {sorted(beyond)[:5]}")


def _events(folder: Path, records: list[dict[str, Any]]) -> tuple[list[Stored], list[Violation]]:
    """The senders' events in a trace; every blob a record names is looked at on the way."""
    events, wrong = [], []
    for record in records:
        where = f"{folder.name}#{record['seq']}"
        for ref in _BLOB.findall(json.dumps(record["payload"])):
            blob = folder / "blobs" / f"{ref}.txt"
            if not blob.exists():
                wrong.append(Violation("I7", where, f"blobs/{ref}.txt is missing"))
            elif not hashlib.sha1(blob.read_bytes()).hexdigest().startswith(ref):
                wrong.append(Violation("I7", where, f"blobs/{ref}.txt has other content"))
        marked = _marked(record)
        if marked is None:
            continue
        text = marked["body"]
        if isinstance(text, dict):
            blob = folder / text["ref"]
            text = blob.read_bytes().decode() if blob.exists() else ""
        events.append(Stored(folder.name, record["seq"], marked["p"], int(marked["i"]), digest(text)))
    return events, wrong


def _marked(record: dict[str, Any]) -> dict[str, Any] | None:
    """The sender's own marks (``p``, ``i``, ``body``) of a record; a span has them on its closing half."""
    payload = record["payload"]
    for place in (payload, payload.get("attributes")):
        if isinstance(place, dict) and {"p", "i", "body"} <= place.keys():
            return place
    return None


def _ended(folder: Path, records: list[dict[str, Any]], row: dict[str, Any]) -> Iterator[Violation]:
    """I8 and I10 of a run whose producers are gone."""
    if row["status"] == "running":
        yield Violation("I8", folder.name, "still says running")
        return
    for name in ("meta.json", "analytics.json", "outline.md"):
        if not (folder / name).exists():
            yield Violation("I10", f"{folder.name}/{name}", "missing")
            return
    analytics = _strict((folder / "analytics.json").read_bytes())
    counts = {
        "llm_calls": sum(record["type"] == "llm.prompt" for record in records),
        "tool_calls": sum(record["type"] == "tool.call" for record in records),
        "errors": sum("error_type" in record["payload"] for record in records),
    }
    said = {
        "llm_calls": row["llm_calls"],
        "tool_calls": row["tool_calls"],
        "errors": len(analytics["errors"]) + analytics.get("errors_omitted", 0),
    }
    if said != counts:
        yield Violation("I10", folder.name, f"says {said}, a recount {counts}")
    crashed = records[-1]["type"] != "run.end" and not (records[-1].get("src") or {}).get("late")
    if crashed and row["status"] != "crashed":
        yield Violation("I8", folder.name, f"ended without run.end and says {row['status']}")
    if crashed and b"ended at" not in (folder / "agent.logs").read_bytes():
        yield Violation("I8", folder.name, "crashed and has no banner")


# -- all runs against what the senders wrote down -------------------------------------------------------


def _against_ledgers(stored: list[Stored], accounts: list[Account], *, returned: bool) -> Iterator[Violation]:
    by_producer: dict[str, list[Stored]] = {}
    for event in stored:
        by_producer.setdefault(event.producer, []).append(event)
    for account in accounts:
        yield from _against(account, by_producer.pop(account.producer, []), returned=returned)
    for producer in by_producer:
        yield Violation("I2", producer, "nobody sent that")


def _against(account: Account, events: list[Stored], *, returned: bool) -> Iterator[Violation]:
    who = account.producer
    numbers = [event.n for event in events]
    if len(set(numbers)) != len(numbers):
        twice = sorted({n for n in numbers if numbers.count(n) > 1})
        yield Violation("I2", who, f"stored twice: {twice[:5]} ({len(twice)})")
    for event in events:
        if account.sent.get(event.n) != event.digest:
            yield Violation(
                "I1", f"{who}/{event.n}", f"stored with other content at {event.run_id}#{event.seq}"
            )
            break
    last = max(account.sent, default=0)
    promised = last if account.ended else account.acked
    if returned and account.producer.startswith("client"):
        promised = max(promised, last - 1)  # the last call may not have returned
    missing = sorted({n for n in account.sent if n <= promised} - set(numbers))
    if missing:
        yield Violation("I1", who, f"{len(missing)} promised events are not stored: {missing[:5]}")
    of_run: dict[str, list[int]] = {}
    for event in events:
        of_run.setdefault(event.run_id, []).append(event.n)
    for run_id, order in of_run.items():
        if order != sorted(order):
            yield Violation("I5", f"{who} in {run_id}", "not in the order it was sent")
    for why in account.refused:
        yield Violation("I1", who, f"an exporter would have dropped this: {why}")


# -- outside the root -----------------------------------------------------------------------------------


def picture(folder: Path) -> dict[str, tuple[int, str]]:
    """Mode and content of everything below ``folder``, for I9."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


def outside(before: dict[str, tuple[int, str]], after: dict[str, tuple[int, str]]) -> Iterator[Violation]:
    """I9: what changed between two pictures."""
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield Violation("I9", name, "changed outside the root")
