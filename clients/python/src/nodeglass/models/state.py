"""Jobs, nodes, GPUs, processes and findings of one moment.

Written by `tools/generate_models.py`; do not edit.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Dict, List, Optional

from .readings import GpuReadings, HostReadings, JobReadings, ProcessReadings


@dataclass(frozen=True)
class ProcessGroup:
    """Processes that stood at the same place."""

    count: int
    """Number of processes."""

    frame: str
    """The Python frame, or without one the kernel function and the system call in which they wait."""

    ranks: str
    """Their ranks in short, such as `0-34, 36-63`; empty if unknown."""

    summary: str
    """The group in one line."""

    caller: Optional[str] = None
    """Innermost frame of the user's own code above it; `null` if unknown."""

    details: List[str] = field(default_factory=list)
    """State, threads and connections of the first of them."""

    places: List[str] = field(default_factory=list)
    """Places of some of them."""

    stack: List[str] = field(default_factory=list)
    """Python stack of the first of them, innermost frame first."""


@dataclass(frozen=True)
class Capture:
    """The places where the processes of a job stood when a finding began."""

    at: datetime
    """When it was captured."""

    missing: int
    """Number of processes without any information."""

    others: int
    """Number of processes in further groups."""

    files: List[str] = field(default_factory=list)
    """Files on the nodes that may explain more, such as dumps of NCCL's flight recorder."""

    groups: List[ProcessGroup] = field(default_factory=list)
    """Processes that stood at the same place, most first."""

    notes: List[str] = field(default_factory=list)
    """Limits of the capture, with their reasons."""


@dataclass(frozen=True)
class AffectedGpu:
    """A GPU that a finding is about."""

    node: str
    """Name of its node."""

    uuid: str
    """Its UUID."""

    metric: Optional[str] = None
    """The metric whose history shows it."""


@dataclass(frozen=True)
class WastedBefore:
    """GPU-time lost to a finding up to a moment; from then on, `wasted_gpus` counts."""

    gpu_hours: float
    """GPU-hours."""

    until: datetime
    """The moment. It is in the future while the detector measures the loss itself, or while the finding is
    not seen and may be over.
    """


@dataclass(frozen=True)
class Finding:
    """A conclusion of the relay from readings, with evidence, meaning and advice."""

    advice: str
    """Advice on how to solve it."""

    confidence_pct: int
    """Confidence in %."""

    found_at: datetime
    """When it was found."""

    is_active: bool
    """Whether it is active; ended findings are listed for an hour."""

    key: str
    """Kind and subject, the same for as long as it lasts."""

    kind: str
    """Kind."""

    meaning: str
    """Usual meaning."""

    or_earlier: bool
    """Whether it may have begun earlier, before it could be seen."""

    reason: str
    """The problem in a few words."""

    severity: str
    """Severity."""

    since: datetime
    """When it began."""

    title: str
    """The problem and its place, one sentence without a full stop."""

    wasted_gpus: int
    """Number of GPUs that do no useful work because of it."""

    capture: Optional[Capture] = None
    """The places of the job's processes when it began; `null` if not captured, and for guests."""

    ended_at: Optional[datetime] = None
    """When it ended; `null` while it lasts."""

    evidence: List[str] = field(default_factory=list)
    """The numbers that show it."""

    gpus: List[AffectedGpu] = field(default_factory=list)
    """GPUs that it is about."""

    jobs: List[int] = field(default_factory=list)
    """Numeric ids of the jobs that it affects; empty for a machine without a job."""

    nodes: List[str] = field(default_factory=list)
    """Names of the nodes on which it was found."""

    silenced_until: Optional[datetime] = None
    """Until when it is silenced; `null` if it is not."""

    wasted_before: Optional[WastedBefore] = None
    """GPU-time lost to it while `wasted_gpus` was another number, or that its detector measures instead;
    `null` if `wasted_gpus` and the time since its start state it.
    """


@dataclass(frozen=True)
class Link:
    """One NVLink."""

    link: int
    """Number on this GPU."""

    errors: Optional[int] = None
    """Errors since the driver was loaded."""

    remote: Optional[str] = None
    """Remote end."""

    rx_mib_s: Optional[int] = None
    """Data received, in MiB/s."""

    tx_mib_s: Optional[int] = None
    """Data sent, in MiB/s."""

    up: Optional[bool] = None
    """Whether it is up."""


