"""Readers of run folders; they work with no collector running."""
