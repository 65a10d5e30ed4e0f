"""The OTLP listener towards other machines: token, TLS, and what the real exporter makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.certificates import Authority
from support.daemon import Daemon
from support.netns import connected_pair
from support.waiting import until

PROGRAM = Path(__file__).parent.parent / "support" / "otel_program.py"
TOKEN = "s3cret-s3cret-s3cret"
HEADER = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{TOKEN}"}
LOOPBACK = "127.0.0.1:0"
REACHED = """
import socket, sys
host, _, port = sys.argv[1].rpartition(":")
try:
    socket.create_connection((host, int(port)), 10).close()
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""


def program(daemon: Daemon, scheme: str, **env) -> str:
    """Run a program with the SDK; what it says on stderr."""
    command = [
        sys.executable,
        str(PROGRAM),
        f"{scheme}://{daemon.otlp.replace('127.0.0.1', 'localhost')}",
        "ok",
    ]
    env = {**os.environ, "OTEL_EXPORTER_OTLP_TIMEOUT": "3", **env}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr


def ended(daemon: Daemon):
    return until(lambda: [r["status"] for r in daemon.rows()] == ["ok"], "the run")


def status(daemon: Daemon) -> dict:
    return json.loads(daemon.cli("status", "--json").stdout)


# -- token ------------------------------------------------------------------------------------------


def test_a_token_that_is_set_is_demanded_on_loopback_too(tmp_path):
    with Daemon(tmp_path, otlp_grpc=LOOPBACK, env={"AGENTRUND_TOKEN": TOKEN}) as daemon:
        assert "UNAUTHENTICATED" in program(daemon, "http")
        assert "UNAUTHENTICATED" in program(daemon, "http", OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20something-else")  # fmt: skip
        assert (status(daemon)["otlp"]["unauthenticated"], daemon.run_ids()) == (2, [])
        assert program(daemon, "http", **HEADER) == ""
        ended(daemon)
        assert status(daemon)["otlp"]["unauthenticated"] == 2
    assert daemon.stderr.read_text().count("without the right token") == 1


def test_a_token_is_told_to_nobody(tmp_path):
    config = tmp_path / "agentrund.toml"
    config.touch(0o600)
    config.write_text(f'token = "{TOKEN}"\n')
    with Daemon(tmp_path, otlp_grpc=LOOPBACK) as daemon:
        program(daemon, "http", **HEADER)
        ended(daemon)
        argv = Path(f"/proc/{daemon.process.pid}/cmdline").read_text()
        shown = [
            daemon.cli(*command)
            for command in (
                ["config"],
                ["config", "--show-origin"],
                ["config", "--json"],
                ["status"],
                ["status", "--json"],
            )
        ]
        greeting = [daemon.process.stdout.readline() for _ in range(10)]
    assert [done.returncode for done in shown] == [0] * 5
    assert "token = (set)\n" in shown[0].stdout
    assert str(config) in shown[1].stdout
    assert any("Bearer%20$AGENTRUND_TOKEN" in line for line in greeting)
    texts = [done.stdout + done.stderr for done in shown]
    texts += [argv, *greeting, daemon.stderr.read_text()]
    for path in [*daemon.root.rglob("*"), *daemon.socket.parent.iterdir()]:
        if path.is_file() and not path.is_symlink():
            texts.append(path.read_bytes().decode("latin-1"))
    assert not [text for text in texts if TOKEN in text]


def test_the_command_line_takes_no_token(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "agentrund.cli.main", "serve", "--token", TOKEN],
        check=False, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--token" in done.stderr


# -- TLS --------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def tls(signed, **more) -> dict[str, str]:
    return {"otlp_grpc": LOOPBACK, "tls_cert": str(signed.cert), "tls_key": str(signed.key), **more}


def test_tls_with_an_authority_of_our_own(tmp_path, authority):
    with Daemon(tmp_path, **tls(authority.sign("collector")), env={"AGENTRUND_TOKEN": TOKEN}) as daemon:
        trusted = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(authority.cert)}
        assert "UNAVAILABLE" in program(daemon, "https", **HEADER)  # it knows no such authority
        assert "UNAVAILABLE" in program(daemon, "http", **HEADER)
        assert "UNAUTHENTICATED" in program(daemon, "https", **trusted)
        assert daemon.run_ids() == []
        assert program(daemon, "https", **trusted, **HEADER) == ""
        ended(daemon)


def test_clients_with_certificates(tmp_path, authority):
    settings = tls(authority.sign("collector"), tls_client_ca=str(authority.cert))
    stranger = Authority(tmp_path, "elsewhere").sign("stranger")
    with Daemon(tmp_path, **settings) as daemon:
        trusted = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(authority.cert)}

        def shown(signed):
            return {
                "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": str(signed.cert),
                "OTEL_EXPORTER_OTLP_CLIENT_KEY": str(signed.key),
            }

        assert "UNAVAILABLE" in program(daemon, "https", **trusted)
        assert "UNAVAILABLE" in program(daemon, "https", **trusted, **shown(stranger))
        assert daemon.run_ids() == []
        assert program(daemon, "https", **trusted, **shown(authority.sign("agent"))) == ""
        ended(daemon)


# -- other machines ---------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_a_listener_for_others_does_not_start_for_nothing(tmp_path, address):
    command = [sys.executable, "-m", "agentrund.cli.main", "serve", "--otlp-grpc", address]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    what, hint = done.stderr.splitlines()
    assert "other machines can reach" in what
    assert "--insecure" in hint
    assert list(tmp_path.iterdir()) == []


def test_who_can_reach_which_listener(tmp_path):
    """From a second network namespace: the default's port is closed, a listener for others answers."""
    with connected_pair() as (ours, theirs):

        def reached(daemon):
            port = daemon.otlp.rpartition(":")[2]
            command = [*theirs.enter, sys.executable, "-I", "-c", REACHED, f"{ours.address}:{port}"]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

        for name, settings in {
            "default": {"otlp_grpc": LOOPBACK},
            "named": {"otlp_grpc": "localhost:0"},
        }.items():
            (tmp_path / name).mkdir()
            with Daemon(tmp_path / name, wrapper=ours.enter, **settings) as daemon:
                assert reached(daemon) == "ConnectionRefusedError"
        with Daemon(tmp_path, wrapper=ours.enter, flags=("--insecure",), otlp_grpc="0.0.0.0:0") as daemon:
            assert reached(daemon) == "connected"
            assert "takes data from whoever can reach it" in daemon.stderr.read_text()
