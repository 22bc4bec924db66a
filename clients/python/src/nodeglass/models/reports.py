"""What is kept of jobs: history, reports, usage and notes.

Written by `tools/generate_models.py`; do not edit.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import List, Optional


@dataclass(frozen=True)
class Series:
    """History of one metric of one GPU or host, a value per step; `null` for a step without a sample."""

    metric: str
    """The metric, with its unit at its end: `util_pct`."""

    node: str
    """The node."""

    gpu: Optional[str] = None
    """UUID of the GPU; `null` for the host."""

    max: List[Optional[int]] = field(default_factory=list)
    """Highest values; of a bit mask, all bits that were set."""

    mean: List[Optional[int]] = field(default_factory=list)
    """Mean values; of a bit mask, all bits that were set."""

    min: List[Optional[int]] = field(default_factory=list)
    """Lowest values; of a bit mask, the bits that were always set."""


@dataclass(frozen=True)
class History:
    """History of some metrics over a range of time. All series have the same steps."""

    start: datetime
    """Start of the first step."""

    step_s: int
    """Length of a step in s; it may be longer than requested, where only that is kept."""

    steps: int
    """Number of steps."""

    kept_since: Optional[datetime] = None
    """Start of the history that is kept, if there is any."""

    series: List[Series] = field(default_factory=list)
    """One series per metric and GPU or host that has a value in the range."""


@dataclass(frozen=True)
class Accounting:
    """Statement of SLURM's accounting (`sacct`) about an ended job."""

    ended_s: int
    """End, in s since 1970."""

    exit_code: int
    """Exit code of the batch script."""

    state: str
    """State, such as `COMPLETED` or `CANCELLED by 2001`."""

    elapsed_s: Optional[int] = None
    """Run time in s."""

    max_rss_bytes: Optional[int] = None
    """Most memory of one task in any step (`MaxRSS`), in bytes."""

    reason: Optional[str] = None
    """Last reason why the job waited, or why it failed."""

    signal: Optional[int] = None
    """Signal that ended it."""

    step_exit_code: Optional[int] = None
    """Highest exit code of the job's steps (`DerivedExitCode`)."""


@dataclass(frozen=True)
class Advice:
    """One piece of advice."""

    text: str
    """The observation, a complete sentence with its numbers."""

    sbatch: Optional[str] = None
    """The line of the batch script that would have fitted, if one would."""


@dataclass(frozen=True)
class CaptureGroup:
    """Processes that stand at the same place."""

    caller: str
    """Innermost frame of the user's own code above it: `train_step (train.py:88)`; empty if unknown."""

    count: int
    """Number of processes."""

    frame: str
    """The frame: `all_reduce (torch/distributed/distributed_c10d.py:2501)`, or `futex_wait_queue (system
    call futex), sleeping` without a Python stack.
    """

    ranks: str
    """Their ranks in short: `0-34, 36-63`; empty if unknown."""

    details: List[str] = field(default_factory=list)
    """State, threads and connections of the first of them, a statement each; at most `MAX_LINES`."""

    places: List[str] = field(default_factory=list)
    """Places of some of them: `gpu-h05 GPU 3`."""

    stack: List[str] = field(default_factory=list)
    """Stack of the first of them, innermost frame first; at most `MAX_LINES`."""


@dataclass(frozen=True)
class FindingCapture:
    """The places where the processes of a job stood when a finding began."""

    at_ms: int
    """When it was captured, in ms since 1970 by the login node's clock."""

    missing: int
    """Number of processes without any information."""

    others: int
    """Number of processes in further groups."""

    files: List[str] = field(default_factory=list)
    """Files that may explain more, with node, size and age; at most `MAX_NOTES`."""

    groups: List[CaptureGroup] = field(default_factory=list)
    """Processes that stand at the same place, most first; at most `MAX_GROUPS`."""

    notes: List[str] = field(default_factory=list)
    """Limits of the capture with their reasons; complete sentences, at most `MAX_NOTES`."""


@dataclass(frozen=True)
class FindingGpu:
    """A GPU that a finding is about."""

    node: str
    """Its node."""

    uuid: str
    """Its UUID."""

    metric: Optional[str] = None
    """The metric whose graph shows it, by name in the catalogue."""


@dataclass(frozen=True)
class ReportWastedBefore:
    """GPU-time lost to a finding up to a moment; from then on, `wasted_gpus` counts."""

    gpu_ms: int
    """GPU-time in ms."""

    until_ms: int
    """The moment, in ms since 1970. It is in the future while the detector measures the loss itself, or
    while the finding is not seen and may be over.
    """


