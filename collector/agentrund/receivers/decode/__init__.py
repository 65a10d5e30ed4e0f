"""Decoders: any input to the one Event."""
