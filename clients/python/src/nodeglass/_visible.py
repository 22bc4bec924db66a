"""Which GPUs this process sees: its node, and the environment of CUDA and SLURM."""

import os
import socket
from typing import List, Mapping, Optional

from . import models
from .client import Client
from .errors import NodeglassError, NotFoundError


def node_of(client: Client, node: Optional[str], environment: Optional[Mapping[str, str]] = None) -> str:
    """The node that is meant: the stated one, this machine, or the only one."""
    if node is not None:
        return node
    names = [one.name for one in client.nodes()]
    local = local_names(os.environ if environment is None else environment)
    found = [name for name in names if name in local or name.partition(".")[0] in local]
    if len(found) == 1:
        return found[0]
    if len(names) == 1:
        return names[0]
    if not names:
        raise NotFoundError("the relay watches no node")
    raise NodeglassError(f"the relay watches {len(names)} nodes, and this machine is none of them: choose one with node=")


def local_names(environment: Mapping[str, str]) -> List[str]:
    """The names that a relay may have for this machine."""
    host = socket.gethostname()
    return [name for name in (environment.get("SLURMD_NODENAME"), host, host.partition(".")[0]) if name]


def visible(client: Client, environment: Mapping[str, str]) -> List[models.Gpu]:
    """The GPUs of this process in the order of CUDA."""
    node = node_of(client, None, environment)
    gpus = client.gpus(node=node)
    stated = environment.get("CUDA_VISIBLE_DEVICES")
    if stated is None:
        return _of_job(gpus, environment)
    entries = [entry.strip() for entry in stated.split(",") if entry.strip()]
    if entries and not entries[0].isdigit():
        return _by_uuid(gpus, entries)
    # CUDA stops at the first entry that is no index.
    indices: List[int] = []
    for entry in entries:
        if not entry.isdigit():
            break
        indices.append(int(entry))
    return _by_index(gpus, indices, _allocated(environment))


def _of_job(gpus: List[models.Gpu], environment: Mapping[str, str]) -> List[models.Gpu]:
    job = environment.get("SLURM_JOB_ID", "")
    if job.isdigit():
        return [gpu for gpu in gpus if any(one.job == int(job) for one in gpu.jobs)]
    return [gpu for gpu in gpus if gpu.mig_mode is not True]


def _by_uuid(gpus: List[models.Gpu], entries: List[str]) -> List[models.Gpu]:
    """CUDA accepts a beginning of a UUID, if only one GPU has it, and stops at the first unknown one."""
    found: List[models.Gpu] = []
    for entry in entries:
        matches = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
        if len(matches) != 1:
            break
        found.append(matches[0])
    return found


def _allocated(environment: Mapping[str, str]) -> Optional[List[int]]:
    """N of the `/dev/nvidiaN` that SLURM allocated to this step or job on this node."""
    text = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    entries = text.split(",")
    return [int(one) for one in entries] if all(one.strip().isdigit() for one in entries) else None


def _by_index(gpus: List[models.Gpu], indices: List[int], allocated: Optional[List[int]]) -> List[models.Gpu]:
    """Indices count all GPUs of the node, or those of the job where SLURM confines it to them."""
    whole = [gpu for gpu in gpus if gpu.mig is None]
    if allocated is None:
        by_index = {gpu.index: gpu for gpu in whole}
        return _until_unknown([by_index.get(index) for index in indices])
    by_minor = {gpu.minor if gpu.minor is not None else gpu.index: gpu for gpu in whole}
    confined = [allocated[index] if index < len(allocated) else None for index in indices]
    if None in confined:
        confined = list(indices)
    elif confined != indices and set(indices) <= set(allocated):
        raise NodeglassError(
            "CUDA_VISIBLE_DEVICES may count the GPUs of the node or those of the job; state their UUIDs in it, "
            "or choose devices by Device(uuid=…)"
        )
    return _until_unknown([by_minor.get(minor) for minor in confined if minor is not None])


def _until_unknown(found: List[Optional[models.Gpu]]) -> List[models.Gpu]:
    """As CUDA does it: what follows an unknown device is not visible."""
    known: List[models.Gpu] = []
    for gpu in found:
        if gpu is None:
            break
        known.append(gpu)
    return known
