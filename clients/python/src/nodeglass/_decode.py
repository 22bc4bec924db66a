"""Converts JSON to dataclasses: unknown fields are ignored, and missing ones must have a default."""

import dataclasses
import functools
import json
from datetime import datetime, timezone
from typing import Any, Dict, Tuple, Type, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import ProtocolError

T = TypeVar("T")

OTHER_VERSION = "the relay may be of another version, or something else listens at this address"


def decode(cls: Type[T], data: Any) -> T:
    """An instance of the dataclass `cls`.

    Raises `ProtocolError` if the JSON has another structure.
    """
    if not isinstance(data, dict):
        raise ProtocolError(f"expected a {cls.__name__}, not {type(data).__name__}: {OTHER_VERSION}")
    values: Dict[str, Any] = {}
    key_of_cache: Any = cls
    for name, (kind, is_required) in _fields(key_of_cache).items():
        # A trailing underscore avoids a keyword of Python.
        key = name.rstrip("_")
        if key in data:
            values[name] = _value(kind, data[key], f"{cls.__name__}.{key}")
        elif is_required:
            raise ProtocolError(f"{cls.__name__}.{key} is missing: {OTHER_VERSION}")
    return cls(**values)


def parse(body: bytes) -> Any:
    """Parses a response."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the response is not JSON: {OTHER_VERSION}") from error


def timestamp(text: str) -> datetime:
    """A moment of the API, RFC 3339 in UTC, as an aware `datetime`."""
    # Python before 3.11 does not know the Z, nor any number of digits but 3 and 6.
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)
    except ValueError as error:
        raise ProtocolError(f"{text!r} is no time: {OTHER_VERSION}") from error


@functools.lru_cache(maxsize=None)
def _fields(cls: Any) -> Dict[str, Tuple[Any, bool]]:
    hints = get_type_hints(cls)
    missing = dataclasses.MISSING
    return {
        one.name: (hints[one.name], one.default is missing and one.default_factory is missing)
        for one in dataclasses.fields(cls)
    }


def _value(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        return data
    origin = get_origin(kind)
    if origin is Union:
        inner = next(one for one in get_args(kind) if one is not type(None))
        return None if data is None else _value(inner, data, where)
    if origin is list:
        if not isinstance(data, list):
            raise ProtocolError(f"{where} is no list: {OTHER_VERSION}")
        (inner,) = get_args(kind)
        # Most lists are numbers or names, of which history has millions.
        if inner in (int, float, str, bool) or get_args(inner)[:1] in ((int,), (float,)):
            return data
        return [_value(inner, one, where) for one in data]
    if origin is dict:
        if not isinstance(data, dict):
            raise ProtocolError(f"{where} is no object: {OTHER_VERSION}")
        return data
    if kind is datetime:
        return timestamp(str(data))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return decode(kind, data)
    accepted = (int, float) if kind is float else kind
    if not isinstance(data, accepted) or (kind is not bool and isinstance(data, bool)):
        raise ProtocolError(f"{where} is no {kind.__name__}: {OTHER_VERSION}")
    return data
