"""Hypothesis strategies for text, JSON values and JSON texts, made to meet the edges."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

# --- text -------------------------------------------------------------------------

ESCAPED = '\x00\x01\x07\x08\t\n\x0b\x0c\r\x1f"\\'
EDGES = ESCAPED + " /\x7f\x80\x85\xa0\xff\u0100\u07ff\u0800\u2028\ud7ff\ue000\uffff\U00010000\U0010ffff"
SURROGATES = "\ud800\udbff\udc00\udfff"
FILLERS = "aé字\U0001f98a"  # one for each way that Python stores text, and each UTF-8 length


@st.composite
def long_texts(draw: st.DrawFn, surrogates: bool = False) -> str:
    """Up to 300 characters of one kind, with edges at chosen places: every offset of a SIMD block is met."""
    size = draw(st.integers(0, 300))
    characters = list(draw(st.sampled_from(FILLERS)) * size)
    alphabet = EDGES + SURROGATES if surrogates else EDGES
    for _ in range(draw(st.integers(0, 4)) if size else 0):
        characters[draw(st.integers(0, size - 1))] = draw(st.sampled_from(alphabet))
    return "".join(characters)


def texts(surrogates: bool = False) -> st.SearchStrategy[str]:
    """Any text; with lone surrogates only if asked for."""
    alphabet = EDGES + SURROGATES if surrogates else EDGES
    return st.one_of(
        st.text(st.sampled_from(alphabet + "ab"), max_size=8),
        st.text(max_size=20),
        long_texts(surrogates),
    )


# --- numbers ------------------------------------------------------------------------

_POWERS = [10**n for n in range(1, 20)] + [2**n for n in (7, 8, 31, 32, 52, 53, 62, 63)]
EDGE_INTEGERS = sorted(
    {sign * (power + step) for power in _POWERS for sign in (1, -1) for step in (-1, 0, 1)} | {0, 2**64 - 1}
)
EDGE_INTEGERS = [n for n in EDGE_INTEGERS if -(2**63) <= n < 2**64]
BAD_INTEGERS = [2**64, 2**64 + 1, -(2**63) - 1, 10**30, -(10**30), 10**400]
EDGE_FLOATS = [
    *(0.0, -0.0, 1.0, -1.0, 0.1, 1e15, 1e16, 1e17, 9007199254740993.0, 1e22, 1e23, 2.0**63, 2.0**64),
    *(1e-4, 1e-5, 1.5e-5, -1e-5, 9.999999999999999e-6, 1e-6, 1e-7, 5e-324, 2.2250738585072014e-308),
    *(1.7976931348623157e308, 123456789012345680.0, 0.30000000000000004, 1e100, -1e-100),
]

integers = st.one_of(st.integers(-(2**63), 2**64 - 1), st.sampled_from(EDGE_INTEGERS), st.integers(-100, 100))
floats = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(EDGE_FLOATS))


# --- values ---------------------------------------------------------------------------


class Foreign:
    """Of no JSON type."""

    def __repr__(self) -> str:
        return "Foreign()"


class Text(str):
    """A str all the same."""

    __slots__ = ()


_scalars = st.one_of(st.none(), st.booleans(), integers, floats, texts())
_keys = st.one_of(
    st.sampled_from(["", "a", "b", "k y", "'", 'q"', "é", "字", "\U0001f98a", "\uffff"]), texts()
)
_bad = st.one_of(
    st.sampled_from([float("nan"), float("inf"), float("-inf"), *BAD_INTEGERS]),
    st.sampled_from([b"bytes", {1}, frozenset(), 1j, Foreign(), object, bytearray(b"x"), range(2)]),
    st.sampled_from([*SURROGATES, "ab\ud83d", "\ud83d\ude00", Text("\udc00")]),
    st.sampled_from([{1: 2}, {None: 0}, {"\ud800": 1}, {("a",): 1}, {"a": 1, 2: 2}]),
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=4)
    return st.one_of(
        lists,
        lists.map(tuple),
        st.dictionaries(_keys, inner, max_size=4),
        inner.map(lambda shared: [shared, {"a": shared, "b": [shared]}, shared]),
    )


json_values = st.recursive(_scalars, _containers, max_leaves=12)
"""Values that have a JSON form."""

any_values = st.recursive(st.one_of(_scalars, _scalars, _scalars, _bad), _containers, max_leaves=12)
"""Values that may have none."""

json_objects = st.dictionaries(_keys, json_values, max_size=4)
any_objects = st.dictionaries(_keys, any_values, max_size=3)


def nested(value: Any, depth: int, kind: str) -> Any:
    """The value inside so many arrays, objects, or both in turn."""
    for level in range(depth):
        value = {"k": value} if kind == "object" or (kind == "both" and level % 2) else [value]
    return value


# --- JSON text ---------------------------------------------------------------------------

_spaces = st.sampled_from(["", "", "", " ", "\n", "\t\r ", " " * 40])
_numbers = st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]{0,22})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(["-0", "-0.0", "0e0", "1E5", "1e+05", "1e-5", "100000e-10", "0.00001", "1.50", "1e400"]),
    st.sampled_from(["18446744073709551615", "18446744073709551616", "-9223372036854775809", "9" * 400]),
    integers.map(str),
    floats.map(repr),
)


@st.composite
def _spelled_strings(draw: st.DrawFn) -> str:
    """A JSON string in which any character may be written as an escape."""
    spelled = []
    for character in draw(texts()):
        plain = json.dumps(character, ensure_ascii=False)[1:-1]
        escaped = json.dumps(character)[1:-1] if character > "~" else f"\\u{ord(character):04X}"
        spelled.append(draw(st.sampled_from([plain, plain, plain, escaped])))
    return '"' + "".join(spelled) + '"'


def _spelled_containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def array(items: list[str], space: str) -> str:
        return f"[{space}{f'{space},'.join(items)}{space}]"

    def object_(members: list[tuple[str, str]], space: str) -> str:
        return f"{{{space}{f',{space}'.join(f'{key}{space}:{space}{item}' for key, item in members)}{space}}}"

    keys = st.one_of(st.sampled_from(['"a"', '"\\u0061"', '"b"', '""']), _spelled_strings())
    return st.one_of(
        st.builds(array, st.lists(inner, max_size=4), _spaces),
        st.builds(object_, st.lists(st.tuples(keys, inner), max_size=5), _spaces),
    )


json_texts = st.recursive(
    st.one_of(st.sampled_from(["null", "true", "false"]), _numbers, _spelled_strings()),
    _spelled_containers,
    max_leaves=10,
)
"""JSON in every spelling: white space, escapes, numbers, repeated keys.  A few numbers overflow."""


_insertions = st.sampled_from([*'{}[]:,"\\', *"0-.eEu+ \x00\x0b\ud800\ufeff", "\\ud83d", ""])


@st.composite
def mutated_texts(draw: st.DrawFn) -> str:
    """JSON text with a few characters added, taken away or exchanged."""
    text = draw(json_texts)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 2)))
        text = text[:at] + draw(_insertions) + text[end:]
    return text
