"""Readings of one moment, as attributes or as a mapping, like nvitop's `Snapshot`."""

import time
from datetime import datetime
from typing import Any, Iterator, KeysView, Optional


class ReadingsSnapshot:
    """Readings of one moment: `snapshot.name`, `snapshot["name"]`, `dict(snapshot)`."""

    real: Any
    """What it is of."""
    timestamp: float
    """When the readings were taken, in seconds since 1970; when they were received, if that is not known."""

    def __init__(self, real: Any, sampled_at: Optional[datetime], **values: Any) -> None:
        self.real = real
        self.timestamp = time.time() if sampled_at is None else sampled_at.timestamp()
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the snapshot has no {name!r}; it has: {', '.join(self)}")

    def __repr__(self) -> str:
        values = "".join(f"    {name}={self[name]!r},\n" for name in sorted(self))
        return f"{type(self).__name__}(\n    real={self.real!r},\n{values})"

    def __getitem__(self, name: str) -> Any:
        if name not in self.__dict__:
            raise KeyError(name)
        return self.__dict__[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.__dict__ if name not in ("real", "timestamp"))

    def keys(self) -> KeysView[str]:
        """The names of the readings, so that `dict(snapshot)` and `**snapshot` work."""
        return dict.fromkeys(self).keys()


class DeviceSnapshot(ReadingsSnapshot):
    """The readings of a GPU."""


class GpuProcessSnapshot(ReadingsSnapshot):
    """The readings of a process on a GPU."""
