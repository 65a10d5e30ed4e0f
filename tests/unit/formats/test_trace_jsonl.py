"""A line of trace.jsonl is a record or damage: nothing between, or a reader stumbles over what a collector took."""

from __future__ import annotations

import json

import pytest

from agentrund.formats import trace_jsonl
from agentrund.model.errors import Damaged
from support.records import Book


@pytest.fixture
def line() -> bytes:
    book = Book()
    book.start(labels={"ü": "é😀"})
    book.add("tool.error", "t", {"error": "é\n"}, status="error", src={"k": "sdk", "id": "a", "n": 1})
    record = book.records[-1]
    return trace_jsonl.encode(record)


def test_every_flipped_bit_leaves_strict_json_or_damage(line):
    kept = 0
    for at in range(len(line) - 1):
        for bit in range(8):
            hurt = bytearray(line)
            hurt[at] ^= 1 << bit
            try:
                trace_jsonl.decode(bytes(hurt))
            except Damaged:
                continue
            kept += 1
            assert isinstance(json.loads(hurt.decode("utf-8")), dict)
    assert kept > len(line)


def test_what_is_unknown_passes_and_still_has_to_be_text(line):
    known = trace_jsonl.decode(line)
    assert trace_jsonl.decode(line[:-2] + ',"später":{"é":"ü"}}\n'.encode()) == known
    with pytest.raises(Damaged, match="utf-8"):
        trace_jsonl.decode(line[:-2] + b',"later":{"\xc3":1}}\n')
