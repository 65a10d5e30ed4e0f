"""The things that happen in scenarios: kills, signals, full disks, waits. Each is a value that can be read."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from crash.scenario import Step
from crash.world import World

PATIENCE_S = 60.0
BALLAST = "ballast"


@dataclass(frozen=True, slots=True)
class Repeat:
    """Steps, several times over."""

    times: int
    steps: tuple[Step, ...]

    def __call__(self, world: World) -> None:
        for _ in range(self.times):
            for step in self.steps:
                step(world)


@dataclass(frozen=True, slots=True)
class Pause:
    """A random while between two bounds, in seconds: where in its work the fault meets the collector."""

    least: float
    most: float

    def __call__(self, world: World) -> None:
        time.sleep(world.chance.uniform(self.least, self.most))


@dataclass(frozen=True, slots=True)
class Progress:
    """Wait until so many more events are acknowledged; a world that stands still is a violation."""

    events: int

    def __call__(self, world: World) -> None:
        wanted = world.acked() + self.events
        deadline = time.monotonic() + PATIENCE_S
        while world.acked() < wanted:
            if time.monotonic() > deadline:
                world.fail("progress", f"no {self.events} acknowledgements in {PATIENCE_S:.0f} s")
                return
            time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class KillCollector:
    """SIGKILL, and a new start."""

    def __call__(self, world: World) -> None:
        world.daemon.kill()
        world.trials += 1
        world.start()


@dataclass(frozen=True, slots=True)
class StopCollector:
    """A signal that asks it to end, ``again`` for impatience, and a new start. Exit codes are judged."""

    number: signal.Signals
    again: bool = False

    def __call__(self, world: World) -> None:
        process = world.daemon.process
        process.send_signal(self.number)
        allowed = {0}
        if self.again:
            process.send_signal(self.number)
            allowed.add(130)
        began = time.monotonic()
        code = process.wait(30)
        world.daemon.process.stdout.close()
        if code not in allowed:
            world.fail(self.number.name, f"exit code {code}")
        if time.monotonic() - began > 10:
            world.fail(self.number.name, f"took {time.monotonic() - began:.1f} s to leave")
        world.trials += 1
        world.start()


@dataclass(frozen=True, slots=True)
class SignalCollector:
    """A signal that must not end it."""

    number: signal.Signals

    def __call__(self, world: World) -> None:
        world.daemon.process.send_signal(self.number)
        world.trials += 1


@dataclass(frozen=True, slots=True)
class KillSender:
    """SIGKILL one of the senders; another of its kind takes its place."""

    kinds: tuple[str, ...] = ("stream", "client", "otlp-logs", "otlp-spans")

    def __call__(self, world: World) -> None:
        living = [s for s in world.senders if s.process.poll() is None and s.orders.kind in self.kinds]
        victim = world.chance.choice(living)
        victim.kill()
        world.trials += 1
        world.add_sender(victim.orders.kind)


@dataclass(frozen=True, slots=True)
class FreezeCollector:
    """SIGSTOP, a while, SIGCONT."""

    least: float
    most: float

    def __call__(self, world: World) -> None:
        world.daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(world.chance.uniform(self.least, self.most))
        world.daemon.process.send_signal(signal.SIGCONT)
        world.trials += 1


@dataclass(frozen=True, slots=True)
class FillDisk:
    """Take every byte the disk has left."""

    def __call__(self, world: World) -> None:
        fd = os.open(world.root.parent / BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        block = bytes(4096)
        try:
            while True:
                os.write(fd, block)
        except OSError:
            world.trials += 1
        finally:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class TakeInodes:
    """Take every inode the disk has left."""

    def __call__(self, world: World) -> None:
        folder = world.root.parent / f"{BALLAST}s"
        folder.mkdir(exist_ok=True)
        try:
            for number in range(1 << 20):
                os.close(os.open(folder / str(number), os.O_CREAT | os.O_WRONLY))
        except OSError:
            world.trials += 1


@dataclass(frozen=True, slots=True)
class FreeDisk:
    """Give back what was taken."""

    def __call__(self, world: World) -> None:
        (world.root.parent / BALLAST).unlink(missing_ok=True)
        folder = world.root.parent / f"{BALLAST}s"
        if folder.exists():
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()


@dataclass(frozen=True, slots=True)
class LimitDescriptors:
    """So many descriptors the living collector may have from now on."""

    most: int

    def __call__(self, world: World) -> None:
        resource.prlimit(world.daemon.process.pid, resource.RLIMIT_NOFILE, (self.most, self.most))


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many connections that say nothing, held for a random while."""

    connections: int
    least: float
    most: float

    def __call__(self, world: World) -> None:
        with ExitStack() as crowd:
            for _ in range(self.connections):
                sock = crowd.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                sock.setblocking(False)
                with suppress(OSError):  # a full backlog is part of it
                    sock.connect(str(world.daemon.socket))
            time.sleep(world.chance.uniform(self.least, self.most))
        world.trials += 1
