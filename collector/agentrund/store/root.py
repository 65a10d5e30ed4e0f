"""The root folder of one collector: its lock, its runs, and the pointers to them."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from agentrund.formats import layout
from agentrund.model.errors import Unavailable
from agentrund.model.ids import is_run_id, link_name
from agentrund.store.folder import PRIVATE, SHARED, Folder, write_all
from agentrund.store.lock import RootLock
from agentrund.store.open_files import OpenFiles
from agentrund.store.run_files import RunFiles
from agentrund.store.unsynced import Held

log: Final = logging.getLogger(__name__)

_GITIGNORE: Final = ".gitignore"
_QUARANTINE_MAX: Final = 64 << 20
"""Bytes kept of one cut: the longest line there is."""
QUARANTINES: Final = 1000
"""Cuts kept of one file; that many mean that something cuts it again and again."""
_NAME_MAX: Final = 50
"""Characters of a name, which may be any sender's, that quarantine repeats."""


class Root:
    """An open, locked root. Everything the collector writes goes through here."""

    def __init__(self, folder: Folder, state: Folder, lock: RootLock, gid: int | None = None) -> None:
        self.folder = folder
        self.state = state
        self.files = OpenFiles()
        self.held = Held()
        self._lock = lock
        self._runs = folder.make(layout.RUNS)
        self._sessions = folder.make(layout.SESSIONS)
        if gid is not None:
            # Runs that are there keep their modes: whoever recorded them did so in private.
            for shared in (self._runs, self._sessions):
                shared.share(gid)
            for name in (layout.INDEX, layout.NAVIGATE):
                folder.share_file(name, gid)

    @classmethod
    def open(cls, path: Path, owner: dict[str, Any], gid: int | None = None) -> Self:
        """Open ``path``, make what is missing, and take the lock. Raises Unavailable where it is held.

        ``gid`` is a group that may read what is written from now on, all but the state folder.
        """
        path = path.absolute()
        try:
            folder = Folder.root(path, PRIVATE if gid is None else SHARED)
            state = folder.make_private(layout.STATE)
            lock = RootLock(folder, state, owner)
            if gid is not None:
                folder.share(gid)
            _ignore_in_git(path)
            return cls(folder, state, lock, gid)
        except OSError as error:
            where = f"{path}/{error.filename}" if isinstance(error.filename, str) else path
            raise Unavailable(
                f"cannot write in root {path}: {error.strerror} ({where})",
                hint="look who put it there, or choose another --root",
            ) from error

    def close(self) -> None:
        """Close all files and give the lock up."""
        self.files.close()
        self._lock.release()
        for folder in (self._runs, self._sessions, self.state, self.folder):
            folder.close()

    def state_folder(self, name: str) -> Folder:
        """Open a folder of the state folder, both made where they are missing: somebody may remove them."""
        with self.folder.make_private(layout.STATE) as state:
            try:
                return state.make(name)
            except NotADirectoryError:
                aside = f"{name}.aside"
                log.error("%s/%s is no folder: moved aside to %s", state.path, name, aside)  # noqa: TRY400
                os.rename(name, aside, src_dir_fd=state.fd, dst_dir_fd=state.fd)
                return state.make(name)

    def write_state(self, name: str, data: bytes) -> None:
        """Replace a file of the state folder, made where it is missing. Raises OSError, Unavailable."""
        with self.folder.make_private(layout.STATE) as state:
            state.replace(name, data)

    def sign(self) -> None:
        """Tell others who holds the root. Raises OSError."""
        self._lock.sign()

    def new_run(self, run_id: str) -> RunFiles:
        """Make a run's folder. Raises FileExistsError where the id is taken."""
        self._runs.make_new(run_id)
        return RunFiles(
            run_id, lambda: self._runs.sub(run_id), self.files, self.held, self.sync_entries, new=True
        )

    def run(self, run_id: str) -> RunFiles:
        """The files of a run that is there. Raises FileNotFoundError."""
        self._runs.sub(run_id).close()
        return RunFiles(run_id, lambda: self._runs.sub(run_id), self.files, self.held, self.sync_entries)

    def apart(self, run_id: str) -> RunFiles:
        """The files of a run with descriptors of their own, for work in another thread."""
        return RunFiles(run_id, lambda: self._runs.sub(run_id), OpenFiles(4), self.held, self.sync_entries)

    def run_folder(self, run_id: str) -> Folder:
        """Open a run's folder. Raises FileNotFoundError."""
        return self._runs.sub(run_id)

    def sync_entries(self) -> None:
        """Put on stable storage what leads to the runs: folders, links, index; may be called in any thread.

        Raises SyncFailedError where the disk says no, OSError or Unavailable where it could not be asked.
        """
        self.folder.sync(layout.INDEX)
        for folder in (self.folder, self._runs, self._sessions):
            folder.sync_entries()

    def discard(self, run_id: str) -> None:
        """Remove the folder of a run that never got a record; one that holds anything else stays.

        A transcript says that there was a trace once: then everything stays.
        """
        with suppress(FileNotFoundError), self._runs.sub(run_id) as folder:
            with suppress(FileNotFoundError, Unavailable):
                if folder.size(layout.LOGS):
                    log.error("run %s has no trace any more; its other files stay as they are", run_id)
                    return
            for name in (layout.TRACE, layout.LOGS, layout.META):
                folder.remove(name)
            with suppress(OSError), folder.sub(layout.BLOBS) as blobs:
                for name in blobs.names():
                    blobs.remove(name)
            with suppress(OSError):
                os.rmdir(layout.BLOBS, dir_fd=folder.fd)
        with suppress(OSError):
            os.rmdir(run_id, dir_fd=self._runs.fd)

    def run_path(self, run_id: str) -> str:
        """The absolute path of a run's folder."""
        return f"{self.folder.path}/{layout.run_dir(run_id)}"

    def run_ids(self) -> list[str]:
        """All run folders, oldest first."""
        with os.scandir(self._runs.fd) as entries:
            return sorted(e.name for e in entries if is_run_id(e.name) and e.is_dir(follow_symlinks=False))

    def written_at(self, run_id: str) -> float:
        """When a run's trace or metrics were last written, epoch seconds, by their names. Raises OSError."""
        times = [os.stat(f"{run_id}/{layout.TRACE}", dir_fd=self._runs.fd, follow_symlinks=False).st_mtime]
        with suppress(FileNotFoundError):
            found = os.stat(f"{run_id}/{layout.METRICS}", dir_fd=self._runs.fd, follow_symlinks=False)
            times.append(found.st_mtime)
        return max(times)

    def latest(self) -> str | None:
        """The run that ``latest`` points to."""
        target = self.folder.link_target(layout.LATEST)
        run_id = "" if target is None else target.removeprefix(f"{layout.RUNS}/")
        return run_id if is_run_id(run_id) else None

    def has_run(self, run_id: str) -> bool:
        """Whether a run of that id is there."""
        if not is_run_id(run_id):
            return False
        try:
            self._runs.sub(run_id).close()
        except OSError:
            return False
        return True

    def point_latest(self, run_id: str) -> None:
        """Set ``latest``."""
        self.folder.link(layout.LATEST, layout.run_dir(run_id))

    def point_session(self, run_id: str, session_id: str) -> None:
        """Set the session's link."""
        self._sessions.link(link_name(session_id), f"../{layout.run_dir(run_id)}")

    def session_run(self, session_id: str) -> str | None:
        """The run a session's link points to, None where there is none or the run is gone."""
        target = self._sessions.link_target(link_name(session_id))
        if target is None:
            return None
        run_id = target.removeprefix(f"../{layout.RUNS}/")
        return run_id if self.has_run(run_id) else None

    def quarantine(self, run_id: str, name: str, data: bytes) -> None:
        """Keep bytes that are about to be cut off a file of a run. OSError means: nothing may be cut."""
        with self.state_folder(layout.QUARANTINE) as folder:
            for n in range(1, QUARANTINES):
                kept = f"{run_id}.{name[:_NAME_MAX]}.{n}"
                try:
                    fd = folder.open_file(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                except FileExistsError:
                    continue
                try:
                    write_all(fd, data[:_QUARANTINE_MAX])
                except OSError:
                    folder.remove(kept)  # a part would be taken for the whole
                    raise
                finally:
                    os.close(fd)
                return
        log.error(
            "%s of %s was cut %d times: %d bytes more are not kept", name, run_id, QUARANTINES - 1, len(data)
        )

    def write_once(self, name: str, data: bytes) -> None:
        """Write a file of the root where it differs from ``data``."""
        try:
            if self.folder.read(name) == data:
                return
        except FileNotFoundError:
            pass
        self.folder.replace(name, data)


def _ignore_in_git(root: Path) -> None:
    """Put a dotted root into the surrounding repository's .gitignore; where that cannot be, say so."""
    if not root.name.startswith("."):
        return
    folder = next((folder for folder in root.parents if (folder / ".git").exists()), None)
    if folder is None:
        return
    line = os.fsencode(root.relative_to(folder)) + b"/"
    path = folder / _GITIGNORE
    try:
        # The repository may be somebody else's, and what lies there a link to anywhere.
        with Folder(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), str(folder)) as at:
            fd = at.open_append(_GITIGNORE)
        with open(fd, "r+b") as file:  # noqa: PTH123 - a descriptor, not a path
            text = file.read()
            if line in (entry.strip().removeprefix(b"/") for entry in text.splitlines()):
                return
            file.write(
                (b"\n" if text and not text.endswith(b"\n") else b"") + b"\n# agentrund\n" + line + b"\n"
            )
        log.info("%s: added %s", path, os.fsdecode(line))
    except (OSError, Unavailable) as error:
        log.warning("%s: cannot add %s: %s", path, os.fsdecode(line), error)
