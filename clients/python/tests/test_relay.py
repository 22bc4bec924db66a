"""Every function of the client against a running relay with the simulated cluster."""

import json
import os
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest

from nodeglass import (
    NA,
    AuthenticationError,
    Client,
    Device,
    NodeglassError,
    NotFoundError,
    PermissionDeniedError,
    RelayUnavailableError,
    available_gpus,
    gpu_info,
    take_snapshots,
)

from conftest import DemoRelay, wait_for

LARGE = 48213
"""The pretraining job on 64 GPUs of eight nodes."""


def test_a_snapshot_is_consistent(client: Client) -> None:
    snapshot = client.snapshot()
    assert len(snapshot.jobs) > 5 and len(snapshot.gpus) > 100 and len(snapshot.processes) > 50
    uuids = {gpu.uuid for gpu in snapshot.gpus}
    assert all(gpu in uuids for job in snapshot.jobs for gpu in job.gpus)
    assert all(process.gpu in uuids for process in snapshot.processes)
    assert any(process.rank and process.rank.global_ is not None for process in snapshot.processes)


def test_lists_are_filtered(client: Client) -> None:
    assert len(client.gpus(job=LARGE)) == 64
    assert {gpu.node for gpu in client.gpus(node="desk01")} == {"desk01"}
    assert all(not gpu.jobs and gpu.processes == 0 for gpu in client.gpus(free=True))
    assert [node.name for node in client.nodes(job=LARGE)] == client.job(LARGE).nodes
    assert all(job.state == "RUNNING" for job in client.jobs(state="running", partition="h100"))
    assert all(process.job == LARGE for process in client.processes(job=LARGE))
    assert {process.user for process in client.processes(user="alice")} == {"alice"}
    assert client.nodes(connection="refused") == []


def test_single_resources_and_times(client: Client) -> None:
    job = client.job(LARGE)
    assert job.started_at is not None and job.started_at.tzinfo is timezone.utc
    gpu = client.gpu(job.gpus[0])
    assert gpu.node == job.nodes[0] and gpu.readings.power_w is not None
    assert datetime.now(timezone.utc) - gpu.sampled_at < timedelta(minutes=1)
    assert client.node(gpu.node).drivers[0].vendor == "nvidia"
    with pytest.raises(NotFoundError, match="there is no job 99"):
        client.job(99)
    with pytest.raises(NotFoundError):
        client.node("no/such node?")
    with pytest.raises(NotFoundError):
        client.gpu("GPU-nothing")


def test_missing_readings_are_none_with_a_reason(client: Client) -> None:
    gpu = client.gpus(node="desk01")[0]
    assert gpu.readings.nvlink_rx_bytes_s is None and gpu.absent["nvlink_rx_bytes_s"] == "unsupported"
    device = Device(uuid=gpu.uuid, client=client)
    assert device.nvlink_total_throughput() == (NA, NA) and device.absence("nvlink_rx_bytes_s") == "unsupported"
    assert device.total_volatile_uncorrected_ecc_errors() is NA


def test_reports_usage_and_status(client: Client) -> None:
    report = client.report(LARGE)
    assert report.job == LARGE and len(report.gpus) == 64 and report.totals.gpus == 64
    assert client.usage(days=7).days == 7
    # Nothing was stored yet, or what was found of this node.
    assert {fault.node for fault in client.faults(node="gpu-h01")} <= {"gpu-h01"}
    status = client.status()
    assert status.nodes["live"] > 10 and status.launcher.name == "scripted"
    with pytest.raises(NotFoundError):
        client.report(99)
    with pytest.raises(NodeglassError, match="days must be from 1 to 366"):
        client.usage(days=0)
    with pytest.raises(NodeglassError, match="days must be from 1 to 366"):
        client.faults(days=0)


def test_jobs_are_named_as_slurm_prints_them(client: Client) -> None:
    for job in client.jobs():
        # Of the tasks that have not started, the list may change at any moment.
        if "[" not in job.label:
            assert client.job(job.label).id == job.id
    task = next(job for job in client.jobs(state="running") if job.array is not None)
    array = task.array.job if task.array is not None else 0
    assert len(client.gpus(job=task.label)) == len(task.gpus)
    assert len(client.gpus(job=array)) >= len(task.gpus)
    component = next(job for job in client.jobs() if job.het is not None)
    assert client.report(component.label).job == component.id
    assert client.note("from a component", job=component.label).job == component.id
    with pytest.raises(ValueError, match="choose one"):
        client.note("of which one?", job=array)
    with pytest.raises(NotFoundError, match="there is no job 99_3"):
        client.job("99_3")
    with pytest.raises(NodeglassError, match="48440_16"):
        client.job("train")


