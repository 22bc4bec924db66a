"""nvitop's `host`: CPU, memory and load of a node, as the relay reads them.

Without `node`, each function is about this machine, or the only node that the relay watches. What is not known is `NA`.
psutil's other names are not here: processes of other machines are in `Device.processes`.
"""

import getpass
from typing import NamedTuple, Optional, Tuple, Union

from . import _visible, models
from ._default import default_client
from .client import Client
from .na import NA, NaType, known

MaybeInt = Union[int, NaType]
MaybeFloat = Union[float, NaType]


class VirtualMemory(NamedTuple):
    """Memory in bytes with psutil's names; `percent` of it is not available."""

    total: MaybeInt
    available: MaybeInt
    percent: MaybeFloat
    used: MaybeInt


class SwapMemory(NamedTuple):
    """Swap in bytes with psutil's names; `percent` of it is used."""

    total: MaybeInt
    used: MaybeInt
    free: MaybeInt
    percent: MaybeFloat


def getuser() -> str:
    """Login name of this process's user."""
    return getpass.getuser()


def hostname(node: Optional[str] = None, *, client: Optional[Client] = None) -> str:
    """Host name, as `uname -n` prints it; the name of the node until that is known."""
    found = _node(node, client)
    return found.hostname or found.name


def uptime(node: Optional[str] = None, *, client: Optional[Client] = None) -> MaybeInt:
    """Time since the boot in s."""
    return known(_node(node, client).readings.uptime_s)


def cpu_count(node: Optional[str] = None, *, client: Optional[Client] = None) -> MaybeInt:
    """Number of CPUs."""
    return known(_node(node, client).cpus)


def cpu_percent(node: Optional[str] = None, *, client: Optional[Client] = None) -> MaybeInt:
    """Utilisation of all CPUs together in %, since the sample before."""
    return known(_node(node, client).readings.cpu_pct)


def load_average(
    node: Optional[str] = None, *, client: Optional[Client] = None
) -> Tuple[MaybeFloat, MaybeFloat, MaybeFloat]:
    """Load averages of 1, 5 and 15 min. The relay reads the first one only; the others are `NA`."""
    return load_of(_node(node, client).readings), NA, NA


def virtual_memory(node: Optional[str] = None, *, client: Optional[Client] = None) -> VirtualMemory:
    """Memory of the host."""
    return memory_of(_node(node, client).readings)


def memory_percent(node: Optional[str] = None, *, client: Optional[Client] = None) -> MaybeFloat:
    """Share of the memory that is not available, in %."""
    return virtual_memory(node, client=client).percent


def swap_memory(node: Optional[str] = None, *, client: Optional[Client] = None) -> SwapMemory:
    """Swap of the host."""
    return swap_of(_node(node, client).readings)


def swap_percent(node: Optional[str] = None, *, client: Optional[Client] = None) -> MaybeFloat:
    """Share of the swap that is used, in %; 0 without swap, as in psutil."""
    return swap_memory(node, client=client).percent


def load_of(readings: models.HostReadings) -> MaybeFloat:
    """The load average of 1 min."""
    return NA if readings.load1_centi is None else readings.load1_centi / 100


def memory_of(readings: models.HostReadings) -> VirtualMemory:
    """Memory in readings of a node."""
    total, used = readings.mem_total_bytes, readings.mem_used_bytes
    return VirtualMemory(known(total), _rest(total, used), _percent(used, total), known(used))


def swap_of(readings: models.HostReadings) -> SwapMemory:
    """Swap in readings of a node."""
    total, used = readings.swap_total_bytes, readings.swap_used_bytes
    return SwapMemory(known(total), known(used), _rest(total, used), 0.0 if total == 0 else _percent(used, total))


def _node(node: Optional[str], client: Optional[Client]) -> models.Node:
    client = client or default_client()
    return client.node(_visible.node_of(client, node))


def _rest(total: Optional[int], used: Optional[int]) -> MaybeInt:
    return NA if total is None or used is None else max(total - used, 0)


def _percent(part: Optional[int], whole: Optional[int]) -> MaybeFloat:
    return NA if part is None or not whole else round(100.0 * part / whole, 1)
