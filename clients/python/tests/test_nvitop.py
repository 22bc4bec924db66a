"""What nvitop offers besides `Device` and `select_devices`: CUDA devices, collectors and the host."""

import math
import os
import threading
from typing import Dict, List

import pytest

from nodeglass import (
    NA, Client, CudaDevice, Device, NotFoundError, ResourceMetricCollector, available_gpus, collect_in_background,
    gpu_info, host, select_devices, set_default_client,
)  # fmt: skip
from nodeglass.collector import _Series, _Tag

from conftest import DemoRelay, wait_for


@pytest.fixture
def desk(client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A process on a machine of the cluster whose environment numbers the GPUs as it likes."""
    wait_for(lambda: all(gpu.readings.mem_used_bytes is not None for gpu in client.gpus(node="desk01")))
    wait_for(lambda: client.node("desk01").readings.cpu_pct is not None)
    monkeypatch.setenv("SLURMD_NODENAME", "desk01")
    set_default_client(client)
    return client


def test_a_node_that_is_not_watched_is_an_error_with_a_suggestion(client: Client) -> None:
    attempts = [
        lambda name: Device.all(node=name, client=client),
        lambda name: Device.count(node=name, client=client),
        lambda name: Device(0, node=name, client=client),
        lambda name: select_devices(node=name, client=client),
        lambda name: available_gpus(node=name, client=client),
        lambda name: gpu_info(name, client=client),
        lambda name: client.processes(node=name),
        lambda name: client.jobs(node=name),
        lambda name: client.node(name),
        lambda name: host.cpu_percent(name, client=client),
    ]
    for attempt in attempts:
        with pytest.raises(NotFoundError, match=r"watches no node desk1; did you mean desk01\?$"):
            attempt("desk1")
    with pytest.raises(NotFoundError, match=r"did you mean gpu-h01\?$"):
        Device.all(node="gpu-h01.cluster.example", client=client)
    with pytest.raises(NotFoundError, match=r"it watches desk01, .* and \d+ more$"):
        Device.all(node="zzz", client=client)
    # A node without what is asked for is not a wrong name.
    assert client.gpus(node="desk01", vendor="amd") == []


def test_a_job_that_is_not_listed_is_an_error_with_a_suggestion(client: Client) -> None:
    attempts = [
        lambda job: client.gpus(job=job),
        lambda job: client.nodes(job=job),
        lambda job: client.processes(job=job),
        lambda job: client.findings(job=job),
        lambda job: Device.all(job=job, client=client),
    ]
    for attempt in attempts:
        with pytest.raises(NotFoundError, match=r"lists no job 48213_7; did you mean 48213"):
            attempt("48213_7")
    with pytest.raises(NotFoundError, match=r"lists no job 9; it lists \d+, .* and \d+ more$"):
        client.gpus(job=9)
    # A job without GPUs is known.
    waiting = client.jobs(state="PENDING")
    assert waiting and all(client.gpus(job=job.label) == [] for job in waiting)
    assert client.gpus(job=48213, vendor="amd") == []


def test_cuda_devices_are_those_of_the_environment(desk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [device.index for device in CudaDevice.all()] == [0, 1, 2, 3]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert Device.cuda is CudaDevice and CudaDevice.is_available() and CudaDevice.count() == 2
    devices = CudaDevice.all()
    assert [(device.cuda_index, device.index) for device in devices] == [(0, 3), (1, 1)]
    assert repr(CudaDevice(1)).startswith('CudaDevice(cuda_index=1, nvml_index=1, node="desk01", name=')
    assert CudaDevice(nvml_index=3).cuda_index == 0 and CudaDevice(uuid=devices[1].uuid()).cuda_index == 1
    assert [device.index for device in Device.from_cuda_indices([1, 0])] == [1, 3]
    assert Device.from_cuda_visible_devices() == devices
    assert Device(1).cuda_index == 1 and CudaDevice(0).as_snapshot().cuda_index == 0
    for wrong in (lambda: CudaDevice(2), lambda: CudaDevice(-1), lambda: CudaDevice.from_indices(2)):
        with pytest.raises(RuntimeError, match="CUDA Error: invalid device ordinal"):
            wrong()
    with pytest.raises(RuntimeError, match="is not visible to CUDA"):
        Device(0).cuda_index
    for arguments in ({}, {"cuda_index": 0, "nvml_index": 3}):
        with pytest.raises(TypeError):
            CudaDevice(**arguments)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert CudaDevice.all() == [] and not CudaDevice.is_available()


def test_the_host_has_psutils_names(desk: Client) -> None:
    node = desk.node("desk01")
    memory = host.virtual_memory()
    assert memory.total == node.readings.mem_total_bytes and memory.available == memory.total - memory.used
    assert 0 < memory.percent <= 100 and 0 <= host.memory_percent() <= 100
    assert 0 <= host.cpu_percent() <= 100 and host.cpu_percent("gpu-h01") is not None
    one, five, fifteen = host.load_average()
    assert one >= 0 and five is NA and fifteen is NA
    swap = host.swap_memory()
    assert swap.percent is NA or 0 <= swap.percent <= 100
    assert host.hostname() and host.getuser()


def test_a_collector_has_nvitops_keys_and_nested_tags(desk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    wait_for(lambda: len({one.gpu for one in desk.processes(node="desk01")}) == 2)
    collector = ResourceMetricCollector(Device.cuda.all(), root_pids={1})
    with pytest.raises(RuntimeError, match="not been started"):
        collector.collect()
    with collector(tag="train"):
        with collector(tag="batch"):
            inner = collector.collect()
            with pytest.raises(RuntimeError, match="already started"):
                collector.activate("train")
        outer = collector.collect()
    memory = inner["train/batch/cuda:0 (gpu:1)/memory_used (MiB)/mean"]
    assert memory > 0 and inner["train/batch/cuda:0 (gpu:1)/memory_used (MiB)/max"] >= memory
    assert inner["train/batch/host/memory_used (GiB)/mean"] > 0 and inner["train/batch/duration (s)"] >= 0
    assert outer["train/cuda:1 (gpu:0)/memory_total (MiB)/min"] > 0 and not any("batch" in key for key in outer)
    pid = next(one.pid for one in desk.processes(node="desk01"))
    kinds = [key for key in inner if f"/pid:{pid}/" in key]
    assert f"train/batch/pid:{pid}/host/running_time (min)" in kinds
    assert any("gpu_memory (MiB)/mean" in key for key in kinds)
    assert inner[f"train/batch/pid:{pid}/host/host_memory_percent (%)/mean"] > 0
    collector.stop()
    with pytest.raises(RuntimeError):
        collector.deactivate("train")


def test_metrics_of_several_nodes_name_them(client: Client) -> None:
    devices = [*Device.all(node="desk01", client=client), *Device.all(node="gpu-h01", client=client)]
    collector = ResourceMetricCollector(devices, root_pids={1}, client=client)
    with collector(tag="all"):
        metrics = collector.collect()
    assert "all/desk01/gpu:0/gpu_utilization (%)/mean" in metrics and "all/gpu-h01/host/cpu_percent (%)/max" in metrics
    assert "all/gpu:0/gpu_utilization (%)/mean" not in metrics


def test_only_descendants_of_the_root_are_collected(desk: Client) -> None:
    process = desk.processes(node="desk01")[0]
    def pids(roots: object) -> set:
        processes = ResourceMetricCollector(Device.all(node="desk01"), root_pids=roots).take_snapshots().gpu_processes
        return {one.pid for one in processes}
    assert process.pid in pids({process.pid}) and len(pids({1})) > 1
    # This process uses none of the simulated GPUs.
    assert pids(None) == set() == pids({os.getpid()})
    if process.parent:
        assert process.pid in pids({process.parent})


def test_a_collector_in_the_background_stops_when_it_is_told_to(desk: Client) -> None:
    seen: List[Dict[str, float]] = []
    ended = threading.Event()
    collector = ResourceMetricCollector(Device.all(node="desk01"), interval=0.05)
    thread = collector.daemonize(
        lambda metrics: seen.append(metrics) or len(seen) < 3, interval=0.02, on_stop=lambda _: ended.set()
    )
    thread.join(30)
    assert len(seen) == 3 and ended.is_set() and not thread.is_alive()
    assert all("metrics-daemon/gpu:0/temperature (C)/mean" in metrics for metrics in seen)
    with pytest.raises(ValueError):
        collect_in_background(lambda metrics: False, collector, interval=0)
    with pytest.raises(ValueError):
        ResourceMetricCollector([], interval=-1)


def test_a_collector_survives_a_relay_that_is_killed(own_demo: DemoRelay, caplog: pytest.LogCaptureFixture) -> None:
    with Client(own_demo.link) as client:
        collector = ResourceMetricCollector(Device.all(node="desk01", client=client), client=client)
        collector.activate("run")
        wait_for(lambda: "run/gpu:0/temperature (C)/mean" in collector.collect())
        own_demo.kill()
        collector._sampled = -math.inf
        assert "run/gpu:0/temperature (C)/mean" in collector.collect()
        own = [one.message for one in caplog.records if one.module == "collector"]
        assert [message.split(":")[0] for message in own] == ["metrics are not collected"]
        collector.deactivate()


def test_a_mean_is_over_time_and_a_gap_ends_it() -> None:
    series = _Series(0.0)
    assert math.isnan(series.mean(1.0)) and math.isnan(series.min)
    series.add(10.0, 1.0)
    series.add(20.0, 3.0)
    assert (series.min, series.max) == (10.0, 20.0)
    # 10 for 1 s, 15 on average for 2 s, and 20 for the second after.
    assert series.mean(4.0) == pytest.approx((10 + 30 + 20) / 4)
    series.add(math.nan, 5.0)
    assert series.mean(9.0) == pytest.approx(40 / 3)
    tag = _Tag("a", None)
    tag.add({"x": 1.0}, 1.0)
    tag.clear()
    assert not any("x" in key for key in tag.collect())
