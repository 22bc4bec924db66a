"""Readings of GPUs, hosts, processes and jobs: numbers in the unit that the name ends with, or `None`.

Written by `tools/generate_models.py`; do not edit.
"""

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class GpuReadings:
    """Current readings of a gpu"""

    dec_pct: Optional[int] = None
    """Decoder: share of time in which the video decoder was active, in %"""

    dram_active_pct: Optional[int] = None
    """DRAM bandwidth: share of the memory bandwidth in use (GPM), in %"""

    ecc_corrected: Optional[int] = None
    """Corrected ECC errors: corrected memory errors since the driver was loaded"""

    ecc_uncorrected: Optional[int] = None
    """Uncorrected ECC errors: uncorrected memory errors since the driver was loaded"""

    enc_pct: Optional[int] = None
    """Encoder: share of time in which the video encoder was active, in %"""

    energy_wh: Optional[int] = None
    """Energy: energy consumed since the driver was loaded, in Wh"""

    fan_pct: Optional[int] = None
    """Fan: speed of the fastest fan, relative to its maximum, in %"""

    fan_rpm: Optional[int] = None
    """Fan speed: speed of the fastest fan, in revolutions a minute"""

    fp16_active_pct: Optional[int] = None
    """FP16: share of cycles in which the FP16 units were active (GPM), in %"""

    fp32_active_pct: Optional[int] = None
    """FP32: share of cycles in which the FP32 units were active (GPM), in %"""

    fp64_active_pct: Optional[int] = None
    """FP64: share of cycles in which the FP64 units were active (GPM), in %"""

    graphics_active_pct: Optional[int] = None
    """Graphics: share of time in which the graphics or compute engine was active (GPM), in %"""

    graphics_clock_mhz: Optional[int] = None
    """Graphics clock: graphics clock frequency, in MHz"""

    host_mem_used_bytes: Optional[int] = None
    """Host memory used by the GPU: memory of the host that is mapped to the GPU, in B"""

    hotspot_temp_c: Optional[int] = None
    """Hotspot temperature: temperature of the hottest spot of the chip, in °C"""

    jpg_pct: Optional[int] = None
    """JPEG: share of time in which the JPEG decoder was active, in %"""

    mem_clock_mhz: Optional[int] = None
    """Memory clock: memory clock frequency, in MHz"""

    mem_reserved_bytes: Optional[int] = None
    """Reserved memory: device memory reserved by driver and firmware, in B"""

    mem_temp_c: Optional[int] = None
    """Memory temperature: memory temperature, in °C"""

    mem_total_bytes: Optional[int] = None
    """Total memory: total device memory, in B"""

    mem_unattributed_bytes: Optional[int] = None
    """Unattributed memory: memory in use that none of the listed processes holds, in B"""

    mem_used_bytes: Optional[int] = None
    """Memory: device memory in use, in B"""

    mem_util_pct: Optional[int] = None
    """Memory utilisation: share of the last sample window in which memory was being read or written, in %"""

    nvlink_rx_bytes_s: Optional[int] = None
    """NVLink received: data received over all NVLinks, in B/s"""

    nvlink_tx_bytes_s: Optional[int] = None
    """NVLink sent: data sent over all NVLinks, in B/s"""

    ofa_pct: Optional[int] = None
    """Optical flow: share of time in which the optical-flow accelerator was active, in %"""

    p_state: Optional[int] = None
    """Performance state: performance state, from 0 (fastest) to 15"""

    pcie_rx_bytes_s: Optional[int] = None
    """PCIe received: data received over PCIe, in B/s"""

    pcie_tx_bytes_s: Optional[int] = None
    """PCIe sent: data sent over PCIe, in B/s"""

    power_capped_pct: Optional[int] = None
    """Held by power limit: share of time in which the power limit reduced the clocks, in %"""

    power_instant_w: Optional[int] = None
    """Instantaneous power: instantaneous power draw, in W"""

    power_limit_w: Optional[int] = None
    """Power limit: enforced power limit, in W"""

    power_w: Optional[int] = None
    """Power: power draw, averaged over one second, in W"""

    sm_active_pct: Optional[int] = None
    """SM active: share of SM cycles in which a warp was resident (GPM), in %"""

    sm_clock_mhz: Optional[int] = None
    """SM clock: clock frequency of the SMs, in MHz"""

    sm_occupancy_pct: Optional[int] = None
    """SM occupancy: resident warps, relative to the maximum (GPM), in %"""

    temp_c: Optional[int] = None
    """Temperature: GPU core temperature, in °C"""

    tensor_active_pct: Optional[int] = None
    """Tensor cores: share of cycles in which the tensor cores were active (GPM), in %"""

    thermal_capped_pct: Optional[int] = None
    """Held by temperature: share of time in which the temperature reduced the clocks, in %"""

    throttle_reasons: Optional[int] = None
    """Clocks held down: active throttle reasons, as a bit mask, as a bit mask"""

    util_pct: Optional[int] = None
    """Utilisation: share of the last sample window in which a kernel was running, in %"""

    video_clock_mhz: Optional[int] = None
    """Video clock: video clock frequency, in MHz"""


