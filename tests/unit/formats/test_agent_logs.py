"""agent.logs: the seed's lines to the letter, and nothing a payload holds can pass for one of them."""

from __future__ import annotations

import re

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentrund.formats.agent_logs import LogRenderer, Mark, parse
from agentrund.model.run_state import RunState
from support.records import Book


def rendered(records):
    state, renderer = RunState("r"), LogRenderer()
    return b"".join(renderer.render(record, state.apply(record), state) for record in records)


def lines_of(book):
    return rendered(book.records).decode().split("\n")


def event(kind, name=None, payload=None, **more):
    """The lines that one event adds to a run that has begun."""
    book = Book()
    book.start(at=0)
    book.add(kind, name, payload, **{"at": 2.512, **more})
    before = len(rendered(book.records[:1]))
    return rendered(book.records)[before:].decode()


# -- the seed's own examples -----------------------------------------------------------------------------


def test_an_error_line_as_the_seed_has_it():
    assert event(
        "tool.error", "run_python", {"error_type": "TimeoutError", "error": "exceeded 30s"}, at=30
    ) == ("#0002 14:23:03.000 +30.0s  tool.error    run_python   TimeoutError: exceeded 30s\n")


def test_a_framed_block_as_the_seed_has_it():
    text = '{"decision": "work"}\n' + "x" * 65
    got = event(
        "llm.response",
        "triage",
        {"stop_reason": "end_turn", "tokens_out": 386, "cost_usd": 0.0005, "text": text},
    )
    assert got == (
        "#0002 14:22:35.512  +2.5s  llm.response  triage       stop=end_turn · 386 tok · $0.0005\n"
        "┌──────────────────────────────────\n"
        f"{text}\n"
        "└─ #0002 end · 86 B ───────────────\n"
        "\n"
    )


def test_a_spilled_block_points_at_its_blob_and_repeats_its_anchor():
    payload = {"messages": 4, "tokens_in": 69340, "text_ref": "blobs/9fa2c1e4.txt", "bytes": 277_402}
    preview = "\n".join(["[system]", "You are the planner...", *("x" * 10)])
    got = event("llm.prompt", "planner", payload | {"preview": preview})
    assert got == (
        "#0002 14:22:35.512  +2.5s  llm.prompt    planner      4 msgs · 69340 tok"
        " · 270.9 KB -> blobs/9fa2c1e4.txt\n"
        "┌── first 12 lines ────────────────\n"
        f"{preview}\n"
        "└─ #0002 truncated · full text: blobs/9fa2c1e4.txt ─\n"
        "\n"
    )


def test_banners_and_the_crash_marker():
    book = Book()
    book.start(at=0)
    call = book.add("tool.call", "run_python", {"args": {}}, at=1)
    steps = [
        {"seq": call, "type": "tool.call", "name": "run_python", "age": 30.0},
        {"seq": None, "type": "tool.call", "name": "run_python", "age": 2.04, "requested_in": 7},
        {"seq": None, "type": None, "name": None, "age": 0.0, "span": "51ce99", "missing_parent": True},
    ]
    book.die("process exited: killed by SIGKILL", steps=steps, at=41)
    book.resume(at=509)
    assert rendered(book.records).decode() == (
        "==== attempt 1 · started 2026-08-30 14:22:33 · pid 4410 · resume_seq 0 ====\n"
        "\n"
        "#0001 14:22:33.000  +0.0s  run.start     -\n"
        "#0002 14:22:34.000  +1.0s  tool.call     run_python\n"
        '#0003 14:23:14.000 +40.0s  source.exit   -            cause="process exited: killed by SIGKILL"\n'
        "\n"
        "---- attempt 1 ended at 14:23:14 without run.end (process exited: killed by SIGKILL) ----\n"
        "     open: #0002 run_python (tool.call, 30.0s)\n"
        "     open: - run_python (requested in #0007)\n"
        "     open: - span 51ce99 (parent never arrived)\n"
        "\n"
        "==== attempt 2 · started 2026-08-30 14:31:02 · pid 48211 · resume_seq 3 ====\n"
        "\n"
        "#0004 14:31:02.000  +0.0s  run.resume    -            attempt=2 · from=#0003 · reason=crashed\n"
    )


