"""Decides: numbers, parents, attempts. Pure: events and times in, records out."""
