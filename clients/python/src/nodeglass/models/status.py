"""How the relay itself is doing.

Written by `tools/generate_models.py`; do not edit.
"""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional


@dataclass(frozen=True)
class ConnectionLosses:
    """Losses of the connections to a node since the relay began to watch it."""

    attempts: int
    """Number of attempts to start a probe, including the one that succeeded."""

    lost_samples: int
    """Number of samples that the probe took, and that neither arrived nor were recovered after an
    interruption. Samples of a probe that ended without a successor are not known.
    """

    node: str
    """The node."""

    unreadable_lines: int
    """Number of lines of the probe that could not be read."""

    job: Optional[int] = None
    """The job in which the probe runs, if it runs beside the node's own."""


@dataclass(frozen=True)
class FrameStatus:
    """Frames for pages and other viewers."""

    coalesced: int
    """Frames since the start that viewers did not receive because they read too slowly; each viewer then
    received a snapshot of the newest state instead.
    """

    viewers: int
    """Connected viewers."""


@dataclass(frozen=True)
class LateNode:
    """A node that is connected, but has not sent what was due."""

    node: str
    """The node."""

    state: str
    """`late` (a sample is overdue) or `silent` (no data for long)."""

    driver_stuck_s: Optional[int] = None
    """Duration of the driver call that the probe waits for, if its driver does not respond."""

    sample_age_s: Optional[int] = None
    """Age of its newest sample; `null` if it has sent none."""


@dataclass(frozen=True)
class LauncherStatus:
    """The launcher with which a relay starts probes on nodes."""

    name: str
    """`ssh2` (built-in SSH), `openssh` (the system's ssh), `srun` (job steps), `local` (child processes),
    `scripted`.
    """

    reason: Optional[str] = None
    """Reason for replacing the launcher that was tried first, a complete sentence."""


@dataclass(frozen=True)
class ChannelStatus:
    """Delivery of the notices of a channel since the relay's start."""

    channel: str
    """`webhook`, `command` or `mail`."""

    delivered: int
    """Number of notices that were accepted."""

    dropped: int
    """Number of notices that were left out because too many waited."""

    failed: int
    """Number of notices that were given up after their attempts failed."""


@dataclass(frozen=True)
class AutoExit:
    """When the relay exits by itself."""

    after_s: int
    """Time without jobs, viewers and requests after which it exits, in s."""

    unused_s: int
    """Time without any up to now, in s."""


@dataclass(frozen=True)
class OwnLoad:
    """Limits of the relay's process, and what it does to keep them."""

    auto_exit: Optional[AutoExit] = None
    """When the relay exits by itself; `null` if it does not (`auto-exit`)."""

    cpu_limited_by: Optional[str] = None
    """Means of the limit: `cgroup`, `systemd_scope` or `slower_sampling`; `null` without a limit."""

    cpu_max_pct: Optional[int] = None
    """CPU time in % of a core that it may use (`cpu-max`, or a limit of the site); `null` without a limit."""

    dropped_history: Optional[str] = None
    """Reason for dropping history, about memory; `null` while it is as large as configured."""

    memory_limited_by: Optional[str] = None
    """Means of the limit: `cgroup`, `systemd_scope` or `dropped_history`; `null` without a limit."""

    memory_max_bytes: Optional[int] = None
    """Memory in bytes that it may use (`memory-max`, or a limit of the site); `null` without a limit."""

    slower_sampling: Optional[str] = None
    """Reason for sampling nodes more slowly, about CPU time; `null` while they are not."""


@dataclass(frozen=True)
class ProbeStatus:
    """CPU and memory of a connected probe."""

    cpu_ms: int
    """CPU time since its start, in ms."""

    node: str
    """Its node."""

    rss_bytes: int
    """Memory in RAM, in bytes."""

    job: Optional[int] = None
    """The job in which it runs, if it runs beside the node's own."""


