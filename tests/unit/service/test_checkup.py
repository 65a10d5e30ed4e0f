"""``agentrund doctor``'s single checks: each names its problem, and says that all is well where it is."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from agentrund.service import check_machine, check_ports, check_wire, config
from agentrund.service.check import NOTE, OK, PROBLEM
from agentrund.service.checkup import Checkup
from agentrund.service.settings_types import Address

STATUS = {"otlp_grpc": "127.0.0.1:4317", "http": "127.0.0.1:4318"}


def states(checks) -> list[tuple[str, str]]:
    return [(check.what, check.state) for check in checks]


def problems(checks) -> list[str]:
    found = [check for check in checks if check.state == PROBLEM]
    assert all(check.hint for check in found), "every problem says what to do"
    return [check.message for check in found]


# -- ports and exporters -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318/", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:9999", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "h:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            "the gRPC port",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "the HTTP port",
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://h:4317/v1/metrics",
                "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            },
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        ),
    ],
)
@pytest.mark.parametrize("status", [STATUS, None])
def test_an_exporter_of_the_other_protocol(environ, problem, status):
    settings = SimpleNamespace(otlp_grpc=Address("127.0.0.1", 4317), http=Address("127.0.0.1", 4318))
    found = problems(check_ports.environment(environ, settings, status))
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


def test_ports_of_a_collector_and_of_nobody():
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as gone:
        port, free = taken.getsockname()[1], gone.getsockname()[1]
        gone.close()
        status = {"otlp_grpc": f"127.0.0.1:{port}", "http": None}
        assert states(check_ports.ports(None, status)) == [("ports", OK), ("ports", NOTE)]
        status = {"otlp_grpc": f"127.0.0.1:{free}", "http": "nonsense"}
        assert len(problems(check_ports.ports(None, status))) == 2
        settings = SimpleNamespace(otlp_grpc=Address("127.0.0.1", port), http=Address("127.0.0.1", free))
        (message,) = problems(check_ports.ports(settings, None))
        assert f"taken by pid {os.getpid()}" in message
        settings = SimpleNamespace(otlp_grpc=None, http=None)
        assert states(check_ports.ports(settings, None)) == [("ports", NOTE)] * 2


# -- the machine -------------------------------------------------------------------------------------


def test_a_sound_root(tmp_path):
    path = tmp_path / "root"
    path.mkdir(mode=0o700)
    assert problems(check_machine.root(path)) == []
    assert states(check_machine.root(tmp_path / "none")) == [("root", NOTE)]


def test_a_root_that_others_can_write_to(tmp_path):
    path = tmp_path / "root"
    path.mkdir()
    path.chmod(0o777)
    (message,) = problems(check_machine.root(path))
    assert "written to by others" in message


def test_a_root_that_is_a_file(tmp_path):
    path = tmp_path / "root"
    path.write_bytes(b"")
    assert len(problems(check_machine.root(path))) == 1


def test_a_disk_that_is_nearly_full(tmp_path, monkeypatch):
    path = tmp_path / "root"
    path.mkdir(mode=0o700)
    full = SimpleNamespace(f_bavail=10, f_frsize=4096, f_files=1000, f_favail=3)
    monkeypatch.setattr(check_machine.os, "statvfs", lambda _path: full)
    space, inodes = problems(check_machine.root(path))
    assert space.startswith("0 MiB")
    assert "3 inodes" in inodes


@pytest.mark.parametrize(("ahead", "wrong"), [(-10, False), (3600, True)])
def test_a_run_of_the_future(tmp_path, ahead, wrong):
    path = tmp_path / "root"
    stamp = (datetime.now(UTC) + timedelta(seconds=ahead)).strftime("%Y%m%d_%H%M%S")
    (path / "runs" / f"{stamp}_a1b2").mkdir(parents=True)
    (path / "runs" / "zzz").mkdir()
    path.chmod(0o700)
    assert len(problems(check_machine.root(path))) == wrong


def test_a_folder_whose_name_is_no_time_is_no_run_of_the_future(tmp_path):
    for name in ("20260101_000000_0000", "99999999_999999_0000"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert "clock" not in dict(states(check_machine.root(tmp_path)))


def test_limits(monkeypatch):
    assert problems(check_machine.limits(None)) == []
    memory = {"used_bytes": 5 << 20, "max_bytes": 10 << 20, "times_short": 0}
    assert problems(check_machine.limits({"pid": os.getpid(), "memory": memory})) == []
    (message,) = problems(check_machine.limits({"pid": os.getpid(), "memory": {**memory, "times_short": 3}}))
    assert message == "5 of 10 MiB used; it was short 3 times"
    monkeypatch.setattr(check_machine.resource, "prlimit", lambda _pid, _what: (64, 256))
    assert problems(check_machine.limits(None)) == ["256 may be open"]


def test_what_waits_in_the_spool_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTRUND_SPOOL", str(tmp_path))
    assert states(check_machine.spool(running=True)) == [("spool", OK)]
    (tmp_path / "a.jsonl").write_bytes(b"x" * 2048)
    (check,) = check_machine.spool(running=False)
    assert (check.state, "1 files (2 KiB) wait" in check.message) == (NOTE, True)
    monkeypatch.setenv("AGENTRUND_SPOOL", str(tmp_path / "a.jsonl"))
    assert len(problems(check_machine.spool(running=True))) == 1


# -- the wire ----------------------------------------------------------------------------------------


CLIENT = {"service": "svc", "scope": "lib", "items": {"spans": 3}, "unmapped": {}, "lost": {}, "lag_s": 0.1}


def wire(**fields):
    return {"since": "then", "clients": [{**CLIENT, **fields}], "rejected": {}, "grpc_to_http": 0}


def test_clients_that_are_well():
    found = list(check_wire.checks(wire(unmapped={f"a{n}": n + 1 for n in range(10)})))
    assert problems(found) == []
    assert found[-1].what == "not mapped"
    assert found[-1].message.startswith("svc, lib: a9 (10), a8 (9), ")
    assert found[-1].message.endswith(" and 2 more")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"lost": {"attributes": 2, "events": 1}}, "its SDK dropped 2 attributes, 1 events"),
        ({"items": {"spans": 1, "bad": 4}}, "4 items could not be read"),
        ({"lag_s": -7.5}, "its clock is 7.5 s ahead"),
    ],
)
def test_clients_that_lost_something(fields, says):
    (message,) = problems(check_wire.checks(wire(**fields)))
    assert message == f"svc, lib: {says}"


def test_a_wrong_port_and_rejected_requests():
    first, second = problems(check_wire.checks({**wire(), "rejected": {"OTel/1": 2}, "grpc_to_http": 3}))
    assert "gRPC came to the HTTP port 3 times since then" in first
    assert "2 requests of OTel/1" in second


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"since": 1, "clients": 3, "rejected": [], "grpc_to_http": "x"},
        {"since": "s", "clients": [1, {}, {"items": [], "lost": {"a": "b"}, "lag_s": "x"}]},
    ],
)
def test_nonsense_is_no_problem(told):
    assert problems(check_wire.checks(told)) == []


# -- all of it ---------------------------------------------------------------------------------------


def test_without_a_collector_everything_else_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTRUND_SPOOL", str(tmp_path / "spool"))
    (tmp_path / "root" / ".agentrund").mkdir(parents=True)
    (tmp_path / "root").chmod(0o700)
    (tmp_path / "root" / ".agentrund" / "wire.json").write_text(
        '{"since":"then","clients":[],"grpc_to_http":1}'
    )
    settings = config.load({"root": str(tmp_path / "root"), "otlp_grpc": "off", "http": "off"})
    checkup = Checkup(settings, {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)})
    found = list(checkup.checks())
    assert {"socket", "ports", "root", "disk", "descriptors", "spool", "protocol"} <= {c.what for c in found}
    assert any("HTTP port 1 times" in message for message in problems(found))
    assert checkup.wire["since"] == "then"


def test_a_socket_that_is_none(tmp_path):
    path = tmp_path / "x.sock"
    path.write_bytes(b"")
    settings = config.load({"root": str(tmp_path), "socket": str(path), "otlp_grpc": "off", "http": "off"})
    messages = problems(Checkup(settings, {}).checks())
    assert f"{path} is not a socket" in messages
