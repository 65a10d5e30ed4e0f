"""The control service on the gRPC port: heartbeats, ends, status and tails, and who may call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.v1 import control_pb2 as pb
from agentrund.v1.control_pb2_grpc import ControlStub
from support import otlp_build
from support.daemon import Daemon
from support.namespaces import UNSHARE, need_pid_namespaces
from support.other_uid import as_other, impossible, reachable_folder
from support.otlp_send import send
from support.raw_client import RawClient
from support.waiting import until

WAIT_S = 30
PROG = {"service.instance.id": "prog"}
CALL = """
import sys, grpc
from agentrund.v1 import control_pb2 as pb
from agentrund.v1.control_pb2_grpc import ControlStub
try:
    ControlStub(grpc.insecure_channel(sys.argv[1])).Status(pb.StatusRequest(), timeout=20)
except grpc.RpcError as error:
    print(error.code().name, error.details())
"""


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0") as running:
        yield running


@contextmanager
def control(daemon: Daemon) -> Iterator[ControlStub]:
    with grpc.insecure_channel(daemon.otlp, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield ControlStub(channel)


def say(
    daemon: Daemon, session: str = "s", name: str = "said", instance: str = "prog", run_id: str | None = None
) -> None:
    """One log record, which is held for seconds before it is written."""
    attributes = otlp_build.key_values({"session.id": session})
    record = LogRecord(event_name=name, attributes=attributes)
    headers = () if run_id is None else (("x-agentrund-run-id", run_id),)
    send(daemon.otlp, "logs", otlp_build.logs(record, resource={"service.instance.id": instance}), headers)


def begin(daemon: Daemon, session: str = "s") -> None:
    """A span's announcement, which is written at once: its run stays open."""
    span = otlp_build.span(
        1,
        2,
        attributes={
            "session.id": session,
            "logfire.span_type": "pending_span",
            "logfire.pending_parent_id": "0" * 16,
            "gen_ai.operation.name": "invoke_agent",
        },
    )
    send(daemon.otlp, "traces", otlp_build.traces(span, resource=PROG, scope="logfire"))


def has_open(daemon: Daemon, name: str) -> bool:
    """Whether the collector has a file of that name open."""
    fds = Path(f"/proc/{daemon.process.pid}/fd")
    return any(os.path.realpath(fd).endswith(f"/{name}") for fd in fds.iterdir())


def refusal(call) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code().name, caught.value.details()


# -- ends -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(pb.OUTCOME_UNSPECIFIED, "ok"), (pb.OUTCOME_OK, "ok"), (pb.OUTCOME_FAILED, "failed")],
)
def test_a_run_is_over_when_its_sender_says_so_with_all_that_was_told_before(daemon, outcome, status):
    with control(daemon) as stub:
        say(daemon)
        request = pb.EndRunRequest(session_id="s", outcome=outcome, cause="job done")
        (run,) = stub.EndRun(request, timeout=WAIT_S).runs
        records = daemon.trace()
        assert [r["type"] for r in records] == ["run.start", "log", "source.exit", "run.end"]
        assert (run.status, run.cause, run.last_seq, run.sources) == (status, "job done", 4, 0)
        assert (records[-1]["status"], records[-1]["payload"]["cause"]) == (status, "job done")
        assert run.dir == str(daemon.run_dir())
        again = stub.EndRun(pb.EndRunRequest(run_id=run.run_id, outcome=pb.OUTCOME_FAILED), timeout=WAIT_S)
        assert list(again.runs) == [run]


def test_a_process_ends_what_it_has_under_way(daemon):
    with control(daemon) as stub:
        for session in ("one", "two"):
            say(daemon, session)
        say(daemon, "of another", instance="other")
        ended = stub.EndRun(pb.EndRunRequest(resource=PROG), timeout=WAIT_S).runs
        assert sorted(run.session_id for run in ended) == ["one", "two"]
        assert {run.status for run in ended} == {"ok"}
        assert refusal(lambda: stub.EndRun(pb.EndRunRequest(resource=PROG), timeout=WAIT_S))[0] == "NOT_FOUND"


def test_what_is_not_told_over_otlp_is_not_ended(daemon):
    with control(daemon) as stub, RawClient(daemon.socket) as client:
        run_id = client.hello(session_id="mine")["run_id"]
        for request in (pb.EndRunRequest(run_id=run_id), pb.EndRunRequest(session_id="mine")):
            code, details = refusal(lambda request=request: stub.EndRun(request, timeout=WAIT_S))
            assert code == "FAILED_PRECONDITION"
            assert "over the socket" in details
        for request in (pb.EndRunRequest(run_id="../../etc"), pb.EndRunRequest(session_id="nobody's")):
            assert refusal(lambda request=request: stub.EndRun(request, timeout=WAIT_S))[0] == "NOT_FOUND"


