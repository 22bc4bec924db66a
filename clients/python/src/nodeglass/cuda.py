"""nvitop's `CudaDevice`: the GPUs of this process in the order of CUDA."""

import os
from typing import Iterable, List, Optional, Union

from . import _visible, models
from ._default import default_client
from .client import Client
from .device import Device
from .errors import NodeglassError
from .snapshots import DeviceSnapshot


class CudaDevice(Device):
    """A GPU or MIG instance that this process sees, by its index in CUDA; also `Device.cuda`.

    `CudaDevice(0)` is the first device of `CUDA_VISIBLE_DEVICES`, else of this process's job on this node, else of this
    machine. `nvml_index` is the index on the node. As in nvitop, a device that CUDA does not see raises `RuntimeError`.
    """

    def __init__(
        self,
        cuda_index: Optional[int] = None,
        *,
        nvml_index: Optional[int] = None,
        uuid: Optional[str] = None,
        client: Optional[Client] = None,
    ) -> None:
        if sum(one is not None for one in (cuda_index, nvml_index, uuid)) != 1:
            raise TypeError("state one of cuda_index, nvml_index and uuid")
        self._client = client or default_client()
        visible = _visible.visible(self._client, os.environ)
        if cuda_index is None:
            matches = [index for index, gpu in enumerate(visible) if _is(gpu, nvml_index, uuid)]
            if not matches:
                stated = f"index={nvml_index}" if uuid is None else f"uuid={uuid!r}"
                raise RuntimeError(f"CUDA Error: Device({stated}) is not visible to CUDA applications")
            cuda_index = matches[0]
        elif not isinstance(cuda_index, int) or not 0 <= cuda_index < len(visible):
            raise RuntimeError(f"CUDA Error: invalid device ordinal: {cuda_index!r}.")
        self._hold(visible[cuda_index])
        self._cuda_index = cuda_index

    def __repr__(self) -> str:
        return (
            f'CudaDevice(cuda_index={self.cuda_index}, nvml_index={self.index}, node="{self.node}", '
            f'name="{self.name()}", total_memory={self.memory_total_human()})'
        )

    @property
    def cuda_index(self) -> int:
        """Index in CUDA when it was created."""
        return self._cuda_index

    def as_snapshot(self) -> DeviceSnapshot:
        """All readings of one moment, with `cuda_index`."""
        snapshot = super().as_snapshot()
        snapshot.__dict__["cuda_index"] = self.cuda_index
        return snapshot

    @classmethod
    def all(cls, *, client: Optional[Client] = None) -> List["CudaDevice"]:  # type: ignore[override]
        """The devices that CUDA sees, in its order."""
        return cls.from_indices(client=client)

    @classmethod
    def count(cls, *, client: Optional[Client] = None) -> int:  # type: ignore[override]
        """Number of devices that CUDA sees; 0 if that is not known."""
        try:
            return len(cls.all(client=client))
        except NodeglassError:
            return 0

    @classmethod
    def from_indices(  # type: ignore[override]
        cls, indices: Union[int, Iterable[int], None] = None, *, client: Optional[Client] = None
    ) -> List["CudaDevice"]:
        """The devices with these indices in CUDA, or all."""
        client = client or default_client()
        devices: List[CudaDevice] = []
        for index, gpu in enumerate(_visible.visible(client, os.environ)):
            device = cls.__new__(cls)
            device._client, device._cuda_index = client, index
            device._hold(gpu)
            devices.append(device)
        if indices is None:
            return devices
        wanted = [indices] if isinstance(indices, int) else list(indices)
        for index in wanted:
            if not 0 <= index < len(devices):
                raise RuntimeError(f"CUDA Error: invalid device ordinal: {index!r}.")
        return [devices[index] for index in wanted]


def _is(gpu: models.Gpu, index: Optional[int], uuid: Optional[str]) -> bool:
    return gpu.uuid == uuid if uuid is not None else gpu.index == index and gpu.mig is None


Device.cuda = CudaDevice