@dataclass(frozen=True)
class HostReadings:
    """Current readings of a host"""

    cpu_pct: Optional[int] = None
    """CPU: CPU utilisation of the host, averaged over all CPUs, in %"""

    disk_read_bytes_s: Optional[int] = None
    """Read from disks: data read from local disks, in B/s"""

    disk_write_bytes_s: Optional[int] = None
    """Written to disks: data written to local disks, in B/s"""

    ib_errors: Optional[int] = None
    """InfiniBand errors: InfiniBand link errors since the links came up"""

    ib_rx_bytes_s: Optional[int] = None
    """InfiniBand received: data received over InfiniBand or RoCE, in B/s"""

    ib_tx_bytes_s: Optional[int] = None
    """InfiniBand sent: data sent over InfiniBand or RoCE, in B/s"""

    load1_centi: Optional[int] = None
    """Load: load average over one minute, in hundredths"""

    mem_total_bytes: Optional[int] = None
    """Total memory: total host memory, in B"""

    mem_used_bytes: Optional[int] = None
    """Memory: host memory in use, in B"""

    net_rx_bytes_s: Optional[int] = None
    """Network received: data received from the network, in B/s"""

    net_tx_bytes_s: Optional[int] = None
    """Network sent: data sent to the network, in B/s"""

    psi_cpu_pct: Optional[int] = None
    """CPU pressure: share of the last 10 s in which some task was waiting for a CPU (PSI), in %"""

    psi_io_pct: Optional[int] = None
    """I/O pressure: share of the last 10 s in which some task was waiting for a disk (PSI), in %"""

    psi_mem_pct: Optional[int] = None
    """Memory pressure: share of the last 10 s in which some task was waiting for memory (PSI), in %"""

    scratch_total_bytes: Optional[int] = None
    """Size of scratch: size of the scratch disk, in B"""

    scratch_used_bytes: Optional[int] = None
    """Scratch: space used on the scratch disk, in B"""

    shm_total_bytes: Optional[int] = None
    """Size of /dev/shm: size of /dev/shm, in B"""

    shm_used_bytes: Optional[int] = None
    """/dev/shm: space used in /dev/shm, in B"""

    swap_total_bytes: Optional[int] = None
    """Total swap: total swap, in B"""

    swap_used_bytes: Optional[int] = None
    """Swap: swap in use, in B"""

    tmp_total_bytes: Optional[int] = None
    """Size of /tmp: size of /tmp, in B"""

    tmp_used_bytes: Optional[int] = None
    """/tmp: space used in /tmp, in B"""

    uptime_s: Optional[int] = None
    """Uptime: time since the host booted, in s"""


@dataclass(frozen=True)
class ProcessReadings:
    """Current readings of a process"""

    cpu_pct: Optional[int] = None
    """CPU: CPU utilisation; 100 % is one core, in %"""

    dec_pct: Optional[int] = None
    """Decoder: video decoder utilisation by the process, in %"""

    enc_pct: Optional[int] = None
    """Encoder: video encoder utilisation by the process, in %"""

    gpu_mem_bytes: Optional[int] = None
    """GPU memory: device memory used by the process, in B"""

    mem_bw_pct: Optional[int] = None
    """Memory bandwidth: share of memory time used by the process, in %"""

    rss_bytes: Optional[int] = None
    """Memory: resident host memory, in B"""

    sm_pct: Optional[int] = None
    """SM time: share of SM time used by the process, in %"""

    state: Optional[int] = None
    """State: process state: alive, waiting for a device, zombie, or stopped"""

    threads: Optional[int] = None
    """Threads: number of threads"""


@dataclass(frozen=True)
class JobReadings:
    """Current readings of a job"""

    cpu_limit_pct: Optional[int] = None
    """CPU limit: CPU limit of the job; 100 % is one core, in %"""

    cpu_pct: Optional[int] = None
    """CPU: CPU utilisation; 100 % is one core, in %"""

    mem_limit_bytes: Optional[int] = None
    """Memory limit: host memory limit of the job, in B"""

    mem_used_bytes: Optional[int] = None
    """Memory: host memory used by the job, without reclaimable page cache, in B"""

    oom_kills: Optional[int] = None
    """OOM kills: processes killed at the job's memory limit"""

    shmem_bytes: Optional[int] = None
    """Shared memory: shared memory and tmpfs, part of the memory used, in B"""