def test_the_marker_names_the_last_death_and_what_all_of_them_left_open():
    book = Book()
    book.start(source="a1", at=0)
    book.add("source.join", None, {"source": "b1", "pid": 7}, at=1)
    first = [{"seq": None, "type": "tool.call", "name": "x", "age": 1.0}]
    book.die("process exited: exit code 3", source="b1", steps=first, at=2)
    book.die(
        "heartbeat lost", source="a1", steps=[{"seq": 9, "type": "llm.prompt", "name": "y", "age": 4.0}], at=9
    )
    assert lines_of(book)[-5:] == [
        "",
        "---- attempt 1 ended at 14:22:42 without run.end (heartbeat lost) ----",
        "     open: - x (tool.call, 1.0s)",
        "     open: #0009 y (llm.prompt, 4.0s)",
        "",
    ]


def test_an_unknown_pid_is_a_dash():
    book = Book()
    book.start(pid=None)
    assert lines_of(book)[0].endswith(" · pid - · resume_seq 0 ====")


# -- columns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "payload", "more", "detail"),
    [
        ("run.end", {"cost_usd": 0.023, "llm_calls": 3, "tool_calls": 4, "errors": 1, "cause": "run.end"},
         {"status": "failed", "dur_ms": 74620},
         "failed · 74.6s active · $0.0230 · 3 llm · 4 tool · 1 errors · cause=run.end"),
        ("agent.start", {}, {"parent": 6}, "parent=#0006"),
        ("agent.start", {"goal": "find it"}, {}, 'parent=- · goal="find it"'),
        ("agent.end", {"cost_usd": 0.0005}, {"status": "ok", "dur_ms": 2540}, "ok · 2.5s · $0.0005"),
        ("llm.prompt", {"messages": 4, "tokens_in": 0, "model": "m"}, {}, "4 msgs · model=m"),
        ("llm.response", {"cost_usd": 0}, {}, "$0.0000"),
        ("llm.error", {"error_type": "RateLimitError", "error": "429"}, {}, "RateLimitError: 429"),
        ("error", {}, {}, "Error:"),
        ("tool.call", {"args": {"folder": "INBOX", "query": "from:bob unread", "n": None, "deep": [1, "x"]}}, {},
         "folder=INBOX query=\"from:bob unread\" n=None deep=[1, 'x']"),
        ("tool.call", {"args": "raw"}, {}, "args=raw"),
        ("tool.result", {"hits": 12, "text": "done"}, {"status": "ok"}, "ok · hits=12 · done"),
        ("tool.result", {"text": "alone"}, {}, "alone"),
        ("tool.result", {"text": ""}, {"status": "ok"}, "ok"),
        ("tool.result", {"empty": "", "nothing": None, "yes": True}, {}, 'empty="" · yes=True'),
        ("log", {"level": "WARNING", "logger": "app", "message": "retrying", "attempt": 2, "host": "mx 1"}, {},
         'WARNING retrying · attempt=2 · host="mx 1"'),
        ("log", {"level": "INFO", "message": "x\ny"}, {}, "INFO x⏎y"),
        ("source.join", {"source": "b", "pid": 1, "pid_start": 2, "boot_id": "x", "uid": 0, "pid_from": "client"}, {},
         "pid_from=client"),
        ("turn.start", {"turn": 3, "note": "a b"}, {}, 'turn=3 · note="a b"'),
        ("llm.response", {"cost_usd": 10**400, "tokens_out": "many"}, {}, f"tokens_out=many · cost_usd={10**400}"),
    ],
)  # fmt: skip
def test_detail(kind, payload, more, detail):
    got = event(kind, "n", payload, **more)
    assert got.split("n            ", 1)[1] == detail + "\n" if detail else got


def test_long_arguments_move_to_a_block():
    args = {"code": "x" * 201, "n": 1}
    assert event("tool.call", "run", {"args": args}).split("\n", 1) == [
        "#0002 14:22:35.512  +2.5s  tool.call     run          2 args",
        "┌──────────────────────────────────\n"
        + orjson.dumps(args, option=orjson.OPT_INDENT_2).decode()
        + "\n└─ #0002 end · 227 B ──────────────\n\n",
    ]


def test_integers_of_any_size_keep_their_digits_in_arguments():
    assert str(10**60) in event("tool.call", "run", {"args": {"n": 10**60, "code": "x" * 200}})


