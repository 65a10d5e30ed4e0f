"""HTTP/2 spoken by hand, right and wrong: what a gRPC port meets that no library would send."""

from __future__ import annotations

import itertools
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Self

from support import mutate

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
ACK = END_STREAM = 1
END_HEADERS, PADDED, PRIORITISED = 4, 8, 0x20
EXPORT = b"/opentelemetry.proto.collector.trace.v1.TraceService/Export"
CALL = {b":method": b"POST", b":scheme": b"http", b":path": EXPORT, b":authority": b"x",
        b"content-type": b"application/grpc", b"te": b"trailers"}  # fmt: skip


def frame(
    kind: int, flags: int = 0, stream: int = 0, body: bytes = b"", *, length: int | None = None
) -> bytes:
    """One frame; ``length`` where its header is to lie."""
    size = len(body) if length is None else length
    return size.to_bytes(3, "big") + bytes((kind, flags)) + struct.pack(">I", stream) + body


GREETING = PREFACE + frame(SETTINGS)


def header_block(headers: dict[bytes, bytes]) -> bytes:
    """HPACK: every header a literal that enters no table."""
    return b"".join(b"\0" + _string(name) + _string(value) for name, value in headers.items())


def _string(text: bytes) -> bytes:
    size, more = len(text), b""
    if size >= 127:
        rest, size = size - 127, 127
        while rest >= 128:
            more += bytes((rest % 128 + 128,))
            rest //= 128
        more += bytes((rest,))
    return bytes((size,)) + more + text


