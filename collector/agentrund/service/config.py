"""Settings: which there are, what each may be, and which of several values counts.

Precedence: flag, ``AGENTRUND_*`` variable, ``./agentrund.toml``, the user's file,
``/etc/agentrund/config.toml``, default. Whatever is wrong is said at start, naming where it stands,
the key and what was expected. It opens nothing but those files, looks how much memory the kernel gives, and
decides nothing about running.
"""

from __future__ import annotations

import difflib
import os
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from agentrund.model.errors import UsageError
from agentrund.service import cgroups, places
from agentrund.service import settings_types as kinds
from agentrund.service.settings_types import Address, Kind

ENV_PREFIX: Final = "AGENTRUND_"
PROJECT_FILE: Final = "agentrund.toml"
SYSTEM_FILE: Final = Path("/etc/agentrund/config.toml")
DEFAULT: Final = "default"
"""The origin of a value nobody set."""

CGROUP: Final = "default, for the memory limit of this cgroup"
"""The origin of a ``max_memory`` that nobody set, where the usual one would be too much."""

MEMORY: Final = 1 << 30
MEMORY_BASE: Final = 64 << 20
"""What an idle collector takes."""
MEMORY_MIN: Final = 2 * MEMORY_BASE
PIECES: Final = 15
"""A line or request is at most this part of the rest: it is held some four times over while it is taken."""
OF_CGROUP: Final = 3 / 4
"""Of what its cgroup (a container's for one) may have: the default of ``max_memory`` where that is less."""
OTLP_GRPC: Final = Address("127.0.0.1", 4317)
HTTP: Final = Address("127.0.0.1", 4318)
SYNC_MODES: Final = ("interval", "always")
RUN_KEYS: Final = ("auto", "session", "trace", "process")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of the collector with its default; sizes in bytes, times in seconds.

    ``socket`` is None where nobody named one: ``places.listen_socket`` then picks it.
    ``origins`` says for each name where its value came from.
    """

    root: Path
    socket: Path | None = None
    otlp_grpc: Address | None = OTLP_GRPC
    http: Address | None = HTTP
    sync: str = "interval"
    blob_max_bytes: int = 8192
    max_line_bytes: int = 64 << 20
    max_request_bytes: int = 64 << 20
    heartbeat_timeout: float = 60.0
    idle_close: float = 60.0
    idle_timeout: float = 1800.0
    otlp_run_key: str = "auto"
    group: str | None = None
    max_memory: int = MEMORY
    forward: str | None = None
    forward_headers: Mapping[str, str] | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def spare_memory(self) -> int:
        """What of ``max_memory`` there is for what senders send."""
        return self.max_memory - MEMORY_BASE

    def show(self, name: str) -> str:
        """A value the way a person would type it."""
        return KINDS[name].show(getattr(self, name))


KINDS: Final[Mapping[str, Kind]] = {
    "root": kinds.PATH,
    "socket": kinds.SOCKET,
    "otlp_grpc": kinds.ADDRESS,
    "http": kinds.ADDRESS,
    "sync": kinds.choice(SYNC_MODES),
    "blob_max_bytes": kinds.size(1),
    "max_line_bytes": kinds.size(1024),
    "max_request_bytes": kinds.size(1024),
    "heartbeat_timeout": kinds.time(0.1),
    "idle_close": kinds.time(0.0),
    "idle_timeout": kinds.time(0.1),
    "otlp_run_key": kinds.choice(RUN_KEYS),
    "group": kinds.GROUP,
    "max_memory": kinds.size(MEMORY_MIN),
    "forward": kinds.URL,
    "forward_headers": kinds.HEADERS,
    "token": kinds.TOKEN,
    "tls_cert": kinds.FILE,
    "tls_key": kinds.FILE,
    "tls_client_ca": kinds.FILE,
}
"""What each setting may be."""

ABOUT: Final[Mapping[str, str]] = {
    "root": "folder that holds the runs; one collector writes it",
    "socket": "path of the Unix socket",
    "otlp_grpc": "address of the OTLP/gRPC listener",
    "http": "address of the HTTP listener, for OTLP at /v1/traces, /v1/logs and /v1/metrics",
    "sync": "when data is forced to the disk: at most 1 s after it was acknowledged, or always before",
    "blob_max_bytes": "longest string kept inside a trace line; longer ones go to blobs/",
    "max_line_bytes": "longest line taken from the Unix socket",
    "max_request_bytes": "largest OTLP request, before and after decompression",
    "heartbeat_timeout": "silence that ends a source whose process cannot be watched",
    "idle_close": "how long a run named in single events waits for the next one",
    "idle_timeout": "silence that ends a run with no process to watch",
    "otlp_run_key": "what makes OTLP data one run",
    "forward": "a second OTLP backend that everything received over OTLP is passed on to",
    "forward_headers": "headers that it wants, such as its key",
    "token": "bearer token that every OTLP request must carry",
    "tls_cert": "PEM file with the OTLP listener's certificate, and those it was signed with",
    "tls_key": "PEM file with the certificate's key",
    "tls_client_ca": "PEM file with the authorities one of which must have signed a client's certificate",
    "group": "group whose members may connect to the socket and read the runs",
    "max_memory": "memory of the collector; near it senders are told to wait",
}
"""What each setting is for, in one phrase."""

NAMES: Final = tuple(KINDS)
FLAGS: Final = tuple(name for name, kind in KINDS.items() if not kind.secret)
"""Settings that may be options: everybody on the machine can read a command line."""


def load(
    flags: Mapping[str, str | None] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    system_file: Path = SYSTEM_FILE,
    memory_limit: Callable[[], int | None] = cgroups.memory_limit,
) -> Settings:
    """The effective settings. ``flags`` maps setting names to what was typed; None means not given.

    ``memory_limit`` tells what the kernel gives this process, in bytes.
    """
    env = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    origins: dict[str, str] = dict.fromkeys(NAMES, DEFAULT)
    for origin, name, raw in _layers(flags or {}, env, system_file):
        if name not in values:
            values[name] = _convert(origin, name, raw)
            origins[name] = origin
        else:
            # A value that loses is checked too: it would fail on the day the winner goes away.
            _convert(origin, name, raw)
    values.setdefault("root", places.default_root(env))
    if "max_memory" not in values and (limit := memory_limit()) is not None:
        most = max(MEMORY_MIN, int(limit * OF_CGROUP))
        if most < MEMORY:
            values["max_memory"], origins["max_memory"] = most, CGROUP
    settings = Settings(**values, origins=origins)
    return replace(settings, **_lowered(settings))


def _lowered(settings: Settings) -> dict[str, Any]:
    """What must be smaller than usual with so little memory. Raises UsageError where it was asked for."""
    most = settings.spare_memory // PIECES
    lowered: dict[str, Any] = {}
    for name in ("max_line_bytes", "max_request_bytes"):
        if getattr(settings, name) <= most:
            continue
        origin, memory = settings.origins[name], settings.show("max_memory")
        if origin != DEFAULT:
            raise UsageError(
                f"{origin}: `{name}` is too large for {memory} of memory",
                hint=f"at most {kinds.show_size(most)} (of what is above 64MiB a fifteenth), or raise it",
            )
        lowered[name] = most
    return lowered


def _layers(
    flags: Mapping[str, str | None], env: Mapping[str, str], system_file: Path
) -> Iterator[tuple[str, str, Any]]:
    """Every value that was set, as (origin, name, raw value), strongest first."""
    for name, raw in flags.items():
        if raw is not None:
            yield f"flag --{name.replace('_', '-')}", name, raw
    for name in NAMES:
        variable = env_name(name)
        # An empty variable is how a shell says "not set".
        if env.get(variable):
            yield f"env {variable}", name, env[variable]
    for path in config_files(env, system_file):
        for name, raw in _read_file(path).items():
            yield str(path), name, raw


def env_name(name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + name.upper()


def config_files(env: Mapping[str, str], system_file: Path = SYSTEM_FILE) -> list[Path]:
    """The configuration files that may exist, strongest first."""
    user = places.xdg_folder(env, "XDG_CONFIG_HOME", ".config") / "agentrund" / "config.toml"
    return [Path.cwd() / PROJECT_FILE, user, system_file]


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", hint="fix its permissions") from error
    except (ValueError, RecursionError) as error:
        # Bad syntax, bad UTF-8; also an integer too long to be one, and arrays nested without an end.
        raise UsageError(f"{path}: not valid TOML: {error}", hint="correct that line") from error
    for key in table:
        if key not in KINDS:
            raise UsageError(f"{path}: unknown setting `{key}`", hint=_suggest(key))
        if KINDS[key].secret:
            refuse_readable(path, f"`{key}`")
    return table


def refuse_readable(path: Path, what: str) -> None:
    """Raise UsageError where a file holds something secret and everybody may read it."""
    if path.stat().st_mode & stat.S_IROTH:
        raise UsageError(f"{path}: others can read the {what} in it", hint=f"`chmod o-r {path}`")


def _suggest(key: str) -> str:
    close = difflib.get_close_matches(key, NAMES, n=1)
    return f"did you mean `{close[0]}`?" if close else "settings are: " + ", ".join(NAMES)


def _convert(origin: str, name: str, raw: Any) -> Any:
    try:
        value = KINDS[name].parse(raw)
    except (ValueError, RuntimeError):  # RuntimeError: no home folder for `~`
        shown = "bad value" if KINDS[name].secret else f"bad value {raw!r}"
        raise UsageError(f"{origin}: {shown} for `{name}`", hint=f"expected {KINDS[name].expected}") from None
    if name == "socket":
        places.check_length(value, origin)
    return value