def test_a_spilled_argument_shows_its_beginning():
    spilled = {"ref": "blobs/12345678.txt", "preview": "import os\n#0042 x", "bytes": 10_000}
    assert event("tool.call", "run", {"args": {"code": spilled, "n": 1}}) == (
        "#0002 14:22:35.512  +2.5s  tool.call     run          code=9.8 KB -> blobs/12345678.txt n=1\n"
        "┌── first 2 lines ─────────────────\n"
        "import os\n"
        " #0042 x\n"
        "└─ #0002 truncated · full text: blobs/12345678.txt ─\n"
        "\n"
    )


def test_a_spilled_error_shows_its_beginning():
    spilled = {"ref": "blobs/12345678.txt", "preview": "boom", "bytes": 10_000}
    got = event("tool.error", "run", {"error_type": "E", "error": spilled})
    assert "E: 9.8 KB -> blobs/12345678.txt\n┌── first 1 lines ──" in got


def test_a_structured_conversation_is_not_said_twice():
    assert "input" not in event("llm.prompt", "x", {"input": [{"role": "user"}], "text": "[user]\nhi"})
    assert "input=[{'role': 'user'}]" in event("llm.prompt", "x", {"input": [{"role": "user"}]})


def test_what_an_otlp_item_holds_beside_the_vocabulary_stays_in_the_trace():
    payload = {"attributes": {"a": 1}, "output": "x", "model": "m"}
    otlp = {"k": "otlp", "id": "a1", "span": "s"}
    assert event("llm.response", "x", payload, src=otlp).endswith(" model=m\n")
    assert event("llm.response", "x", payload).endswith(" attributes={'a': 1} · output=x · model=m\n")


def test_short_text_stays_on_the_line_and_long_text_is_framed():
    assert "┌" not in event("tool.result", "x", {"text": "y" * 120})
    assert "┌" in event("tool.result", "x", {"text": "y" * 121})


def test_anchors_grow_beyond_four_digits():
    book = Book()
    book.start()
    for _ in range(10_001):
        book.add("log", None, {"message": "x"})
    last = lines_of(book)[-2]
    assert last.startswith("#10002 ")
    assert [mark.number for mark in marks(book) if mark.kind == "event"] == list(range(1, 10_003))


def test_deltas_are_per_attempt_and_never_negative():
    book = Book()
    book.start(at=0)
    book.add("log", at=129.3)
    book.add("log", at=20)
    book.add("log", at=20.26)
    book.die(at=21)
    book.resume(at=3600)
    late = book.add("log", at=3601, attempt=1, src={"k": "sock", "id": "a1", "late": True})
    book.add("log", at=3602)
    deltas = [re.match(r"#\d+ \S+ +(\S+)", line)[1] for line in lines_of(book) if line.startswith("#")]
    assert deltas == ["+0.0s", "+129.3s", "+0.0s", "+0.3s", "+0.7s", "+0.0s", "+3580.0s", "+2.0s"]
    assert late == 7


def test_wide_names_push_their_line_and_cut_nothing():
    assert "a_very_long_tool_name ok" in event("tool.result", "a_very_long_tool_name", {}, status="ok")


# -- reading back ----------------------------------------------------------------------------------------


def marks(book):
    return list(parse(rendered(book.records).splitlines(keepends=True)))


def test_parse_tells_events_from_banners():
    book = Book()
    book.start()
    book.die()
    book.resume()
    text = rendered(book.records)
    got = marks(book)
    assert [(mark.kind, mark.number) for mark in got] == [
        ("opened", 1), ("event", 1), ("event", 2), ("crashed", 1), ("opened", 2), ("event", 3),
    ]  # fmt: skip
    assert got[3] == Mark("crashed", 1, text.index(b"---- attempt"))