def message(body: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """A gRPC message: a flag, a length that may lie, the bytes."""
    return bytes((compressed,)) + struct.pack(">I", len(body) if length is None else length) + body


def call(stream: int, headers: dict[bytes, bytes], *data: bytes) -> bytes:
    """A whole request."""
    parts = [frame(HEADERS, END_HEADERS | (0 if data else END_STREAM), stream, header_block(headers))]
    for n, piece in enumerate(data, 1):
        parts.append(frame(DATA, END_STREAM if n == len(data) else 0, stream, piece))
    return b"".join(parts)


class Grammar:
    """Malformed input, one piece after the other, for one connection. ``body`` makes a request's bytes."""

    def __init__(self, chance: Random, body: Callable[[], bytes]) -> None:
        self._chance = chance
        self._body = body
        self._streams = itertools.count(1, 2)
        self._ways = (
            self._of_lengths, self._of_streams, self._of_hpack, self._of_continuations, self._of_resets, self._of_settings,
            self._of_windows, self._of_paddings, self._of_messages, self._of_calls, self._of_kinds, self._of_bytes,
        )  # fmt: skip

    def next(self) -> bytes:
        """One piece."""
        return self._chance.choice(self._ways)()

    def _stream(self) -> int:
        return next(self._streams)

    def _of_lengths(self) -> bytes:
        """A frame whose length lies, or does not suit its kind."""
        kind, chance = self._chance.randrange(10), self._chance
        body = chance.randbytes(chance.choice((0, 1, 3, 5, 7, 9, 100)))
        length = chance.choice((None, None, 0, len(body) + 1, 16_385, 0xFFFFFF))
        return frame(kind, chance.randrange(256), chance.choice((0, self._stream())), body, length=length)

    def _of_streams(self) -> bytes:
        """Streams that are none, even, gone, or not begun."""
        chance, block = self._chance, header_block(CALL)
        stream = chance.choice((0, 2, 1, 0x7FFFFFFF, 0xFFFFFFFF, self._stream() + 1000))
        kind = chance.choice((DATA, HEADERS, RST, WINDOW, PRIORITY, CONTINUATION))
        body = {HEADERS: block, RST: bytes(4), WINDOW: b"\0\0\0\1", PRIORITY: bytes(5)}.get(kind, b"x")
        return frame(kind, chance.choice((0, END_HEADERS, END_HEADERS | END_STREAM)), stream, body)

    def _of_hpack(self) -> bytes:
        """Header blocks that no table explains, numbers and strings without an end."""
        chance, block = self._chance, header_block(CALL)
        bad = chance.choice(
            (
                mutate.in_bytes(chance, block),
                chance.randbytes(60),
                b"\xff" * 200,  # an index of endless digits
                b"\x3f\xe1\xff\xff\xff\x0f" + block,  # a table of four gigabytes
                b"\xbe",  # an entry that is not there
                b"\x40\x81\xff\x81\xff",  # Huffman padding that is none
                b"\0\x7f\xff\xff\xff\xff\x0fx",  # a name longer than anything
                block + header_block({b"x": b"y" * 20_000}),
                block + b"".join(header_block({b"x-%d" % n: b"y" * 40}) for n in range(300)),
                b"\x82" * 4000,
            )
        )
        return self._split(bad[: 1 << 16])

    def _split(self, block: bytes) -> bytes:
        """A block in as many frames as it takes."""
        stream, pieces = self._stream(), [block[at : at + 16_000] for at in range(0, len(block) or 1, 16_000)]
        last = len(pieces) - 1
        return b"".join(
            frame(
                CONTINUATION if n else HEADERS,
                (END_HEADERS if n == last else 0) | (0 if n else END_STREAM),
                stream,
                piece,
            )
            for n, piece in enumerate(pieces)
        )

    def _of_continuations(self) -> bytes:
        """Headers that go on and on, or go on where nothing began."""
        stream, chance = self._stream(), self._chance
        begun = frame(HEADERS, 0, stream, header_block(CALL))
        piece = chance.choice((b"", header_block({b"x": b"y" * 100}), b"\x82"))
        other = chance.choice((b"", frame(PING, 0, 0, bytes(8)), frame(DATA, 0, stream, b"x")))
        flood = frame(CONTINUATION, 0, stream, piece) * chance.choice((1, 50, 1000))
        return chance.choice((begun + flood + other, flood, begun + other))

    def _of_resets(self) -> bytes:
        """Calls that are begun and taken back at once."""
        made = []
        for _ in range(self._chance.choice((1, 20, 200))):
            stream = self._stream()
            made.append(frame(HEADERS, END_HEADERS, stream, header_block(CALL)))
            made.append(frame(RST, 0, stream, struct.pack(">I", self._chance.choice((0, 8, 2**32 - 1)))))
        return b"".join(made)

    def _of_settings(self) -> bytes:
        """Settings and pings by the hundred, with values that are none."""
        chance = self._chance
        values = b"".join(
            struct.pack(">HI", chance.choice((0, 1, 2, 3, 4, 5, 6, 0xFE03, 0xFFFF)), chance.choice((0, 1, 2**31, 2**32 - 1)))
            for _ in range(chance.choice((1, 3, 500)))
        )  # fmt: skip
        harmless = struct.pack(">HI", 0x77, 1)
        return chance.choice(
            (
                frame(SETTINGS, 0, 0, values),
                frame(SETTINGS, 0, 0, harmless) * 300,
                frame(SETTINGS, ACK, 0) * 300,
                frame(SETTINGS, ACK, 0, harmless),
                frame(SETTINGS, 0, 0, b"\0" * 5),
                frame(PING, 0, 0, b"\xff" * 8) * 300,
                frame(PING, 0, 0, b"short"),
            )
        )

    def _of_windows(self) -> bytes:
        """Windows that grow by nothing, or beyond all numbers."""
        stream, size = (
            self._chance.choice((0, self._stream())),
            self._chance.choice((0, 1, 2**31 - 1, 2**32 - 1)),
        )
        return frame(WINDOW, 0, stream, struct.pack(">I", size)) * self._chance.choice((1, 2, 300))

    def _of_paddings(self) -> bytes:
        """More padding than frame; a stream that depends on itself."""
        stream, block = self._stream(), header_block(CALL)
        flags = END_HEADERS | END_STREAM
        return self._chance.choice(
            (
                frame(HEADERS, flags | PADDED, stream, b"\xff" + block[:20]),
                frame(HEADERS, flags | PRIORITISED, stream, struct.pack(">IB", stream, 1) + block),
                frame(HEADERS, END_HEADERS, stream, block)
                + frame(DATA, END_STREAM | PADDED, stream, b"\xff"),
                frame(DATA, PADDED, stream, b""),
            )
        )

    def _of_messages(self) -> bytes:
        """Calls whose messages are none, lie about their length, are too many, or are packed by nobody."""
        chance, body = self._chance, self._body()
        data = chance.choice(
            (
                (b"",),
                (b"\0\0",),
                (message(body, length=len(body) + 1),),
                (message(body, length=2**32 - 1),),
                (message(body, length=max(0, len(body) - 1)),),
                (message(body, compressed=1),),
                (message(body, compressed=255),),
                (message(body), message(body)),
                tuple(message(body)[:200][n : n + 1] for n in range(min(200, len(body)))) or (b"",),
                (b"", b"", message(body)),
                (message(b"") * 500,),
            )
        )
        return call(self._stream(), CALL, *(piece[:16_000] for piece in data))

    def _of_calls(self) -> bytes:
        """Methods, paths, types and headers that are not those of a call."""
        chance = self._chance
        odd = chance.choice(
            (
                {b":method": chance.choice((b"GET", b"PUT", b"", b"\0", b"CONNECT"))},
                {b":path": chance.choice((b"", b"/", b"x", b"/../../etc/passwd", b"/" * 4000, b"/a/b\0", b"/\xff\xfe/x"))},
                {b":scheme": b"gopher"},
                {b"content-type": chance.choice((b"", b"application/json", b"application/grpc+json", b"text/html", b"\xff"))},
                {b"te": b"gzip"},
                {b"grpc-timeout": chance.choice((b"", b"0n", b"-1S", b"99999999H", b"x", b"1" * 500 + b"S"))},
                {b"grpc-encoding": chance.choice((b"gzip", b"snappy", b"\0", b"x" * 3000))},
                {b"x-agentrund-run-id": chance.choice((b"../../x", b"\xff\xfe", b"", b"r" * 5000))},
                {b"x-agentrund-bin": b"!!! no base64"},
                {b"authorization": b"Bearer \xff\0"},
                {b"Upper": b"case"},
                {b":unknown": b"1"},
                {b"connection": b"close"},
            )
        )  # fmt: skip
        headers = CALL | odd
        if chance.random() < 0.2:
            headers.pop(chance.choice(tuple(headers)))
        return call(self._stream(), headers, message(self._body())[:16_000])

    def _of_kinds(self) -> bytes:
        """What a client never sends, and kinds that nobody has defined."""
        chance = self._chance
        return chance.choice(
            (
                frame(PUSH, END_HEADERS, self._stream(), struct.pack(">I", 2) + header_block(CALL)),
                frame(GOAWAY, 0, 0, struct.pack(">II", 0, chance.choice((0, 11, 2**32 - 1))) + b"x" * 100),
                frame(chance.randrange(10, 256), 255, chance.choice((0, 1)), chance.randbytes(50)) * 20,
            )
        )

    def _of_bytes(self) -> bytes:
        """A right call, hurt anywhere."""
        whole = call(self._stream(), CALL, message(self._body())[:16_000])
        return mutate.in_bytes(self._chance, whole, mutate.WIRE)


class Peer:
    """A connection that greets as HTTP/2 does, and says what it is told to."""

    def __init__(self, address: str, wait_s: float, greeting: bytes) -> None:
        host, _, port = address.rpartition(":")
        self._sock = socket.create_connection((host, int(port)), timeout=wait_s)
        self._read = b""
        with suppress(ConnectionResetError, BrokenPipeError):
            self._sock.sendall(greeting)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._sock.close()

    def send(self, data: bytes) -> bool:
        """Send a piece and wait until it is taken: its echo comes back, or an end. True where one may go on."""
        mark = os.urandom(8)
        echo = frame(PING, ACK, 0, mark)
        try:
            self._sock.sendall(data + frame(PING, 0, 0, mark))
            if not is_whole(data):
                self._sock.shutdown(socket.SHUT_WR)  # the echo's request is part of a frame that never ends
            while echo not in self._read:
                more = self._sock.recv(1 << 16)
                if not more:
                    return False
                self._read = self._read[-len(echo) :] + more
        except TimeoutError:
            raise  # it hangs
        except OSError:
            return False  # it hung up
        return True

    def finish(self) -> None:
        """Say no more, and wait for the other end to close."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
            while self._sock.recv(1 << 16):
                pass
        except TimeoutError:
            raise  # it hangs
        except OSError:
            return  # it hung up


def is_whole(data: bytes) -> bool:
    """Whether its last frame ends where the bytes do."""
    at = 0
    while at < len(data):
        at += 9 + int.from_bytes(data[at : at + 3], "big")
    return at == len(data)
