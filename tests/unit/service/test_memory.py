from __future__ import annotations

import weakref

from agentrund.receivers.budget import Budget
from agentrund.service.memory import TRIM_BYTES, TRIM_EVERY_S, TRIM_SHARE, Memory, give_back, resident

MIB = 1 << 20
LIMIT = 1000 * MIB


class World:
    """A process whose memory the test sets."""

    def __init__(self) -> None:
        self.used = 50 * MIB
        self.shed = 0
        self.trimmed = 0
        self.budget = Budget(256 * MIB)
        self.trim_takes = 0.03
        self.memory = Memory(LIMIT, self.budget, self._shed, lambda: self.used, self._trim)

    def _shed(self) -> None:
        self.shed += 1

    def _trim(self) -> float:
        self.trimmed += 1
        return self.trim_takes


def test_near_the_limit_senders_come_in_one_at_a_time_until_there_is_room_again():
    world = World()
    world.memory.tick(10.0)
    assert (world.budget.tight, world.shed) == (False, 0)
    world.used = 810 * MIB
    world.memory.tick(10.25)
    world.memory.tick(10.5)
    assert (world.budget.tight, world.shed, world.memory.status()["times_short"]) == (True, 2, 1)
    world.used = 300 * MIB
    world.memory.tick(10.75)
    assert (world.budget.tight, world.shed) == (False, 2)


def test_what_has_grown_is_given_back_now_and_then():
    world = World()
    world.used += TRIM_BYTES // 2
    world.memory.tick(100.0)
    assert world.trimmed == 0
    world.used += TRIM_BYTES
    world.memory.tick(101.0)
    world.used += 2 * TRIM_BYTES
    world.memory.tick(101.25)
    assert world.trimmed == 1, "not at every look"
    world.memory.tick(101.0 + TRIM_EVERY_S)
    assert world.trimmed == 2


def test_giving_back_takes_no_large_share_of_the_time_unless_memory_is_short():
    world = World()
    world.trim_takes = 0.5
    world.used += 2 * TRIM_BYTES
    world.memory.tick(100.0)
    world.used += 2 * TRIM_BYTES
    world.memory.tick(100.0 + 0.5 / TRIM_SHARE - 1)
    assert world.trimmed == 1
    world.memory.tick(100.0 + 0.5 / TRIM_SHARE)
    assert world.trimmed == 2
    world.used = 810 * MIB
    world.memory.tick(100.0 + 0.5 / TRIM_SHARE + TRIM_EVERY_S)
    assert world.trimmed == 3


def test_this_process_has_memory_and_can_give_some_back():
    class Node:
        """One of a tree: it knows its child, which knows it."""

    gone = []
    parent = Node()
    parent.child = Node()
    parent.child.parent = parent
    weakref.finalize(parent, gone.append, "gone")
    del parent
    give_back()
    assert gone == ["gone"]
    assert MIB < resident() < 1 << 40
