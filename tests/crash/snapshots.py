"""What a kill or a bad disk can leave behind, tried on copies: every prefix, flipped bits, NULs, lost files.

One small root is made and abandoned as a SIGKILL would leave it, then each copy of it is damaged and opened
again by the inside of a collector. Whatever was damaged: it starts, it serves, what stands before the damage
is kept, and a sender that repeats what it has loses nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash import oracle
from crash.engine import Score
from crash.oracle import Violation
from support.inner_collector import Inner

EVENTS = 12
SOURCE, SESSION = "a", "s"


@dataclass(frozen=True, slots=True)
class Damage:
    """``what`` happens to the file ``path`` of the root.

    ``cut`` is where a prefix of the trace ends. ``heals``: nothing of the damage may be left afterwards.
    """

    path: str
    what: str
    apply: Callable[[Path], None]
    cut: int | None = None
    heals: bool = False


def text(n: int) -> str:
    """The text of event ``n``: every third one is spilled."""
    return f"event {n} é€😀\n" + "x" * (20_000 if n % 3 == 0 else 50)


async def make(folder: Path) -> None:
    """An open run of one source beside one that has ended, abandoned without a word."""
    inner = Inner(folder)
    other = inner.enter("b")
    inner.say(other, "b", 1, text="done")
    inner.say(other, "b", 2, "run.end", status="ok")
    await inner.settle(other)
    actor = inner.enter(SOURCE, SESSION)
    for n in range(1, EVENTS + 1):
        inner.say(actor, SOURCE, n, text=text(n))
    actor.render_logs()
    inner.root.close()


async def heal(folder: Path) -> str:
    """Open a damaged copy, let the sender repeat itself and end; returns the id of the run it got."""
    inner = Inner(folder)
    await inner.survey()
    actor = inner.enter(SOURCE, SESSION)
    acked = actor.state.sources[SOURCE].high_water
    for n in range(acked + 1, EVENTS + 1):
        inner.say(actor, SOURCE, n, text=text(n))
    inner.say(actor, SOURCE, EVENTS + 1, "run.end", status="ok")
    await inner.settle(actor)
    run_id = actor.run_id
    await inner.close()
    return run_id


def prefixes(seed: int, most: int, *, kept: Callable[[], Path]) -> Score:
    """Cut trace and transcript at every byte of the trace's last three records, or at ``most`` of them."""
    return _play(
        "prefixes", seed, lambda origin, run, chance: _some(_prefixes(run, origin), most, chance), kept
    )


def damage(seed: int, most: int, *, kept: Callable[[], Path]) -> Score:
    """Every file lost, emptied, zeroed, made noise and halved; ``most`` bits and NUL runs elsewhere."""
    return _play("damage", seed, lambda origin, _run, chance: _random(origin, most, chance), kept)


def _some(damages: Iterable[Damage], most: int, chance: random.Random) -> list[Damage]:
    found = list(damages)
    return chance.sample(found, min(most, len(found)))


Tries = Callable[[Path, Path, random.Random], Iterable[Damage]]


def _play(name: str, seed: int, tries: Tries, kept: Callable[[], Path]) -> Score:
    logging.disable(logging.CRITICAL)  # for good: another row may be at it at the same time
    chance = random.Random(f"{name}/{seed}")
    score = Score(name, seed)
    with tempfile.TemporaryDirectory(prefix="crash-") as base:
        origin = Path(base) / "origin"
        asyncio.run(make(origin))
        [run] = [folder for folder in (origin / "runs").iterdir() if b'"id":"a"' in _trace(folder)]
        for hurt in tries(origin, run, chance):
            copy = Path(base) / "copy"
            shutil.copytree(origin, copy, symlinks=True)
            hurt.apply(copy / hurt.path)
            score.trials += 1
            wrong = _try(copy, run.name, hurt, _trace(run))
            if wrong is not None:
                target = kept() / f"{name}-{score.trials}"
                shutil.copytree(copy, target, symlinks=True, dirs_exist_ok=True)
                score.violations.append(Violation("I1", f"{hurt.path} {hurt.what}", wrong))
            shutil.rmtree(copy)
    return score


