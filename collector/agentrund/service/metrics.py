"""Writes metric points where they belong: to metrics.jsonl of a run, else to those of no run."""

from __future__ import annotations

import logging
from collections import OrderedDict
from functools import partial
from typing import Final

from agentrund.formats import layout, metric_lines
from agentrund.model.errors import RunUnusable, Unavailable
from agentrund.model.otlp import Point
from agentrund.service.rarely import Rarely
from agentrund.service.runs import Runs
from agentrund.store.metric_files import RunMetrics, StrayMetrics

FILES: Final = 256
"""Files of runs that are remembered between two writes."""

log: Final = logging.getLogger(__name__)


class MetricsWriter:
    """The files of metric points that are being written to."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._root = runs.root
        self._files: OrderedDict[str, RunMetrics] = OrderedDict()
        self._written: dict[str, RunMetrics] = {}
        self._stray = StrayMetrics(
            partial(self._root.state_folder, layout.STRAY_METRICS),
            self._root.files,
            self._root.held,
            quarantine=partial(self._root.quarantine, layout.STRAY_METRICS),
        )
        self._stray_written = False
        self._homeless: list[bytes] = []
        self._unusable = Rarely("metrics of a run go to those of no run", runs.clock.monotonic)

    @property
    def waiting(self) -> bool:
        """Whether something is queued."""
        return bool(self._written or self._stray_written or self._homeless)

    @property
    def stray(self) -> StrayMetrics:
        """The points of no run."""
        return self._stray

    def add(self, point: Point, run_id: str | None) -> None:
        """Queue a point for a run's file, or for those of no run.

        Raises Unavailable where the disk refuses.
        """
        file = None if run_id is None else self._file(run_id)
        iso = self._runs.clock.iso
        if file is not None:
            line = metric_lines.encode(point, file.run_id, iso, resource=point.source not in file.described)
            file.described.add(point.source)
            file.add(line)
            self._written[file.run_id] = file
            return
        self._make_stray_room(point.rq)
        described = self._stray.described
        self._stray.add(metric_lines.encode(point, None, iso, resource=point.source not in described))
        described.add(point.source)

    def _make_stray_room(self, rq: int) -> None:
        try:
            self._stray.make_room(rq)
        except OSError as error:
            raise Unavailable(f"cannot write metrics: {error.strerror}", hint="look at the disk") from error
        self._stray_written = True

    def _file(self, run_id: str) -> RunMetrics | None:
        """The file of a run; None where it has none that can be written to."""
        file = self._files.get(run_id)
        if file is None:
            self._forget_oldest()
            try:
                file = self._files[run_id] = RunMetrics(
                    run_id,
                    partial(self._root.run_folder, run_id),
                    self._root.files,
                    self._root.held,
                    quarantine=partial(self._root.quarantine, run_id),
                )
            except Unavailable as error:
                self._unusable.warn(error.message)
                return None
            except OSError as error:
                raise Unavailable(
                    f"cannot open metrics of {run_id}: {error.strerror}", hint="look at its folder"
                ) from error
        self._files.move_to_end(run_id)
        return file

    def _forget_oldest(self) -> None:
        for run_id, file in list(self._files.items()):
            if len(self._files) < FILES:
                return
            if run_id not in self._written and file.unsynced.settled:
                del self._files[run_id]
                file.close()

    def commit(self) -> bool:
        """Write what is queued; False where the disk refuses some of it."""
        for run_id, file in list(self._written.items()):
            try:
                file.commit()
            except Unavailable as error:
                self._runs.trouble.refused(f"metrics of {run_id}", error)
                continue
            except RunUnusable as error:
                self._unusable.warn(error.message)
                self._files.pop(run_id, None)
                self._homeless.append(file.take_back())
            del self._written[run_id]
            self._runs.syncing.wrote(file.unsynced)
        try:
            self._commit_stray()
        except (OSError, Unavailable) as error:
            self._runs.trouble.refused("metrics of no run", error)
            return False
        return not self._written

    def _commit_stray(self) -> None:
        while self._homeless:
            self._make_stray_room(0)
            self._stray.add(self._homeless.pop(0))
        if self._stray_written:
            self._stray.commit()
            self._stray_written = False
            self._runs.syncing.wrote(self._stray.unsynced)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._stray.close()