def test_ending_a_run_again_that_nobody_holds_any_more_changes_nothing(daemon):
    with control(daemon) as stub:
        say(daemon)
        (run,) = stub.EndRun(pb.EndRunRequest(session_id="s"), timeout=WAIT_S).runs
        until(lambda: not has_open(daemon, "trace.jsonl"), "its release")
        for request in (pb.EndRunRequest(run_id=run.run_id), pb.EndRunRequest(session_id="s")):
            assert list(stub.EndRun(request, timeout=WAIT_S).runs) == [run]


def test_a_session_that_began_and_ended_at_once_is_gone_on_with(daemon):
    with control(daemon) as stub:
        for attempt, process in enumerate(("one", "another"), 1):
            say(daemon, instance=process)
            (ended,) = stub.EndRun(pb.EndRunRequest(session_id="s"), timeout=WAIT_S).runs
            (run,) = stub.Status(pb.StatusRequest(session_id="s"), timeout=WAIT_S).runs
            assert run == ended
            assert (run.run_id, run.attempt, run.status) == (*daemon.run_ids(), attempt, "ok")
        assert os.readlink(daemon.root / "sessions" / "s") == f"../runs/{run.run_id}"


@pytest.mark.parametrize("by", ["run_id", "session_id"])
def test_a_run_that_was_resumed_under_another_name_is_ended_under_all_of_them(daemon, by):
    with control(daemon) as stub:
        say(daemon)
        (run,) = stub.EndRun(pb.EndRunRequest(session_id="s"), timeout=WAIT_S).runs
        say(daemon, name="later", run_id=run.run_id)
        (again,) = stub.EndRun(pb.EndRunRequest(**{by: getattr(run, by)}), timeout=WAIT_S).runs
        assert (again.run_id, again.status, again.attempt) == (run.run_id, "ok", 2)


def test_of_a_run_that_is_told_over_the_socket_too_only_those_leave_who_told_it_over_otlp(daemon):
    with control(daemon) as stub, RawClient(daemon.socket) as client:
        client.hello(session_id="s")
        say(daemon)
        (run,) = stub.EndRun(pb.EndRunRequest(session_id="s"), timeout=WAIT_S).runs
        assert (run.status, run.sources) == ("running", 1)
        assert [r["type"] for r in daemon.trace()] == ["run.start", "source.join", "log", "source.exit"]


# -- heartbeats -------------------------------------------------------------------------------------


def test_a_process_that_can_be_watched_needs_no_heartbeat(daemon):
    with control(daemon) as stub:
        begin(daemon)
        until(daemon.rows, "the run")
        beat = stub.Heartbeat(pb.HeartbeatRequest(resource=PROG), timeout=WAIT_S)
        assert (beat.source, beat.every_s, list(beat.run_ids)) == ("prog", 0, daemon.run_ids())


@pytest.mark.parametrize(("timeout", "every_s"), [("3s", 1), ("600ms", 0.2)])
def test_silence_after_heartbeats_is_a_death_where_the_process_cannot_be_seen(tmp_path, timeout, every_s):
    need_pid_namespaces()
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0", wrapper=UNSHARE, heartbeat_timeout=timeout) as daemon:
        with control(daemon) as stub:
            begin(daemon)
            until(daemon.rows, "the run")
            beat = stub.Heartbeat(pb.HeartbeatRequest(resource=PROG), timeout=WAIT_S)
            assert (beat.every_s, list(beat.run_ids)) == (pytest.approx(every_s), daemon.run_ids())
        until(lambda: daemon.rows()[0]["status"] == "crashed", "the crash")
        (exit_,) = [r for r in daemon.trace() if r["type"] == "source.exit"]
        assert exit_["payload"]["cause"] == "heartbeat lost"
        assert len(exit_["payload"]["open"]) == 1


@pytest.mark.parametrize("pid", ["", "-1", "x", "²", "9" * 30, "9" * 5000])
def test_a_heartbeat_may_say_any_pid(daemon, pid):
    with control(daemon) as stub:
        beat = stub.Heartbeat(pb.HeartbeatRequest(resource=PROG | {"process.pid": pid}), timeout=WAIT_S)
        assert beat.source == "prog"


# -- looks ------------------------------------------------------------------------------------------


