"""nvitop's `ResourceMetricCollector`: statistics over hosts, GPUs and processes while a piece of code runs."""

import logging
import math
import os
import threading
import time
import weakref
from contextlib import contextmanager
from typing import Callable, ClassVar, Dict, Iterable, Iterator, List, Optional, Tuple

from . import _visible, models
from .client import Client
from .cuda import CudaDevice
from .device import Device, SnapshotResult
from .errors import NodeglassError
from .host import load_of, memory_of, swap_of
from .process import GpuProcess
from .snapshots import DeviceSnapshot
from .units import GiB, MiB

Metrics = Dict[str, float]

logger = logging.getLogger("nodeglass")


class ResourceMetricCollector:
    """Collects mean, minimum and maximum of metrics, with nvitop's methods and names of metrics.

    `devices` are all that the relay watches by default. Of processes, those on the devices are collected that descend
    from `root_pids`: by default from this process, and only on this machine; 1 stands for all processes. `interval` is
    the time between samples in seconds; the relay does not sample more often than once a second.

    If the devices are of several nodes, their node comes first: `train/gpu-h01/gpu:0/…` instead of `train/gpu:0/…`.
    Host metrics are of these nodes; load averages of 5 and 15 minutes are not known to the relay, and are left out.
    While the relay cannot be reached, nothing is added, and a warning is logged once.
    """

    DEVICE_METRICS: ClassVar[List[Tuple[str, str, float]]] = [
        ("memory_used", "memory_used (MiB)", MiB),
        ("memory_free", "memory_free (MiB)", MiB),
        ("memory_total", "memory_total (MiB)", MiB),
        ("memory_percent", "memory_percent (%)", 1.0),
        ("gpu_utilization", "gpu_utilization (%)", 1.0),
        ("memory_utilization", "memory_utilization (%)", 1.0),
        ("fan_speed", "fan_speed (%)", 1.0),
        ("temperature", "temperature (C)", 1.0),
        ("power_usage", "power_usage (W)", 1000.0),
        ("power_limit", "power_limit (W)", 1000.0),
    ]
    """Reading of a device, name of the metric, and its unit."""

    PROCESS_METRICS: ClassVar[List[Tuple[str, Optional[str], str, float]]] = [
        ("cpu_percent", "host", "cpu_percent (%)", 1.0),
        ("host_memory", "host", "host_memory (MiB)", MiB),
        ("host_memory_percent", "host", "host_memory_percent (%)", 1.0),
        ("running_time_in_seconds", "host", "running_time (min)", 60.0),
        ("gpu_memory", None, "gpu_memory (MiB)", MiB),
        ("gpu_memory_percent", None, "gpu_memory_percent (%)", 1.0),
        ("gpu_memory_utilization", None, "gpu_memory_utilization (%)", 1.0),
        ("gpu_sm_utilization", None, "gpu_sm_utilization (%)", 1.0),
    ]
    """Reading of a process, `host` or `None` for its device, name of the metric, and its unit."""

    def __init__(
        self,
        devices: Optional[Iterable[Device]] = None,
        root_pids: Optional[Iterable[int]] = None,
        interval: float = 1.0,
        *,
        client: Optional[Client] = None,
    ) -> None:
        if not isinstance(interval, (int, float)) or not interval > 0:
            raise ValueError(f"interval must be a positive number of seconds, not {interval!r}")
        self.interval = float(interval)
        self.devices = list(Device.all(client=client) if devices is None else devices)
        self.leaf_devices: List[Device] = []
        self._identifiers: Dict[Device, str] = {}
        for device in self.devices:
            self._add_device(device)
        self.all_devices = list(self._identifiers)
        self._client = client or (self.devices[0]._client if self.devices else None)
        self.root_pids = {os.getpid()} if root_pids is None else set(root_pids)
        self._is_own = root_pids is None
        self._lock = threading.RLock()
        self._tag: Optional[_Tag] = None
        self._sampled = -math.inf
        self._stopped = threading.Event()
        self._has_warned = False

    def _add_device(self, device: Device) -> None:
        index = f"gpu:{device.index}"
        own = f"cuda:{device.cuda_index} ({index})" if isinstance(device, CudaDevice) else index
        if not device.is_mig_device():
            self._identifiers[device] = own
        elif device not in self._identifiers:
            self._identifiers[device] = f"{own} mig:{device.uuid()}"
        instances = device.mig_devices() if device.is_mig_mode_enabled() and not device.is_mig_device() else []
        for position, instance in enumerate(instances):
            self._identifiers[instance] = f"gpu:({device.index}, {position})"
        self.leaf_devices.extend(one for one in instances or [device] if one not in self.leaf_devices)

    # Tags

    def activate(self, tag: str) -> "ResourceMetricCollector":
        """Begins to collect under a tag. Within another one, its keys begin with both: `train/batch/…`."""
        with self._lock:
            if self._tag is not None and tag in self._tag.names():
                raise RuntimeError(f'Resource metric collector is already started with tag "{tag}"')
            is_first = self._tag is None
            self._tag = _Tag(tag, self._tag)
            self._sampled = -math.inf
            if is_first:
                self._stopped = threading.Event()
                arguments = (weakref.ref(self), self._stopped, self.interval)
                threading.Thread(target=_sample, args=arguments, name="nodeglass-collector", daemon=True).start()
        return self

    start = activate

    def deactivate(self, tag: Optional[str] = None) -> "ResourceMetricCollector":
        """Ends a tag with those within it; the innermost one by default."""
        with self._lock:
            found = self._find(tag)
            if found is not None:
                self._tag = found.outer
            if self._tag is None:
                self._stopped.set()
        return self

    stop = deactivate

    @contextmanager
    def context(self, tag: str) -> Iterator["ResourceMetricCollector"]:
        """Collects under a tag within a `with` block; `collector(tag)` is the same."""
        self.activate(tag)
        try:
            yield self
        finally:
            self.deactivate(tag)

    __call__ = context

    def clear(self, tag: Optional[str] = None) -> None:
        """Forgets what was collected under a tag and those within it; under the innermost one by default."""
        with self._lock:
            found, inner = self._find(tag), self._tag
            while found is not None and inner is not None:
                inner.clear()
                inner = None if inner is found else inner.outer

    reset = clear

    def _find(self, tag: Optional[str]) -> "Optional[_Tag]":
        """A tag that is active, the innermost one by default; `None` if there is none and none is stated."""
        found = self._tag
        while found is not None and tag is not None and found.name != tag:
            found = found.outer
        if found is None and tag is not None:
            raise RuntimeError(f'Resource metric collector has not been started with tag "{tag}".')
        return found

    # Samples

    def collect(self) -> Metrics:
        """The statistics since the innermost tag began, by key: `train/gpu:0/gpu_utilization (%)/mean`."""
        with self._lock:
            if self._tag is None:
                raise RuntimeError("Resource metric collector has not been started yet.")
            if time.monotonic() - self._sampled > self.interval:
                self._take_if_reachable()
            return self._tag.collect()

    def daemonize(
        self,
        on_collect: Callable[[Metrics], bool],
        interval: Optional[float] = None,
        *,
        on_start: "Optional[Callable[[ResourceMetricCollector], None]]" = None,
        on_stop: "Optional[Callable[[ResourceMetricCollector], None]]" = None,
        tag: str = "metrics-daemon",
        start: bool = True,
    ) -> threading.Thread:
        """The same as `collect_in_background` with this collector."""
        return collect_in_background(
            on_collect, self, interval, on_start=on_start, on_stop=on_stop, tag=tag, start=start
        )

    def take_snapshots(self) -> SnapshotResult:
        """Takes a sample, and adds it to all active tags."""
        if self._client is None:
            return SnapshotResult([], [])
        snapshot = self._client.snapshot()
        at = time.monotonic()
        gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        for device in self.all_devices:
            if device.uuid() in gpus:
                device._hold(gpus[device.uuid()])
        present = [device for device in self.all_devices if device.uuid() in gpus]
        devices = [device.as_snapshot() for device in present]
        processes = [one.as_snapshot() for one in self._processes(snapshot.processes)]
        nodes = {node.name: node for node in snapshot.nodes if any(one.node == node.name for one in self.devices)}
        for process in processes:
            total = nodes[process.node].readings.mem_total_bytes if process.node in nodes else None
            share = 100.0 * float(process.host_memory) / total if total else math.nan
            process.__dict__["host_memory_percent"] = share
        metrics = self._host_metrics(nodes)
        for one in devices:
            metrics.update(self._device_metrics(one))
        for process in processes:
            place, own = self._place(process.node), self._identifiers[process.device]
            for key, scope, name, unit in self.PROCESS_METRICS:
                metrics[f"{place}pid:{process.pid}/{scope or own}/{name}"] = float(process[key]) / unit
        with self._lock:
            if self._tag is not None:
                self._tag.add(metrics, at)
            self._sampled = at
        return SnapshotResult(devices, processes)

    def _take_if_reachable(self) -> None:
        try:
            self.take_snapshots()
        except (NodeglassError, OSError) as error:
            with self._lock:
                self._sampled = time.monotonic()
                if not self._has_warned:
                    self._has_warned = True
                    logger.warning("metrics are not collected: %s", error)

    def _place(self, node: str) -> str:
        """The beginning of a key: the node, if there are several."""
        return f"{node}/" if any(device.node != node for device in self.devices) else ""

    def _host_metrics(self, nodes: Dict[str, models.Node]) -> Metrics:
        metrics: Metrics = {}
        for name, node in nodes.items():
            readings, place = node.readings, self._place(name)
            memory = memory_of(readings)
            cpu = readings.cpu_pct
            metrics[f"{place}host/cpu_percent (%)"] = math.nan if cpu is None else float(cpu)
            metrics[f"{place}host/memory_percent (%)"] = float(memory.percent)
            metrics[f"{place}host/swap_percent (%)"] = float(swap_of(readings).percent)
            metrics[f"{place}host/memory_used (GiB)"] = float(memory.used) / GiB
            metrics[f"{place}host/load_average (%) (1 min)"] = float(load_of(readings))
        return metrics

    def _device_metrics(self, snapshot: DeviceSnapshot) -> Metrics:
        identifier = self._place(snapshot.node) + self._identifiers[snapshot.real]
        return {f"{identifier}/{name}": float(snapshot[key]) / unit for key, name, unit in self.DEVICE_METRICS}

    def _processes(self, listed: List[models.Process]) -> List[GpuProcess]:
        devices = {device.uuid(): device for device in self.leaf_devices}
        parents = {(one.node, one.pid): one.parent for one in listed}
        here = _visible.local_names(os.environ)

        def is_wanted(process: models.Process) -> bool:
            is_here = process.node in here or process.node.partition(".")[0] in here
            if 1 in self.root_pids:
                return True
            if self._is_own and not is_here:
                return False
            pid: Optional[int] = process.pid
            seen = set()
            while pid is not None and pid not in seen:
                if pid in self.root_pids:
                    return True
                seen.add(pid)
                parent = parents.get((process.node, pid))
                pid = _parent(pid) if parent is None and is_here else parent
            return False

        return [GpuProcess(one, devices[one.gpu]) for one in listed if one.gpu in devices and is_wanted(one)]


