"""Where the agent's own files of a run go: `artifacts/` in the run's folder, made when first asked for."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from agentrund_client._clean import name_of
from agentrund_client._discover import spool_folder
from agentrund_client._guard import note_fault
from agentrund_client._recorder import Recorder
from agentrund_client._spool import make_private_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Only `welcome` says where the run's folder is; the caller wants a path, so it is waited for (seconds).
_PATIENCE = 1.0

_substitutes: dict[str, Path] = {}


def folder_of(recorder: Recorder | None) -> Path:
    """The artifacts folder. With no collector, or one whose folder is out of reach, a private substitute."""
    try:
        welcomed = recorder is not None and recorder.source.link.wait_welcome(_PATIENCE)
        if recorder is not None and welcomed:
            folder = Path(str((recorder.source.link.welcome or {})["dir"]), "artifacts")
            # Only the last level: where the run's folder is not visible to this process, nothing is made up.
            folder.mkdir(mode=0o700, exist_ok=True)
            return folder
    except OSError:  # the collector is in a container, or another user
        pass
    except Exception as fault:  # noqa: BLE001 - there is a substitute
        note_fault(fault, "artifact_dir")
    return _substitute("" if recorder is None else recorder.source.id)


def file_of(recorder: Recorder | None, path: Any) -> Path:
    """A path below the artifacts folder, its parent folders made; `..` and absolute paths cannot leave it."""
    folder = folder_of(recorder)
    try:
        text = os.fspath(path) if isinstance(path, os.PathLike) else path
        parts = [
            part for part in str(name_of(text)).replace("\0", "_").split("/") if part not in {"", ".", ".."}
        ]
        file = folder.joinpath(*parts)
        file.parent.mkdir(parents=True, exist_ok=True)
    except Exception as fault:  # noqa: BLE001 - whatever the name was, the caller gets a usable one
        note_fault(fault, "artifact")
        return folder / "artifact"
    return file


def _substitute(source_id: str) -> Path:
    if source_id not in _substitutes:
        try:
            base = spool_folder()
            if not source_id or base is None:
                raise FileNotFoundError(source_id)
            folder = f"{base}/{source_id}.artifacts"
            make_private_folder(base)
            make_private_folder(folder)
        except OSError:
            folder = tempfile.mkdtemp(prefix="agentrund-artifacts-")
        _substitutes[source_id] = Path(folder)
    return _substitutes[source_id]