def test_status_of_the_collector_and_of_runs(daemon):
    with control(daemon) as stub:
        begin(daemon)
        until(daemon.rows, "the run")
        status = stub.Status(pb.StatusRequest(), timeout=WAIT_S)
        assert (status.pid, status.root) == (daemon.process.pid, str(daemon.root))
        assert json.loads(status.json)["open_runs"][0]["run_id"] == status.runs[0].run_id
        (run,) = stub.Status(pb.StatusRequest(session_id="s"), timeout=WAIT_S).runs
        assert (run.status, run.attempt, run.sources) == ("running", 1, 1)
        stub.EndRun(pb.EndRunRequest(session_id="s"), timeout=WAIT_S)
        daemon.stop()
        daemon.start()
    with control(daemon) as stub:
        (run,) = stub.Status(pb.StatusRequest(run_id=run.run_id), timeout=WAIT_S).runs
        assert (run.status, run.session_id, run.last_seq) == ("ok", "s", len(daemon.trace()))
        assert refusal(lambda: stub.Status(pb.StatusRequest(run_id="no"), timeout=WAIT_S))[0] == "NOT_FOUND"


def test_a_tail_shows_every_record_once_and_goes_on_after_any_of_them(daemon):
    with control(daemon) as stub, RawClient(daemon.socket) as client:
        run_id = client.hello(session_id="s")["run_id"]
        for n in range(1, 200):
            client.send({"n": n, "type": "log", "payload": {"text": f"{n}"}})
        client.acked(199)
        known = [r.seq for r in stub.Tail(pb.TailRequest(run_id=run_id, after_seq=150), timeout=WAIT_S)]
        assert known == list(range(151, 201))
        following = stub.Tail(pb.TailRequest(session_id="s", follow=True), timeout=WAIT_S)
        records = [next(following) for _ in range(200)]
        client.send({"n": 200, "type": "run.end", "status": "ok"})
        last = next(following)
        following.cancel()
        assert [r.seq for r in [*records, last]] == list(range(1, 202))
        assert [json.loads(r.record) for r in [*records, last]] == daemon.trace()
        assert refusal(lambda: list(stub.Tail(pb.TailRequest(run_id="no"))))[0] == "NOT_FOUND"


def test_tails_are_bounded_in_number(daemon):
    with control(daemon) as stub, RawClient(daemon.socket) as client:
        run_id = client.hello()["run_id"]
        tails = [stub.Tail(pb.TailRequest(run_id=run_id, follow=True), timeout=WAIT_S) for _ in range(64)]
        for tail in tails:
            next(tail)
        code, details = refusal(lambda: next(stub.Tail(pb.TailRequest(run_id=run_id), timeout=WAIT_S)))
        assert (code, details) == ("RESOURCE_EXHAUSTED", "64 tails are open already")
        for tail in tails:
            tail.cancel()
        until(lambda: is_taken(stub, run_id), "room for another")


def is_taken(stub: ControlStub, run_id: str) -> bool:
    try:
        return bool(next(stub.Tail(pb.TailRequest(run_id=run_id), timeout=WAIT_S)))
    except grpc.RpcError:
        return False


# -- who may call -----------------------------------------------------------------------------------


@pytest.mark.skipif(bool(impossible()), reason=impossible())
def test_another_user_may_send_and_not_look(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0") as daemon, reachable_folder() as folder:
        script = folder / "call.py"
        script.write_text(CALL)
        command = [*as_other(), sys.executable, str(script), daemon.otlp]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", timeout=60)
        assert done.stdout.startswith("PERMISSION_DENIED only processes of the collector's own user"), done


def test_a_token_that_is_demanded_is_enough(tmp_path):
    env = {"AGENTRUND_TOKEN": "sixteen-letters-x"}
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0", env=env) as daemon, control(daemon) as stub:
        assert refusal(lambda: stub.Status(pb.StatusRequest(), timeout=WAIT_S))[0] == "UNAUTHENTICATED"
        headers = (("authorization", "Bearer sixteen-letters-x"),)
        assert stub.Status(pb.StatusRequest(), timeout=WAIT_S, metadata=headers).pid == daemon.process.pid


def test_a_call_without_a_message_of_its_kind_is_told_so(daemon):
    with grpc.insecure_channel(daemon.otlp) as channel:
        call = channel.unary_unary("/agentrund.v1.Control/Status")
        code, details = refusal(lambda: call(b"\xff\xff\xff", timeout=WAIT_S))
        assert (code, details) == ("INVALID_ARGUMENT", "the message is no StatusRequest")
