"""GPUs, jobs and processes of a SLURM cluster in Python, as a nodeglass relay sees them."""

from . import host, models
from ._default import default_client, set_default_client
from .client import Client
from .collector import ResourceMetricCollector, collect_in_background
from .cuda import CudaDevice
from .device import Device, SnapshotResult, take_snapshots
from .errors import (
    AuthenticationError,
    NodeglassError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    RateLimitedError,
    RelayUnavailableError,
)
from .history import History
from .models import Gpu, Job, Node, Process, Report, Snapshot
from .na import NA, NaType
from .notes import note
from .nvgpu import available_gpus, gpu_info
from .process import GpuProcess, HostProcess
from .select import select_devices
from .snapshots import DeviceSnapshot, GpuProcessSnapshot
from .units import GiB, KiB, MiB, bytes2human, human2bytes, timedelta2human

__version__ = "0.1.0"

__all__ = [
    "NA",
    "AuthenticationError",
    "Client",
    "CudaDevice",
    "Device",
    "DeviceSnapshot",
    "GiB",
    "Gpu",
    "GpuProcess",
    "GpuProcessSnapshot",
    "History",
    "HostProcess",
    "Job",
    "KiB",
    "MiB",
    "NaType",
    "Node",
    "NodeglassError",
    "NotFoundError",
    "PermissionDeniedError",
    "Process",
    "ProtocolError",
    "RateLimitedError",
    "RelayUnavailableError",
    "Report",
    "ResourceMetricCollector",
    "Snapshot",
    "SnapshotResult",
    "available_gpus",
    "bytes2human",
    "collect_in_background",
    "default_client",
    "gpu_info",
    "host",
    "human2bytes",
    "models",
    "note",
    "select_devices",
    "set_default_client",
    "take_snapshots",
    "timedelta2human",
]
