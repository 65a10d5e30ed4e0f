"""Text of any sender in every field: files for people show it, and nothing in them is forged or comes alive."""

from __future__ import annotations

import json
import re
import unicodedata
from hashlib import sha1

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agentrund.formats import agent_logs, escape, index
from agentrund.formats.agent_logs import LogRenderer
from agentrund.formats.derive import derive
from agentrund.formats.spill import spill
from agentrund.formats.trace_jsonl import decode, encode
from agentrund.model.run_state import RunState
from support.records import Book

TERMINAL = [
    "\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;http://evil.example\x1b\\link", "\x1b]52;c;ZXZpbA==\x07", "\x9b31m",
    "\x90q\x9c", "\x07", "\x08\x08\x08", "\r", "\x7f", "\x0b", "\x0c", "\x85", "\0", "\u202egnp.exe", "\u2066\u2069",
    "\u200f", "\u061c",
]  # fmt: skip
FORGED = [
    "\n#0009 12:00:00.000  +0.1s  run.end       -            ok", "#0009 12:00:00.000  +0.1s  run.end", "\n└─ #0004 end ─",
    "\n┌──────", "\n==== attempt 2 · started 2026-08-30 14:31:02 · pid 1 · resume_seq 3 ====\n",
    "\n---- attempt 1 ended at 14:23:14 without run.end (process exited) ----\n", "\u2028#0009 x", "\r#0009 x", "\n#٣٣٣٣ x",
    "\n     open: #0001 x",
]  # fmt: skip
LIVE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!-- ", "<![CDATA[", "<?php", "</details>",
    "![x](http://evil.example/x.png)", "[x](javascript:alert(1))", "[x]: http://evil.example", "<http://evil.example>",
    "<a@evil.example>", "![x][y]", "```\n", "\n```\n<b>", "\n~~~\n", "`", "| a | b |\n|---|---|\n", "\\", "\\<b>", "&lt;b&gt;",
    "&#60;b>", "\n\n<div>\n\n", "\n    code", "\n# heading", "\n---\n", "*x*", "<b\n>", "<", "\\\\<i>",
]  # fmt: skip
HOSTILE = TERMINAL + FORGED + LIVE
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
ANCHOR = re.compile(r"^#\d+", re.MULTILINE)

text = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=8), max_size=4).map("".join)


def story(say) -> Book:
    """A run with a crash and a resume in which everything that can be a sender's word is ``say()``."""
    book = Book()

    def words():
        return {
            "framework": say(), "framework_version": say(), "model": say(), "task": say(), "tags": [say(), say()],
            "argv": [say(), "--token", say()], "cwd": say(), "python": say(), "platform": say(),
            "git": {"branch": say(), say(): say()}, "meta": {say(): say()},
        }  # fmt: skip

    book.start(session_id=say(), **words())
    agent = book.add("agent.start", say(), {"input": say(), say(): say()})
    call = book.add(
        "llm.prompt",
        say(),
        {"messages": say(), "tokens_in": 3, "text": say() * 9, "model": say()},
        parent=agent,
    )
    asked = [{"id": say(), "name": say(), "args": {say(): say()}}, say()]
    book.add(
        "llm.response",
        say(),
        {"stop_reason": say(), "requested_tools": asked, "text": say()},
        parent=call,
        dur_ms=5,
    )
    for kind, payload in (
        ("tool.result", {"text": say() * 3, say(): say()}),
        ("tool.error", {"error_type": say(), "error": say(), "text": say()}),
        ("tool.result", {"cost_usd": say(), "dur": say()}),
    ):
        step = book.add("tool.call", say(), {"args": {say(): say(), "code": say() * 20}}, parent=agent)
        book.add(kind, say(), payload, parent=step, status=say(), dur_ms=7)
    book.add("log", say(), {"level": say(), "message": say(), "logger": say()}, status=say())
    book.add("error", say(), {"error_type": say(), "error": {say(): say()}})
    book.add(
        "foreign." + say(),
        say(),
        {say(): [say(), {say(): say()}], "text": say()},
        src={"k": say(), "id": say()},
    )
    book.add("x", say(), {"text_ref": say(), "preview": say(), "bytes": say()})
    book.add("x", say(), {"y": {"ref": say(), "preview": say(), "bytes": 3}})
    left = [{"seq": agent, "type": say(), "name": say(), "age": 1.0}, {"name": say(), "requested_in": say()},
            {"span": say(), "missing_parent": True}]  # fmt: skip
    book.die(say(), steps=left)
    book.resume(reason=say(), **words())
    book.add("agent.end", say(), {"cost_usd": say()}, parent=agent, status=say())
    book.end(say() or "ok", cost_usd=say(), llm_calls=say())
    return book


