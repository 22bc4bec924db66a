"""GPUs and their processes with nvitop's names, for all nodes that the relay watches.

Each method returns the newest reading that the relay has, or `NA`. A reading is requested again after
`REFRESH_S`: the relay does not take samples more often. Where the meaning of a name is not identical to nvitop's, it is
said here.
"""

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Type, Union

from . import _visible, models
from ._default import default_client
from .client import Client, JobId
from .errors import NodeglassError, NotFoundError
from .na import NA, NaType, known
from .process import GpuProcess
from .snapshots import DeviceSnapshot, GpuProcessSnapshot
from .units import bytes2human

if TYPE_CHECKING:
    from .cuda import CudaDevice

REFRESH_S = 1.0
"""Readings that are older are requested again."""

MaybeInt = Union[int, NaType]
MaybeFloat = Union[float, NaType]
MaybeStr = Union[str, NaType]


class MemoryInfo(NamedTuple):
    """Device memory in bytes."""

    total: MaybeInt
    free: MaybeInt
    used: MaybeInt
    reserved: MaybeInt


class UtilizationRates(NamedTuple):
    """Utilisation in %."""

    gpu: MaybeInt
    memory: MaybeInt
    encoder: MaybeInt
    decoder: MaybeInt


class ClockInfos(NamedTuple):
    """Clocks in MHz."""

    graphics: MaybeInt
    sm: MaybeInt
    memory: MaybeInt
    video: MaybeInt


class ThroughputInfo(NamedTuple):
    """Throughput in KiB/s."""

    tx: MaybeInt
    rx: MaybeInt

    @property
    def transmit(self) -> MaybeInt:
        """The same as `tx`."""
        return self.tx

    @property
    def receive(self) -> MaybeInt:
        """The same as `rx`."""
        return self.rx


