"""Links, FIFOs and folders in the place of the collector's files: nothing outside is touched, others go on."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from agentrund.model.errors import AgentrundError, Unavailable
from agentrund.store.root import Root
from agentrund.views import show
from agentrund.views.folder import Root as View
from agentrund.views.runs import Filter, list_runs
from agentrund.views.tail import Tail
from agentrund.views.verify import verify
from support.inner_collector import Inner
from support.planting import PLANTS, Outside, listing, plant

LONG = "x" * 9000
BLOB = "blobs/7a9d8cb5.txt"
OF_A_RUN = [
    "trace.jsonl", "agent.logs", "outline.md", "analytics.json", "meta.json", ".meta.json.new", ".outline.md.new",
    "blobs", BLOB, "blobs/.7a9d8cb5.txt.new", "",
]  # fmt: skip
OF_THE_ROOT = [
    "index.jsonl", ".index.jsonl.new", "latest", ".latest.new", "sessions", "sessions/s", "sessions/.s.new",
    "NAVIGATE.md", ".agentrund", ".agentrund/lock", ".agentrund/quarantine", "runs",
]  # fmt: skip


@pytest.fixture
def outside(tmp_path):
    found = Outside(tmp_path)
    yield found
    assert found.untouched()


async def told(inner: Inner, source: str, session: str | None) -> str:
    """A whole run: its blob, its lines, its end."""
    actor = inner.enter(source, session)
    inner.say(actor, source, 1, text=LONG + source)
    inner.say(actor, source, 2, kind="run.end", status="ok")
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(inner.settle(actor), 0.1)
    return actor.run_id


@pytest.mark.parametrize("what", PLANTS)
@pytest.mark.parametrize("name", OF_A_RUN)
def test_planted_in_a_run_that_goes_on(tmp_path, outside, name, what, caplog):
    """The run may suffer, as its owner made it; its neighbours do not, and no log is flooded."""

    async def story():
        inner = Inner(tmp_path / "root")
        victim = inner.enter("victim", "s")
        inner.say(victim, "victim", 1, text=LONG)
        path = tmp_path / "root" / "runs" / victim.run_id
        plant(path / name if name else path, what, outside)
        inner.root.files.close()  # as when many other files were opened since
        for n in range(2, 6):
            with contextlib.suppress(AgentrundError, OSError):
                inner.say(victim, "victim", n, text=LONG + str(n))
        with contextlib.suppress(AgentrundError, OSError):
            inner.say(victim, "victim", 6, kind="run.end", status="ok")
        for _ in range(5):
            inner.runs.retry()
        other = await told(inner, "other", "t")
        if (actor := inner.runs.resident(other)) is not None:
            await inner.settle(actor)
        assert inner.status(other) == "ok"
        await inner.close()
        return other

    other = asyncio.run(story())
    assert (tmp_path / "root" / "runs" / other / "outline.md").read_bytes()
    assert len(caplog.records) < 40, caplog.text


@pytest.mark.parametrize("what", PLANTS)
@pytest.mark.parametrize("name", OF_THE_ROOT)
def test_planted_in_the_root_before_a_start(tmp_path, outside, name, what):
    """Either the start is refused with a word on it, or everything is recorded."""
    root = tmp_path / "root"
    refusals = []

    async def story():
        inner = Inner(root)
        await told(inner, "first", "s")
        await inner.close()
        plant(root / name, what, outside)
        try:
            inner.start()
        except Unavailable as error:
            refusals.append((error.message, error.hint))
            return
        run = await told(inner, "second", "s2")
        if (actor := inner.runs.resident(run)) is not None:
            await inner.settle(actor)
        assert inner.status(run) == "ok"
        await inner.close()

    asyncio.run(story())
    assert all(str(root) in message and hint for message, hint in refusals)


@pytest.mark.parametrize("what", PLANTS)
@pytest.mark.parametrize("name", [*(f"runs/RUN/{name}".rstrip("/") for name in OF_A_RUN), *OF_THE_ROOT])
def test_readers_neither_follow_nor_wait(tmp_path, outside, name, what):
    """Whatever they say, it holds nothing of what is outside, and the root is as it was."""
    root = tmp_path / "root"

    async def story():
        inner = Inner(root)
        run = await told(inner, "first", "s")
        await inner.settle(inner.runs.actor(run))
        await inner.close()
        return run

    run = asyncio.run(story())
    plant(root / name.replace("RUN", run), what, outside)
    before = listing(root)
    view = View(root)
    said: list[object] = []

    def tail():
        with Tail(view, run, after=None, last=5, as_json=False) as reader:
            return reader.read()

    for read in (
        lambda: show.outline(view, run),
        lambda: list(show.texts(view, run)),
        lambda: list(show.jsonl(view, run, show.FULL)),
        lambda: list(show.document(view, run, show.HIGH)),
        tail,
        lambda: list_runs(view, Filter()),
        view.run_ids,
        lambda: view.link("sessions/s"),
        lambda: view.link("latest"),
        lambda: list(verify(view)),
    ):
        try:
            said.append(read())
        except AgentrundError as error:
            said.append(error.message)
    text = repr(said)
    if what != "hard link":  # of which backups are made: it is the file, and `verify` names it
        assert "kept to itself" not in text
    assert "inside" not in text
    assert listing(root) == before
    if not as_a_kill_may_leave_it(name, what):
        path = str(root / name.replace("RUN", run))
        assert any(finding.path.startswith(path) for finding in verify(view)), "it is named"


def as_a_kill_may_leave_it(name: str, what: str) -> bool:
    """What was planted is of the right kind, or belongs to nobody."""
    if what == "file":
        return name.endswith((".new", "lock", ".txt")) and name not in (".latest.new", "sessions/.s.new")
    if "link" in what and what != "hard link":
        return name in (".latest.new", "sessions/.s.new")
    return what == "folder" and name in ("sessions", "runs", ".agentrund", ".agentrund/quarantine")


@pytest.mark.parametrize("what", PLANTS)
def test_gitignore_of_a_repository_that_is_not_ours_to_trust(tmp_path, outside, what):
    (tmp_path / ".git").mkdir()
    plant(tmp_path / ".gitignore", what, outside)
    Root.open(tmp_path / ".runs", {"pid": 1}).close()