def collect_in_background(
    on_collect: Callable[[Metrics], bool],
    collector: Optional[ResourceMetricCollector] = None,
    interval: Optional[float] = None,
    *,
    on_start: Optional[Callable[[ResourceMetricCollector], None]] = None,
    on_stop: Optional[Callable[[ResourceMetricCollector], None]] = None,
    tag: str = "metrics-daemon",
    start: bool = True,
) -> threading.Thread:
    """Calls `on_collect` with the statistics every `interval` seconds in a daemon thread, until it returns false.

    As in nvitop, the interval is at most that of the collector. `on_start` is called before the first time, `on_stop`
    after the last one, also after an exception.
    """
    chosen = ResourceMetricCollector() if collector is None else collector
    if interval is not None and not interval > 0:
        raise ValueError(f"interval must be a positive number of seconds, not {interval!r}")
    pause = min(interval or chosen.interval, chosen.interval)

    def run() -> None:
        if on_start is not None:
            on_start(chosen)
        try:
            with chosen.context(tag):
                due = time.monotonic() + pause
                while on_collect(chosen.collect()):
                    time.sleep(max(0.0, due - time.monotonic()))
                    due += pause
        finally:
            if on_stop is not None:
                on_stop(chosen)

    thread = threading.Thread(target=run, name=tag, daemon=True)
    if start:
        thread.start()
    return thread


