"""What every wire type of the contract can do: become JSON and come back."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar, Self

import msgspec

from . import canonical
from .errors import DecodeError

# The members that hold any JSON value.  Inside them the last of a repeated key
# holds; everywhere else a repeated field is an error.
_VALUE_FIELDS = frozenset({"arguments", "parameters", "schema", "artifact", "payload", "plan"})


class Wire(msgspec.Struct, frozen=True):
    """A frozen record with one JSON form: compact, UTF-8, fields in their order.

    Types that come by the hundred and hold only texts and numbers, so that they
    cannot be part of a cycle, say ``gc=False`` and cost the collector nothing.
    """

    omit_when_empty: ClassVar[tuple[str, ...]] = ()  # fields left out of the JSON where they hold None or ()
    json_values: ClassVar[tuple[str, ...]] = ()  # fields that hold any JSON value
    wire_order: ClassVar[tuple[str, ...]] = ()  # where the JSON has another order than the constructor

    def to_json(self) -> bytes:
        """The contract's JSON.  Raises JsonValueError naming the path of a value that has none."""
        return canonical.write(self)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain dicts, lists, strings and numbers; JSON values are not copied."""
        return {name: _plain(item) for name, item in canonical.fields(self)}

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Read the contract's JSON.  Raises DecodeError naming the path at fault."""
        value, repeats = canonical.parse_with_repeats(data)
        if repeats:
            path = _first_repeat(value, {id(repeated) for repeated in repeats})
            if path is not None:
                raise DecodeError("a field is given twice", _spell(path))
        return cls.from_dict(value)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read plain data as ``to_dict`` gives it.  Raises DecodeError naming the path at fault."""
        tag = cls.__struct_config__.tag_field
        if tag is not None and isinstance(data, dict) and tag not in data:
            raise DecodeError(f"Object missing required field `{tag}`")
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            reason, _, where = str(error).partition(" - at `$")
            raise DecodeError(reason, where.rstrip("`").removeprefix(".")) from None


def _plain(item: Any) -> Any:
    if isinstance(item, Wire):
        return item.to_dict()
    if isinstance(item, tuple):
        return [_plain(element) for element in item]
    return item


def _first_repeat(value: Any, repeated: set[int]) -> tuple[Any, ...] | None:
    """The path of an object outside all JSON values that had a repeated key; objects are told by identity."""
    stack: list[tuple[Any, tuple[Any, ...]]] = [(value, ())]
    while stack:
        here, path = stack.pop()
        if id(here) in repeated:
            return path
        if isinstance(here, dict):
            inner = [(item, (*path, key)) for key, item in here.items() if key not in _VALUE_FIELDS]
            stack.extend(reversed(inner))
        elif isinstance(here, list):
            stack.extend([(item, (*path, index)) for index, item in enumerate(here)][::-1])
    return None


def _spell(path: tuple[Any, ...]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else canonical.key_path(step)
    return text.removeprefix(".")


def check_u64(owner: str, **values: object) -> None:
    """Raise ValueError naming the first field that is not an unsigned 64-bit integer."""
    for name, value in values.items():
        if type(value) is not int or not 0 <= value <= canonical.U64_MAX:
            raise ValueError(
                f"{owner}.{name} must be an integer from 0 to 2**64 - 1, not {canonical.shown(value)}"
            )


def check_member(owner: str, name: str, value: object, enum: type[Enum]) -> None:
    """Raise TypeError where a field is not a member of its enum."""
    if not isinstance(value, enum):
        allowed = ", ".join(f"{enum.__name__}.{member.name}" for member in enum)
        raise TypeError(f"{owner}.{name} must be one of {allowed}, not {canonical.shown(value)}")
