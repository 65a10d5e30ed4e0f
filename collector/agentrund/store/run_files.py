"""The files of one run: its trace, its transcript, its blobs, and the derived ones.

Order of writing: blob, trace line, acknowledgement; the transcript right after.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import BinaryIO, Final

from agentrund.formats import layout, trace_jsonl
from agentrund.model.errors import Unavailable
from agentrund.model.event import Record
from agentrund.store.append_file import AppendFile, Quarantine
from agentrund.store.blobs import BlobStore
from agentrund.store.folder import Folder
from agentrund.store.metric_files import origins
from agentrund.store.open_files import OpenFiles
from agentrund.store.unsynced import Held, Unsynced

_READ: Final = 1 << 18
_HEAD: Final = 300
"""Bytes in which a line of ours names its type."""
_REQUEST: Final = re.compile(rb'"rq":(\d{1,20})')
_ARRIVAL: Final = re.compile(rb'"type":"(?:run\.start|run\.resume|source\.join)"')


class RunFiles:
    """What the collector writes for one run. ``folder`` opens the run's folder anew at each call.

    ``above`` syncs what leads to it: its entry among the runs, its row, its session's link.
    """

    def __init__(
        self,
        run_id: str,
        folder: Callable[[], Folder],
        files: OpenFiles,
        held: Held,
        above: Callable[[], None],
        *,
        new: bool = False,
    ) -> None:
        self.run_id = run_id
        self.folder = folder
        self._files = files
        key = f"{layout.run_dir(run_id)}/"
        self.trace = AppendFile(folder, layout.TRACE, key + layout.TRACE, files, new=new)
        self.logs = AppendFile(folder, layout.LOGS, key + layout.LOGS, files, new=new)
        self.unsynced = Unsynced(run_id, folder, held, above)
        self.blobs = BlobStore(folder, self.unsynced)

    def repair(self, quarantine: Quarantine) -> int:
        """Cut torn tails off the trace; must come before the first append. Returns the bytes cut."""
        return self.trace.repair_tail(quarantine)

    def repair_metrics(self, quarantine: Quarantine) -> None:
        """The same for metrics.jsonl, where there is one, and it can be had: nothing depends on it."""
        with suppress(OSError, Unavailable):
            key = f"{layout.run_dir(self.run_id)}/{layout.METRICS}"
            with closing(AppendFile(self.folder, layout.METRICS, key, self._files)) as metrics:
                metrics.repair_tail(quarantine)

    def commit(self) -> None:
        """Write the queued trace lines. Raises Unavailable, or RunUnusable where the trace is lost."""
        self.unsynced.admit()
        if self.trace.pending:
            offset = self.trace.size
            self.unsynced.wrote(layout.TRACE, offset, self.trace.commit())
            if offset == 0:
                self.unsynced.made_in()

    def records(self, limit: int | None = None) -> Iterator[Record]:
        """Every record in the first ``limit`` bytes (all) of the trace, read in constant memory.

        Raises FileNotFoundError where there is no trace, Damaged at the first bad line.
        """
        path = f"{layout.run_dir(self.run_id)}/{layout.TRACE}"
        offset = 0
        with self._reading() as file:
            for line in file:
                if limit is not None and offset >= limit:
                    return
                yield trace_jsonl.decode(line, path=path, offset=offset)
                offset += len(line)

    def sources(self) -> list[str]:
        """Ids of the sources that ever arrived, found without reading the other lines' payloads."""
        found: dict[str, None] = {}
        with self._reading() as file:
            for line in file:
                if _ARRIVAL.search(line, 0, _HEAD) is None or not line.endswith(b"\n"):
                    continue
                source = trace_jsonl.decode(line).payload.get("source")
                if isinstance(source, str):
                    found[source] = None
        return list(found)

    def requests(self) -> Iterator[int]:
        """Numbers of the OTLP requests that records came of, found without reading payloads.

        A payload may hold what looks like one.
        """
        with self._reading() as file:
            for line in file:
                for match in _REQUEST.finditer(line):
                    yield int(match[1])

    def measured(self) -> Iterator[tuple[int, int]]:
        """Requests and items that lines of metrics.jsonl came of."""
        with self.folder() as folder:
            yield from origins(folder)

    def _reading(self) -> BinaryIO:
        with self.folder() as folder:
            fd = folder.open_file(layout.TRACE, os.O_RDONLY)
        return open(fd, "rb", buffering=_READ)  # noqa: PTH123 - a descriptor, not a path

    def settle_logs(self, rendered: Iterable[bytes]) -> Iterator[None]:
        """Make agent.logs exactly ``rendered``: keep what agrees, cut where it stops, append the rest.

        A generator: it does one piece at each step, so that a long transcript need not be settled in one go.
        """
        with self.folder() as folder:
            fd = folder.open_file(layout.LOGS, os.O_RDWR | os.O_CREAT)
        self.logs.reopen()
        try:
            offset, same = 0, True
            for piece in rendered:
                if same and os.pread(fd, len(piece), offset) != piece:
                    os.ftruncate(fd, offset)
                    self.logs.size, same = offset, False
                if not same:
                    self.logs.add(piece)
                    self.logs.commit()
                offset += len(piece)
                yield
            if same:
                os.ftruncate(fd, offset)
                self.logs.size = offset
        finally:
            os.close(fd)

    def is_stale(self) -> bool:
        """Whether the trace may be newer than what was derived from it last.

        The kernel's clock of files ticks every few milliseconds: the same time proves nothing.
        """
        with self.folder() as folder:
            try:
                derived = os.stat(layout.ANALYTICS, dir_fd=folder.fd, follow_symlinks=False)
            except FileNotFoundError:
                return True
        return derived.st_mtime <= self.trace.modified

    def write(self, name: str, data: bytes) -> None:
        """Replace a derived file atomically."""
        with self.folder() as folder:
            folder.replace(name, data)

    def abandon(self) -> None:
        """The trace is lost: nothing that is queued may reach what lies in its place."""
        self.trace.forget()
        self.logs.forget()
        self.close()

    def close(self) -> None:
        """Close the run's descriptors."""
        self.trace.close()
        self.logs.close()
