from __future__ import annotations

import os

# `verify` names what others can write: files that tests make must not depend on who runs them.
os.umask(0o022)
