"""What the Unix-socket door needs from whoever takes its frames."""

from __future__ import annotations

from typing import Protocol

from agentrund.model.errors import Rejected, Unavailable
from agentrund.receivers.decode.jsonl import Frame
from agentrund.receivers.peer import Peer


class StreamConnection(Protocol):
    """The sink's hold on a connection."""

    @property
    def stalled(self) -> bool:
        """Whether reading waits for storage to come back."""

    @property
    def busy(self) -> bool:
        """Whether lines that were read are still to be taken, so that ``drain`` could not do its work."""

    def send(self, data: bytes) -> None:
        """Send whole lines; never blocks, never raises."""

    def drain(self) -> None:
        """Read what the peer has sent, until the socket would block or ends."""

    def acknowledge(self) -> None:
        """Send the acknowledgement that is due, now or when the peer has read what was sent before."""

    def stall(self, error: Unavailable) -> None:
        """Storage fails: tell the sender once, and read no more until ``resume``."""

    def resume(self) -> None:
        """Go on reading after storage came back."""

    def close(self) -> None:
        """Close the socket."""


class StreamSession(Protocol):
    """One connection's conversation."""

    def frame(self, frame: Frame) -> None:
        """Take a frame. Raises Rejected (told to the sender) or Unavailable (storage: comes again later)."""

    def refused(self, error: Rejected) -> None:
        """A line was refused: leave a mark in the run."""

    def commit(self) -> None:
        """End of one read: store what came, and see to its acknowledgement.

        Raises Unavailable where storage fails, Rejected where a sender has to say hello again.
        """

    def ack(self) -> bytes | None:
        """The acknowledgement that is due, None where there is nothing new to say."""

    def closed(self, *, clean: bool) -> None:
        """The connection is gone; ``clean`` when nothing was cut off after the last newline."""


class StreamSink(Protocol):
    """Where connections begin."""

    max_line_bytes: int

    def has_room(self) -> bool:
        """Whether another connection can be taken now; the others wait in the listener's backlog."""

    def connect(self, peer: Peer, connection: StreamConnection) -> StreamSession:
        """A process has connected. Raises Rejected where it may not."""