def written(book):
    """What the collector makes of records: the transcript, and the derived files."""
    for record in book.records:
        record.payload = spill(record.payload, 64, lambda data: f"blobs/{sha1(data).hexdigest()[:8]}.txt")
    records = [decode(encode(record)) for record in book.records]
    state, renderer = RunState(book.run_id), LogRenderer()
    logs = b"".join(renderer.render(record, state.apply(record), state) for record in records)
    return logs, derive(records)


def check(book):
    logs, derived = written(book)
    seqs = [record.seq for record in book.records]
    shown, outline = logs.decode(), derived.outline.decode()
    assert RAW.search(shown.replace("\n", "").replace("\t", "")) is None
    assert RAW.search(outline.replace("\n", "")) is None
    # Neither a reader of ours nor a search finds more than what happened.
    marks = list(agent_logs.parse(logs.splitlines(keepends=True)))
    assert [mark.number for mark in marks if mark.kind == "event"] == seqs
    assert [(mark.kind, mark.number) for mark in marks if mark.kind != "event"] == [
        ("opened", 1), ("crashed", 1), ("opened", 2),
    ]  # fmt: skip
    assert [int(found[1:]) for found in ANCHOR.findall(shown)] == seqs
    assert len(re.findall(r"^(?:====|----) attempt ", shown, re.MULTILINE)) == 3
    assert len(re.findall(r"^---- attempt ", outline, re.MULTILINE)) == 2
    assert {int(found[1:]) for found in ANCHOR.findall(outline)} <= set(seqs)
    assert foreign(outline) == set()
    # What programs read keeps every character.
    for data in (
        derived.analytics,
        derived.meta,
        index.encode_row(derived.row, index.slot_size(derived.row)),
    ):
        json.loads(data)
    for record in book.records:
        again = json.loads(encode(record))
        assert again["name"] == record.name
        assert again["payload"] == json.loads(json.dumps(record.payload))


def foreign(outline: str) -> set[str]:
    """Kinds of Markdown that only a sender's words can have made."""
    kinds = set()
    for token in MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(outline):
        kinds.update(found.type for found in (token, *(token.children or ())))
    return kinds & {
        "html_block", "html_inline", "image", "link_open", "fence", "code_inline", "table_open", "blockquote_open",
    }  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: ascii(text)[1:25])
def test_each_in_every_field(hostile):
    check(story(lambda: hostile))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_of_them_anywhere(data):
    check(story(lambda: data.draw(text)))


def test_this_test_would_see_something_live():
    assert foreign("a <b>x</b> ![x](y) `z` [x](y)\n\n<div>\n\n```\n") == {
        "html_inline", "image", "code_inline", "link_open", "html_block", "fence",
    }  # fmt: skip


def test_json_for_a_terminal_says_the_same():
    value = {"x": "".join(TERMINAL) + "ü漢"}
    data = json.dumps(value, ensure_ascii=False).encode() + b"\n"
    shown = escape.json_text(data)
    assert json.loads(shown) == value
    assert RAW.search(shown.decode().rstrip("\n")) is None
    assert "ü漢" in shown.decode()
    assert escape.json_text(b'{"a":1}\n') == b'{"a":1}\n'


def test_everything_unicode_calls_a_control_is_escaped():
    for code in range(0x110000):
        char = chr(code)
        if unicodedata.category(char) == "Cc" or unicodedata.bidirectional(char) in (
            "LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI", "B",
        ):  # fmt: skip
            assert char not in escape.one_line(f"a{char}b")
