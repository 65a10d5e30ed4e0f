"""The error tree. Every error says whose fault it is, what happened, and what to do next.

- ``AgentrundError``: base, never raised itself
    - ``Rejected``: the sender's frame or request is wrong; never worth retrying as it is
    - ``Overloaded``: right, but not now; worth retrying
    - ``Damaged``: a file on disk is torn or corrupt; carries path and byte offset
    - ``RunUnusable``: a run's folder is gone, or its trace damaged
    - ``Unavailable``: something we need is not there (lock held, disk full, no collector)
        - ``Busy``: it is there, and we are at work on it
    - ``UsageError``: a setting or an argument is wrong
    - ``NoSuchRun``: the named run does not exist
"""

from __future__ import annotations


class AgentrundError(Exception):
    """Base of all errors a person may see; ``hint`` is the one line that says what to do next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Rejected(AgentrundError):
    """The sender is wrong. ``code`` is one of the stream protocol's error codes."""

    def __init__(self, code: str, message: str, *, n: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.n = n


class Overloaded(AgentrundError):
    """Nothing wrong with the input, but it cannot be taken now; ``retry_s`` says when to come back."""

    def __init__(self, message: str, *, retry_s: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_s = retry_s


class Damaged(AgentrundError):
    """A file is not what it should be. ``path`` is as given by the caller, ``offset`` in bytes."""

    def __init__(self, message: str, *, path: str, offset: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.path}:{self.offset}: {self.message}"


class RunUnusable(AgentrundError):
    """A run cannot be gone on with: its folder is gone, or its trace is damaged. Waiting does not help."""


class Unavailable(AgentrundError):
    """Something outside is missing or held by somebody else."""


class Busy(Unavailable):
    """What is needed is being made ready by ourselves: no fault of anybody's, and over by itself."""


class UsageError(AgentrundError):
    """A setting or an argument has a value that cannot be used."""


class NoSuchRun(AgentrundError):
    """No run has that id, prefix or session."""
