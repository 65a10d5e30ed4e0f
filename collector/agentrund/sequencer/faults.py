"""Faults that a trace has told: an exception is told by the span it left, by those around it, by records."""

from __future__ import annotations

from agentrund.model.otlp import Fault


class Faults:
    """Faults by their words and their types; looking one up costs the same however many there were."""

    __slots__ = ("_types", "_wordless", "_words")

    def __init__(self) -> None:
        self._types: set[str] = set()
        self._words: set[str] = set()
        self._wordless: set[str] = set()
        """Types of faults that came without words."""

    def told(self, fault: Fault) -> bool:
        """Whether it was told: its words, or its type where one of the two has no words."""
        kind = _type_of(fault)
        if fault.message:
            return fault.message in self._words or kind in self._wordless
        return kind in self._types

    def tell(self, fault: Fault) -> None:
        """Remember a fault as told."""
        kind = _type_of(fault)
        self._types.add(kind)
        if fault.message:
            self._words.add(fault.message)
        else:
            self._wordless.add(kind)


def _type_of(fault: Fault) -> str:
    """Less its module."""
    return fault.type.rpartition(".")[2]
