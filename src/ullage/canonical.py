"""Canonical JSON in plain Python: the text whose bytes are counted.

Compact, UTF-8, object keys in byte order, the last of a repeated key, floats
as Python's ``repr`` with two differences: a decimal exponent of -5 is written
out, and exponents have no leading zero.  Wire types are written in the order
of their fields.  This is the slow, readable statement; the compiled core finds
the same lengths without writing anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from enum import Enum
from math import isfinite
from operator import itemgetter
from typing import Any, TypeAlias

import msgspec

from .errors import DecodeError, JsonTypeError, JsonValueError

MAX_DEPTH = 127
"""Nested arrays and objects allowed, in JSON text and in Python values alike."""

U64_MAX = 2**64 - 1
I64_MIN = -(2**63)

_quote: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode


def write(value: Any) -> bytes:
    """The canonical JSON of a value, a wire type, or a list of wire types, as UTF-8.

    Raises JsonValueError (JsonTypeError for a foreign type) naming the path.
    """
    return _wire(value).encode()


_Spell: TypeAlias = Callable[[Any, int], str]


def _wire(item: Any, depth: int = 0) -> str:
    """A wire type or a list of them.  Any other value counts its nested levels from itself on."""
    if isinstance(item, msgspec.Struct):
        values = getattr(item, "json_values", ())
        return _object(((key, value, _value if key in values else _wire) for key, value in fields(item)), 0)
    if isinstance(item, (list, tuple)) and item and isinstance(item[0], msgspec.Struct):
        return _array(item, _wire, 0)
    return _value(item, depth)


def _value(value: Any, depth: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        if not I64_MIN <= value <= U64_MAX:
            raise JsonValueError("an integer outside -2**63 to 2**64 - 1; pass it as text")
        return int.__repr__(value)
    if isinstance(value, float):
        return _float(value)
    if not isinstance(value, (list, tuple, dict)):
        raise JsonTypeError(f"{type(value).__name__} is not a JSON type")
    if depth == MAX_DEPTH:
        raise JsonValueError(f"more than {MAX_DEPTH} nested arrays and objects (or a cycle)")

    if isinstance(value, dict):
        return _object(((key, item, _value) for key, item in _sorted_members(value)), depth + 1)
    return _array(value, _value, depth + 1)


def _array(items: Iterable[Any], spell: _Spell, depth: int) -> str:
    texts: list[str] = []
    for index, item in enumerate(items):
        try:
            texts.append(spell(item, depth))
        except JsonValueError as error:
            raise located(error, f"[{index}]") from None
    return f"[{','.join(texts)}]"


def _object(members: Iterable[tuple[str, Any, _Spell]], depth: int) -> str:
    texts: list[str] = []
    for key, item, spell in members:
        try:
            texts.append(f"{_string(key)}:{spell(item, depth)}")
        except JsonValueError as error:
            raise located(error, key_path(key)) from None
    return f"{{{','.join(texts)}}}"


def _sorted_members(value: dict[Any, Any]) -> list[tuple[str, Any]]:
    members = list(value.items())  # at once, since another thread may change the dict
    for key, _ in members:
        if not isinstance(key, str):
            raise JsonTypeError(f"the key {key!r} is not a string")
    return sorted(members, key=itemgetter(0))  # code points sort as their UTF-8 bytes do


def _string(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise JsonValueError(f"a lone surrogate at character {error.start}") from None
    return _quote(str.__str__(text))


def _float(x: float) -> str:
    if not isfinite(x):
        raise JsonValueError(f"{float.__repr__(x)} has no JSON form")
    text = float.__repr__(x)
    mantissa, e, exponent = text.partition("e")
    if not e:
        return text
    if exponent == "-05":
        sign, digits = ("-", mantissa[1:]) if mantissa[0] == "-" else ("", mantissa)
        return f"{sign}0.0000{digits.replace('.', '')}"
    return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}"


def fields(struct: msgspec.Struct) -> list[tuple[str, Any]]:
    """The members of a wire type as they are written: tag first, then its fields in order."""
    config = struct.__struct_config__
    members: list[tuple[str, Any]] = []
    if config.tag_field is not None:
        members.append((config.tag_field, config.tag))
    omitted = getattr(struct, "omit_when_empty", ())
    values = getattr(struct, "json_values", ())
    for name in getattr(struct, "wire_order", ()) or struct.__struct_fields__:
        item = getattr(struct, name)
        if name in omitted and (item is None or (item == () and name not in values)):
            continue
        members.append((name, item.value if isinstance(item, Enum) else item))
    return members


def shown(value: object) -> str:
    """A value in an error's text: its repr, or as much of it as a reader wants."""
    try:
        text = repr(value)
    except Exception:  # an integer of thousands of digits, or an object that cannot tell
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def key_path(key: str) -> str:
    """How a member is written in a path."""
    return f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]"


def join_path(step: str, rest: str) -> str:
    """A path one step longer at its front."""
    if not rest:
        return step.removeprefix(".")
    return f"{step.removeprefix('.')}{rest if rest.startswith('[') else '.' + rest}"


def located(error: JsonValueError, step: str) -> JsonValueError:
    """The same error, seen from one level further out."""
    return type(error)(error.reason, join_path(step, error.path))


# --- reading -----------------------------------------------------------------


def parse(data: bytes | str) -> Any:
    """The value of strict JSON text; of a repeated key the last one holds.

    RFC 8259 without exceptions: no NaN, no raw control characters, no lone
    surrogates, no number that overflows, at most 127 nested arrays and objects.
    An integer outside -2**63 to 2**64 - 1 is read as a float, ``-0`` as -0.0.

    Raises DecodeError.
    """
    return parse_with_repeats(data)[0]


def parse_with_repeats(data: bytes | str) -> tuple[Any, list[dict[str, Any]]]:
    """The value, and those of its objects that had a repeated key."""
    repeats: list[dict[str, Any]] = []
    given: dict[int, list[Any]] = {}  # all that was given to each of them, by its id

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            repeats.append(members)
            given[id(members)] = [item for _, item in pairs]
        return members

    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
        value = json.loads(
            text,
            object_pairs_hook=build,
            parse_int=_parse_int,
            parse_float=_parse_float,
            parse_constant=_refuse,
        )
    except json.JSONDecodeError as error:
        raise DecodeError(f"malformed JSON at character {error.pos}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise DecodeError(f"more than {MAX_DEPTH} nested arrays and objects") from None
    _check(value, 0, given)
    return value, repeats


def _parse_int(digits: str) -> int | float:
    if len(digits) <= 20 and digits != "-0":
        value = int(digits)
        if I64_MIN <= value <= U64_MAX:
            return value
    return _parse_float(digits)


def _parse_float(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise DecodeError("a number that overflows a double")
    return value


def _refuse(constant: str) -> Any:
    raise DecodeError(f"{constant} is not JSON")


def _check(value: Any, depth: int, given: dict[int, list[Any]]) -> None:
    """Refuse what ``json`` lets through: lone surrogates and deep nesting.

    What a repeated key has replaced is text too, and is looked at.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DecodeError("a lone surrogate in a string") from None
    elif isinstance(value, (dict, list)):
        if depth == MAX_DEPTH:
            raise DecodeError(f"more than {MAX_DEPTH} nested arrays and objects")
        if isinstance(value, dict):
            for key in value:
                _check(key, depth, given)
        items = given.get(id(value)) or (value.values() if isinstance(value, dict) else value)
        for item in items:
            _check(item, depth + 1, given)
