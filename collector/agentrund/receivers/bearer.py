"""The token that requests must carry (RFC 6750): judged from their headers, before a body is read."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterable
from typing import Final

HEADER: Final = "authorization"
WANTED: Final = "this collector wants a token: send the header `authorization: Bearer <token>`"
_SCHEME: Final = "bearer"
_WARN_EVERY_S: Final = 60.0

_log: Final = logging.getLogger(__name__)


class Bearer:
    """Knows ``token``; ``refused`` counts the requests without it. ``monotonic`` gives seconds."""

    def __init__(self, token: str, monotonic: Callable[[], float]) -> None:
        self._token = token.encode()
        self._monotonic = monotonic
        self._warned_at: float | None = None
        self.refused = 0

    def is_carried(self, values: Iterable[str]) -> bool:
        """Whether one of the header's values carries the token."""
        return any(self._is_token(value) for value in values)

    def refuse(self, sender: str) -> None:
        """Count a request without it, and say so once in a while."""
        self.refused += 1
        now = self._monotonic()
        if self._warned_at is None or now - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = now
            _log.warning(
                "OTLP: %d requests without the right token so far, the last from %s (said once a minute)",
                self.refused,
                sender,
            )

    def _is_token(self, value: str) -> bool:
        scheme, _, given = value.partition(" ")
        # It takes the same time wherever the two differ.
        return hmac.compare_digest(given.strip().encode(), self._token) and scheme.lower() == _SCHEME
