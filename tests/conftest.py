from __future__ import annotations

import os

from hypothesis import settings

# How long an example takes says how loaded the machine is, and nothing of the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# `verify` names what others can write: files that tests make must not depend on who runs them.
os.umask(0o022)
