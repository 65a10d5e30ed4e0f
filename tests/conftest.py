from __future__ import annotations

import os
import signal

from hypothesis import settings

# How long an example takes says how loaded the machine is, and nothing of the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# `verify` names what others can write: files that tests make must not depend on who runs them.
os.umask(0o022)

# A shell that runs the tests in the background ignores SIGINT for them: what they start must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
