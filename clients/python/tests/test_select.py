"""`select_devices` as in nvitop, and the client on a machine that has only an address and a token."""

from pathlib import Path
from typing import Iterator

import pytest

from nodeglass import Client, Device, NodeglassError, select_devices
from nodeglass._discover import find

from conftest import DemoRelay, wait_for


@pytest.fixture
def desk(client: Client) -> Iterator[Client]:
    """A client, once the desk's GPUs were sampled."""
    wait_for(lambda: all(gpu.readings.mem_used_bytes is not None for gpu in client.gpus(node="desk01")))
    yield client


def test_devices_with_enough_memory_are_selected_freest_first(desk: Client) -> None:
    selected = select_devices(node="desk01", format="device", client=desk)
    assert len(selected) == 4
    free = [device.memory_free() for device in selected]
    assert free == sorted(free, reverse=True)
    total = max(device.memory_total() for device in selected)
    assert select_devices(node="desk01", min_total_memory=total + 1, client=desk) == []
    tolerant = select_devices(node="desk01", min_total_memory=total + 1, tolerance=5, client=desk)
    assert sorted(tolerant) == [0, 1, 2, 3]
    unused = select_devices(node="desk01", min_free_memory="20GiB", max_gpu_utilization=10, client=desk)
    assert {2, 3} <= set(unused) and len(unused) == len(set(unused))
    first = select_devices(node="desk01", max_count=1, format="uuid", client=desk)
    assert first == [selected[0].uuid()]


def test_the_memory_of_free_accounts_counts_as_free(desk: Client) -> None:
    wait_for(lambda: any(process.readings.gpu_mem_bytes for process in desk.processes(node="desk01")))
    used = next(process for process in desk.processes(node="desk01") if process.readings.gpu_mem_bytes)
    device = Device(uuid=used.gpu, client=desk)
    enough = device.memory_free() + used.readings.gpu_mem_bytes // 2
    bounds = {"devices": [device], "min_free_memory": enough, "format": "device"}
    assert select_devices(**bounds) == []
    assert select_devices(**bounds, free_accounts=[used.user]) == [device]


def test_one_mig_instance_is_selected_by_its_uuid(client: Client) -> None:
    divided = next(device for device in Device.all(client=client) if device.is_mig_mode_enabled())
    selected = select_devices([divided])
    assert len(selected) == 1 and selected[0] in {instance.uuid() for instance in divided.mig_devices()}
    assert isinstance(select_devices([divided], force_index=True)[0], int)


def test_indices_of_several_nodes_are_not_mixed(client: Client) -> None:
    devices = [*Device.all(node="desk01", client=client), *Device.all(node="gpu-h01", client=client)]
    assert len({device.node for device in select_devices(devices, format="device")}) == 2
    with pytest.raises(NodeglassError, match="several nodes"):
        select_devices(devices)
    assert select_devices(devices, max_count=0) == []
    for wrong in ({"format": "name"}, {"tolerance": -1}, {"min_count": 2, "max_count": 1}):
        with pytest.raises(ValueError):
            select_devices(devices, **wrong)


def test_a_compute_node_has_an_address_and_a_token_only(
    demo: DemoRelay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = demo.run("token", "create", f"job{tmp_path.name}").splitlines()[0]
    # The runtime directory of this test is empty, as that of another machine is.
    monkeypatch.setenv("NODEGLASS_URL", demo.link.split("/?", 1)[0])
    monkeypatch.setenv("NODEGLASS_KEY", token)
    assert find().socket is None and find().key == token
    assert Device.count(node="desk01") == 4
    assert len(select_devices(node="desk01", format="uuid")) == 4