@dataclass(frozen=True)
class ProbesStatus:
    """CPU and memory of the connected probes. Each reports them once a minute; a probe that has not yet is
    left out.
    """

    cpu_ms: int
    """CPU time of all listed probes since their start, in ms."""

    rss_bytes: int
    """Their memory in RAM, in bytes."""

    each: List[ProbeStatus] = field(default_factory=list)
    """Each of them, by node."""


@dataclass(frozen=True)
class ProcessStatus:
    """CPU and memory of the relay's process."""

    cpu_ms: int
    """CPU time since the start, in ms, to 10 ms."""

    rss_bytes: Optional[int] = None
    """Memory in RAM, in bytes; `null` if the kernel does not state it."""


@dataclass(frozen=True)
class RemoteWriteStatus:
    """Delivery of the metrics by remote write since the relay's start, in samples."""

    dropped: int
    """Number of samples that were dropped because the spool was full or could not be read."""

    pending: int
    """Number of samples that wait, in memory and in the spool."""

    pending_bytes: int
    """Size of what waits, in bytes."""

    refused: int
    """Number of samples that the server refused for good, with a status such as 400."""

    retries: int
    """Number of requests that failed and are repeated."""

    sent: int
    """Number of samples that the server accepted."""

    sent_bytes: int
    """Size of the accepted requests, in bytes."""


@dataclass(frozen=True)
class Unreachable:
    """A node without a connection."""

    node: str
    """The node."""

    reason: str
    """The error."""

    state: str
    """`down` (it is retried) or `refused` (it needs the user)."""

    advice: Optional[str] = None
    """The remedy."""

    retry_in_s: Optional[int] = None
    """Time until the next attempt."""


@dataclass(frozen=True)
class UnstoredRecords:
    """Number of records since the relay's start that could not be stored, because the disk failed or was
    too slow.
    """

    audit: int
    """Entries of the audit log."""

    history: int
    """Parts of the history, of about a minute each, and last pictures of ended jobs."""

    jobs: int
    """Sums of what ended jobs used."""

    recording: int
    """Events of the recording."""


@dataclass(frozen=True)
class StatusReport:
    """The response of `GET /status`. Ages and durations are in s."""

    build: str
    """Build id of the relay."""

    frames: FrameStatus
    """Frames for pages."""

    own_load: OwnLoad
    """Limits of the relay, and what it does to keep them."""

    probes: ProbesStatus
    """CPU and memory of the probes."""

    process: ProcessStatus
    """CPU and memory of the relay."""

    unstored: UnstoredRecords
    """Number of records that could not be stored."""

    uptime_s: int
    """Time since the relay started."""

    connections: List[ConnectionLosses] = field(default_factory=list)
    """Attempts to connect to each node, and what was lost on its connections, by node."""

    late: List[LateNode] = field(default_factory=list)
    """Nodes with a connection whose samples are overdue."""

    launcher: Optional[LauncherStatus] = None
    """Launcher of probes, and the reason for giving up another one."""

    nodes: Dict[str, int] = field(default_factory=dict)
    """Number of nodes by the state of their connection; see `state`."""

    notices: List[str] = field(default_factory=list)
    """Problems of the relay: its list of machines, what it cannot store, CPU time or memory that it lacks.
    Complete sentences.
    """

    notifications: List[ChannelStatus] = field(default_factory=list)
    """Delivery of notices about findings and jobs, by channel; empty if no channel is configured."""

    remote_write: Optional[RemoteWriteStatus] = None
    """Delivery of the metrics by remote write; `null` if it is not configured."""

    sample_interval_ms: Optional[int] = None
    """Longest time between two samples of a connected node, in ms; `null` without one. It grows to the
    idle interval once nobody watches.
    """

    slow_sampling: Optional[str] = None
    """Reason for sampling nodes rarely, and its end; `null` while they are not."""

    slurm: Any = None
    """The job list."""

    unreachable: List[Unreachable] = field(default_factory=list)
    """Nodes without a connection, and why."""
