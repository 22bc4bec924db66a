"""Prints the readings of all GPUs as JSON, one line for each line on stdin, by NVIDIA's own nvidia-ml-py.

Names and units are those of node-probe's JSON; null where NVML has no value.
"""

import importlib.metadata
import json
import sys
import time

import pynvml as n

ALL_LINKS = NO_INSTANCE = 0xFFFFFFFF
GPM = {
    "graphics_active_pct": n.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "sm_active_pct": n.NVML_GPM_METRIC_SM_UTIL,
    "sm_occupancy_pct": n.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor_active_pct": n.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_active_pct": n.NVML_GPM_METRIC_DRAM_BW_UTIL,
    "fp64_active_pct": n.NVML_GPM_METRIC_FP64_UTIL,
    "fp32_active_pct": n.NVML_GPM_METRIC_FP32_UTIL,
    "fp16_active_pct": n.NVML_GPM_METRIC_FP16_UTIL,
    "pcie_rx_bytes_s": n.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
    "pcie_tx_bytes_s": n.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    "nvlink_rx_bytes_s": n.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
    "nvlink_tx_bytes_s": n.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
}
# Field, scope, factor to the unit per second, bits of the counter.
COUNTERS = {
    "pcie_rx_bytes_s": (n.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, 1, 32),
    "pcie_tx_bytes_s": (n.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, 1, 32),
    "nvlink_rx_bytes_s": (n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS, 1024, 64),
    "nvlink_tx_bytes_s": (n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS, 1024, 64),
    "power_capped_pct": (n.NVML_FI_DEV_PERF_POLICY_POWER, 0, 1e-7, 64),
    "thermal_capped_pct": (n.NVML_FI_DEV_PERF_POLICY_THERMAL, 0, 1e-7, 64),
}
COMPUTE_MODES = ["default", "exclusive thread", "prohibited", "exclusive process"]
VIRTUALIZATION = ["none", "pass_through", "vgpu_guest", "vgpu_host", "vsga_host"]


def first(*calls):
    """The result of the first call that has one."""
    for call in calls:
        try:
            result = call()
        except (n.NVMLError, OSError, ValueError, IndexError, AttributeError, TypeError):
            continue
        if result is not None:
            return result
    return None


def get(name, *args):
    """The result of a call, or None."""
    return first(lambda: getattr(n, "nvml" + name)(*args))


def part(result, of):
    """A part of a result, if there is one."""
    return None if result is None else first(lambda: of(result))


def field(gpu, number, scope=0):
    """A field value as an integer."""
    value = n.nvmlDeviceGetFieldValues(gpu, [(number, scope)])[0]
    if value.nvmlReturn != n.NVML_SUCCESS:
        return None
    return {1: value.value.uiVal, 2: value.value.ulVal, 3: value.value.ullVal}.get(value.valueType)


def ranges(words):
    """A set of CPUs as `0-3,8`."""
    cpus = [64 * at + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1]
    begins = [cpu for cpu in cpus if cpu - 1 not in cpus]
    ends = [cpu for cpu in cpus if cpu + 1 not in cpus]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(begins, ends)) or None


def numa_node(gpu, pci):
    """The NUMA node of the GPU itself, or the one that it is near."""
    def of_kernel():
        domain, rest = pci.split(":", 1)
        path = f"/sys/bus/pci/devices/{int(domain, 16):04x}:{rest.lower()}/numa_node"
        with open(path, encoding="ascii") as file:
            node = int(file.read())
        return node if node >= 0 else None

    def of_memory():
        word = n.nvmlDeviceGetMemoryAffinity(gpu, 2, n.NVML_AFFINITY_SCOPE_NODE)[0]
        return (word & -word).bit_length() - 1 if word else None

    return first(lambda: n.nvmlDeviceGetNumaNodeId(gpu), of_kernel, of_memory)


def architecture(gpu):
    """`hopper`."""
    number = get("DeviceGetArchitecture", gpu)
    names = [name for name in dir(n) if name.startswith("NVML_DEVICE_ARCH_") and getattr(n, name) == number]
    return names[0].rsplit("_", 1)[1] if names else None


