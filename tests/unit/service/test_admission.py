from __future__ import annotations

import asyncio

import pytest

from agentrund.model.errors import Overloaded
from agentrund.receivers.budget import Budget
from agentrund.service import admission
from agentrund.service.admission import Admission


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def entering(door: Admission, count: int) -> list[asyncio.Task]:
    return [asyncio.ensure_future(door.enter(60.0, "a")) for _ in range(count)]


async def known(door: Admission, sender: str, size: int) -> None:
    """A sender whose largest request had this size."""
    claim = await door.enter(None, sender)
    door.note(sender, size, claim)
    claim.close()


def test_requests_come_in_as_far_as_there_is_room_and_the_newest_of_those_that_wait_first():
    async def run() -> None:
        budget = Budget(100)
        door = Admission(budget, 40, lambda: True)
        tasks = entering(door, 4)
        await turns()
        assert [t.done() for t in tasks] == [True, True, False, False]
        assert (door.waiting, budget.used) == (2, 80)
        tasks[1].result().close()
        await turns()
        assert [t.done() for t in tasks] == [True, True, False, True]
        for task in (tasks[0], tasks[3]):
            task.result().close()
        (await tasks[2]).close()
        assert (door.waiting, budget.used, budget.waiting) == (0, 0, 0)

    asyncio.run(run())


def test_nobody_comes_in_while_the_worker_is_behind():
    async def run() -> None:
        budget, room = Budget(100), False
        door = Admission(budget, 40, lambda: room)
        tasks = entering(door, 2)
        await turns()
        assert (door.waiting, budget.waiting) == (2, 0), "nor does it keep the lines of the socket waiting"
        room = True
        door.pump()
        await turns()
        assert all(t.done() for t in tasks)

    asyncio.run(run())


def test_who_gives_up_leaves_no_claim_behind():
    async def run() -> None:
        budget = Budget(100)
        door = Admission(budget, 100, lambda: True)
        first, second, third = entering(door, 3)
        await turns()
        second.cancel()
        await turns()
        assert door.waiting == 1
        first.result().close()
        third.cancel()  # in the very moment its turn has come
        await turns()
        assert (door.waiting, budget.used, budget.waiting) == (0, 0, 0)

    asyncio.run(run())


@pytest.mark.parametrize("remaining_s", [0.0, 0.02])
def test_waiting_ends_before_the_senders_patience(remaining_s):
    async def run() -> None:
        door = Admission(Budget(100), 100, lambda: False)
        with pytest.raises(Overloaded) as caught:
            await door.enter(remaining_s, "a")
        assert caught.value.retry_s > 0
        assert (door.refused, door.waiting) == (1, 0)

    asyncio.run(run())


def test_more_than_can_wait_are_refused_at_once(monkeypatch):
    monkeypatch.setattr(admission, "WAITING_MAX", 1)

    async def run() -> None:
        door = Admission(Budget(100), 100, lambda: False)
        [waiting] = entering(door, 1)
        await turns()
        with pytest.raises(Overloaded):
            await door.enter(None, "a")
        waiting.cancel()
        await turns()

    asyncio.run(run())


def test_who_sends_small_requests_is_given_little_room_and_many_come_in(monkeypatch):
    monkeypatch.setattr(admission, "SMALL", 10)

    async def run() -> None:
        budget = Budget(100)
        door = Admission(budget, 100, lambda: True)
        await known(door, "a", 5)
        tasks = entering(door, 6)
        await turns()
        assert [t.done() for t in tasks] == [True] * 5 + [False]
        stranger = asyncio.ensure_future(door.enter(60.0, "b"))
        for task in tasks[:5]:
            task.result().close()
        (await tasks[5]).close()
        assert (await stranger).size == 100, "of whom nothing is known yet"
        stranger.result().close()
        await known(door, "a", 50)
        large = await door.enter(None, "a")
        assert large.size == 100
        large.close()
        assert budget.used == 0

    asyncio.run(run())


def test_nobody_is_given_the_room_that_was_asked_for_another(monkeypatch):
    monkeypatch.setattr(admission, "SMALL", 10)

    async def run() -> None:
        budget = Budget(100)
        door = Admission(budget, 100, lambda: True)
        await known(door, "a", 1)
        first = await door.enter(None, "a")
        large = asyncio.ensure_future(door.enter(60.0, "b"))
        await turns()
        small = await door.enter(60.0, "a")
        assert (small.size, large.done()) == (10, False)
        gone = asyncio.ensure_future(door.enter(60.0, "c"))
        await turns()
        gone.cancel()
        first.close()
        small.close()
        assert (await large).size == 100
        large.result().close()
        assert (budget.used, budget.waiting) == (0, 0)

    asyncio.run(run())


def test_who_is_known_for_small_requests_passes_those_who_dawdle(monkeypatch):
    monkeypatch.setattr(admission, "SMALL", 10)

    async def run() -> None:
        budget = Budget(320)
        door = Admission(budget, 200, lambda: True)
        await known(door, "a", 1)
        dawdlers = [asyncio.ensure_future(door.enter(60.0, f"d{n}")) for n in range(5)]
        await turns()
        small = [asyncio.ensure_future(door.enter(60.0, "a")) for _ in range(5)]
        await turns()
        assert [t.done() for t in dawdlers] == [True, False, False, False, False]
        assert [t.done() for t in small] == [True, True, True, True, False], (
            "as many as their lane has room for"
        )
        small[0].result().close()
        (await small[4]).close()
        for task in small[1:4]:
            task.result().close()
        for task in dawdlers[1:]:
            task.cancel()
        dawdlers[0].result().close()
        await turns()
        assert (door.waiting, budget.used, budget.waiting) == (0, 0, 0)

    asyncio.run(run())


def test_a_request_that_is_read_holds_no_more_room_than_it_takes(monkeypatch):
    monkeypatch.setattr(admission, "SMALL", 10)

    async def run() -> None:
        budget = Budget(100)
        door = Admission(budget, 80, lambda: True)
        slow = await door.enter(None, "a")
        strangers = [asyncio.ensure_future(door.enter(60.0, f"b{n}")) for n in range(2)]
        await turns()
        assert [t.done() for t in strangers] == [False, False]
        door.note("a", 1, slow)
        await turns()
        assert [t.done() for t in strangers] == [False, True], "while the first one is being stored"
        assert budget.used == 90
        door.note("b1", 30, strangers[1].result())
        assert budget.used == 90, "a large one needs what it asked for"
        slow.close()
        strangers[1].result().close()
        (await strangers[0]).close()
        assert (door.waiting, budget.used, budget.waiting) == (0, 0, 0)

    asyncio.run(run())
