"""The open steps: what is around what, and how little is remembered."""

from __future__ import annotations

from agentrund.formats import steps
from agentrund.formats.steps import Steps
from support.records import Book


def followed(book):
    found = Steps()
    return found, [found.feed(record) for record in book.records]


def test_pairs_and_surroundings():
    book = Book()
    book.start()
    agent = book.add("agent.start", "a")
    tool = book.add("tool.call", "t", parent=agent)
    book.add("log", parent=tool)
    book.add("tool.result", "t", parent=tool)
    found, fed = followed(book)
    assert [step.seq if step else None for step in fed] == [None, agent, tool, tool, tool]
    assert (fed[2].owner, fed[2].inside, fed[1].owner, fed[1].inside) == ("a", "a", None, "a")
    assert list(found.open) == [agent]


def test_a_closing_record_closes_only_its_own_kind_and_only_once():
    book = Book()
    book.start()
    tool = book.add("tool.call", "t")
    book.add("agent.end", "t", parent=tool)
    book.add("tool.result", "t", parent=tool)
    book.add("tool.result", "t", parent=tool)
    _, fed = followed(book)
    assert [step is None for step in fed[2:]] == [True, False, True]


def test_closed_steps_are_forgotten_in_time(monkeypatch):
    monkeypatch.setattr(steps, "_REMEMBERED", 2)
    book = Book()
    book.start()
    ended = []
    for number in range(4):
        ended.append(book.add("agent.start", f"a{number}"))
        book.add("agent.end", f"a{number}", parent=ended[-1])
    for agent in ended:
        book.add("log", parent=agent)
    _, fed = followed(book)
    assert [step and step.name for step in fed[-4:]] == [None, None, "a2", "a3"]


def test_a_chain_of_ended_parents_is_not_kept_alive_by_its_last_child():
    book = Book()
    book.start()
    last = None
    for _ in range(100):
        opened = book.add("agent.start", "a", parent=last)
        if last is not None:
            book.add("agent.end", "a", parent=last)
        last = opened
    _, fed = followed(book)
    step, depth = fed[-2], 0
    while step is not None:
        step, depth = step.parent, depth + 1
    assert depth <= 3