@dataclass(frozen=True)
class PcieLink:
    """Current PCIe link of a GPU."""

    generation: Optional[int] = None
    """Generation."""

    replays: Optional[int] = None
    """Replays since the driver was loaded."""

    width: Optional[int] = None
    """Width in lanes."""


@dataclass(frozen=True)
class Health:
    """Health of a GPU."""

    pcie: PcieLink
    """PCIe link."""

    ecc_corrected: Optional[int] = None
    """Lifetime corrected ECC errors."""

    ecc_uncorrected: Optional[int] = None
    """Lifetime uncorrected ECC errors."""

    nvlinks: List[Link] = field(default_factory=list)
    """NVLinks, by number."""

    remap_failed: Optional[bool] = None
    """Whether a row remapping failed."""

    remap_pending: Optional[bool] = None
    """Whether a row remapping is pending a reset."""

    remapped_corrected: Optional[int] = None
    """Rows remapped for corrected errors."""

    remapped_uncorrected: Optional[int] = None
    """Rows remapped for uncorrected errors."""

    retired_corrected: Optional[int] = None
    """Pages retired for corrected errors."""

    retired_pending: Optional[bool] = None
    """Whether page retirements are pending a reboot."""

    retired_uncorrected: Optional[int] = None
    """Pages retired for uncorrected errors."""


@dataclass(frozen=True)
class GpuJob:
    """A job that a GPU belongs to."""

    evidence: str
    """Evidence: `gres_index`, `process`, `whole_node`, `device_cgroup` or `visible_devices`."""

    job: int
    """Numeric job id."""


@dataclass(frozen=True)
class Limits:
    """Limits of the readings of a GPU."""

    mem_clock_max_mhz: Optional[int] = None
    """Maximum memory clock in MHz."""

    pcie_gen_max: Optional[int] = None
    """Maximum PCIe generation."""

    pcie_width_max: Optional[int] = None
    """Maximum PCIe link width in lanes."""

    power_default_w: Optional[int] = None
    """Default power limit in W."""

    power_max_w: Optional[int] = None
    """Maximum power limit in W."""

    sm_clock_max_mhz: Optional[int] = None
    """Maximum SM clock in MHz."""

    temp_shutdown_c: Optional[int] = None
    """Temperature at which it shuts down, in °C."""

    temp_slowdown_c: Optional[int] = None
    """Temperature at which it slows down, in °C."""


@dataclass(frozen=True)
class Mig:
    """A MIG instance."""

    compute_instance: Optional[int] = None
    """Compute instance id."""

    gpu_instance: Optional[int] = None
    """GPU instance id."""

    parent: Optional[str] = None
    """UUID of its GPU."""

    profile: Optional[str] = None
    """Profile: `3g.40gb`."""


@dataclass(frozen=True)
class Gpu:
    """A GPU or MIG instance."""

    connection: str
    """State of the connection to the probe of its node."""

    health: Health
    """Health."""

    index: int
    """Index of its driver on the node."""

    label: str
    """Label on the node: `GPU 0`, `AMD 0`."""

    limits: Limits
    """Limits of its readings."""

    may_have_job: bool
    """Whether a job may have it of which SLURM does not state the GPUs on this node."""

    node: str
    """Its node."""

    readings: GpuReadings
    """Readings."""

    unified_memory: bool
    """Whether its memory is the host's."""

    uuid: str
    """UUID, its identity."""

    vendor: str
    """Vendor: `nvidia`, `amd`, `intel`, `tpu`, or `unknown`."""

    absent: Dict[str, str] = field(default_factory=dict)
    """Reasons for readings without a value."""

    architecture: Optional[str] = None
    """Architecture: `Hopper`."""

    compute_capability: Optional[str] = None
    """CUDA compute capability: `9.0`."""

    compute_mode: Optional[str] = None
    """Compute mode."""

    ecc_mode: Optional[bool] = None
    """Whether ECC is enabled."""

    fault: Optional[str] = None
    """Reason why it cannot be read."""

    jobs: List[GpuJob] = field(default_factory=list)
    """Jobs that it belongs to."""

    mig: Optional[Mig] = None
    """The instance, if it is one."""

    mig_mode: Optional[bool] = None
    """Whether it is divided into MIG instances."""

    minor: Optional[int] = None
    """N of `/dev/nvidiaN`, which SLURM's GRES indices refer to."""

    name: Optional[str] = None
    """Model."""

    numa_node: Optional[int] = None
    """Nearest NUMA node."""

    pci: Optional[str] = None
    """PCI address: `00000000:07:00.0`."""

    persistence_mode: Optional[bool] = None
    """Whether the driver stays loaded without clients."""

    processes: Optional[int] = None
    """Number of processes on it, including processes that are not listed; `null` if they could not be
    read.
    """

    processes_absent: Optional[str] = None
    """Reason why the number of processes is unknown."""

    sampled_at: Optional[datetime] = None
    """Time of the newest sample."""

    serial: Optional[str] = None
    """Serial number."""

    vbios: Optional[str] = None
    """Version of the VBIOS."""


