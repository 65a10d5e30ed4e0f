"""Everything received over OTLP, passed on to a second backend from the intake journal.

Who sent it has its answer already: this goes at the backend's pace, keeps its place over restarts, and asks
for nothing but that the journal stays as long as it is needed. A request may be passed on twice after a
kill, never less than once while the journal has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from agentrund.formats import layout
from agentrund.model.errors import Unavailable
from agentrund.model.event import Json
from agentrund.model.otlp import IntakeRecord
from agentrund.service.config import Settings
from agentrund.service.otlp_backend import OtlpBackend, Verdict
from agentrund.service.rarely import Rarely
from agentrund.service.runs import Runs
from agentrund.store.folder import Folder
from agentrund.store.intake import SUFFIX, Intake
from agentrund.store.intake_reader import IntakeReader

log: Final = logging.getLogger(__name__)

BACKOFF_S: Final = 1.0
BACKOFF_MOST_S: Final = 60.0
SAVE_EVERY_S: Final = 1.0


def from_settings(
    settings: Settings, runs: Runs, intake: Intake, folder: Callable[[], Folder]
) -> Forwarding | None:
    """Forwarding as configured, from where it stood; None where there is none."""
    if settings.forward is None:
        return None

    def save(rq: int) -> None:
        def write() -> None:
            runs.root.state.replace(layout.FORWARDED, f"{rq}\n".encode())

        runs.chores.do("the place of forwarding", write)

    reader = IntakeReader(folder, SUFFIX, _place(runs, intake))
    backend = OtlpBackend(settings.forward, settings.forward_headers or {})
    found = Forwarding(
        settings.forward,
        backend,
        reader,
        save=save,
        unread=lambda: intake.unread,
        now=runs.clock.monotonic,
    )
    intake.needed_from = lambda: found.needs
    return found


def _place(runs: Runs, intake: Intake) -> int:
    """The number of the last request that need not be sent: where nothing was sent yet, all that is there."""
    try:
        return min(int(runs.root.state.read(layout.FORWARDED)), intake.last)
    except (OSError, ValueError, Unavailable):
        return intake.last


class Forwarding:
    """Sends on what ``reader`` gives; ``save`` keeps the number of the last request that is settled.

    ``unread`` counts the segments the journal had to drop before they were read; ``now`` is monotonic.
    """

    def __init__(
        self,
        url: str,
        backend: OtlpBackend,
        reader: IntakeReader,
        *,
        save: Callable[[int], None],
        unread: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        self._url = url
        self._backend = backend
        self._reader = reader
        self._save = save
        self._unread = unread
        self._now = now
        self._unreachable = Rarely(f"forwarding to {url}", now)
        self._refused = Rarely(f"{url} does not want what is forwarded", now)
        self._thread = ThreadPoolExecutor(1, "forwarding")
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._settled = self._saved = reader.after
        self._saved_at = now()
        self.sent = 0
        self.refused = 0
        self.trouble: str | None = None

    @property
    def needs(self) -> int:
        """The first number of the journal's segment that is still needed."""
        return self._reader.segment

    def start(self) -> None:
        """Begin with what is in the journal."""
        self._save(self._settled)  # where it begins the first time is a place too
        self._task = asyncio.create_task(self._run())

    def poke(self) -> None:
        """The journal has something new."""
        self._more.set()

    async def stop(self) -> None:
        """Hang up; what is not settled is sent after the next start."""
        if self._task is not None:
            self._task.cancel()
            self._backend.hang_up()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown(wait=False)
        self._keep_place()
        self._reader.close()

    def status(self) -> Json:
        """What ``status`` shows."""
        return {
            "to": self._url,
            "sent": self.sent,
            "refused": self.refused,
            "unread": self._unread(),
            "trouble": self.trouble,
        }

    async def _run(self) -> None:
        while True:
            record = self._next()
            if record is not None:
                await self._send(record)
                self._settled = record.rq
                if self._now() >= self._saved_at + SAVE_EVERY_S:
                    self._keep_place()
                continue
            self._keep_place()
            self._more.clear()
            await self._more.wait()

    def _next(self) -> IntakeRecord | None:
        try:
            return self._reader.next()
        except OSError as error:
            self._unreachable.warn(f"the intake journal cannot be read: {error}")
            return None

    async def _send(self, record: IntakeRecord) -> None:
        """Until it is taken, or refused for good."""
        pause = BACKOFF_S
        loop = asyncio.get_running_loop()
        while True:
            verdict = await loop.run_in_executor(self._thread, self._backend.post, record)
            if not verdict.again:
                self._settle(verdict)
                return
            self.trouble = verdict.why
            wait = max(pause, verdict.retry_s or 0.0)
            self._unreachable.warn(f"{verdict.why}; it waits in the journal, the next try in {wait:.0f} s")
            await asyncio.sleep(wait)
            pause = min(2 * pause, BACKOFF_MOST_S)

    def _settle(self, verdict: Verdict) -> None:
        self.sent += verdict.taken
        self.refused += not verdict.taken
        self.trouble = None if verdict.taken else verdict.why
        if not verdict.taken:
            self._refused.warn(
                f"{verdict.why}; {self.refused} requests so far, they are recorded here all the same"
            )

    def _keep_place(self) -> None:
        self._saved_at = self._now()
        if self._settled != self._saved:
            self._save(self._settled)
            self._saved = self._settled