class Device:
    """A GPU or MIG instance of one of the nodes.

    `Device(0)` is the GPU with index 0 of this machine, or of the only node that the relay watches; with several nodes
    and elsewhere, `node` is needed. `Device(uuid=…)` and `Device(bus_id=…, node=…)` find others.
    """

    def __init__(
        self,
        index: Union[int, str, None] = None,
        *,
        uuid: Optional[str] = None,
        bus_id: Optional[str] = None,
        node: Optional[str] = None,
        client: Optional[Client] = None,
    ) -> None:
        if isinstance(index, str):
            index, uuid = None, index
        if sum(one is not None for one in (index, uuid, bus_id)) != 1:
            raise TypeError("state one of index, uuid and bus_id")
        self._client = client or default_client()
        if uuid is not None:
            found = self._client.gpu(uuid)
        else:
            node = _visible.node_of(self._client, node)
            matches = [
                one
                for one in self._client.gpus(node=node)
                if (one.index == index and one.mig is None if bus_id is None else _is_bus_id(one.pci, bus_id))
            ]
            if not matches:
                raise NotFoundError(f"{node} has no GPU {index if bus_id is None else bus_id}")
            found = matches[0]
        self._hold(found)

    def _hold(self, gpu: models.Gpu) -> None:
        self._gpu = gpu
        self._read_at = time.monotonic()
        self._is_frozen = False

    @classmethod
    def _of(cls, gpu: models.Gpu, client: Client) -> "Device":
        device = cls.__new__(cls)
        device._client = client
        device._hold(gpu)
        return device

    def __repr__(self) -> str:
        total = bytes2human(known(self._gpu.readings.mem_total_bytes))
        name = self._gpu.name or NA
        return f'Device(index={self.index}, node="{self.node}", name="{name}", total_memory={total})'

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self._gpu.uuid == other._gpu.uuid

    def __hash__(self) -> int:
        return hash(self._gpu.uuid)

    cuda: ClassVar[Type["CudaDevice"]]
    """The same as `CudaDevice`, as in nvitop: `Device.cuda.all()`."""

    # Which devices

    @classmethod
    def all(
        cls, *, node: Optional[str] = None, job: Optional[JobId] = None, client: Optional[Client] = None
    ) -> List["Device"]:
        """The devices of all nodes, of one node, or of one job. A GPU that is divided into MIG instances is followed
        by these."""
        client = client or default_client()
        return [cls._of(gpu, client) for gpu in client.gpus(node=node, job=job)]

    @classmethod
    def count(cls, *, node: Optional[str] = None, job: Optional[JobId] = None, client: Optional[Client] = None) -> int:
        """Number of `Device.all`."""
        return len(cls.all(node=node, job=job, client=client))

    @classmethod
    def is_available(cls, client: Optional[Client] = None) -> bool:
        """Whether there is any device."""
        try:
            return cls.count(client=client) > 0
        except NodeglassError:
            return False

    @classmethod
    def from_indices(
        cls, indices: Union[int, Iterable[int]], *, node: Optional[str] = None, client: Optional[Client] = None
    ) -> List["Device"]:
        """The devices with these indices on one node."""
        wanted = [indices] if isinstance(indices, int) else list(indices)
        return [cls(index, node=node, client=client) for index in wanted]

    @classmethod
    def from_cuda_visible_devices(cls, *, client: Optional[Client] = None) -> List["CudaDevice"]:
        """The devices of this process in the order of CUDA: those of `CUDA_VISIBLE_DEVICES`, else of its job on this
        node, else of this machine.

        Where SLURM confines jobs to their GPUs, CUDA's index 0 is the first of the job. Raises `NodeglassError` if the
        environment does not say which numbering applies.
        """
        return cls.cuda.from_indices(client=client)

    @classmethod
    def from_cuda_indices(
        cls, cuda_indices: Union[int, Iterable[int], None] = None, *, client: Optional[Client] = None
    ) -> List["CudaDevice"]:
        """The devices of this process with these indices in CUDA, or all."""
        return cls.cuda.from_indices(cuda_indices, client=client)

    @staticmethod
    def driver_version(*, node: Optional[str] = None, client: Optional[Client] = None) -> MaybeStr:
        """Version of the NVIDIA driver of a node."""
        return _driver(node, client).version or NA

    @staticmethod
    def cuda_driver_version(*, node: Optional[str] = None, client: Optional[Client] = None) -> MaybeStr:
        """Newest version of CUDA that the driver of a node supports."""
        return _driver(node, client).platform or NA

    # What is known of it

    @property
    def node(self) -> str:
        """Its node; nvitop knows only one."""
        return self._gpu.node

    @property
    def index(self) -> int:
        """Index on its node."""
        return self._gpu.index

    @property
    def physical_index(self) -> int:
        """Index on its node; of a MIG instance that of its GPU."""
        return self._gpu.index

    @property
    def cuda_index(self) -> int:
        """Index in CUDA. Raises `RuntimeError` if this process does not see the device."""
        return self.cuda(uuid=self.uuid(), client=self._client).cuda_index

    @property
    def resource(self) -> models.Gpu:
        """Everything that the relay knows of it."""
        return self._current()

    def name(self) -> MaybeStr:
        """Model."""
        return known(self._gpu.name)

    def uuid(self) -> str:
        """UUID."""
        return self._gpu.uuid

    def bus_id(self) -> MaybeStr:
        """PCI address."""
        return known(self._gpu.pci)

    def serial(self) -> MaybeStr:
        """Serial number."""
        return known(self._gpu.serial)

    def jobs(self) -> List[int]:
        """Ids of the SLURM jobs that it belongs to."""
        return [one.job for one in self._current().jobs]

    def connection(self) -> str:
        """How current the readings are: `live`, `late`, `silent`, `down`, …"""
        return self._current().connection

    def absence(self, metric: str) -> Optional[str]:
        """Why a metric of the API has no value: `unsupported` or `failed`; `None` if it has one or was not taken yet."""
        return self._current().absent.get(metric)

    # Memory

    def memory_info(self) -> MemoryInfo:
        """Device memory in bytes."""
        return MemoryInfo(self.memory_total(), self.memory_free(), self.memory_used(), self.memory_reserved())

    def memory_total(self) -> MaybeInt:
        """Device memory in bytes."""
        return self._reading("mem_total_bytes")

    def memory_used(self) -> MaybeInt:
        """Device memory in use in bytes, without what the driver reserves."""
        return self._reading("mem_used_bytes")

    def memory_reserved(self) -> MaybeInt:
        """Device memory that the driver and the firmware reserve, in bytes."""
        return self._reading("mem_reserved_bytes")

    def memory_free(self) -> MaybeInt:
        """Device memory that is neither in use nor reserved, in bytes."""
        gpu = self._current()
        total, used = gpu.readings.mem_total_bytes, gpu.readings.mem_used_bytes
        reserved = gpu.readings.mem_reserved_bytes
        # Where the driver does not state it, nothing is reserved, or it counts as used.
        if reserved is None and gpu.absent.get("mem_reserved_bytes") == "unsupported":
            reserved = 0
        if total is None or used is None or reserved is None:
            return NA
        return max(total - used - reserved, 0)

    def memory_total_human(self) -> MaybeStr:
        """Device memory, such as `24.00GiB`."""
        return bytes2human(self.memory_total())

    def memory_used_human(self) -> MaybeStr:
        """Device memory in use, such as `7885MiB`."""
        return bytes2human(self.memory_used())

    def memory_free_human(self) -> MaybeStr:
        """Free device memory, such as `16691MiB`."""
        return bytes2human(self.memory_free())

    def memory_percent(self) -> MaybeFloat:
        """Share of the memory that is in use, in %."""
        readings = self._current().readings
        if not readings.mem_total_bytes or readings.mem_used_bytes is None:
            return NA
        return round(100.0 * readings.mem_used_bytes / readings.mem_total_bytes, 1)

    def memory_usage(self) -> str:
        """Memory in use and memory, such as `7885MiB / 24.00GiB`."""
        return f"{self.memory_used_human()} / {self.memory_total_human()}"

    # Utilisation

    def utilization_rates(self) -> UtilizationRates:
        """Utilisation in %."""
        return UtilizationRates(
            self.gpu_utilization(), self.memory_utilization(), self.encoder_utilization(), self.decoder_utilization()
        )

    def gpu_utilization(self) -> MaybeInt:
        """Share of time in which a kernel ran, in %."""
        return self._reading("util_pct")

    gpu_percent = gpu_utilization

    def memory_utilization(self) -> MaybeInt:
        """Share of time in which memory was read or written, in %."""
        return self._reading("mem_util_pct")

    def encoder_utilization(self) -> MaybeInt:
        """Utilisation of the video encoder in %."""
        return self._reading("enc_pct")

    def decoder_utilization(self) -> MaybeInt:
        """Utilisation of the video decoder in %."""
        return self._reading("dec_pct")

    # Clocks, heat, power

    def clock_infos(self) -> ClockInfos:
        """Clocks in MHz."""
        return ClockInfos(self.graphics_clock(), self.sm_clock(), self.memory_clock(), self.video_clock())

    def graphics_clock(self) -> MaybeInt:
        """Graphics clock in MHz."""
        return self._reading("graphics_clock_mhz")

    def sm_clock(self) -> MaybeInt:
        """Clock of the SMs in MHz."""
        return self._reading("sm_clock_mhz")

    def memory_clock(self) -> MaybeInt:
        """Memory clock in MHz."""
        return self._reading("mem_clock_mhz")

    def video_clock(self) -> MaybeInt:
        """Video clock in MHz."""
        return self._reading("video_clock_mhz")

    def max_sm_clock(self) -> MaybeInt:
        """Maximum clock of the SMs in MHz."""
        return known(self._gpu.limits.sm_clock_max_mhz)

    def max_memory_clock(self) -> MaybeInt:
        """Maximum memory clock in MHz."""
        return known(self._gpu.limits.mem_clock_max_mhz)

    def fan_speed(self) -> MaybeInt:
        """Fan speed in % of its maximum."""
        return self._reading("fan_pct")

    def temperature(self) -> MaybeInt:
        """Temperature in °C."""
        return self._reading("temp_c")

    def power_usage(self) -> MaybeInt:
        """Power draw in mW, in steps of 1 W."""
        return _times(self._reading("power_w"), 1000)

    def power_limit(self) -> MaybeInt:
        """Power limit in mW, in steps of 1 W."""
        return _times(self._reading("power_limit_w"), 1000)

    def power_status(self) -> str:
        """Power draw and limit, such as `301W / 450W`."""
        draw, limit = self._reading("power_w"), self._reading("power_limit_w")
        shown = [one if isinstance(one, NaType) else f"{one}W" for one in (draw, limit)]
        return " / ".join(shown)

    def performance_state(self) -> MaybeStr:
        """Performance state, such as `P0`."""
        state = self._reading("p_state")
        return state if isinstance(state, NaType) else f"P{state}"

    # Links

    def pcie_throughput(self) -> ThroughputInfo:
        """PCIe throughput in KiB/s."""
        return ThroughputInfo(self.pcie_tx_throughput(), self.pcie_rx_throughput())

    def pcie_tx_throughput(self) -> MaybeInt:
        """Data sent over PCIe, in KiB/s."""
        return _kib(self._reading("pcie_tx_bytes_s"))

    def pcie_rx_throughput(self) -> MaybeInt:
        """Data received over PCIe, in KiB/s."""
        return _kib(self._reading("pcie_rx_bytes_s"))

    def nvlink_total_throughput(self) -> ThroughputInfo:
        """Throughput of all NVLinks together, in KiB/s."""
        return ThroughputInfo(
            _kib(self._reading("nvlink_tx_bytes_s")), _kib(self._reading("nvlink_rx_bytes_s"))
        )

    def nvlink_link_count(self) -> int:
        """Number of NVLinks."""
        return len(self._current().health.nvlinks)

    # Modes and errors

    def persistence_mode(self) -> MaybeStr:
        """`Enabled` or `Disabled`."""
        return _enabled(self._gpu.persistence_mode)

    def mig_mode(self) -> MaybeStr:
        """`Enabled` or `Disabled`."""
        return _enabled(self._gpu.mig_mode)

    def is_mig_mode_enabled(self) -> bool:
        """Whether it is divided into MIG instances."""
        return self._gpu.mig_mode is True

    def is_mig_device(self) -> bool:
        """Whether it is a MIG instance."""
        return self._gpu.mig is not None

    def mig_devices(self) -> List["Device"]:
        """Its MIG instances."""
        siblings = self._client.gpus(node=self.node)
        return [
            Device._of(one, self._client) for one in siblings if one.mig is not None and one.mig.parent == self._gpu.uuid
        ]

    def compute_mode(self) -> MaybeStr:
        """`Default`, `Exclusive Process`, `Prohibited`, …"""
        mode = self._gpu.compute_mode
        return NA if mode is None else mode.title()

    def cuda_compute_capability(self) -> Union[Tuple[int, int], NaType]:
        """CUDA compute capability, such as `(9, 0)`."""
        major, _, minor = (self._gpu.compute_capability or "").partition(".")
        return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else NA

    def total_volatile_uncorrected_ecc_errors(self) -> MaybeInt:
        """Uncorrected memory errors since the driver was loaded."""
        return self._reading("ecc_uncorrected")

    # Processes and snapshots

    def processes(self) -> Dict[int, GpuProcess]:
        """The processes on it by process id."""
        listed = self._client.processes(gpu=self._gpu.uuid)
        return {one.pid: GpuProcess(one, self) for one in listed}

    SNAPSHOT_KEYS: ClassVar[Tuple[str, ...]] = (
        "name", "uuid", "bus_id", "memory_info", "memory_used", "memory_free", "memory_total", "memory_used_human",
        "memory_free_human", "memory_total_human", "memory_percent", "memory_usage", "utilization_rates",
        "gpu_utilization", "memory_utilization", "encoder_utilization", "decoder_utilization", "clock_infos",
        "sm_clock", "memory_clock", "fan_speed", "temperature", "power_usage", "power_limit", "power_status",
        "pcie_throughput", "pcie_tx_throughput", "pcie_rx_throughput", "persistence_mode", "performance_state",
        "total_volatile_uncorrected_ecc_errors", "compute_mode", "cuda_compute_capability", "mig_mode", "jobs",
        "connection",
    )  # fmt: skip

    def as_snapshot(self) -> DeviceSnapshot:
        """All readings of one moment."""
        with self.oneshot():
            values = {key: getattr(self, key)() for key in self.SNAPSHOT_KEYS}
            sampled = self._gpu.sampled_at
        return DeviceSnapshot(self, sampled, node=self.node, index=self.index, **values)

    @contextmanager
    def oneshot(self) -> Iterator[None]:
        """Within it, all methods return readings of one moment."""
        self._current()
        before, self._is_frozen = self._is_frozen, True
        try:
            yield
        finally:
            self._is_frozen = before

    def _current(self) -> models.Gpu:
        if not self._is_frozen and time.monotonic() - self._read_at > REFRESH_S:
            self._gpu = self._client.gpu(self._gpu.uuid)
            self._read_at = time.monotonic()
        return self._gpu

    def _reading(self, metric: str) -> MaybeInt:
        value: Optional[int] = getattr(self._current().readings, metric)
        return known(value)


