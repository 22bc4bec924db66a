"""nvitop's `select_devices`, for the nodes that the relay watches."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable, List, Literal, Optional, Tuple, Union, overload

from . import _visible
from ._default import default_client
from .client import Client
from .device import Device, MaybeInt
from .errors import NodeglassError
from .na import NaType
from .units import human2bytes

Identifier = Union[int, str, Device]
"""An index, a UUID or a device."""
Size = Union[int, str, None]
"""Bytes, or a text such as `8GiB`."""


@dataclass
class _Candidate:
    """A device with the readings of one moment."""

    device: Device
    free: MaybeInt
    used: MaybeInt
    total: MaybeInt
    gpu_utilization: MaybeInt
    memory_utilization: MaybeInt
    loosened: int = 0
    """Number of criteria that it meets only with the tolerance."""

    def order(self) -> Tuple[float, ...]:
        """As nvitop sorts: most free memory first, and the highest index, so that GPU 0 stays free."""
        return (
            self.loosened,
            *_last_if_unknown(self.free, descending=True),
            *_last_if_unknown(self.gpu_utilization),
            *_last_if_unknown(self.memory_utilization),
            -self.device.physical_index,
        )


@overload
def select_devices(
    devices: Optional[Iterable[Device]] = ..., *, format: Literal["device"], force_index: bool = ...,
    min_count: int = ..., max_count: Optional[int] = ..., min_free_memory: Size = ..., min_total_memory: Size = ...,
    max_gpu_utilization: Optional[int] = ..., max_memory_utilization: Optional[int] = ..., tolerance: int = ...,
    free_accounts: Optional[List[str]] = ..., sort: bool = ..., node: Optional[str] = ..., client: Optional[Client] = ...,
) -> List[Device]: ...  # fmt: skip


@overload
def select_devices(
    devices: Optional[Iterable[Device]] = ..., *, format: Literal["uuid"], force_index: bool = ...,
    min_count: int = ..., max_count: Optional[int] = ..., min_free_memory: Size = ..., min_total_memory: Size = ...,
    max_gpu_utilization: Optional[int] = ..., max_memory_utilization: Optional[int] = ..., tolerance: int = ...,
    free_accounts: Optional[List[str]] = ..., sort: bool = ..., node: Optional[str] = ..., client: Optional[Client] = ...,
) -> List[str]: ...  # fmt: skip


@overload
def select_devices(
    devices: Optional[Iterable[Device]] = ..., *, format: Literal["index"] = ..., force_index: bool = ...,
    min_count: int = ..., max_count: Optional[int] = ..., min_free_memory: Size = ..., min_total_memory: Size = ...,
    max_gpu_utilization: Optional[int] = ..., max_memory_utilization: Optional[int] = ..., tolerance: int = ...,
    free_accounts: Optional[List[str]] = ..., sort: bool = ..., node: Optional[str] = ..., client: Optional[Client] = ...,
) -> Union[List[int], List[str]]: ...  # fmt: skip


def select_devices(
    devices: Optional[Iterable[Device]] = None,
    *,
    format: Literal["index", "uuid", "device"] = "index",
    force_index: bool = False,
    min_count: int = 0,
    max_count: Optional[int] = None,
    min_free_memory: Size = None,
    min_total_memory: Size = None,
    max_gpu_utilization: Optional[int] = None,
    max_memory_utilization: Optional[int] = None,
    tolerance: int = 0,
    free_accounts: Optional[List[str]] = None,
    sort: bool = True,
    node: Optional[str] = None,
    client: Optional[Client] = None,
) -> Union[List[int], List[str], List[Device]]:
    """The devices that meet all criteria, with the parameters of nvitop's function of this name.

    Without `devices`, they are those of `node`, of this machine, or of the only node that the relay watches. Memory is
    in bytes or a text such as `8GiB`, utilisation and `tolerance` in percent. The memory of the processes of
    `free_accounts` counts as free. As in nvitop, at most one MIG instance is selected, by its UUID unless `force_index`.

    A device is not selected if it cannot be read at present, or if a reading that a criterion needs is not known. The
    result may have fewer than `min_count` devices. Raises `NodeglassError` if indices or UUIDs of several nodes would
    be mixed.
    """
    if format not in ("index", "uuid", "device"):
        raise ValueError(f"format must be 'index', 'uuid' or 'device', not {format!r}")
    if tolerance < 0 or min_count < 0 or (max_count is not None and max_count != 0 and max_count < min_count):
        raise ValueError("tolerance and min_count must not be negative, and max_count not be below min_count")
    if max_count == 0:
        return []
    if devices is None:
        client = client or default_client()
        devices = Device.all(node=_visible.node_of(client, node), client=client)
    chosen = [_candidate(device, set(free_accounts or [])) for device in _leaves(devices)]
    part = tolerance / 100
    criteria: List[Tuple[Callable[[_Candidate], MaybeInt], Optional[float], Optional[float]]] = [
        (lambda one: one.free, _bytes(min_free_memory), None),
        (lambda one: one.total, _bytes(min_total_memory), None),
        (lambda one: one.gpu_utilization, None, max_gpu_utilization),
        (lambda one: one.memory_utilization, None, max_memory_utilization),
    ]
    for value, least, most in criteria:
        if least is not None:
            chosen = _filter(chosen, value, lambda found, bound: found >= bound, least, least * (1 - part))
        if most is not None:
            chosen = _filter(chosen, value, lambda found, bound: found <= bound, most, most + 100 * part)
    if sort:
        chosen.sort(key=_Candidate.order)
    if any(one.device.is_mig_device() for one in chosen):
        whole = [one for one in chosen if not one.device.is_mig_device()]
        if len(whole) >= min_count > 0 or not chosen[0].device.is_mig_device():
            chosen = whole
        else:
            chosen = [one for one in chosen if one.device.is_mig_device()][:1]
            if format == "index" and not force_index:
                format = "uuid"
    found = [one.device for one in chosen[:max_count]]
    if format == "device":
        return found
    if len({device.node for device in found}) > 1:
        raise NodeglassError("the devices are of several nodes: state node=, or use format='device'")
    return [device.uuid() for device in found] if format == "uuid" else [device.index for device in found]


def _leaves(devices: Iterable[Device]) -> List[Device]:
    """Each device once, and MIG instances instead of a GPU that is divided into them."""
    leaves = {
        leaf: None
        for device in devices
        for leaf in (device.mig_devices() if device.is_mig_mode_enabled() and not device.is_mig_device() else [device])
    }
    return [device for device in leaves if device.connection() in ("live", "late") and device.resource.fault is None]


def _candidate(device: Device, free_accounts: "set[str]") -> _Candidate:
    with device.oneshot():
        free, used = device.memory_free(), device.memory_used()
        for process in device.processes().values() if free_accounts else ():
            memory = process.gpu_memory()
            if process.username() in free_accounts and not isinstance(memory, NaType):
                free = free if isinstance(free, NaType) else free + memory
                used = used if isinstance(used, NaType) else used - memory
        return _Candidate(
            device, free, used, device.memory_total(), device.gpu_utilization(), device.memory_utilization()
        )


def _filter(
    candidates: List[_Candidate],
    value: Callable[[_Candidate], MaybeInt],
    holds: Callable[[float, float], bool],
    bound: float,
    loose: float,
) -> List[_Candidate]:
    kept = []
    for one in candidates:
        found = value(one)
        if not isinstance(found, NaType) and holds(found, loose):
            one.loosened += not holds(found, bound)
            kept.append(one)
    return kept


def _bytes(size: Size) -> Optional[int]:
    return None if size is None else human2bytes(size)


def _last_if_unknown(value: MaybeInt, *, descending: bool = False) -> Tuple[float, float]:
    if isinstance(value, NaType):
        return (1, 0)
    return (0, -value if descending else value)