@dataclass(frozen=True)
class ArrayTask:
    """The array that a job is a task of."""

    job: int
    """Id of the array."""

    task: Optional[int] = None
    """Task id; `null` for the pending rest."""


@dataclass(frozen=True)
class JobBottleneck:
    """The limit of the speed of a job's GPUs."""

    evidence: str
    """The readings that show it: `SM activity 78 % · tensor cores 41 %`."""

    kind: str
    """The kind of limit."""


@dataclass(frozen=True)
class HetComponent:
    """The heterogeneous job that a job is a component of."""

    job: int
    """Id of the leader."""

    offset: int
    """Offset of the component."""


@dataclass(frozen=True)
class EpochProgress:
    """Progress within one epoch."""

    done: float
    """Number of its steps that are done."""

    number: float
    """Its number, as the log states it."""

    total: float
    """Total number of its steps."""


@dataclass(frozen=True)
class JobProgress:
    """Progress of a job's program by a counter in its log."""

    advanced_at: datetime
    """When `done` last grew."""

    done: float
    """Number of units that are done. Within an epoch, if the number of epochs is known, it includes the
    part of the epoch: 2.25 in the third one.
    """

    label: str
    """Unit of the counter as the log names it, masked: `epoch`, `step`, `%`; empty for a bar without a
    name.
    """

    earliest_end_at: Optional[datetime] = None
    """When all will be done at the earliest: the program's own estimate, or by the fastest part of the
    time observed.
    """

    epoch: Optional[EpochProgress] = None
    """The epoch that runs; `null` if the log does not state how far it is."""

    latest_end_at: Optional[datetime] = None
    """When all will be done at the latest: the program's own estimate, or by the slowest part of the time
    observed.
    """

    part_earliest_end_at: Optional[datetime] = None
    """When the bar will be full at the earliest, if it may count only a part of the run, as one is drawn
    for each epoch; `pct` is then of this part, and `earliest_end_at` is `null`.
    """

    part_latest_end_at: Optional[datetime] = None
    """When such a bar will be full at the latest."""

    pct: Optional[float] = None
    """The part that is done, in %; `null` if the log does not state the total."""

    rate_per_s: Optional[float] = None
    """Units per second; `null` until they can be measured."""

    total: Optional[float] = None
    """Total number of units; `null` if the log does not state it."""


@dataclass(frozen=True)
class JobSuspension:
    """The last time that a job was suspended, if its state is `SUSPENDED`, or else resumed. Neither its
    run time nor its time limit counts while it is suspended.
    """

    at: datetime
    """When it was suspended or resumed."""

    ran_s: int
    """Its run time until then, in s."""


@dataclass(frozen=True)
class JobTotals:
    """Sums over the GPUs of a job that can be read, on nodes that are connected; `null` where no GPU has
    the reading.
    """

    gpus: int
    """Number of its GPUs that are read."""

    mem_total_bytes: Optional[int] = None
    """Device memory in bytes."""

    mem_used_bytes: Optional[int] = None
    """Device memory in use, in bytes."""

    power_w: Optional[int] = None
    """Power draw in W."""

    temp_c: Optional[int] = None
    """Highest temperature in °C."""

    util_pct: Optional[float] = None
    """Mean utilisation in %."""