@dataclass(frozen=True)
class ReportFinding:
    """One finding."""

    advice: str
    """Advice on how to solve it."""

    confidence_pct: int
    """Confidence in %."""

    found_ms: int
    """When it was found, in ms since 1970."""

    key: str
    """Kind and subject, the same for as long as it lasts: `straggler/17/GPU-2f…`."""

    kind: str
    """Kind."""

    or_earlier: bool
    """Whether it may have begun earlier, before it could be seen."""

    reason: str
    """The problem in a few words: `GPU 3 too hot`."""

    severity: str
    """Severity."""

    since_ms: int
    """When it began, in ms since 1970 by the login node's clock."""

    title: str
    """The problem and its place, one sentence without a full stop."""

    wasted_gpus: int
    """Number of GPUs that do no useful work because of it."""

    capture: Optional[FindingCapture] = None
    """The places of the job's processes when it began, if captured; never sent to guests."""

    ended_ms: Optional[int] = None
    """When it ended, in ms since 1970; `None` while it lasts."""

    evidence: List[str] = field(default_factory=list)
    """The numbers that show it, a statement each."""

    gpus: List[FindingGpu] = field(default_factory=list)
    """GPUs that it is about."""

    jobs: List[int] = field(default_factory=list)
    """Jobs that it affects; empty for a machine without a job."""

    nodes: List[str] = field(default_factory=list)
    """Nodes on which it was found."""

    silenced_until_ms: Optional[int] = None
    """Until when it is silenced, in ms since 1970; `None` if it is not."""

    wasted_before: Optional[ReportWastedBefore] = None
    """GPU-time lost to it while `wasted_gpus` was another number, or that its detector measures instead;
    `None` if `wasted_gpus` and the time since its start state it.
    """


@dataclass(frozen=True)
class Throttled:
    """Time for which clocks were throttled for one reason."""

    reason: str
    """The reason."""

    seconds: float
    """Sum over the GPUs, in s."""


@dataclass(frozen=True)
class GpuReport:
    """One GPU of a job."""

    fault_s: float
    """Time in which it could not be read, in s."""

    index: int
    """Its index there."""

    node: str
    """Its node."""

    observed_s: float
    """Observed time in s."""

    uuid: str
    """Its UUID."""

    xids: int
    """Xid errors."""

    ecc_corrected: Optional[int] = None
    """Corrected ECC errors."""

    ecc_uncorrected: Optional[int] = None
    """Uncorrected ECC errors."""

    energy_kwh: Optional[float] = None
    """Energy in kWh."""

    idle_s: Optional[float] = None
    """Time at 5 % utilisation or less, in s."""

    mem_peak_bytes: Optional[int] = None
    """Most memory in use, in bytes."""

    mem_total_bytes: Optional[int] = None
    """Size of the memory, in bytes."""

    model: Optional[str] = None
    """Model."""

    sm_clock_mhz: Optional[float] = None
    """Mean SM clock, or core clock of another vendor, in MHz."""

    throttled: List[Throttled] = field(default_factory=list)
    """Throttling."""

    util_distribution_pct: Optional[List[float]] = None
    """Share of the time in each tenth of the scale of utilisation, in %."""

    util_pct: Optional[float] = None
    """Mean utilisation in %; of a MIG instance, SM activity."""


@dataclass(frozen=True)
class Note:
    """A note."""

    at_ms: int
    """When it applies, in ms since 1970 by the login node's clock."""

    id: int
    """Its id."""

    source: str
    """The source of the note."""

    text: str
    """The text; never empty."""

    job: Optional[int] = None
    """The job that it concerns; `None` for the node or the whole cluster."""

    node: Optional[str] = None
    """The node that it concerns; `None` for all of the job's, or the whole cluster."""

    rank: Optional[int] = None
    """The rank of the parallel job that wrote it."""


@dataclass(frozen=True)
class Cost:
    """An amount of money."""

    amount: float
    """The amount."""

    currency: str
    """Its currency, or another unit of account, as configured."""


