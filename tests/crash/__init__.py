"""The crash harness: senders with private ledgers, faults, and one oracle that reads what is on disk.

``make crash`` runs it (``python -m crash --help``). A scenario is a short description in ``catalogue.py``;
``engine.py`` plays it, ``oracle.py`` judges the folders that are left, ``mutants.py`` shows that the judge
would have noticed.
"""
