"""HTTP/1.1 made wrong by a grammar: requests whose content, headers or framing somebody forgot to think of."""

from __future__ import annotations

import gzip
import socket
import zlib
from random import Random
from typing import Final

import zstandard

from support import mutate

PATHS: Final = (b"/v1/traces", b"/v1/logs", b"/v1/metrics")
TYPES: Final = (b"application/x-protobuf", b"application/json")
_CODERS: Final = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"zstd": zstandard.ZstdCompressor().compress,
}
_ODD_TYPES: Final = (
    b"",
    b"text/plain",
    b"application/json;charset=utf-16",
    b"application/x-protobuf, x",
    b"\xff",
    b"a" * 9000,
)
_ODD_HEADERS: Final = (
    b"x-agentrund-run-id: ../../etc", b"x-agentrund-run-id: \xff\xfe", b"user-agent: " + b"u" * 5000, b"expect: 100-continue",
    b"expect: something", b"upgrade: h2c\r\nconnection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AAMAAABkAAQ",
    b"authorization: Bearer \xff", b"connection: close", b"connection: keep-alive, x", b"x-a: " + b"b" * 60_000,
    b"accept-encoding: br", b"cookie: a=b; a=b", b"host: y",
)  # fmt: skip
_BROKEN_HEADERS: Final = (
    b"no colon", b": no name", b"x y: z", b"x: a\r\n folded", b"x: a\x00b", b"x\x01: y", b"x : y", b"\tx: y", b"x: \x7f",
)  # fmt: skip
_BROKEN_STARTS: Final = (
    b"", b"\r\n\r\n", b"POST", b"POST /v1/traces", b"POST /v1/traces HTTP/9.9", b"post /v1/traces HTTP/1.1",
    b"POST  /v1/traces  HTTP/1.1", b"POST /v1/traces HTTP/1.1 x", b"\x16\x03\x01\x02\x00\x01\x00", b"PRI * HTTP/2.0",
    b"POST " + b"/" * 70_000 + b" HTTP/1.1", b"POST /v1/tr\x00aces HTTP/1.1", b"CONNECT x:1 HTTP/1.1", b"\xff" * 40,
    b"POST http://[::1/v1/traces HTTP/1.1", b"GET /v1/traces HTTP/0.9",
)  # fmt: skip
_BROKEN_LENGTHS: Final = (
    b"-1",
    b"+5",
    b"0x10",
    b"1_0",
    b"5, 6",
    b"",
    b"99999999999999999999999",
    b"9" * 300,
    b" 5 5",
    b"5.0",
)
_BROKEN_CHUNKS: Final = (
    b"zz\r\nx\r\n0\r\n\r\n", b"-1\r\n\r\n", b"ffffffffffffffffff\r\nx", b"5\r\nab", b"5;" + b"e" * 9000 + b"\r\nabcde\r\n0\r\n\r\n",
    b"1\r\nab\r\n0\r\n\r\n", b"0\r\n\r", b"5\nabcde\n0\n\n", b"0\r\n" + b"t: x\r\n" * 3000 + b"\r\n",
)  # fmt: skip


def content(chance: Random, bodies: list[tuple[bytes, bytes]]) -> bytes:
    """A request that HTTP can read: its path, its type, its coding, its body or its headers are odd."""
    kind, body = chance.choice(bodies)
    if chance.random() < 0.7:
        body = mutate.in_bytes(chance, body)
    coding, packed = b"", body
    if chance.random() < 0.4:
        coding = chance.choice(tuple(_CODERS))
        packed = _CODERS[coding](body)
        if chance.random() < 0.5:
            packed = mutate.in_bytes(chance, packed)
    elif chance.random() < 0.1:
        coding = chance.choice((b"br", b"gzip, gzip", b"x", b"\xff", b"identity"))
    path = chance.choice(PATHS)
    if chance.random() < 0.1:
        path = chance.choice(
            (b"/", b"/v1/traces/", b"/v1/../etc/passwd", b"/v1/traces?x=%00", b"/%ff", b"/v2/logs", b"*")
        )
    if chance.random() < 0.1:
        kind = chance.choice(_ODD_TYPES)
    method = b"POST" if chance.random() < 0.95 else chance.choice((b"GET", b"PUT", b"OPTIONS", b"HEAD"))
    headers = [b"host: x", b"content-type: " + kind]
    if coding:
        headers.append(b"content-encoding: " + coding)
    if chance.random() < 0.2:
        headers.append(chance.choice(_ODD_HEADERS))
    return _message(chance, b"%s %s HTTP/1.1" % (method, path), headers, packed)


def _message(chance: Random, start: bytes, headers: list[bytes], body: bytes) -> bytes:
    if chance.random() < 0.3:
        size = chance.choice((1, 7, 1 << 14))
        parts = [body[n : n + size] for n in range(0, min(len(body), 200 * size), size)]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
        headers, body = [*headers, b"transfer-encoding: chunked"], chunks + b"0\r\n\r\n"
    else:
        headers = [*headers, b"content-length: %d" % len(body)]
    return b"\r\n".join([start, *headers, b"", body])


def framing(chance: Random, bodies: list[tuple[bytes, bytes]]) -> bytes:
    """Bytes of which HTTP cannot make a request, or not a whole one; nothing can follow them."""
    kind, body = chance.choice(bodies)
    start, headers = b"POST /v1/traces HTTP/1.1", [b"host: x", b"content-type: " + kind]
    way = chance.randrange(6)
    if way == 0:
        return b"\r\n".join([chance.choice(_BROKEN_STARTS), *headers, b"", body])
    if way == 1:
        return b"\r\n".join(
            [start, *headers, b"content-length: " + chance.choice(_BROKEN_LENGTHS), b"", body]
        )
    if way == 2:
        return b"\r\n".join(
            [start, *headers, b"transfer-encoding: chunked", b"", chance.choice(_BROKEN_CHUNKS)]
        )
    if way == 3:
        both = [b"content-length: 4", chance.choice((b"content-length: 5", b"transfer-encoding: chunked"))]
        return b"\r\n".join([start, *headers, *both, b"", body])
    if way == 4:
        return b"\r\n".join([start, *headers, chance.choice(_BROKEN_HEADERS), b"", body])
    whole = _message(chance, start, headers, body)
    return whole[: chance.randrange(len(whole))]


class Answers:
    """The answers of one connection, in order."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = b""

    def next(self, *, head_only: bool = False) -> int | None:
        """The status of the next answer, once it is whole; None where the connection is closed instead."""
        while True:
            head, found, rest = self._data.partition(b"\r\n\r\n")
            if found:
                status = int(head.split(b" ", 2)[1])
                size = 0 if head_only or status == 100 else _length(head)
                if len(rest) >= size:
                    self._data = rest[size:]
                    if status != 100:
                        return status
                    continue
            try:
                more = self._sock.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not more:
                return None
            self._data += more


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