@dataclass(frozen=True)
class Totals:
    """Sums over all GPUs and nodes of a job."""

    energy_known_pct: float
    """Share of the allocated GPU time in which power was known, in %."""

    gpu_hours_allocated: float
    """GPUs × run time, in h."""

    gpu_hours_hung: float
    """GPU time of collective hangs, in h: busy by its utilisation, and lost."""

    gpu_hours_idle: float
    """Observed time at 5 % utilisation or less, in h."""

    gpu_hours_observed: float
    """Part of it for which there are samples, in h."""

    gpu_hours_slowed: float
    """Part of `gpu_hours_used` that findings state as lost to GPUs slower than their peers, in h: the
    others waited for them.
    """

    gpu_hours_unused: float
    """Observed time with a known utilisation that was not used, in h: `gpu_hours_idle`, `gpu_hours_hung`,
    and what busy GPUs had left.
    """

    gpu_hours_used: float
    """Integral of utilisation over the observed time without hangs, in h."""

    gpus: int
    """Number of GPUs by SLURM, else as observed."""

    usage_known_pct: float
    """Share of the run for which traffic, and CPUs and memory of the job, are known, in %: probes do not
    keep these from before the relay's first sample. 100 if none of them is ever known.
    """

    xids: int
    """Xid errors."""

    co2_kg: Optional[float] = None
    """Emissions of the known energy in kg of CO₂, if the relay knows the emissions of a kWh."""

    cost: Optional[Cost] = None
    """Price of the allocated GPU hours, if the relay was given one."""

    cpus_allocated: Optional[int] = None
    """CPUs allocated."""

    cpus_peak: Optional[float] = None
    """Sum of the highest numbers of CPUs used on each node."""

    cpus_used: Optional[float] = None
    """Mean number of CPUs used, on all nodes."""

    ecc_corrected: Optional[int] = None
    """Corrected ECC errors."""

    ecc_uncorrected: Optional[int] = None
    """Uncorrected ECC errors."""

    energy_kwh: Optional[float] = None
    """Energy of the GPUs while their power was known, in kWh."""

    gpu_mem_peak_bytes: Optional[int] = None
    """Most memory in use of one GPU, in bytes."""

    gpu_mem_total_bytes: Optional[int] = None
    """Memory of one GPU, in bytes."""

    link_rx_bytes: Optional[float] = None
    """Received over NVLink or the links of another vendor, in bytes."""

    link_tx_bytes: Optional[float] = None
    """Sent over NVLink, in bytes."""

    mem_peak_bytes: Optional[int] = None
    """Sum of the most memory used on each node, in bytes."""

    mem_requested_bytes: Optional[int] = None
    """Memory requested, in bytes."""

    nodes_disk_read_bytes: Optional[float] = None
    """Read from local disks by them, in bytes."""

    nodes_disk_write_bytes: Optional[float] = None
    """Written to local disks by them, in bytes."""

    nodes_net_rx_bytes: Optional[float] = None
    """Received from the network by all of the job's nodes as a whole, in bytes."""

    nodes_net_tx_bytes: Optional[float] = None
    """Sent to the network by them, in bytes."""

    oom_kills: Optional[int] = None
    """Processes killed at the memory limit."""

    pcie_rx_bytes: Optional[float] = None
    """Received over PCIe, in bytes."""

    pcie_tx_bytes: Optional[float] = None
    """Sent over PCIe, in bytes."""

    sm_clock_mhz: Optional[float] = None
    """Mean SM clock, or core clock of another vendor, in MHz."""

    throttled: List[Throttled] = field(default_factory=list)
    """Throttling of all GPUs."""

    util_distribution_pct: Optional[List[float]] = None
    """Share of the time in each tenth of the scale of utilisation, in %."""

    util_pct: Optional[float] = None
    """Mean utilisation in %; of MIG instances, SM activity."""


@dataclass(frozen=True)
class Report:
    """Report of a job's resource usage. A value that was never known is absent, not zero."""

    at_s: int
    """Time of the report, in s since 1970."""

    elapsed_s: int
    """Run time in s."""

    is_final: bool
    """Whether the job has ended."""

    job: int
    """Numeric job id."""

    label: str
    """Job id as users write it."""

    lacks_notes: bool
    """Whether notes of the job may be missing: stored ones could not be read, or the job has as many as
    are kept.
    """

    name: str
    """Job name."""

    node_count: int
    """Number of nodes allocated."""

    observed_pct: float
    """Share of the run time, on all nodes, for which there are samples, in %."""

    partition: str
    """Partition."""

    state: str
    """SLURM's state, such as `RUNNING`, `COMPLETED` or `TIMEOUT`; empty if the job only left the list."""

    totals: Totals
    """Sums over all GPUs and nodes."""

    user: str
    """Owner."""

    account: Optional[str] = None
    """Account."""

    accounting: Optional[Accounting] = None
    """Statement of SLURM's accounting, if it exists and the job has ended."""

    advice: List[Advice] = field(default_factory=list)
    """Advice on a better request for such a job."""

    application: Optional[str] = None
    """Detected application."""

    ended_s: Optional[int] = None
    """End, in s since 1970."""

    exit: Optional[str] = None
    """Exit code and signal as SLURM writes them."""

    findings: List[ReportFinding] = field(default_factory=list)
    """Findings during its run, by time; at most `MAX_FINDINGS`."""

    gpus: List[GpuReport] = field(default_factory=list)
    """Each GPU."""

    limit_s: Optional[int] = None
    """Time limit in s, if there is one."""

    nodes: List[str] = field(default_factory=list)
    """Nodes of which samples were taken."""

    notes: List[Note] = field(default_factory=list)
    """Notes of the job, by time, from its submission on."""

    start_s: Optional[int] = None
    """Start, in s since 1970."""