def _trace(folder: Path) -> bytes:
    return (folder / "trace.jsonl").read_bytes()


def _try(copy: Path, run_id: str, hurt: Damage, before: bytes) -> str | None:
    """What is wrong after a damaged copy was opened and used; None: nothing."""
    try:
        home = asyncio.run(heal(copy))
        records = [json.loads(line) for line in _trace(copy / "runs" / home).splitlines()]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    seqs = [record["seq"] for record in records]
    if seqs != list(range(1, len(seqs) + 1)):
        return f"seqs {seqs}"
    for violation in oracle.judge(copy, []) if hurt.heals else ():
        if violation.invariant != "I2":  # there are no ledgers here
            return str(violation)
    return None if hurt.cut is None else _wrong_after_cut(copy, home == run_id, hurt.cut, before, records)


def _wrong_after_cut(
    copy: Path, same: bool, cut: int, before: bytes, records: list[dict[str, Any]]
) -> str | None:
    """A torn tail: the run goes on, what stood before the cut stays, and every event is there once."""
    if not same:
        return "a torn tail made a new run of it"
    numbers = [n for record in records if (n := (record.get("src") or {}).get("n")) is not None]
    if numbers != list(range(1, EVENTS + 2)):
        return f"events {numbers}"
    whole = before[: before.rindex(b"\n", 0, cut) + 1]
    after = _trace(copy / "runs" / records[0]["run_id"])
    return None if after.startswith(whole) else "what stood before the cut has changed"


def _prefixes(run: Path, origin: Path) -> Iterator[Damage]:
    """Every byte prefix of the last three records, on the trace and, with it, on the transcript."""
    data = _trace(run)
    path = str((run / "trace.jsonl").relative_to(origin))
    last = data.rindex(b"\n", 0, data.rindex(b"\n", 0, data.rindex(b"\n", 0, len(data) - 1)))
    for cut in range(last + 1, len(data)):
        yield Damage(path, f"cut at {cut}", _cutter(cut), cut, heals=True)
    logs = run / "agent.logs"
    for cut in range(max(0, logs.stat().st_size - 300), logs.stat().st_size):
        yield Damage(str(logs.relative_to(origin)), f"cut at {cut}", _cutter(cut), heals=True)


def _cutter(size: int) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(size)

    return cut


def _random(origin: Path, count: int, chance: random.Random) -> Iterator[Damage]:
    """Every file deleted, emptied, zeroed and filled with noise; then bits and NULs at random places."""
    files = sorted(
        path
        for path in origin.rglob("*")
        if path.is_file() and not path.is_symlink() and "blobs" not in path.parts
    )
    names = [str(path.relative_to(origin)) for path in files]
    for name in names:
        size = (origin / name).stat().st_size
        noise = chance.randbytes(size)
        yield Damage(name, "deleted", Path.unlink)
        yield Damage(name, "emptied", lambda path: _write(path, b""))
        yield Damage(name, "zeroed", lambda path, size=size: _write(path, bytes(size)))
        yield Damage(name, "random", lambda path, noise=noise: _write(path, noise))
        yield Damage(name, "half", _cutter(size // 2))
    for _ in range(count):
        name = chance.choice(names)
        size = (origin / name).stat().st_size
        if not size:
            continue
        at, length = chance.randrange(size), chance.randrange(1, 200)
        if chance.random() < 0.5:
            yield Damage(name, f"flip at {at}", _flipper(at, 1 << chance.randrange(8)))
        else:
            yield Damage(name, f"nul run at {at}", _nuller(at, min(length, size - at)))


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _flipper(at: int, bit: int) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= bit
        path.write_bytes(data)

    return flip


def _nuller(at: int, length: int) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at : at + length] = bytes(length)
        path.write_bytes(data)

    return put