@dataclass(frozen=True)
class Job:
    """A SLURM job, array task or heterogeneous component, as last reported by SLURM."""

    id: int
    """Numeric job id (`squeue %A`)."""

    is_active: bool
    """Whether it holds nodes at present."""

    label: str
    """Job id as users write it: `17`, `3_0`, `4+1`."""

    name: str
    """Job name."""

    node_count: int
    """Number of nodes allocated or requested."""

    partition: str
    """Partition, or the requested list while pending."""

    restarts: int
    """Number of restarts."""

    state: str
    """SLURM's state: `PENDING`, `RUNNING`, `COMPLETED`, …; `ENDED` if the job only left the list."""

    totals: JobTotals
    """Sums over its GPUs."""

    user: str
    """Login name of the owner."""

    account: Optional[str] = None
    """Account."""

    array: Optional[ArrayTask] = None
    """The array that it is a task of."""

    bottleneck: Optional[JobBottleneck] = None
    """The limit of its GPUs' speed; `null` if there is no clear one. For the owner's relay only."""

    command: Optional[str] = None
    """Batch script or command."""

    cpus: Optional[int] = None
    """Number of CPUs allocated or requested."""

    dependency: Optional[str] = None
    """Dependencies as SLURM writes them."""

    ended_at: Optional[datetime] = None
    """End time."""

    exit_code: Optional[str] = None
    """Exit code and signal as SLURM writes them: `1:0`, `0:9`."""

    foreign_gpus: List[str] = field(default_factory=list)
    """UUIDs of further GPUs that its processes use, although SLURM has not allocated them to it."""

    gpu_count: Optional[int] = None
    """Number of GPUs allocated or requested."""

    gpus: List[str] = field(default_factory=list)
    """UUIDs of its known GPUs; `totals` are sums over them."""

    het: Optional[HetComponent] = None
    """The heterogeneous job that it is a component of."""

    mem_bytes: Optional[int] = None
    """Memory allocated or requested, in bytes."""

    nodes: List[str] = field(default_factory=list)
    """Its nodes, in SLURM's order; empty while pending."""

    progress: Optional[JobProgress] = None
    """Progress of its program, by the counters in its logs; for the owner's running jobs."""

    qos: Optional[str] = None
    """Quality of service."""

    reason: Optional[str] = None
    """SLURM's reason code while pending or after a failure."""

    reason_text: Optional[str] = None
    """Meaning of the reason, and advice."""

    started_at: Optional[datetime] = None
    """Start time; while pending, the start that SLURM expects."""

    stderr: Optional[str] = None
    """Path of the standard error."""

    stdout: Optional[str] = None
    """Path of the standard output."""

    submitted_at: Optional[datetime] = None
    """Submit time."""

    suspension: Optional[JobSuspension] = None
    """When it was last suspended or resumed; `null` if it never was."""

    time_limit_s: Optional[int] = None
    """Time limit in s; `null` if there is none or SLURM does not report it."""

    workdir: Optional[str] = None
    """Working directory."""


@dataclass(frozen=True)
class Driver:
    """The driver of a vendor on a node."""

    vendor: str
    """Vendor: `nvidia`, `amd`, `intel`, `tpu`, or `unknown`."""

    library: Optional[str] = None
    """Version of the library that readings come from."""

    platform: Optional[str] = None
    """Newest version of CUDA, ROCm, Level Zero or libtpu that it supports."""

    reason: Optional[str] = None
    """Reason why it is not available, or sees only some accelerators."""

    version: Optional[str] = None
    """Version of the kernel driver."""


@dataclass(frozen=True)
class NodeEvent:
    """An event of a GPU."""

    at: datetime
    """When."""

    text: str
    """The message."""

    gpu: Optional[str] = None
    """UUID of the GPU."""

    xid: Optional[int] = None
    """Number of the Xid error, if it is one."""


@dataclass(frozen=True)
class NodeJob:
    """Resource usage of a job on a node."""

    job: int
    """Numeric job id."""

    readings: JobReadings
    """Readings of the job's cgroup on the node."""

    absent: Dict[str, str] = field(default_factory=dict)
    """Reasons for readings without a value."""


