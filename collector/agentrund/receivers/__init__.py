"""Doors: bytes from the outside to events. They know neither numbers nor files."""
