"""What was written and is not known to be on stable storage: held until a sync has succeeded.

A sync that failed proves nothing about the next one: the kernel may have dropped the pages and forgotten
the error. So the bytes are held here, and after a failure they are written again, to the same places,
before a sync that succeeds is believed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from agentrund.model.errors import Unavailable
from agentrund.store.folder import Folder, SyncFailedError

HELD_MAX: Final = 64 << 20
"""Bytes held of everything before nothing more is taken,"""
HELD_ENOUGH: Final = 16 << 20
"""and before they are synced without waiting for the beat."""


def _nothing() -> None:
    """Nothing leads to it that changes."""


class FolderGoneError(OSError):
    """The folder is not there any more."""


class Held:
    """What is held of everything together. ``on_change`` is told how many bytes more there are, or fewer."""

    def __init__(self) -> None:
        self.size = 0
        self.most = HELD_MAX
        self.enough = HELD_ENOUGH
        self.on_change: Callable[[int], None] = lambda _change: None

    @property
    def full(self) -> bool:
        """Whether nothing more is taken."""
        return self.size >= self.most

    def change(self, change: int) -> None:
        """So many bytes more, or fewer."""
        self.size += change
        self.on_change(change)


Place = tuple[str, str]
"""Name of a sub-folder ("" is the folder itself), name of a file in it."""


@dataclass(slots=True)
class Batch:
    """What one sync covers: ``writes`` by place as offset and bytes, up to ``end`` of what was written."""

    end: int
    writes: list[tuple[Place, int, bytes]]
    made_in: set[str]
    above: bool
    again: bool


class Unsynced:
    """The writes below one folder that no sync has covered. ``key`` names it in messages.

    ``folder`` opens the folder anew at each call; ``above`` syncs the entries that lead to it. What is
    held counts in ``together`` too.
    """

    def __init__(
        self, key: str, folder: Callable[[], Folder], together: Held, above: Callable[[], None] = _nothing
    ) -> None:
        self.key = key
        self.together = together
        self.written = 0
        """Bytes written since we opened it."""
        self.durable = 0
        """How many of them are on stable storage."""
        self.held = 0
        self.suspect: str | None = None
        """Why the last sync failed, until what is held was written again and synced."""
        self._folder = folder
        self._above = above
        self._writes: list[tuple[Place, int, bytes]] = []
        self._made_in: set[str] = set()
        self._above_due = False
        self._under_way = False

    # -- where things are written -------------------------------------------------------------------

    def admit(self) -> None:
        """Raises Unavailable where nothing more may be written now."""
        if self.suspect is not None:
            raise Unavailable(
                f"not on stable storage: {self.suspect}", hint="look at the disk and the kernel's log"
            )
        if self.together.full:
            raise Unavailable("the disk does not keep up", hint="it goes on by itself")

    def wrote(self, name: str, offset: int, data: bytes, sub: str = "") -> None:
        """``data`` was written into a file of the folder, or of its sub-folder ``sub``."""
        self._writes.append(((sub, name), offset, data))
        self.written += len(data)
        self._hold(len(data))

    def _hold(self, change: int) -> None:
        self.held += change
        self.together.change(change)

    def made_in(self, sub: str = "") -> None:
        """The folder, or a sub-folder, has a new entry."""
        self._made_in.add(sub)

    def made_above(self) -> None:
        """What leads to the folder has changed."""
        self._above_due = True

    @property
    def pending(self) -> bool:
        """Whether there is something to sync that no sync under way covers."""
        return bool(self._writes or self._made_in or self._above_due)

    @property
    def settled(self) -> bool:
        """Whether all that was written is on stable storage."""
        return not self.pending and not self._under_way

    # -- syncing --------------------------------------------------------------------------------------

    def take(self) -> Batch:
        """What was written so far; ``succeeded`` or ``failed`` gives it back."""
        batch = Batch(
            self.written, self._writes, self._made_in, self._above_due, again=self.suspect is not None
        )
        self._writes, self._made_in, self._above_due = [], set(), False
        self._under_way = True
        return batch

    def sync(self, batch: Batch) -> None:
        """Put a batch on stable storage; may be called in another thread.

        Raises SyncFailedError where the disk says no, FolderGoneError where there is nothing to keep,
        OSError or Unavailable where it could not be asked.
        """
        files: dict[Place, list[tuple[int, bytes]]] = {}
        for place, offset, data in batch.writes:
            files.setdefault(place, []).append((offset, data))
        with self._opened() as top:
            for (sub, name), writes in files.items():
                with suppress(FileNotFoundError), _sub(top, sub) as folder:  # removed: nothing to keep
                    folder.sync(name, again=writes if batch.again else ())
            for sub in batch.made_in:
                with suppress(FileNotFoundError), _sub(top, sub) as folder:
                    folder.sync_entries()
        if batch.above:
            self._above()

    def _opened(self) -> Folder:
        try:
            return self._folder()
        except FileNotFoundError as error:
            raise FolderGoneError(error.errno, "its folder was removed") from error

    def succeeded(self, batch: Batch) -> None:
        """A batch is on stable storage."""
        if not self._under_way:
            return  # gone meanwhile
        self.durable = batch.end
        self._hold(-sum(len(data) for _, _, data in batch.writes))
        self.suspect = None
        self._under_way = False

    def failed(self, batch: Batch, error: Exception) -> None:
        """A batch is not on stable storage; it is in the next one again."""
        if not self._under_way:
            return  # gone meanwhile
        self._writes = batch.writes + self._writes
        self._made_in |= batch.made_in
        self._above_due |= batch.above
        self._under_way = False
        if batch.again or isinstance(error, SyncFailedError):
            self.suspect = reason(error)

    def gone(self) -> None:
        """The folder was removed: there is nothing left to keep."""
        self._writes, self._made_in, self._above_due = [], set(), False
        self._hold(-self.held)
        self.durable, self.suspect = self.written, None
        self._under_way = False


def _sub(top: Folder, name: str) -> Folder:
    return top.sub(name) if name else top.again()


def reason(error: Exception) -> str:
    """An error's cause in a few words."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
