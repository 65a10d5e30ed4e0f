"""Thousands of malformed requests at the HTTP door: each is answered, or its connection closed."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

import pytest

from fuzz.test_doors import GOOD_EVERY, GROWTH, INPUTS, WATCHDOG_S, good_request, healthy, names, rss
from support import http1
from support.daemon import Daemon
from support.fuzz_seeds import requests
from support.otlp_json import to_json
from support.waiting import until

ANSWERS = {200, 400, 404, 405, 413, 415, 431}
ON_ONE = 4
"""Requests a connection, before one that nothing can follow."""


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, http="127.0.0.1:0") as running:
        yield running


def test_http_survives_what_is_sent_to_it(daemon, chance):
    seeds = [(signal, message.SerializeToString()) for signal, message in requests()]
    bodies = [(http1.TYPES[0], body) for _, body in seeds]
    bodies += [(http1.TYPES[1], to_json(signal, body)) for signal, body in seeds]
    host, _, port = daemon.http.rpartition(":")
    sent = good = before = 0
    while sent < INPUTS:
        with socket.create_connection((host, int(port)), WATCHDOG_S) as sock:
            sent += talk(sock, chance, bodies)
        if sent // GOOD_EVERY > good:
            good += 1
            with socket.create_connection((host, int(port)), WATCHDOG_S) as sock:
                deliver(sock, good_request(good))
        if before == 0 and sent > INPUTS // 2:
            before = rss(daemon)
    assert rss(daemon) < before * GROWTH
    wanted = {f"good {n}" for n in range(1, good + 1)}
    until(lambda: wanted <= names(daemon), "the good ones among them")
    healthy(daemon)


def talk(sock: socket.socket, chance: random.Random, bodies: list[tuple[bytes, bytes]]) -> int:
    """One connection: requests with odd content, then one with broken framing. How many were sent."""
    answers, sent = http1.Answers(sock), 0
    for _ in range(chance.randrange(ON_ONE + 1)):
        sent += 1
        request = http1.content(chance, bodies)
        with suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(request)
        status = answers.next(head_only=request.startswith(b"HEAD"))
        assert status is None or status in ANSWERS, (status, request[:400])
        if status is None:
            return sent
    with suppress(OSError):
        sock.sendall(http1.framing(chance, bodies))
        sock.shutdown(socket.SHUT_WR)
    while (status := answers.next()) is not None:
        assert status in ANSWERS
    return sent + 1


def deliver(sock: socket.socket, body: bytes) -> None:
    head = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: %d\r\n\r\n"
    sock.sendall(head % len(body) + body)
    assert http1.Answers(sock).next() == 200
