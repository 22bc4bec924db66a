"""How the relay itself is doing.

Written by `tools/generate_models.py`; do not edit.
"""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional


@dataclass(frozen=True)
class LauncherStatus:
    """How a relay starts probes on nodes."""

    name: str
    """`ssh2` (built-in SSH), `openssh` (the system's ssh), `srun` (job steps), `local` (child processes),
    `scripted`.
    """

    reason: Optional[str] = None
    """Why it replaced the one that was tried first, a complete sentence."""


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
    """What to do about it."""

    retry_in_s: Optional[int] = None
    """Time until the next attempt."""


@dataclass(frozen=True)
class StatusReport:
    """The response of `GET /status`. Ages and durations are in s."""

    build: str
    """Build id of the relay."""

    uptime_s: int
    """Time since the relay started."""

    launcher: Optional[LauncherStatus] = None
    """How probes are started, and why another way was given up."""

    nodes: Dict[str, int] = field(default_factory=dict)
    """Number of nodes by the state of their connection; see `state`."""

    notices: List[str] = field(default_factory=list)
    """Problems with the list of machines, complete sentences."""

    slurm: Any = None
    """The job list."""

    unreachable: List[Unreachable] = field(default_factory=list)
    """Nodes without a connection, and why."""
