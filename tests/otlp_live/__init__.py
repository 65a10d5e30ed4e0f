"""Recorded programs played again through the doors of real collectors, and what a person would want to see of them.

``make otlp`` runs it (``python -m otlp_live --help``). ``play.py`` plays captures against one collector,
``program.py`` and ``sender.py`` are the processes that send, ``reader.py`` reads the run folders that are
left, with nothing of the collector's own, and says how they differ from a manifest's ``expect``.
"""
