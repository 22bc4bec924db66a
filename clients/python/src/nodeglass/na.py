"""`NA`, the value of a reading that is not known: its text is `'N/A'`, and as a number it is NaN."""

import math
from typing import Any, ClassVar, Optional, TypeVar, Union

T = TypeVar("T")


class NaType(str):
    """The type of `NA`, as in nvitop: `float(NA)` is NaN, and `int(NA)`, which has no NaN, is 0. Test with `is NA`, not by a
    number."""

    __slots__ = ()
    _instance: ClassVar[Optional["NaType"]] = None

    def __new__(cls) -> "NaType":
        if cls._instance is None:
            cls._instance = super().__new__(cls, "N/A")
        return cls._instance

    def __reduce__(self) -> Any:
        return NaType, ()

    def __bool__(self) -> bool:
        return False

    def __int__(self) -> int:
        return 0

    def __float__(self) -> float:
        return math.nan

    def __format__(self, spec: str) -> str:
        """Also where the format is one for numbers: `f"{NA:.1f}"`. Only the width is applied then."""
        try:
            return super().__format__(spec)
        except ValueError:
            width = "".join(one for one in spec.partition(".")[0] if one.isdigit()).lstrip("0")
            return str(self).rjust(int(width or 0))

    def _arithmetic(self, other: object) -> Any:
        return math.nan if isinstance(other, (int, float, NaType)) else NotImplemented

    def __add__(self, other: Any) -> Any:
        return super().__add__(other) if type(other) is str else self._arithmetic(other)

    def __mul__(self, other: Any) -> Any:
        return self._arithmetic(other)

    __radd__ = __sub__ = __rsub__ = __rmul__ = __truediv__ = __rtruediv__ = _arithmetic
    __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = _arithmetic

    def __mod__(self, other: Any) -> Any:
        return self._arithmetic(other)

    def __neg__(self) -> float:
        return math.nan

    def __abs__(self) -> float:
        return math.nan

    def __round__(self, digits: Optional[int] = None) -> float:
        """As in nvitop: without digits, the result is an `int`."""
        return int(self) if digits is None else math.nan

    def _compared(self, other: Any) -> bool:
        """Neither more nor less than any number, so that `device.temperature() > 80` is false."""
        if isinstance(other, (int, float, NaType)):
            return False
        raise TypeError(f"cannot compare a reading with {type(other).__name__}")

    __lt__ = __le__ = __gt__ = __ge__ = _compared


NA = NaType()
"""The reading is not known: it is unsupported, failed, or was not taken yet."""


def known(value: Optional[T]) -> Union[T, NaType]:
    """The value, or `NA` instead of `None`."""
    return NA if value is None else value
