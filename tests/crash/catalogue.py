"""The scenarios. Every fault found once stays here as a description."""

from __future__ import annotations

from signal import SIGHUP, SIGINT, SIGTERM
from typing import Final

from crash.scenario import Load, Scenario, Tmpfs
from crash.steps import (
    Crowd,
    FillDisk,
    FreeDisk,
    FreezeCollector,
    KillCollector,
    KillSender,
    LimitDescriptors,
    Pause,
    Progress,
    Repeat,
    SignalCollector,
    StopCollector,
    TakeInodes,
)
from crash.suites import Suite

SMALL: Final = Load(rate=20, largest=20_000)
"""For disks of a few megabytes."""

SCENARIOS: Final = (
    Scenario(
        "collector-kill",
        "SIGKILL of the collector at random points under load, 200 B to 1 MB",
        (Progress(20), Repeat(10, (Pause(0.005, 0.4), KillCollector())), Progress(50)),
        short=2,
        full=20,
    ),
    Scenario(
        "collector-kill-full-speed",
        "the same with every sender as fast as it goes",
        (Progress(200), Repeat(5, (Pause(0.05, 0.4), KillCollector())), Progress(200)),
        load=Load(rate=0, largest=2000),
        short=1,
        full=4,
    ),
    Scenario(
        "sender-kill",
        "SIGKILL of agents at random points, the collector lives",
        (Progress(20), Repeat(20, (Pause(0.005, 0.2), KillSender()))),
        short=2,
        full=10,
        returned=True,
    ),
    Scenario(
        "both-killed",
        "agents and collector killed in turn",
        (
            Progress(20),
            Repeat(8, (Pause(0.005, 0.2), KillSender(), Pause(0, 0.1), KillCollector())),
            Progress(50),
        ),
        short=1,
        full=6,
    ),
    Scenario(
        "lost-answers",
        "connections cut between storing and answering; everything is sent again",
        (Progress(150), KillCollector(), Progress(150), KillCollector(), Progress(50)),
        load=Load(client=0, rate=60, largest=20_000, hasty=True),
        short=1,
        full=4,
    ),
    Scenario(
        "terminate",
        "SIGTERM and SIGINT under load, new start each time",
        (
            Progress(20),
            Repeat(3, (Pause(0.05, 0.4), StopCollector(SIGTERM), Pause(0.05, 0.4), StopCollector(SIGINT))),
            Progress(20),
        ),
        load=Load(rate=0, largest=8000),
        short=1,
        full=5,
    ),
    Scenario(
        "terminate-twice",
        "a second signal while it stops: it leaves at once",
        (Progress(20), Repeat(4, (Pause(0.05, 0.4), StopCollector(SIGTERM, again=True))), Progress(20)),
        short=1,
        full=5,
    ),
    Scenario(
        "hang-up",
        "SIGHUP under load changes nothing",
        (Progress(20), Repeat(20, (Pause(0.01, 0.1), SignalCollector(SIGHUP))), Progress(50)),
        short=1,
        full=2,
        returned=True,
    ),
    Scenario(
        "frozen",
        "SIGSTOP of the collector: nobody is judged by its own sleep",
        (Progress(20), Repeat(3, (Pause(0.1, 0.5), FreezeCollector(0.5, 3.0))), Progress(50)),
        settings={"heartbeat_timeout": "1s"},
        short=1,
        full=4,
    ),
    Scenario(
        "disk-full",
        "no byte left, three times; it goes on by itself",
        (Progress(20), Repeat(3, (FillDisk(), Pause(1.0, 2.5), FreeDisk(), Progress(30)))),
        load=SMALL,
        disk=Tmpfs("64m"),
        short=1,
        full=6,
        quiet_log_bytes=20_000,
    ),
    Scenario(
        "disk-full-and-killed",
        "no byte left, killed there, started there",
        (
            Progress(20),
            Repeat(
                2, (FillDisk(), Pause(0.5, 1.0), KillCollector(), Pause(0.3, 1.0), FreeDisk(), Progress(30))
            ),
        ),
        load=SMALL,
        disk=Tmpfs("64m"),
        short=1,
        full=6,
    ),
    Scenario(
        "inodes-gone",
        "no inode left: open runs go on, new ones have to wait",
        (Progress(20), Repeat(2, (TakeInodes(), Progress(20), Pause(0.5, 1.0), FreeDisk(), Progress(30)))),
        load=Load(rate=20, largest=6000, spans=0),
        disk=Tmpfs("64m", inodes=2000),
        short=1,
        full=4,
        quiet_log_bytes=20_000,
    ),
    Scenario(
        "descriptors-gone",
        "three hundred silent connections take every descriptor there is",
        (Progress(20), LimitDescriptors(128), Repeat(3, (Crowd(300, 0.5, 1.5), Progress(30)))),
        short=1,
        full=4,
        quiet_log_bytes=20_000,
    ),
)

_HERE: Final = "tests/integration/"

SUITES: Final = (
    Suite(
        "overload",
        "memory, sizes, bombs, deaf and silent peers",
        (
            f"{_HERE}test_limits.py",
            f"{_HERE}test_overload.py",
            f"{_HERE}test_short_runs.py",
            f"{_HERE}test_five_times.py",
        ),
    ),
    Suite(
        "storage",
        "no room, no inodes, EIO, EROFS, short writes, slow disks; files harmed under the writer and at the start",
        (
            f"{_HERE}test_storage.py",
            f"{_HERE}test_changed_files.py",
            f"{_HERE}test_damaged_files.py",
            f"{_HERE}test_descriptors.py",
            f"{_HERE}test_two_collectors.py",
            f"{_HERE}test_recovery.py",
        ),
    ),
    Suite(
        "sync",
        "what is on the disk before it is acknowledged, and failed syncs",
        (f"{_HERE}test_durability.py", f"{_HERE}test_slow_disk.py", f"{_HERE}test_partly_held.py"),
    ),
    Suite(
        "encodings",
        "surrogates, NaN, big integers, NUL, invalid UTF-8, nesting, line edges",
        (f"{_HERE}test_encodings.py", "tests/unit/receivers/test_any_json.py"),
    ),
    Suite(
        "spool",
        "hostile, torn and too many spool files",
        (f"{_HERE}test_spool.py", "tests/client/test_spool.py"),
    ),
    Suite(
        "verify",
        "planted damage, each kind named",
        ("tests/unit/views/test_verify.py", f"{_HERE}test_verify.py"),
    ),
    Suite(
        "processes",
        "pid reuse, namespaces, forks, threads, hangs, signals",
        (
            f"{_HERE}test_liveness.py",
            f"{_HERE}test_pid_namespaces.py",
            f"{_HERE}test_standstill.py",
            f"{_HERE}test_signals.py",
            f"{_HERE}test_client_lives.py",
            "tests/client/test_fork.py",
        ),
    ),
    Suite("clocks", "steps, repeated hours, skew", (f"{_HERE}test_clocks.py",)),
    Suite(
        "security",
        "other users, hostile ids and text, planted links, tokens, no word to the outside",
        (
            f"{_HERE}test_access.py",
            f"{_HERE}test_exposure.py",
            f"{_HERE}test_hostile_ids.py",
            f"{_HERE}test_planted_race.py",
            f"{_HERE}test_no_outbound.py",
            "tests/unit/service/test_planted.py",
            "tests/unit/formats/test_hostile_text.py",
        ),
    ),
    Suite("malformed", "10,000 malformed inputs a door, and at every decoder and reader", ("tests/fuzz",)),
)
