"""The examples of our README, and those of nvitop and nvgpu with our package in their place."""

import contextlib
import io
import re
from pathlib import Path
from typing import Iterator

import pytest

import nodeglass

from conftest import DemoRelay, wait_for

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)

# Quick start of nvitop's README; unchanged, except for the name of the package.
NVITOP = """
from nodeglass import Device

devices = Device.all()  # or `Device.cuda.all()` to use CUDA ordinal instead
for device in devices:
    processes = device.processes()  # type: Dict[int, GpuProcess]
    sorted_pids = sorted(processes.keys())

    print(device)
    print(f'  - Fan speed:       {device.fan_speed()}%')
    print(f'  - Temperature:     {device.temperature()}C')
    print(f'  - GPU utilization: {device.gpu_utilization()}%')
    print(f'  - Total memory:    {device.memory_total_human()}')
    print(f'  - Used memory:     {device.memory_used_human()}')
    print(f'  - Free memory:     {device.memory_free_human()}')
    print(f'  - Processes ({len(processes)}): {sorted_pids}')
    for pid in sorted_pids:
        print(f'    - {processes[pid]}')
    print('-' * 120)
"""

# The table of its second example, without colours.
NVITOP_TABLE = """
from nodeglass import Device, GpuProcess, NA

for device in Device.all():
    processes = device.processes()
    processes = GpuProcess.take_snapshots(processes.values(), failsafe=True)
    processes.sort(key=lambda process: (process.username, process.pid))
    fmt = '    {pid:<5}  {username:<8} {cpu:>5}  {host_memory:>8} {time:>8}  {gpu_memory:>8}  {sm:>3}  {command:<}'.format
    for snapshot in processes:
        print(fmt(pid=snapshot.pid,
                  username=snapshot.username[:7] + ('+' if len(snapshot.username) > 8 else snapshot.username[7:8]),
                  cpu=snapshot.cpu_percent, host_memory=snapshot.host_memory_human,
                  time=snapshot.running_time_human,
                  gpu_memory=(snapshot.gpu_memory_human if snapshot.gpu_memory_human is not NA else 'WDDM:N/A'),
                  sm=snapshot.gpu_sm_utilization,
                  command=snapshot.command))
"""


@pytest.fixture(autouse=True)
def default_client(demo: DemoRelay, monkeypatch: pytest.MonkeyPatch) -> Iterator[nodeglass.Client]:
    monkeypatch.setenv("NODEGLASS_URL", demo.link)
    monkeypatch.setenv("SLURM_JOB_ID", "48213")
    client = nodeglass.Client()
    nodeglass.set_default_client(client)
    wait_for(lambda: client.history(job=48213, start="10m").series)
    yield client


def printed(source: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, "example", "exec"), {})
    return output.getvalue()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.splitlines()[-1][:50])
def test_an_example_of_the_readme_runs(example: str) -> None:
    for optional in ("lightning", "keras", "pandas"):
        if f"callbacks.{optional}" in example or f"to_{optional}()" in example:
            pytest.importorskip(optional)
    printed(example)


def test_nvitops_quick_start_prints_every_gpu_of_every_node(default_client: nodeglass.Client) -> None:
    text = printed(NVITOP)
    assert text.count("  - GPU utilization: ") == text.count("Device(index=") - text.count("GpuProcess(") > 100
    assert {gpu.node for gpu in default_client.gpus()} <= set(re.findall('^Device.*node="(.*?)"', text, re.MULTILINE))
    assert re.search(r"  - Temperature:     [0-9]+C\n", text) and re.search(r"  - Used memory:     [0-9.]+[MG]iB\n", text)
    assert "  - Processes (1): [" in text and "    - GpuProcess(pid=" in text
    # Nothing that is not known is 0: GPUs of servers have no fan.
    assert "  - Fan speed:       N/A%" in text


def test_nvitops_table_of_processes() -> None:
    rows = printed(NVITOP_TABLE).splitlines()
    assert len(rows) > 50
    assert any(re.match(r" +[0-9]+ +alice +[0-9]+ +[0-9.]+[MG]iB +[0-9:.]+ .*python", row) for row in rows)


def test_nvgpus_examples() -> None:
    # `nvgpu.available_gpus()` and `nvgpu.gpu_info()` of its README, on one of the nodes.
    assert set(nodeglass.available_gpus(node="desk01")) <= {"0", "1", "2", "3"}
    first = nodeglass.gpu_info("desk01")[0]
    assert first["index"] == "0" and first["type"] == "NVIDIA GeForce RTX 4090" and first["mem_total"] == 24576
    assert isinstance(first["mem_used"], int) and re.match("GPU-[0-9a-f-]{36}$", first["uuid"])
    assert first["mem_used_percent"] == pytest.approx(100 * first["mem_used"] / first["mem_total"], abs=0.1)
