"""Prints what nvitop reads of every GPU and process, as JSON: null where it says N/A."""

import json
import time

from nvitop import NA, Device


def plain(value):
    """nvitop's N/A as null, numbers and words as they are."""
    if value is NA or value == NA:
        return None
    return value if isinstance(value, (int, float, str)) else str(value)


def process(pid, seen):
    """One process on one GPU."""
    return {
        "pid": pid,
        "type": plain(seen.type),
        "gpu_mem_bytes": plain(seen.gpu_memory()),
        "sm_pct": plain(seen.gpu_sm_utilization()),
        "mem_bw_pct": plain(seen.gpu_memory_utilization()),
        "enc_pct": plain(seen.gpu_encoder_utilization()),
        "dec_pct": plain(seen.gpu_decoder_utilization()),
        "user": plain(seen.username()),
        "command": plain(seen.command()),
        "threads": plain(seen.host.num_threads()),
        "rss_bytes": plain(seen.host_memory()),
    }


def device(gpu):
    """One GPU."""
    return {
        "name": plain(gpu.name()),
        "uuid": plain(gpu.uuid()),
        "pci": plain(gpu.bus_id()),
        "util_pct": plain(gpu.gpu_utilization()),
        "mem_util_pct": plain(gpu.memory_utilization()),
        "mem_used_bytes": plain(gpu.memory_used()),
        "mem_total_bytes": plain(gpu.memory_total()),
        "bar1_used_bytes": plain(gpu.bar1_memory_used()),
        "bar1_total_bytes": plain(gpu.bar1_memory_total()),
        "temp_c": plain(gpu.temperature()),
        "power_mw": plain(gpu.power_usage()),
        "power_limit_mw": plain(gpu.power_limit()),
        "fan_pct": plain(gpu.fan_speed()),
        "sm_clock_mhz": plain(gpu.sm_clock()),
        "mem_clock_mhz": plain(gpu.memory_clock()),
        "graphics_clock_mhz": plain(gpu.graphics_clock()),
        "video_clock_mhz": plain(gpu.video_clock()),
        "sm_clock_max_mhz": plain(gpu.max_sm_clock()),
        "mem_clock_max_mhz": plain(gpu.max_memory_clock()),
        "enc_pct": plain(gpu.encoder_utilization()),
        "dec_pct": plain(gpu.decoder_utilization()),
        "p_state": plain(gpu.performance_state()),
        "ecc_uncorrected": plain(gpu.total_volatile_uncorrected_ecc_errors()),
        "compute_mode": plain(gpu.compute_mode()),
        "persistence": plain(gpu.persistence_mode()),
        "mig_mode": plain(gpu.mig_mode()),
        "cuda_compute_capability": plain(gpu.cuda_compute_capability()),
        "processes": [process(pid, seen) for pid, seen in sorted(gpu.processes().items())],
    }


def everything():
    """Every GPU and MIG instance, each GPU before its instances."""
    for gpu in Device.all():
        yield device(gpu)
        for instance in gpu.mig_devices():
            yield device(instance)


# The first look begins the windows over which shares are taken.
list(everything())
time.sleep(1.2)
print(json.dumps(list(everything())))
