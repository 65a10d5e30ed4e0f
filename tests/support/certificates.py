"""An authority of the test's own, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclass(frozen=True)
class Signed:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


class Authority:
    """Made new in ``folder``; ``cert`` is what others trust."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        self._folder = folder
        self._own = Signed(folder / f"{name}.pem", folder / f"{name}.key")
        _openssl(
            "req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}",
            "-keyout", self._own.key, "-out", self._own.cert,
        )  # fmt: skip

    @property
    def cert(self) -> Path:
        return self._own.cert

    def sign(self, name: str) -> Signed:
        """A certificate for the loopback addresses."""
        made = Signed(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1,IP:0:0:0:0:0:0:0:1\n")
        _openssl("req", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", made.key, "-out", request)
        _openssl(
            "x509", "-req", "-in", request, "-CA", self._own.cert, "-CAkey", self._own.key,
            "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", made.cert,
        )  # fmt: skip
        made.key.chmod(0o600)
        return made


def _openssl(*args: str | Path) -> None:
    done = subprocess.run(["openssl", *args], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