def test_history_becomes_a_tidy_frame_with_gaps(client: Client) -> None:
    pandas = pytest.importorskip("pandas")
    # The demo has a history once ten seconds have passed.
    wait_for(lambda: client.history(job=LARGE, start="10m").series)
    history = client.history(["util_pct", "power_w"], job=LARGE, start="30m", step=10)
    assert len(history.times()) == history.steps and history.step_s >= 10
    frame = history.to_pandas()
    assert isinstance(frame.index, pandas.DatetimeIndex) and str(frame.index.tz) == "UTC"
    assert list(frame.columns[:2]) == ["node", "gpu"]
    assert {"util_pct_min", "util_pct_mean", "util_pct_max", "power_w_mean"} <= set(frame.columns)
    assert len(frame) == history.steps * frame["gpu"].nunique() and frame["gpu"].nunique() == 64
    # The relay keeps ten minutes at most by now. Before, there is no value, which is not zero.
    assert frame["util_pct_mean"].isna().any() and (frame["util_pct_mean"].dropna() >= 0).all()
    mean = history.to_pandas("mean").groupby("node")["util_pct"].mean()
    assert len(mean) == 8 and mean.dropna().between(0, 100).all()
    node = client.history((), node="desk01", host_metric="cpu_pct", start=datetime.now() - timedelta(minutes=5))
    assert {series.metric for series in node.series if series.gpu is None} == {"cpu_pct"}
    empty = client.history(job=LARGE, start=1_600_000_000, end=1_600_000_100)
    frame = empty.to_pandas()
    assert frame.empty and list(frame.columns) == ["node", "gpu", "util_pct_min", "util_pct_mean", "util_pct_max"]
    assert list(empty.to_pandas("mean").columns) == ["node", "gpu", "util_pct"]
    with pytest.raises(NodeglassError, match="no history is kept of"):
        client.history("serial")
    with pytest.raises(ValueError):
        history.to_pandas("median")


def test_findings_are_filtered_by_job_and_kind(client: Client) -> None:
    wait_for(lambda: any(finding.jobs for finding in client.findings(active=True)))
    finding = next(finding for finding in client.findings(active=True) if finding.jobs)
    assert finding.is_active and finding.advice and finding.evidence
    found = client.findings(job=finding.jobs[0], kind=finding.kind, severity=finding.severity)
    assert finding.key in [one.key for one in found]
    assert all(finding.jobs[0] in one.jobs and one.kind == finding.kind for one in found)
    with pytest.raises(NotFoundError):
        client.findings(job=2**31)
    with pytest.raises(NodeglassError):
        client.findings(kind="no_kind")


def test_silences_are_listed(client: Client) -> None:
    def silence(seconds: int) -> None:
        body = json.dumps({"kind": "host_memory", "job": LARGE, "for_s": seconds}).encode()
        client._transport.request("POST", "/api/v1/silences", None, body)

    silence(3600)
    listed = [one for one in client.silences() if one.kind == "host_memory"]
    assert [one.job for one in listed] == [LARGE] and listed[0].until > datetime.now(timezone.utc)
    silence(0)
    assert not any(one.kind == "host_memory" for one in client.silences())


def test_notes_are_written_listed_and_deleted(client: Client) -> None:
    note = client.note("epoch 3", job=LARGE)
    earlier = client.note("learning rate lowered", job=LARGE, at=datetime.now() - timedelta(minutes=2))
    assert note.text == "epoch 3" and earlier.at_ms < note.at_ms
    assert {one.id for one in client.notes(job=LARGE)} >= {note.id, earlier.id}
    client.delete_note(note.id)
    client.delete_note(earlier.id)
    assert note.id not in [one.id for one in client.notes(job=LARGE)]
    with pytest.raises(NodeglassError):
        client.note("x" * 10_000, job=LARGE)


def test_any_path_is_read_with_selected_fields(client: Client) -> None:
    answer = client.get("/api/v1/gpus", {"job": LARGE, "fields": "uuid,readings.util_pct", "limit": 2})
    assert answer["total"] == 64 and set(answer["gpus"][0]) == {"uuid", "readings"}
    with pytest.raises(NodeglassError, match="there is no field"):
        client.get("/api/v1/gpus", {"fields": "color"})


def test_a_running_relay_is_found_by_its_private_socket(demo: DemoRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(demo.home))
    with Client() as found:
        assert str(demo.process.pid) in repr(found) and ".sock" in repr(found)
        assert found.job(LARGE).id == LARGE
    assert Client(pid=demo.process.pid).job(LARGE).id == LARGE
    with pytest.raises(RelayUnavailableError, match="has pid 1;"):
        Client(pid=1)
    demo.home.chmod(0o755)
    try:
        with pytest.raises(RelayUnavailableError, match="no relay of yours is running"):
            Client()
    finally:
        demo.home.chmod(0o700)


