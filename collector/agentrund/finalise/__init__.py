"""Derived files from the trace: outline, analytics, meta, index row."""