def take_snapshots(
    devices: Union[Device, Iterable[Device], None] = None,
    *,
    gpu_processes: bool = True,
    client: Optional[Client] = None,
) -> "SnapshotResult":
    """Snapshots of devices, of all by default, and of their processes, as nvitop's function of this name."""
    if devices is None:
        devices = Device.all(client=client)
    chosen = [devices] if isinstance(devices, Device) else list(devices)
    processes = [process for device in chosen for process in device.processes().values()] if gpu_processes else []
    return SnapshotResult([one.as_snapshot() for one in chosen], [one.as_snapshot() for one in processes])


class SnapshotResult(NamedTuple):
    """The result of `take_snapshots`."""

    devices: List[DeviceSnapshot]
    gpu_processes: List[GpuProcessSnapshot]



def _times(value: MaybeInt, factor: int) -> MaybeInt:
    return value if isinstance(value, NaType) else value * factor


def _kib(value: MaybeInt) -> MaybeInt:
    return value if isinstance(value, NaType) else value // 1024


def _enabled(mode: Optional[bool]) -> MaybeStr:
    return NA if mode is None else "Enabled" if mode else "Disabled"


def _is_bus_id(pci: Optional[str], bus_id: str) -> bool:
    """The domain may have four or eight digits."""
    domain, _, rest = bus_id.upper().partition(":")
    return pci is not None and pci.upper() == f"{domain:0>8}:{rest}"


def _driver(node: Optional[str], client: Optional[Client]) -> models.Driver:
    client = client or default_client()
    drivers = client.node(_visible.node_of(client, node)).drivers
    found = next((one for one in drivers if one.vendor == "nvidia"), None)
    return found or models.Driver(vendor="nvidia")