class _Tag:
    """What was collected since a tag began."""

    def __init__(self, name: str, outer: "Optional[_Tag]") -> None:
        self.name = name
        self.outer = outer
        self.key: str = name if outer is None else f"{outer.key}/{name}"
        self.clear()

    def names(self) -> List[str]:
        return [self.name] + ([] if self.outer is None else self.outer.names())

    def clear(self) -> None:
        self._began = self._last = time.monotonic()
        self._series: Dict[str, _Series] = {}

    def add(self, metrics: Metrics, at: float) -> None:
        """Adds a sample here and to the tags around it. A metric that is missing has no value from now on."""
        for key in self._series.keys() - metrics.keys():
            self._series[key].add(math.nan, at)
        for key, value in metrics.items():
            self._series.setdefault(key, _Series(self._last)).add(value, at)
        self._last = at
        if self.outer is not None:
            self.outer.add(metrics, at)

    def collect(self) -> Metrics:
        now = time.monotonic()
        metrics: Metrics = {}
        for key, series in self._series.items():
            if key.endswith("host/running_time (min)"):
                metrics[f"{self.key}/{key}"] = series.max
                continue
            metrics[f"{self.key}/{key}/mean"] = series.mean(now)
            metrics[f"{self.key}/{key}/min"] = series.min
            metrics[f"{self.key}/{key}/max"] = series.max
        metrics[f"{self.key}/duration (s)"] = now - self._began
        metrics[f"{self.key}/timestamp"] = time.time()
        return metrics


