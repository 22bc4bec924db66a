"""How long the documents are that gpustat-web and gpu-hot send, in bytes a GPU.

Reads one JSON array of GPUs a line on stdin, with the readings as node-probe names them. gpustat-web 0.3 runs
gpustat and turns its colours into HTML with ansi2html, which is done here too. gpu-hot is not on PyPI: its document has the keys that its collector gives
an H100 without NVLinks, with this moment's readings where they are known.
"""

import io
import json
import sys

from ansi2html import Ansi2HTMLConverter
from gpustat.core import GPUStat, GPUStatCollection

NAME = "NVIDIA H100 80GB HBM3"
MEMORY_MIB = 81559
NODE = "gpu-001"
CONVERTER = Ansi2HTMLConverter(dark_bg=True, scheme="solarized")


def reading(gpu, name, unit=1, other=0):
    """A reading in its unit; another value where the trace does not have it."""
    value = gpu.get(name)
    return value / unit if isinstance(value, (int, float)) else other


def gpustat_entry(index, gpu):
    """What gpustat knows of a GPU."""
    return GPUStat(
        {
            "index": index,
            "uuid": f"GPU-{index:08d}-0000-0000-0000-000000000000",
            "name": NAME,
            "temperature.gpu": int(reading(gpu, "temp_c", other=40)),
            "fan.speed": None,
            "utilization.gpu": int(reading(gpu, "util_pct")),
            "utilization.enc": 0,
            "utilization.dec": 0,
            "power.draw": int(reading(gpu, "power_mw", 1000, 100)),
            "enforced.power.limit": 700,
            "memory.used": int(reading(gpu, "mem_used_bytes", 1 << 20, 61440)),
            "memory.total": MEMORY_MIB,
            "processes": [
                {"username": "alice", "command": "python", "full_command": ["python", "train.py"],
                 "gpu_memory_usage": 61440, "cpu_percent": 99.0, "cpu_memory_usage": 1 << 33, "pid": 70000 + index}
            ],
        }
    )


def gpustat_web_bytes(gpus):
    """The HTML that it sends for one node."""
    collection = GPUStatCollection([gpustat_entry(index, gpu) for index, gpu in enumerate(gpus)])
    collection.hostname = NODE
    text = io.StringIO()
    collection.print_formatted(text, force_color=True, gpuname_width=30, show_power=True)
    return len(CONVERTER.convert(text.getvalue(), full=False).encode())


def gpu_hot_entry(index, gpu):
    """What gpu-hot sends of a GPU."""
    used = reading(gpu, "mem_used_bytes", 1 << 20, 61440)
    power = reading(gpu, "power_mw", 1000, 100)
    clocks = {"graphics": 1980.0, "sm": reading(gpu, "sm_clock_mhz", other=1980.0),
              "memory": reading(gpu, "mem_clock_mhz", other=2619.0), "video": 1545.0}
    entry = {
        "index": str(index), "timestamp": "2026-01-01T00:00:00.000000", "name": NAME,
        "uuid": f"GPU-{index:08d}-0000-0000-0000-000000000000", "driver_version": "550.54.15",
        "vbios_version": "96.00.74.00.01", "brand": "Brand 14", "architecture": "Hopper",
        "cuda_compute_capability": "9.0",
        "utilization": reading(gpu, "util_pct"), "memory_utilization": 0.0, "performance_state": "P0",
        "compute_mode": "Default", "memory_used": used, "memory_total": float(MEMORY_MIB),
        "memory_free": MEMORY_MIB - used, "memory_change_rate": 0.0, "bar1_memory_used": 1.0,
        "bar1_memory_total": 131072.0, "temperature": reading(gpu, "temp_c", other=40), "power_draw": power,
        "power_limit": 700.0, "power_limit_min": 200.0, "power_limit_max": 700.0,
        "energy_consumption": 1234567890.123, "energy_consumption_wh": 342935.525, "throttle_reasons": "None",
        "pcie_gen": "5", "pcie_gen_max": "5", "pcie_width": "16", "pcie_width_max": "16",
        "pcie_tx_throughput": 1234.0, "pcie_rx_throughput": 1234.0, "pci_bus_id": f"00000000:{index:02X}:00.0",
        "ecc_enabled": True, "persistence_mode": "Enabled", "mig_mode_current": "Disabled",
        "mig_mode_pending": "Disabled",
    }
    for name, now in clocks.items():
        entry[f"clock_{name}"] = now
        entry[f"clock_{name}_max"] = 1980.0
    return entry


def gpu_hot_bytes(gpus):
    """The JSON that it sends for one node."""
    entries = {str(index): gpu_hot_entry(index, gpu) for index, gpu in enumerate(gpus)}
    processes = [{"pid": str(70000 + index), "name": "python", "gpu_id": str(index), "memory": 61440.0}
                 for index in range(len(gpus))]
    system = {"cpu_percent": 12.5, "memory_percent": 45.6, "timestamp": "2026-01-01T00:00:00.000000"}
    document = {"mode": "default", "node_name": NODE, "gpus": entries, "processes": processes, "system": system}
    return len(json.dumps(document).encode())


def main():
    """Returns means over all reported values."""
    gpus_told = html = document = 0
    for line in sys.stdin:
        gpus = json.loads(line)
        gpus_told += len(gpus)
        html += gpustat_web_bytes(gpus)
        document += gpu_hot_bytes(gpus)
    print(json.dumps({"gpustat_web": html / gpus_told, "gpu_hot": document / gpus_told}))


main()
