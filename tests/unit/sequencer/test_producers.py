from __future__ import annotations

import pytest

from agentrund.model.otlp import Peer, Resource
from agentrund.model.source import SOURCE_ID, Identity
from agentrund.sequencer.producers import Producers

ONE = Identity(pid=1, pid_start=10, boot_id="b")
TWO = Identity(pid=2, pid_start=20, boot_id="b")


def of(producers: Producers, attributes=None, identity=ONE, host="127.0.0.1", now=1.0):
    return producers.of(Peer(host, 5, None, identity), Resource(attributes or {}), now)


@pytest.mark.parametrize(
    ("attributes", "identity", "source"),
    [
        ({"service.instance.id": "abc-1"}, ONE, "abc-1"),
        ({}, ONE, "pid-1-10"),
        ({}, Identity(pid=1), "pid-1"),
        ({"process.pid": 7}, Identity(), "pid-7"),
        ({"process.pid": 7}, ONE, "pid-1-10"),
    ],
)
def test_source_ids(attributes, identity, source):
    assert of(Producers(), attributes, identity).id == source


@pytest.mark.parametrize("instance", ["with space", "ü", "x" * 200, "a/b", "\ud800"])
def test_any_instance_id_becomes_a_valid_source_id(instance):
    one, other = (of(Producers(), {"service.instance.id": i}).id for i in (instance, instance + "!"))
    assert SOURCE_ID.fullmatch(one)
    assert one != other


def test_without_any_identity_the_resource_counts_less_its_host():
    producers = Producers()
    first = of(producers, {"service.name": "a", "host.name": "h"}, Identity())
    assert of(producers, {"service.name": "a"}, Identity()) is first
    assert of(producers, {"service.name": "b"}, Identity()) is not first
    assert of(producers, {"service.name": "a"}, Identity(), host="10.0.0.1") is not first
    assert SOURCE_ID.fullmatch(first.id)


def test_a_pid_in_the_resource_of_another_host_means_nothing_here():
    producer = of(Producers(), {"process.pid": 7}, Identity(), host="10.0.0.1")
    assert producer.identity.pid is None


def test_one_instance_id_in_two_processes_is_two_sources():
    producers = Producers()
    first = of(producers, {"service.instance.id": "web"}, ONE)
    second = of(producers, {"service.instance.id": "web"}, TWO)
    third = of(producers, {"service.instance.id": "web"}, Identity(pid=2, pid_start=30, boot_id="b"))
    assert [p.id for p in (first, second, third)] == ["web", "web:2", "web:2-30"]
    assert of(producers, {"service.instance.id": "web"}, TWO) is second
    assert producers.get("web") is first


def test_a_failed_lookup_on_one_connection_is_made_good_by_another():
    producers = Producers()
    first = of(producers, {"service.instance.id": "web"}, Identity())
    assert of(producers, {"service.instance.id": "web"}, ONE) is first
    assert first.identity == ONE
    assert producers.exited(ONE, "gone", 5.0, 5.0) == [first]


def test_an_exit_ends_every_source_of_the_process_once():
    producers = Producers()
    mine = [of(producers, {"service.instance.id": i}, ONE) for i in ("a", "b")]
    other = of(producers, {"service.instance.id": "c"}, TWO)
    assert producers.exited(ONE, "gone", 5.0, 5.0) == mine
    assert producers.exited(ONE, "gone", 6.0, 6.0) == []
    assert [p.exited_at for p in (*mine, other)] == [5.0, 5.0, None]


def test_a_reused_pid_is_another_process():
    producers = Producers()
    of(producers, {}, ONE)
    assert producers.exited(Identity(pid=1, pid_start=99, boot_id="b"), "gone", 5.0, 5.0) == []


def test_forgetting():
    producers = Producers()
    producer = of(producers, {"service.instance.id": "a"}, now=1.0)
    of(producers, {"service.instance.id": "b"}, now=1.5)
    assert producers.idle_since(1.0, 2) == []
    assert producers.idle_since(1.0, 1) == ["a"]
    assert producers.idle_since(1.2, 2) == ["a"]
    producers.forget(["a"])
    producers.forget([])
    assert len(producers) == 1
    assert of(producers, {"service.instance.id": "a"}) is not producer


def test_a_restored_producer_is_found_again():
    producers = Producers()
    resource = Resource({"service.instance.id": "web"})
    back = producers.restore("web:2", TWO, resource, 1.0)
    assert producers.restore("web:2", TWO, resource, 1.0) is back
    assert of(producers, resource.attributes, TWO) is back


def test_a_process_whose_end_was_seen_before_its_last_request_is_gone():
    producers = Producers()
    assert producers.exited(ONE, "gone", 5.0, 5.0) == []
    late = of(producers, {"service.instance.id": "a"}, ONE, now=6.0)
    assert (late.exited_at, late.cause) == (6.0, "gone")
    assert of(producers, {"service.instance.id": "b"}, TWO, now=6.0).exited_at is None
    assert of(producers, {"service.instance.id": "c"}, Identity(pid=1), now=6.0).exited_at is None


def test_a_process_ends_once_and_the_first_word_on_it_counts():
    producers = Producers()
    producers.exited(ONE, "process exited: killed by SIGKILL", 5.0, 5.0)
    producers.exited(ONE, "process exited", 6.0, 6.0)
    late = of(producers, now=7.0)
    assert (late.cause, late.exited_ts) == ("process exited: killed by SIGKILL", 5.0)


def test_an_end_that_was_seen_before_the_process_was_known_to_be_a_producers():
    """Its first request came without its process (its sender had given it up), and its last after its end."""
    producers = Producers()
    producer = of(producers, {"service.instance.id": "hasty"}, Identity())
    assert producers.exited(ONE, "process exited: exit code 0", 2.0, 100.0) == []
    assert of(producers, {"service.instance.id": "hasty"}, ONE, now=3.0) is producer
    assert (producer.exited_at, producer.cause) == (3.0, "process exited: exit code 0")
