"""Processes on GPUs with nvitop's names."""

import shlex
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Union

from . import models
from .na import NA, NaType, known
from .snapshots import GpuProcessSnapshot
from .units import bytes2human, timedelta2human

if TYPE_CHECKING:
    from .device import Device

# psutil's names. `alive` includes sleeping.
STATUS = {"alive": "running", "uninterruptible": "disk-sleep", "zombie": "zombie", "stopped": "stopped"}
CONTEXTS = {"compute": "C", "graphics": "G", "mps": "M"}


class HostProcess:
    """A process of a node, as the relay reported it. It is not of this machine, so it cannot be signalled."""

    def __init__(self, process: models.Process) -> None:
        self._process = process

    def __repr__(self) -> str:
        return f"HostProcess(pid={self.pid}, node={self.node!r}, name={str(self.name())!r}, status={self.status()!r})"

    @property
    def pid(self) -> int:
        """Process id on its node."""
        return self._process.pid

    @property
    def node(self) -> str:
        """Its node."""
        return self._process.node

    @property
    def resource(self) -> models.Process:
        """Everything that the relay knows of it."""
        return self._process

    def ppid(self) -> Union[int, NaType]:
        """Process id of its parent."""
        return known(self._process.parent)

    def username(self) -> Union[str, NaType]:
        """Login name."""
        return known(self._process.user)

    def name(self) -> Union[str, NaType]:
        """Name, without path and arguments."""
        return known(self._process.command)

    def cmdline(self) -> List[str]:
        """Command line in parts, with secrets masked; empty if it is hidden."""
        text = self._process.args or ""
        try:
            return shlex.split(text)
        except ValueError:
            return text.split()

    def command(self) -> Union[str, NaType]:
        """Command line with secrets masked."""
        return known(self._process.args)

    def cwd(self) -> Union[str, NaType]:
        """Working directory."""
        return known(self._process.cwd)

    def status(self) -> Union[str, NaType]:
        """psutil's name of the state; `running` includes sleeping."""
        return NA if self._process.state is None else STATUS.get(self._process.state, self._process.state)

    def create_time(self) -> Union[float, NaType]:
        """Start in seconds since 1970."""
        started = self._process.started_at
        return NA if started is None else started.timestamp()

    def running_time(self) -> Union[timedelta, NaType]:
        """Time since its start. The clocks of both machines should agree."""
        started = self._process.started_at
        return NA if started is None else max(datetime.now(timezone.utc) - started, timedelta())

    def running_time_human(self) -> Union[str, NaType]:
        """Time since its start, such as `3:04:05`."""
        return timedelta2human(self.running_time())

    def running_time_in_seconds(self) -> Union[float, NaType]:
        """Time since its start in seconds."""
        running = self.running_time()
        return running if isinstance(running, NaType) else running.total_seconds()

    def cpu_percent(self) -> Union[int, NaType]:
        """CPU use in % of one core."""
        return known(self._process.readings.cpu_pct)

    def num_threads(self) -> Union[int, NaType]:
        """Number of threads."""
        return known(self._process.readings.threads)

    def rss_memory(self) -> Union[int, NaType]:
        """Resident memory in bytes."""
        return known(self._process.readings.rss_bytes)

    def job(self) -> Optional[int]:
        """Id of its SLURM job."""
        return self._process.job

    def step(self) -> Optional[str]:
        """Step of the job."""
        return self._process.step

    def rank(self) -> Optional[int]:
        """Rank in a parallel program."""
        return None if self._process.rank is None else self._process.rank.global_

    def container(self) -> Optional[models.ContainerInfo]:
        """The container that it runs in."""
        return self._process.container


class GpuProcess(HostProcess):
    """A process on one GPU. Unlike nvitop's, it is of one moment: ask the device for its processes again."""

    def __init__(self, process: models.Process, device: "Device") -> None:
        super().__init__(process)
        self._device = device

    def __repr__(self) -> str:
        return (
            f"GpuProcess(pid={self.pid}, gpu_memory={self.gpu_memory_human()}, type={self.type}, "
            f"device={self._device!r}, host={self.host!r})"
        )

    @property
    def device(self) -> "Device":
        """Its GPU."""
        return self._device

    @property
    def host(self) -> HostProcess:
        """The process without its use of the GPU."""
        return HostProcess(self._process)

    @property
    def type(self) -> Union[str, NaType]:
        """Its contexts: `C` compute, `G` graphics, `M` MPS, or several: `C+G`."""
        return "+".join(CONTEXTS.get(one, one) for one in self._process.contexts) or NA

    def is_running(self) -> bool:
        """Whether it is still on its GPU."""
        return self.pid in self._device.processes()

    def gpu_memory(self) -> Union[int, NaType]:
        """Device memory that it uses, in bytes."""
        return known(self._process.readings.gpu_mem_bytes)

    def gpu_memory_human(self) -> Union[str, NaType]:
        """Device memory that it uses, such as `7885MiB`."""
        return bytes2human(self.gpu_memory())

    def gpu_memory_percent(self) -> Union[float, NaType]:
        """Share of the device memory that it uses, in %."""
        used, total = self.gpu_memory(), self._device.memory_total()
        if isinstance(used, NaType) or isinstance(total, NaType) or total == 0:
            return NA
        return round(100.0 * used / total, 1)

    def gpu_sm_utilization(self) -> Union[int, NaType]:
        """Utilisation of the SMs by it, in %."""
        return known(self._process.readings.sm_pct)

    def gpu_memory_utilization(self) -> Union[int, NaType]:
        """Utilisation of the memory bandwidth by it, in %."""
        return known(self._process.readings.mem_bw_pct)

    def gpu_encoder_utilization(self) -> Union[int, NaType]:
        """Utilisation of the video encoder by it, in %."""
        return known(self._process.readings.enc_pct)

    def gpu_decoder_utilization(self) -> Union[int, NaType]:
        """Utilisation of the video decoder by it, in %."""
        return known(self._process.readings.dec_pct)

    def host_memory(self) -> Union[int, NaType]:
        """Resident memory in bytes."""
        return self.rss_memory()

    def host_memory_human(self) -> Union[str, NaType]:
        """Resident memory, such as `4885MiB`."""
        return bytes2human(self.rss_memory())

    def as_snapshot(self) -> GpuProcessSnapshot:
        """All readings of one moment."""
        values: Dict[str, Any] = {key: getattr(self, key)() for key in SNAPSHOT_KEYS}
        return GpuProcessSnapshot(
            self, None, pid=self.pid, node=self.node, device=self._device, type=self.type, **values
        )

    @classmethod
    def take_snapshots(cls, processes: Iterable["GpuProcess"], *, failsafe: bool = True) -> List[GpuProcessSnapshot]:
        """Snapshots of processes. `failsafe` has no effect: what is not known is `NA`."""
        return [process.as_snapshot() for process in processes]


SNAPSHOT_KEYS = (
    "status", "username", "name", "cmdline", "command", "cpu_percent", "host_memory", "host_memory_human",
    "running_time", "running_time_human", "running_time_in_seconds", "gpu_memory", "gpu_memory_human",
    "gpu_memory_percent", "gpu_sm_utilization", "gpu_memory_utilization", "gpu_encoder_utilization",
    "gpu_decoder_utilization", "job", "step", "rank",
)  # fmt: skip
