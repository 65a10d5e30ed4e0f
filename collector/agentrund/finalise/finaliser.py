"""One pass over a finished run's trace: outline.md, analytics.json, meta.json, and its index row."""

from __future__ import annotations

from agentrund.formats import layout
from agentrund.formats.derive import derive
from agentrund.formats.index import Row
from agentrund.store.run_files import RunFiles


def finalise(files: RunFiles, limit: int | None = None) -> Row:
    """Write the derived files from the first ``limit`` bytes of the trace; returns the index row.

    The row is for the caller to store, last of all. Raises OSError, Unavailable, Damaged.
    """
    derived = derive(files.records(limit))
    files.write(layout.OUTLINE, derived.outline)
    files.write(layout.ANALYTICS, derived.analytics)
    files.write(layout.META, derived.meta)
    return derived.row
