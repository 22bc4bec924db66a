"""Watching: snapshots after changes, and what happens when the relay ends."""

import threading
from types import SimpleNamespace
from typing import List

import pytest

from nodeglass import Client, RelayUnavailableError
from nodeglass._watch import _read

from conftest import DemoRelay, wait_for


def streams() -> int:
    return sum(thread.name == "nodeglass-watch" for thread in threading.enumerate())


def test_a_watch_yields_newer_snapshots_of_its_job(client: Client) -> None:
    times = []
    for snapshot in client.watch(job=48213, interval=0.2):
        assert [job.id for job in snapshot.jobs] == [48213] and len(snapshot.gpus) == 64
        assert {process.job for process in snapshot.processes} == {48213}
        times.append(max(gpu.sampled_at for gpu in snapshot.gpus))
        if len(times) == 3:
            break
    assert times[0] <= times[1] <= times[2] and times[0] < times[2]


def test_a_watch_of_a_node_or_of_everything(client: Client) -> None:
    snapshot = next(client.watch(node="desk01"))
    assert [node.name for node in snapshot.nodes] == ["desk01"] and len(snapshot.gpus) == 4
    assert len(next(client.watch()).gpus) > 100
    with pytest.raises(ValueError):
        client.watch(job=1, node="desk01")


def test_snapshots_are_limited_by_the_interval_and_a_closed_watch_ends(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: List[float] = []
    monkeypatch.setattr("nodeglass._watch.time", SimpleNamespace(monotonic=lambda: 100.0, sleep=slept.append))
    watch = client.watch(node="desk01", interval=0.8)
    next(watch)
    assert slept == []
    next(watch)
    assert slept == [pytest.approx(0.8)]
    watch.close()
    wait_for(lambda: streams() == 0, 5)


def test_a_killed_relay_ends_a_watch_with_an_error(own_demo: DemoRelay) -> None:
    client = Client(own_demo.link)
    watch = client.watch(job=48213, interval=0.1, reconnect_for=1.0)
    next(watch)
    own_demo.kill()
    with pytest.raises(RelayUnavailableError):
        for _ in watch:
            pass
    with pytest.raises(RelayUnavailableError, match="cannot be reached"):
        client.jobs()


def test_a_watch_goes_on_with_a_restarted_relay(own_demo: DemoRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(own_demo.home))
    client = Client()
    watch = client.watch(job=48213, interval=0.1, reconnect_for=30)
    next(watch)
    own_demo.kill()
    # Another pid, key and port.
    own_demo.start()
    assert len(next(watch).gpus) == 64
    assert len(client.gpus(job=48213)) == 64
    watch.close()


def test_a_node_that_left_is_an_empty_snapshot_as_a_job_that_left_is(client: Client) -> None:
    for snapshot in (_read(client, None, "left01"), _read(client, 1, None)):
        assert (snapshot.jobs, snapshot.nodes, snapshot.gpus, snapshot.processes) == ([], [], [], [])