class _Series:
    """Mean over time, minimum and maximum of one metric; NaN until there is a value."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._at = began
        self._last = math.nan
        self._integral = 0.0
        self._has_gap = False
        self.min = math.nan
        self.max = math.nan

    def add(self, value: float, at: float) -> None:
        if math.isnan(value):
            self._has_gap = True
            return
        # Between two samples it counts as linear; before the first one, as that.
        before = value if math.isnan(self._last) else self._last
        self._integral += (before + value) / 2 * (at - self._at)
        self.min = value if math.isnan(self.min) else min(self.min, value)
        self.max = value if math.isnan(self.max) else max(self.max, value)
        self._last, self._at = value, at

    def mean(self, now: float) -> float:
        """The mean up to now; only up to the last value, if one was missing."""
        if math.isnan(self._last):
            return math.nan
        until = self._at if self._has_gap else max(now, self._at)
        duration = until - self._began
        return (self._integral + self._last * (until - self._at)) / duration if duration > 0 else self._last


def _sample(collector: "weakref.ref[ResourceMetricCollector]", stopped: threading.Event, interval: float) -> None:
    """Takes samples until the last tag ends, or nobody has the collector any more."""
    while not stopped.is_set():
        current = collector()
        if current is None:
            return
        current._take_if_reachable()
        del current
        stopped.wait(interval)


def _parent(pid: int) -> Optional[int]:
    """Process id of the parent of a process of this machine, from `/proc/PID/stat`."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1]) or None
    except (OSError, ValueError, IndexError):
        return None