@dataclass(frozen=True)
class Node:
    """A node of a job, or a listed machine."""

    connection: str
    """State of the connection to its probe."""

    interval_ms: int
    """Sampling interval in ms."""

    name: str
    """Name in SLURM or in the list of machines."""

    readings: HostReadings
    """Readings of the host."""

    absent: Dict[str, str] = field(default_factory=dict)
    """Reasons for readings of the host without a value."""

    advice: Optional[str] = None
    """Advice on how to restore it."""

    cpu_model: Optional[str] = None
    """Model of its CPUs."""

    cpus: Optional[int] = None
    """Number of CPUs."""

    driver_stuck_ms: Optional[int] = None
    """Time for which the driver has not responded, in ms."""

    drivers: List[Driver] = field(default_factory=list)
    """Drivers of its accelerators."""

    events: List[NodeEvent] = field(default_factory=list)
    """Events of its GPUs, oldest first."""

    gpus: List[str] = field(default_factory=list)
    """UUIDs of its GPUs and MIG instances."""

    group: Optional[str] = None
    """Group in the list of machines."""

    hostname: Optional[str] = None
    """Host name (`uname -n`)."""

    jobs: List[NodeJob] = field(default_factory=list)
    """Running jobs on it, with what they use of its CPUs and memory."""

    kernel: Optional[str] = None
    """Kernel release."""

    no_gpu: Optional[str] = None
    """Reason for the absence of GPUs."""

    reason: Optional[str] = None
    """Reason for the missing connection."""

    remarks: List[str] = field(default_factory=list)
    """Remarks that are not faults."""

    retry_at: Optional[datetime] = None
    """Time of the next attempt to connect."""

    sampled_at: Optional[datetime] = None
    """Time of the newest sample."""

    topology: List[List[Optional[str]]] = field(default_factory=list)
    """Paths between its GPUs without MIG instances, in their order, as `nvidia-smi topo -m` names them:
    `NV18` (18 NVLinks), `PIX`, `PXB`, `PHB`, `NODE`, `SYS`, `X` for the same GPU, `null` if the driver
    does not state it. Empty if none is known.
    """


@dataclass(frozen=True)
class ContainerInfo:
    """Container of a process."""

    runtime: str
    """Runtime: `apptainer`, `enroot`, `docker`, `podman`, `kubernetes`, or `other`."""

    name: Optional[str] = None
    """Image name or short id."""


@dataclass(frozen=True)
class ProcessRank:
    """Rank of a task in a parallel program."""

    global_: int
    """Rank among all."""

    local: Optional[int] = None
    """Rank on its node."""

    world: Optional[int] = None
    """Number of ranks."""


@dataclass(frozen=True)
class Process:
    """A process on one GPU. A process on several GPUs has an entry for each."""

    gpu: str
    """UUID of the GPU or MIG instance."""

    node: str
    """Its node."""

    pid: int
    """Process id on the node."""

    readings: ProcessReadings
    """Readings."""

    absent: Dict[str, str] = field(default_factory=dict)
    """Reasons for readings without a value."""

    args: Optional[str] = None
    """Command line with secrets masked; `null` if it is hidden."""

    command: Optional[str] = None
    """Name (`/proc/PID/comm`)."""

    container: Optional[ContainerInfo] = None
    """The container that it runs in."""

    contexts: List[str] = field(default_factory=list)
    """Contexts that it has on the GPU."""

    cwd: Optional[str] = None
    """Working directory; `null` if it is hidden."""

    gpu_index: Optional[int] = None
    """Index of the GPU on its node."""

    job: Optional[int] = None
    """SLURM job."""

    parent: Optional[int] = None
    """Process id of its parent."""

    rank: Optional[ProcessRank] = None
    """Rank in a parallel program."""

    started_at: Optional[datetime] = None
    """Start time."""

    state: Optional[str] = None
    """State of the process."""

    step: Optional[str] = None
    """Step of the job."""

    user: Optional[str] = None
    """Login name, or the uid in digits."""


@dataclass(frozen=True)
class Snapshot:
    """Everything that a viewer may see at one moment."""

    at: Optional[datetime] = None
    """When it was taken; while a recording is played, the time in the recording."""

    findings: List[Finding] = field(default_factory=list)
    """Findings: active ones, the worst first, then those that ended within the last hour."""

    gpus: List[Gpu] = field(default_factory=list)
    """GPUs and MIG instances of these nodes."""

    jobs: List[Job] = field(default_factory=list)
    """Jobs, running ones first."""

    nodes: List[Node] = field(default_factory=list)
    """Nodes of running jobs, and listed machines, by name."""

    processes: List[Process] = field(default_factory=list)
    """Processes on these GPUs: one entry per process and GPU."""


@dataclass(frozen=True)
class Silence:
    """A time in which some findings are not reported: listed as silenced, and never a notice."""

    until: datetime
    """When it ends."""

    job: Optional[int] = None
    """Numeric id of the job, array or heterogeneous job; `null` if of all jobs."""

    job_label: Optional[str] = None
    """Its id as SLURM prints it, `48440_15`; `null` without a job."""

    kind: Optional[str] = None
    """The kind that is silenced; `null` for all kinds."""
