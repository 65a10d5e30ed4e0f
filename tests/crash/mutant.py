"""``python -m crash.mutant``: the command line, with the guard that ``AGENTRUND_MUTANT`` names switched off."""

from __future__ import annotations

import os

from agentrund.cli.main import main
from crash import mutants

if __name__ == "__main__":
    mutants.apply(os.environ.get(mutants.VARIABLE))
    main()
