"""Numbers as text, written as nvitop does."""

import re
from datetime import timedelta
from typing import Union

from .na import NA, NaType

KiB = 1 << 10
MiB = 1 << 20
GiB = 1 << 30
TiB = 1 << 40
PiB = 1 << 50
SIZE_UNITS = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4, "PB": 1000**5}
SIZE_UNITS.update({"KIB": KiB, "MIB": MiB, "GIB": GiB, "TIB": TiB, "PIB": PiB})


def bytes2human(b: Union[int, float, NaType], /) -> str:
    """A number of bytes as text, such as `11019MiB`."""
    if isinstance(b, NaType):
        return NA
    if b < KiB:
        return f"{round(b)}B"
    if b < MiB:
        return f"{round(b / KiB)}KiB"
    if b < 20 * GiB:
        digits = 2 if b < 100 * MiB else 1 if b < 1000 * MiB else 0
        return f"{b / MiB:.{digits}f}MiB"
    for unit, name in ((GiB, "GiB"), (TiB, "TiB"), (PiB, "PiB")):
        if b < 1000 * unit or unit == PiB:
            return f"{b / unit:.{2 if b < 100 * unit else 1}f}{name}"
    raise AssertionError("the last unit has no limit")


def human2bytes(s: Union[int, str], /) -> int:
    """The number of bytes of a text such as `8GiB`."""
    if isinstance(s, int):
        return s
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", s)
    if match is None or match[2].upper() not in SIZE_UNITS:
        raise ValueError(f"{s!r} is no size; expected one such as 8GiB")
    return round(float(match[1]) * SIZE_UNITS[match[2].upper()])


def timedelta2human(dt: Union[int, float, timedelta, NaType], /) -> str:
    """A duration as text: `4:05`, `3:04:05`, `4.2 days`."""
    if isinstance(dt, NaType):
        return NA
    if isinstance(dt, (int, float)):
        dt = timedelta(seconds=dt)
    if dt.days >= 4:
        return f"{dt.days + dt.seconds / 86400:.1f} days"
    hours, seconds = divmod(86400 * dt.days + dt.seconds, 3600)
    minutes = "{:02d}:{:02d}" if hours else "{:d}:{:02d}"
    return (f"{hours}:" if hours else "") + minutes.format(*divmod(seconds, 60))
