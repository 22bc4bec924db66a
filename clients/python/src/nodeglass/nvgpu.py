"""nvgpu's functions, for the nodes that the relay watches."""

from typing import Any, Dict, List, Optional

from . import _visible, models
from ._default import default_client
from .client import Client
from .units import MiB


def gpu_info(node: Optional[str] = None, *, client: Optional[Client] = None) -> List[Dict[str, Any]]:
    """What nvgpu's `gpu_info` reports of each GPU, and its node: of one node, or of all.

    Memory is in MiB. A reading that is not known is `None`.
    """
    return [_info(gpu) for gpu in (client or default_client()).gpus(node=node)]


def available_gpus(
    max_used_percent: float = 20.0,
    node: Optional[str] = None,
    *,
    free: bool = False,
    client: Optional[Client] = None,
) -> List[str]:
    """The indices of the GPUs of a node of whose memory at most `max_used_percent` is in use, as in nvgpu: for
    `CUDA_VISIBLE_DEVICES`. Without `node`, it is this machine, or the only one that the relay watches.

    With `free=True`, only GPUs without processes that belong to no SLURM job. A GPU whose memory is not known, or whose
    readings are old, is not available.
    """
    client = client or default_client()
    gpus = client.gpus(node=_visible.node_of(client, node), free=free or None)
    return [info["index"] for info in map(_info, filter(_is_usable, gpus)) if _fits(info, max_used_percent)]


def _info(gpu: models.Gpu) -> Dict[str, Any]:
    used, total = gpu.readings.mem_used_bytes, gpu.readings.mem_total_bytes
    return {
        "index": str(gpu.index),
        "type": gpu.name,
        "uuid": gpu.uuid,
        "mem_used": None if used is None else used // MiB,
        "mem_total": None if total is None else total // MiB,
        "mem_used_percent": 100.0 * used / total if used is not None and total else None,
        "node": gpu.node,
    }


def _is_usable(gpu: models.Gpu) -> bool:
    """Whether it is read at present, and not divided into MIG instances, which have no index in CUDA."""
    return gpu.connection in ("live", "late") and gpu.fault is None and gpu.mig is None and gpu.mig_mode is not True


def _fits(info: Dict[str, Any], max_used_percent: float) -> bool:
    return info["mem_used_percent"] is not None and info["mem_used_percent"] <= max_used_percent