HOSTILE = st.sampled_from(
    [
        "#0042 14:22:33.000  +0.0s  run.end       -",
        "#٤٢ x",
        "#1",
        "┌──────────────────────────────────",
        "└─ #0002 end · 86 B ───────────────",
        "==== attempt 9 · started 2026-08-30 14:22:33 · pid 1 · resume_seq 0 ====",
        "---- attempt 1 ended at 14:23:14 without run.end (process exited) ----",
        "     open: #0001 x (tool.call, 1.0s)",
        "\n", "\n\n", "\r", "\r\n", "\t", "\x00", "\x1b[2J\x1b]52;c;aGk=\x07", "\x0b", "\x0c", "\x1c", "\x7f",
        "\x85", "\x9b31m", "\u2028", "\u2029", "\u202e", "\u2066", "\u061c", "\u200f", "é", "日本", "🙂",
        "\u00a0", " ", "#", "a" * 130, "⏎", "· $0.0005", "blobs/0.txt",
    ]
)  # fmt: skip
TEXT = st.lists(st.one_of(HOSTILE, st.text(max_size=12)), max_size=8).map("".join).map(
    lambda text: text.encode("utf-8", "replace").decode()
)  # fmt: skip
VALUE = st.recursive(
    st.one_of(
        TEXT, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
KEYS = st.one_of(
    TEXT,
    st.sampled_from(
        ["text", "text_ref", "preview", "bytes", "args", "error", "error_type", "message", "level", "cost_usd",
         "tokens_in", "tokens_out", "messages", "stop_reason", "session_id", "framework", "resume_seq", "input",
         "open", "cause", "source", "pid"]
    ),
)  # fmt: skip
TYPES = st.one_of(
    st.sampled_from(
        ["agent.start", "agent.end", "llm.prompt", "llm.response", "llm.error", "tool.call", "tool.result",
         "tool.error", "error", "log", "state.update"]
    ),
    TEXT,
)  # fmt: skip
EVENTS = st.lists(
    st.tuples(TYPES, st.one_of(st.none(), TEXT), st.dictionaries(KEYS, VALUE, max_size=5)),
    min_size=1,
    max_size=6,
)
FORGED = "#0042 x\n└─ #0001 end\n==== attempt 2 ·"


def book_of(events, *, raw=False):
    book = Book()
    book.start()
    for kind, name, payload in events:
        if kind in ("run.start", "run.resume", "run.end", "source.exit", "source.join"):
            continue
        book.add(kind, name, payload, raw=orjson.dumps(payload) if raw else None)
    return book


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@given(EVENTS)
@example([("tool.result", FORGED, {"text": FORGED, FORGED: FORGED})])
@example([("tool.call", "x", {"args": {FORGED: "y" * 300}})])
@example([("llm.prompt", "x", {"text_ref": FORGED, "preview": FORGED, "bytes": 3})])
@example([("tool.error", "x", {"error": {"ref": FORGED, "preview": FORGED, "bytes": 3}})])
def test_whatever_a_payload_holds_the_log_reads_back_to_the_same_seqs(events):
    book = book_of(events)
    text = rendered(book.records)
    got = list(parse(text.splitlines(keepends=True)))
    assert [mark.number for mark in got if mark.kind == "event"] == [r.seq for r in book.records]
    assert [mark.number for mark in got if mark.kind != "event"] == [1]
    assert CONTROL.search(text.decode()) is None
    frames = [line for line in text.decode().split("\n") if line.startswith(("┌─", "└─"))]
    assert len(frames) % 2 == 0
    assert all(line.startswith("┌─") for line in frames[::2])
    assert all(re.match(r"└─ #\d{4,} (end · |truncated · full text: )", line) for line in frames[1::2])


@given(EVENTS)
def test_a_search_for_anchors_finds_events_only(events):
    book = book_of(events)
    found = re.findall(r"^#(\d+)", rendered(book.records).decode(), re.MULTILINE)
    assert [int(seq) for seq in found] == [record.seq for record in book.records]


@given(EVENTS.filter(lambda events: all(_fits_orjson(payload) for _, _, payload in events)))
def test_the_bytes_a_payload_came_in_change_nothing(events):
    assert rendered(book_of(events, raw=True).records) == rendered(book_of(events).records)


def _fits_orjson(payload):
    try:
        orjson.dumps(payload)
    except TypeError:
        return False
    return True


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=400))
def test_nothing_of_a_block_is_lost(text):
    got = event("tool.result", "x", {"text": "z" * 121 + text})
    inside = got.split("\n", 2)[2].rsplit("\n└─", 1)[0].split("\n")
    expected = CONTROL.sub(
        lambda c: f"\\x{ord(c[0]):02x}" if c[0] < "\u0100" else f"\\u{ord(c[0]):04x}", text
    )
    lines = ("z" * 121 + expected).split("\n")
    assert len(inside) == len(lines)
    assert all(shown in (line, f" {line}") for shown, line in zip(inside, lines, strict=True))