@dataclass(frozen=True)
class JobUsage:
    """One job among many."""

    elapsed_s: int
    """Run time in s."""

    gpu_hours_allocated: float
    """See `Totals::gpu_hours_allocated`."""

    gpu_hours_hung: float
    """See `Totals::gpu_hours_hung`; a part of the unused ones."""

    gpu_hours_observed: float
    """See `Totals::gpu_hours_observed`."""

    gpu_hours_slowed: float
    """See `Totals::gpu_hours_slowed`; a part of the used ones."""

    gpu_hours_unused: float
    """See `Totals::gpu_hours_unused`."""

    gpu_hours_used: float
    """See `Totals::gpu_hours_used`."""

    gpus: int
    """Number of GPUs."""

    is_final: bool
    """Whether the job has ended."""

    job: int
    """Job id."""

    label: str
    """Job id as users write it."""

    name: str
    """Job name."""

    observed_pct: float
    """See `Report::observed_pct`."""

    state: str
    """See `Report::state`."""

    start_s: Optional[int] = None
    """Start, in s since 1970."""

    util_pct: Optional[float] = None
    """Mean utilisation in %."""


@dataclass(frozen=True)
class UsageSums:
    """Sums over jobs."""

    gpu_hours_allocated: float
    """See `Totals::gpu_hours_allocated`."""

    gpu_hours_hung: float
    """See `Totals::gpu_hours_hung`; a part of the unused ones."""

    gpu_hours_idle: float
    """See `Totals::gpu_hours_idle`; a part of the unused ones."""

    gpu_hours_observed: float
    """See `Totals::gpu_hours_observed`. All that follows is of these hours."""

    gpu_hours_slowed: float
    """See `Totals::gpu_hours_slowed`; a part of the used ones."""

    gpu_hours_unused: float
    """See `Totals::gpu_hours_unused`."""

    gpu_hours_used: float
    """See `Totals::gpu_hours_used`."""

    jobs: int
    """Number of jobs."""

    jobs_unobserved: int
    """Number of jobs without an observation: `sacct` states their allocation."""

    co2_kg: Optional[float] = None
    """See `Totals::co2_kg`."""

    costs: List[Cost] = field(default_factory=list)
    """See `Totals::cost`; one amount per currency."""

    energy_kwh: Optional[float] = None
    """See `Totals::energy_kwh`."""


@dataclass(frozen=True)
class ProjectUsage:
    """The jobs of one project."""

    project: str
    """The account, else the job name without the numbers at its end."""

    sums: UsageSums
    """Sums over its jobs."""


@dataclass(frozen=True)
class WeekUsage:
    """The jobs that started in one week."""

    monday_s: int
    """Its Monday, 0 h in the time zone of the relay, in s since 1970."""

    sums: UsageSums
    """Sums over its jobs."""


@dataclass(frozen=True)
class Usage:
    """Resource usage of all jobs of the last days."""

    days: int
    """Number of days, up to now, in which the jobs started."""

    total: UsageSums
    """All of them."""

    incomplete: Optional[str] = None
    """Reason why jobs that ended while no relay ran may be missing, a complete sentence; absent if `sacct`
    listed them.
    """

    jobs: List[JobUsage] = field(default_factory=list)
    """The newest jobs, newest first."""

    projects: List[ProjectUsage] = field(default_factory=list)
    """By project, most unused GPU hours first."""

    wasteful: List[JobUsage] = field(default_factory=list)
    """The jobs with the most unused GPU hours, worst first."""

    weeks: List[WeekUsage] = field(default_factory=list)
    """By week of their start, newest first."""


@dataclass(frozen=True)
class NodeFault:
    """One kind of fault of a GPU or of a node as a whole, as found during jobs."""

    first_ms: int
    """When it began first, in ms since 1970."""

    is_active: bool
    """Whether it lasted when the report was made."""

    jobs: int
    """Number of jobs that it affected."""

    kind: str
    """The kind of finding."""

    last_ms: int
    """When it was last seen, in ms since 1970."""

    lasted_s: int
    """For how long it lasted in all, in s; 0 for an event such as an Xid."""

    node: str
    """The node."""

    severity: str
    """The worst severity."""

    times: int
    """Number of such findings."""

    title: str
    """The latest title."""

    gpu: Optional[int] = None
    """Index of the GPU; `None` if the fault is of the node as a whole."""


@dataclass(frozen=True)
class SavedNote:
    """A note that was added or changed."""

    is_stored: bool
    """Whether it is on the relay's disk; otherwise it is lost with the relay unless that succeeds later."""

    note: Note
    """The note as it is now."""
