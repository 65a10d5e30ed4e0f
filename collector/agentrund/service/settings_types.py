"""How a setting's value is written: times, sizes, addresses, names, paths.

Each kind turns what stands in a file, an environment variable or a flag into a value, says in one
phrase what it expects, and writes a value back the way a person would type it. It knows neither
where a value came from nor which settings there are.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

_SIZE: Final = re.compile(r"(\d+)\s*(B|[kK]B|[MG]B|[KMG]iB)?")
_BYTES: Final = {
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:\[\]/\s]+)):(?P<port>\d{1,5})")
_PORT_MAX: Final = 65535
_TOKEN: Final = re.compile(r"(?=.{16})[A-Za-z0-9._~+/-]+=*", re.ASCII)
_HEADER: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,64}")
_NAME: Final = re.compile(r"[^\s:,/\x00-\x1f]{1,64}")
NONE: Final = "none"
"""How the absence of an optional value is written."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way of writing a value. ``parse`` raises ``ValueError`` where the value is not ``expected``."""

    expected: str
    parse: Callable[[Any], Any]
    show: Callable[[Any], str]
    secret: bool = False
    """Whether a value must appear in no message, listing or command line."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a listener binds; port 0 lets the kernel pick one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_time(value: Any) -> float:
    """Seconds of ``30s``, ``5min`` or ``5m``, ``2h``, ``1d``, ``250ms``; a bare number is refused."""
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError
    return float(match[1]) * _SECONDS[match[2]]


def show_time(seconds: float) -> str:
    """The shortest spelling in whole units."""
    for unit in ("d", "h", "min", "s"):
        count = seconds / _SECONDS[unit]
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    return f"{seconds:g}s" if seconds >= 1 else f"{round(seconds * 1000)}ms"


def parse_size(value: Any) -> int:
    """Bytes of ``64MiB``, ``8kB`` or a bare number."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError
    return int(match[1]) * _BYTES[match[2] or "B"]


def show_size(count: int) -> str:
    """The shortest spelling in whole binary units."""
    for unit in ("GiB", "MiB"):
        if count and count % _BYTES[unit] == 0:
            return f"{count // _BYTES[unit]}{unit}"
    return str(count)


def time(minimum: float) -> Kind:
    """A duration of at least ``minimum`` seconds."""

    def parse(value: Any) -> float:
        seconds = parse_time(value)
        if seconds < minimum:
            raise ValueError
        return seconds

    floor = f", at least {show_time(minimum)}" if minimum else ""
    return Kind(f"a time such as 30s, 5min or 2h{floor}", parse, show_time)


def size(minimum: int) -> Kind:
    """A number of bytes, at least ``minimum``."""

    def parse(value: Any) -> int:
        count = parse_size(value)
        if count < minimum:
            raise ValueError
        return count

    return Kind(f"a size such as 8192 or 64MiB, at least {show_size(minimum)}", parse, show_size)


def choice(names: tuple[str, ...]) -> Kind:
    """One of some names."""

    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError
        return value

    quoted = ", ".join(f'"{name}"' for name in names)
    return Kind(f"one of {quoted}" if len(names) > 1 else quoted, parse, str)


def _parse_path(value: Any) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError
    return Path(os.path.normpath(Path.cwd() / Path(value).expanduser()))


def optional(kind: Kind) -> Kind:
    """What ``kind`` is, or ``none``: what a file set can be unset by a variable or an option."""

    def parse(value: Any) -> Any:
        return None if value == NONE else kind.parse(value)

    def show(value: Any) -> str:
        return NONE if value is None else kind.show(value)

    return Kind(f'{kind.expected}, or "{NONE}"', parse, show, kind.secret)


def _parse_name(value: Any) -> str:
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise ValueError
    return value


def _parse_token(value: Any) -> str:
    if not isinstance(value, str) or _TOKEN.fullmatch(value) is None:
        raise ValueError
    return value


def _parse_url(value: Any) -> str | None:
    if value == "off":
        return None
    parts = urlsplit(value) if isinstance(value, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError
    if "@" in parts.netloc or parts.query or parts.fragment or parts.port == 0:
        raise ValueError
    return urlunsplit(parts).rstrip("/")


def _parse_headers(value: Any) -> Mapping[str, str]:
    pairs = [pair.partition("=") for pair in str(value).split(",")]
    headers = {name.strip().lower(): unquote(text.strip()) for name, equals, text in pairs if equals}
    if len(headers) < len(pairs) or not all(
        _HEADER.fullmatch(name) and text.isprintable() and text.isascii() for name, text in headers.items()
    ):
        raise ValueError
    return headers


def _parse_address(value: Any) -> Address | None:
    if value == "off":
        return None
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match["port"]) > _PORT_MAX:
        raise ValueError
    return Address(match["six"] or match["host"], int(match["port"]))


PATH: Final = Kind("a path", _parse_path, str)
"""A path; a relative one starts at the working folder, ``~`` is the home folder."""

SOCKET: Final = Kind(
    "a path", _parse_path, lambda path: "(first that can be created)" if path is None else str(path)
)
"""The socket's path, or None while nobody has named one."""

GROUP: Final = optional(Kind("the name or number of a group", _parse_name, str))
"""A group of this system's; whether there is one shows when it is needed."""

ADDRESS: Final = Kind(
    'an address such as 127.0.0.1:4317 (port 0 picks a free one), or "off"',
    _parse_address,
    lambda address: "off" if address is None else str(address),
)
"""A listener's address."""

URL: Final = Kind(
    'a URL such as http://127.0.0.1:4318 (without a user, a query or /v1/traces), or "off"',
    _parse_url,
    lambda url: "off" if url is None else str(url),
)
"""Where something is sent."""

HEADERS: Final = optional(
    Kind(
        "headers such as authorization=Basic%20abc,x-tenant=7", _parse_headers, lambda _: "(set)", secret=True
    )
)
"""What goes with a request; written as ``OTEL_EXPORTER_OTLP_HEADERS`` is."""

TOKEN: Final = optional(
    Kind("at least 16 letters, digits or characters of ._~+/-=", _parse_token, lambda _: "(set)", secret=True)
)
"""A bearer token as RFC 6750 writes it, too long to be guessed."""

FILE: Final = optional(PATH)
"""A file that need not be named."""