def test_the_environment_names_a_relay(demo: DemoRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    address, _, key = demo.link.partition("#k=")
    monkeypatch.setenv("NODEGLASS_URL", address)
    with pytest.raises(NodeglassError, match="there is no key for"):
        Client()
    monkeypatch.setenv("NODEGLASS_KEY", key)
    assert Client().job(LARGE).id == LARGE and key not in repr(Client())
    monkeypatch.setenv("NODEGLASS_URL", demo.link)
    monkeypatch.delenv("NODEGLASS_KEY")
    assert Client().job(LARGE).id == LARGE


def test_a_wrong_key_is_refused(demo: DemoRelay) -> None:
    address = demo.link.partition("#")[0]
    with pytest.raises(AuthenticationError, match="the key is not accepted") as refused:
        Client(address, "A" * 43).gpus()
    assert refused.value.status == 401 and "AAAA" not in str(refused.value)
    with pytest.raises(AuthenticationError):
        next(Client(address, "A" * 43).watch())


def test_a_share_sees_only_what_it_shows(demo: DemoRelay) -> None:
    printed = demo.run("share", "create", "--job", str(LARGE))
    link = next(word for word in printed.split() if "#s=" in word)
    guest = Client(link)
    assert [job.id for job in guest.jobs()] == [LARGE] and len(guest.gpus()) == 64
    assert {process.args for process in guest.processes()} == {None}
    with pytest.raises(NotFoundError):
        guest.node("desk01")
    with pytest.raises(PermissionDeniedError, match="a share is read-only"):
        guest.note("x", job=LARGE)
    with pytest.raises(PermissionDeniedError):
        guest.usage()
    demo.run("share", "revoke", "--all")
    with pytest.raises((PermissionDeniedError, AuthenticationError)):
        guest.jobs()


def test_a_token_reads_until_it_is_revoked(demo: DemoRelay) -> None:
    secret = demo.run("token", "create", "notebook").split()[0]
    reader = Client(demo.link.partition("#")[0], secret)
    assert reader.job(LARGE).id == LARGE
    with pytest.raises(PermissionDeniedError, match="a token is read-only"):
        reader.note("x", job=LARGE)
    demo.run("token", "revoke", "notebook")
    with pytest.raises(AuthenticationError):
        reader.jobs()


def test_threads_and_forks_share_a_client(client: Client) -> None:
    client.jobs()
    results = []
    threads = [threading.Thread(target=lambda: results.append(len(client.gpus(job=LARGE)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [64] * 8
    child = os.fork()
    if child == 0:
        os._exit(0 if len(client.gpus(job=LARGE)) == 64 else 1)
    assert len(client.gpus(job=LARGE)) == 64
    assert os.waitpid(child, 0)[1] == 0


def test_devices_of_several_nodes(client: Client) -> None:
    devices = Device.all(job=LARGE, client=client)
    assert len(devices) == 64 and len({device.node for device in devices}) == 8
    assert Device.count(node="desk01", client=client) == 4 and Device.is_available(client)
    with pytest.raises(NodeglassError, match="the relay watches 2. nodes"):
        Device(0, client=client)
    device = Device(2, node="desk01", client=client)
    assert device == Device(uuid=device.uuid(), client=client) == Device(device.uuid(), client=client)
    assert device == Device(bus_id=device.bus_id(), node="desk01", client=client)
    assert Device.from_indices([2], node="desk01", client=client) == [device]
    with pytest.raises(NotFoundError, match="desk01 has no GPU 9"):
        Device(9, node="desk01", client=client)
    with pytest.raises(TypeError):
        Device()
    # Every method answers, on every kind of GPU of the demo.
    for snapshot in (one.as_snapshot() for one in Device.all(client=client)):
        assert {*snapshot} >= {*Device.SNAPSHOT_KEYS} and snapshot.real.node == snapshot.node


def test_mig_instances_are_devices(client: Client) -> None:
    parents = [device for device in Device.all(client=client) if device.is_mig_mode_enabled()]
    assert parents
    instances = parents[0].mig_devices()
    assert instances and all(one.is_mig_device() and one.node == parents[0].node for one in instances)


def test_processes_of_a_device_and_snapshots(client: Client) -> None:
    device = next(one for one in Device.all(job=LARGE, client=client) if one.processes())
    process = next(iter(device.processes().values()))
    assert process.is_running() and process.type == "C" and process.job() == LARGE
    assert 0 < process.gpu_memory_percent() <= 100 and process.gpu_memory_human().endswith("iB")
    assert process.running_time_in_seconds() > 0 and process.cmdline()
    assert process.host.pid == process.pid and process.device is device
    devices, processes = take_snapshots(device)
    assert devices[0].gpu_utilization == devices[0]["gpu_utilization"] and processes[0].device is device
    assert dict(processes[0])["username"] == "alice"
    with pytest.raises(AttributeError, match="it has: "):
        devices[0].colour


def test_nvgpus_functions(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    info = gpu_info("desk01", client=client)
    assert [one["index"] for one in info] == ["0", "1", "2", "3"]
    assert set(info[0]) == {"index", "type", "uuid", "mem_used", "mem_total", "mem_used_percent", "node"}
    assert len({one["node"] for one in gpu_info(client=client)}) > 10
    assert set(available_gpus(100, "desk01", free=True, client=client)) <= {"0", "1", "2", "3"}
    # Jobs of the demo come and go, so that the rest is about one moment.
    moment = client.gpus(node="desk01")
    monkeypatch.setattr(client, "gpus", lambda **_: moment)
    expected = [one["index"] for one in gpu_info(client=client) if one["mem_used_percent"] <= 20]
    assert 0 < len(expected) < 4 and available_gpus(node="desk01", client=client) == expected
    assert available_gpus(100, "desk01", client=client) == ["0", "1", "2", "3"]