def facts(gpu, parent):
    """What does not change; the index of an instance is its GPU's."""
    pci = part(get("DeviceGetPciInfo", gpu), lambda pci: pci.busId)
    pci = pci.decode() if isinstance(pci, bytes) else pci
    power = get("DeviceGetPowerManagementLimitConstraints", gpu)
    limit = lambda kind: get("DeviceGetTemperatureThreshold", gpu, kind)
    clock = lambda kind: get("DeviceGetMaxClockInfo", gpu, kind)
    return {
        "uuid": get("DeviceGetUUID", gpu), "index": get("DeviceGetIndex", parent or gpu),
        "minor": get("DeviceGetMinorNumber", gpu), "pci": pci, "name": get("DeviceGetName", gpu),
        "sm_clock_max_mhz": clock(n.NVML_CLOCK_SM), "mem_clock_max_mhz": clock(n.NVML_CLOCK_MEM),
        "graphics_clock_max_mhz": clock(n.NVML_CLOCK_GRAPHICS), "video_clock_max_mhz": clock(n.NVML_CLOCK_VIDEO),
        "temp_slowdown_c": limit(n.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        "temp_shutdown_c": limit(n.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
        "temp_mem_max_c": limit(n.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
        "temp_gpu_max_c": limit(n.NVML_TEMPERATURE_THRESHOLD_GPU_MAX),
        "power_default_mw": get("DeviceGetPowerManagementDefaultLimit", gpu),
        "power_min_mw": part(power, lambda limits: limits[0]), "power_max_mw": part(power, lambda limits: limits[1]),
        "pcie_gen_max": get("DeviceGetMaxPcieLinkGeneration", gpu),
        "pcie_width_max": get("DeviceGetMaxPcieLinkWidth", gpu),
        "serial": get("DeviceGetSerial", gpu), "vbios": get("DeviceGetVbiosVersion", gpu),
        "architecture": architecture(gpu),
        "compute_capability": part(get("DeviceGetCudaComputeCapability", gpu), lambda version: "%d.%d" % tuple(version)),
        "cores": get("DeviceGetNumGpuCores", gpu), "numa_node": numa_node(gpu, pci),
        "cpu_affinity": part(get("DeviceGetCpuAffinity", gpu, 64), ranges),
        "compute_mode": part(get("DeviceGetComputeMode", gpu), lambda mode: COMPUTE_MODES[mode]),
        "persistence": get("DeviceGetPersistenceMode", gpu),
        "ecc_mode": part(get("DeviceGetEccMode", gpu), lambda modes: modes[0]),
        "mig_mode": part(get("DeviceGetMigMode", gpu), lambda modes: modes[0]),
        "confidential": part(get("SystemGetConfComputeState"), lambda state: int(state.ccFeature == 1)),
        "virtualization": part(get("DeviceGetVirtualizationMode", gpu), lambda mode: VIRTUALIZATION[mode]),
    }


def memory(gpu):
    """Memory without what is reserved, as far as the driver distinguishes it."""
    v2 = get("DeviceGetMemoryInfo", gpu, n.nvmlMemory_v2)
    v1 = get("DeviceGetMemoryInfo", gpu) if v2 is None else v2
    return {
        "mem_used_bytes": part(v1, lambda it: it.used), "mem_total_bytes": part(v1, lambda it: it.total),
        "mem_reserved_bytes": part(v2, lambda it: it.reserved),
    }


def now(gpu):
    """What changes."""
    rates = get("DeviceGetUtilizationRates", gpu)
    clock = lambda kind: get("DeviceGetClockInfo", gpu, kind)
    ecc = lambda kind, counter: get("DeviceGetTotalEccErrors", gpu, kind, counter)
    good, bad = n.NVML_MEMORY_ERROR_TYPE_CORRECTED, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    fans = range(get("DeviceGetNumFans", gpu) or 0)
    pages = lambda cause: part(get("DeviceGetRetiredPages", gpu, cause), len)
    rows, bar1 = get("DeviceGetRemappedRows", gpu), get("DeviceGetBAR1MemoryInfo", gpu)
    links = (get("DeviceGetNvLinkState", gpu, link) for link in range(n.NVML_NVLINK_MAX_LINKS))
    return {
        "util_pct": part(rates, lambda it: it.gpu), "mem_util_pct": part(rates, lambda it: it.memory),
        "power_mw": first(lambda: n.nvmlDeviceGetPowerUsage(gpu), lambda: field(gpu, n.NVML_FI_DEV_POWER_INSTANT)),
        "power_instant_mw": first(lambda: field(gpu, n.NVML_FI_DEV_POWER_INSTANT)),
        "power_limit_mw": get("DeviceGetEnforcedPowerLimit", gpu),
        "energy_mj": get("DeviceGetTotalEnergyConsumption", gpu),
        "temp_c": get("DeviceGetTemperature", gpu, n.NVML_TEMPERATURE_GPU),
        "mem_temp_c": first(lambda: field(gpu, n.NVML_FI_DEV_MEMORY_TEMP)),
        "sm_clock_mhz": clock(n.NVML_CLOCK_SM), "mem_clock_mhz": clock(n.NVML_CLOCK_MEM),
        "graphics_clock_mhz": clock(n.NVML_CLOCK_GRAPHICS), "video_clock_mhz": clock(n.NVML_CLOCK_VIDEO),
        "throttle_reasons": first(lambda: n.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
                                  lambda: n.nvmlDeviceGetCurrentClocksEventReasons(gpu)),
        "fan_pct": first(lambda: max(n.nvmlDeviceGetFanSpeed_v2(gpu, fan) for fan in fans)),
        "p_state": get("DeviceGetPerformanceState", gpu),
        "ecc_uncorrected": ecc(bad, n.NVML_VOLATILE_ECC), "ecc_corrected": ecc(good, n.NVML_VOLATILE_ECC),
        "enc_pct": part(get("DeviceGetEncoderUtilization", gpu), lambda it: it[0]),
        "dec_pct": part(get("DeviceGetDecoderUtilization", gpu), lambda it: it[0]),
        "jpg_pct": part(get("DeviceGetJpgUtilization", gpu), lambda it: it[0]),
        "ofa_pct": part(get("DeviceGetOfaUtilization", gpu), lambda it: it[0]),
        "ecc_life_corrected": ecc(good, n.NVML_AGGREGATE_ECC), "ecc_life_uncorrected": ecc(bad, n.NVML_AGGREGATE_ECC),
        "retired_corrected": pages(n.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
        "retired_uncorrected": pages(n.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
        "retired_pending": get("DeviceGetRetiredPagesPendingStatus", gpu),
        "remapped_corrected": part(rows, lambda it: it[0]), "remapped_uncorrected": part(rows, lambda it: it[1]),
        "remap_pending": part(rows, lambda it: it[2]), "remap_failed": part(rows, lambda it: it[3]),
        "pcie_gen": get("DeviceGetCurrPcieLinkGeneration", gpu), "pcie_width": get("DeviceGetCurrPcieLinkWidth", gpu),
        "pcie_replays": get("DeviceGetPcieReplayCounter", gpu),
        "bar1_used_bytes": part(bar1, lambda it: it.bar1Used), "bar1_total_bytes": part(bar1, lambda it: it.bar1Total),
        "nvlinks_up": sum(state == 1 for state in links),
        **memory(gpu),
    }


class Rates:
    """What is computed from two reads of one GPU or instance."""

    def __init__(self, gpu, parent):
        self.gpu, self.parent = gpu, parent
        self.counted, self.sample, self.since_us = {}, None, 0

    def counters(self):
        """Rates by counters."""
        rates = {}
        for name, (number, scope, factor, bits) in COUNTERS.items():
            count, at = first(lambda: field(self.gpu, number, scope)), time.monotonic()
            before = self.counted.get(name)
            self.counted[name] = (count, at)
            known = count is not None and before is not None and before[0] is not None
            rates[name] = ((count - before[0]) % 2**bits) * factor / (at - before[1]) if known else None
        return rates

    def take_sample(self):
        """A sample of GPM, of an instance by its GPU."""
        sample = n.nvmlGpmSampleAlloc()
        if self.parent is None:
            return n.nvmlGpmSampleGet(self.gpu, sample)
        return n.nvmlGpmMigSampleGet(self.parent, n.nvmlDeviceGetGpuInstanceId(self.gpu), sample)

    def gpm(self):
        """Metrics of GPM since the last read."""
        before, self.sample = self.sample, first(self.take_sample)
        metrics = dict.fromkeys(GPM)
        if before is not None and self.sample is not None:
            request = n.c_nvmlGpmMetricsGet_t(version=n.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(GPM))
            request.sample1, request.sample2 = before, self.sample
            for entry, number in zip(request.metrics, GPM.values()):
                entry.metricId = number
            first(lambda: n.nvmlGpmMetricsGet(request))
            for entry, name in zip(request.metrics, GPM):
                if entry.nvmlReturn == n.NVML_SUCCESS and entry.value == entry.value:
                    metrics[name] = entry.value * (2**20 if name.endswith("_bytes_s") else 1)
        if before is not None:
            n.nvmlGpmSampleFree(before)
        return metrics

    def read(self):
        """GPM measures PCIe better than the driver's counters, and NVLink worse."""
        gpm, counters = self.gpm(), self.counters()
        rates = {**gpm, **{name: value for name, value in counters.items() if value is not None}}
        for name, kind in ("pcie_rx_bytes_s", n.NVML_PCIE_UTIL_RX_BYTES), ("pcie_tx_bytes_s", n.NVML_PCIE_UTIL_TX_BYTES):
            measured = lambda kind=kind: n.nvmlDeviceGetPcieThroughput(self.gpu, kind) * 1024
            rates[name] = gpm[name] if gpm[name] is not None else first(measured)
        for share in "power_capped_pct", "thermal_capped_pct":
            rates.setdefault(share, None)
        return rates

    def processes(self):
        """Processes by pid."""
        found = {}
        for kind in "Compute", "Graphics", "MPSCompute":
            for process in get(f"DeviceGet{kind}RunningProcesses", self.gpu) or []:
                # A GPU lists the processes of its instances as well.
                if self.parent is None and getattr(process, "gpuInstanceId", NO_INSTANCE) != NO_INSTANCE:
                    continue
                memory = found.get(process.pid, {}).get("gpu_mem_bytes")
                memory = max(memory or 0, process.usedGpuMemory or 0) if memory or process.usedGpuMemory else None
                found[process.pid] = {"gpu_mem_bytes": memory}
        try:
            samples = n.nvmlDeviceGetProcessUtilization(self.gpu, self.since_us)
        except n.NVMLError as error:
            samples = [] if error.value == n.NVML_ERROR_NOT_FOUND else None
        self.since_us = int(time.time() * 1e6)
        for pid, process in found.items():
            mine = [sample for sample in samples or [] if sample.pid == pid]
            last = max(mine, key=lambda sample: sample.timeStamp, default=None)
            for name, of in ("sm_pct", "smUtil"), ("mem_bw_pct", "memUtil"), ("enc_pct", "encUtil"), ("dec_pct", "decUtil"):
                process[name] = None if samples is None else getattr(last, of, 0)
        return found


def devices():
    """All GPUs and their instances; those of a GPU with its handle."""
    for index in range(n.nvmlDeviceGetCount()):
        gpu = get("DeviceGetHandleByIndex", index)
        if gpu is None:
            continue
        yield Rates(gpu, None)
        for position in range(get("DeviceGetMaxMigDeviceCount", gpu) or 0):
            instance = get("DeviceGetMigDeviceHandleByIndex", gpu, position)
            if instance is not None:
                yield Rates(instance, gpu)


def version():
    """The version of nvidia-ml-py."""
    try:
        return importlib.metadata.version("nvidia-ml-py")
    except importlib.metadata.PackageNotFoundError:
        return "unknown version"


def main():
    """Answers each line until stdin ends."""
    n.nvmlInit()
    known = [(device, facts(device.gpu, device.parent)) for device in devices()]
    print(json.dumps({"version": version()}), flush=True)
    for _ in sys.stdin:
        read = [({**fact, **now(device.gpu), **device.read()}, device.processes()) for device, fact in known]
        read = [{"readings": readings, "processes": processes} for readings, processes in read]
        print(json.dumps(read), flush=True)


main()
