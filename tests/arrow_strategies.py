"""Hypothesis strategies for columns of transcripts: sound rows and broken ones, in every layout."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from strategies import floats, json_objects, json_texts, texts

# --- rows as Python objects --------------------------------------------------------

_short = st.one_of(st.text("ab é字\n", max_size=12), st.text("x", min_size=50, max_size=300), texts())
_contents = st.one_of(_short, _short, _short, st.none())
_ids = st.sampled_from(["a", "b", "c", "é1", " d", "a-long-id-of-a-call-that-no-view-holds", "", " \u2003"])
_arguments = st.one_of(
    json_objects.map(json.dumps),
    json_objects.map(lambda value: json.dumps(value, ensure_ascii=False, indent=1)),
    st.sampled_from(["{}", "", " ", "{", "not JSON", '"text"', "[1]", "null", '{"a":1,"a":2}', '{"a":NaN}']),
    json_texts,
    st.none(),
)
_numbers = st.one_of(st.none(), st.none(), st.integers(-(2**63), 2**63 - 1))


@st.composite
def _scores(draw: st.DrawFn) -> float | None:
    """Mostly such as both floating types have; now and then none that JSON has."""
    kind = draw(st.integers(0, 60))
    if kind == 0:
        return draw(st.sampled_from([float("nan"), float("-inf")]))
    return draw(
        st.one_of(st.none(), st.floats(width=32, allow_nan=False, allow_infinity=False), _small_floats)
    )


_small_floats = floats.filter(lambda number: abs(number) < 1e38)

# Members that have no meaning of their own.
_extras = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(st.none(), _ids),
        "refusal": st.one_of(st.none(), st.none(), _short),
        "weight": _numbers,
        "train": st.one_of(st.none(), st.booleans()),
        "score": _scores(),
        "tags": st.one_of(st.none(), st.lists(st.one_of(st.none(), _short), max_size=3)),
        'k"é\n': st.one_of(st.none(), _short),
        "meta": st.one_of(
            st.none(),
            st.fixed_dictionaries({"a": _contents, "b": _numbers, "c": st.lists(_numbers, max_size=2)}),
        ),
    },
)


@st.composite
def _calls(draw: st.DrawFn, call_id: Any) -> dict[str, Any] | None:
    broken = draw(st.integers(0, 40))
    call = {
        "id": call_id,
        "type": draw(st.sampled_from(["function", "function", "function", None, ""])),
        "index": draw(st.one_of(st.none(), st.integers(0, 3))),
        "function": {
            "name": draw(st.sampled_from(["f", "lookup", "字"])),
            "arguments": draw(_arguments),
            "strict": draw(st.one_of(st.none(), st.booleans())),
        },
    }
    if broken == 0:
        return None
    if broken == 1:
        call["function"] = None
    elif broken == 2:
        call["function"]["name"] = draw(st.sampled_from([None, "", "\u3000"]))
    elif broken == 3:
        call["type"] = "custom"
    return call


@st.composite
def _blocks(draw: st.DrawFn) -> list[Any]:
    """An assistant message with calls, and their results in any order; rarely one too many or too few."""
    usual = st.sampled_from(["a", "b", "c", "é1", " d", "a-long-id-of-a-call-that-no-view-holds"])
    ids = draw(st.lists(usual, min_size=1, max_size=4, unique=draw(st.integers(0, 20)) > 0))
    asks = {"role": "assistant", "content": draw(_contents), **draw(_extras)}
    asks["tool_calls"] = [draw(_calls(call_id)) for call_id in ids]
    answers = draw(st.permutations(ids))
    if draw(st.integers(0, 20)) == 0:
        answers = answers[: draw(st.integers(0, len(answers)))] + draw(st.lists(_ids, max_size=2))
    results = [
        {"role": "tool", "tool_call_id": call_id, "content": draw(_short), **draw(_extras)}
        for call_id in answers
    ]
    return [asks, *results]


@st.composite
def _legacy(draw: st.DrawFn) -> list[Any]:
    name = draw(st.sampled_from(["f", "lookup"]))
    call = {"name": name, "arguments": draw(_arguments)}
    asks = {"role": "assistant", "content": draw(_contents), "function_call": call, **draw(_extras)}
    return [asks, {"role": "function", "content": draw(_short), **draw(_extras), "name": name}]


@st.composite
def _messages(draw: st.DrawFn, roles: tuple[str, ...]) -> list[Any]:
    message = {"role": draw(st.sampled_from(roles)), "content": draw(_short), **draw(_extras)}
    kind = draw(st.integers(0, 30))
    if kind == 0:
        message["content"] = None
    elif kind == 1:
        message["tool_calls"] = []
    elif kind == 2:
        message["tool_calls"] = [draw(_calls("a"))]
    elif kind == 3:
        message["tool_call_id"] = draw(_ids)
    return [message]


_others = st.one_of(
    _messages(("user",)),
    _messages(("user",)),
    _messages(("assistant",)),
    _messages(("assistant",)),
    _blocks(),
    _legacy(),
    _messages(("system", "developer")),
)


@st.composite
def rows(draw: st.DrawFn) -> list[Any] | None:
    """A transcript, a few of them malformed in one way or another."""
    messages = draw(st.one_of(st.just([]), _messages(("system", "developer"))))
    for block in draw(st.lists(_others, max_size=6)):
        messages = messages + block
    messages = messages + draw(_messages(("user",)))
    kind = draw(st.integers(0, 25))
    at = draw(st.integers(0, len(messages) - 1))
    if kind == 0:
        return None
    if kind == 1:
        messages[at] = None
    elif kind == 2:
        del messages[at]
    elif kind == 3:
        messages[at] = {**messages[at], "role": draw(st.sampled_from(["User", "", "tool", "function", None]))}
    return messages


# --- as Arrow data ----------------------------------------------------------------

_text_types = st.one_of(
    st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]),
    st.builds(
        pa.dictionary,
        st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64()]),
        st.sampled_from([pa.string(), pa.large_string()]),
    ),
    st.builds(
        pa.dictionary,
        st.sampled_from([pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]),
        st.sampled_from([pa.string(), pa.large_string()]),
    ),
)
_list_types = st.sampled_from([pa.list_, pa.large_list, pa.list_view, pa.large_list_view])


@st.composite
def chat_types(draw: st.DrawFn) -> pa.DataType:
    """The type of a column of transcripts, each text and list in a layout of its own."""

    def text() -> pa.DataType:
        return draw(_text_types)

    def of(item: pa.DataType) -> pa.DataType:
        return draw(_list_types)(pa.field(draw(st.sampled_from(["item", "element", "l", ""])), item))

    function = pa.struct({"arguments": text(), "name": text(), "strict": pa.bool_()})
    call = pa.struct({"function": function, "id": text(), "index": pa.int8(), "type": text()})
    members = {
        "role": text(),
        "content": text(),
        "name": text(),
        "tool_call_id": text(),
        "tool_calls": of(call),
        "function_call": pa.struct({"name": text(), "arguments": text()}),
        "refusal": text(),
        "weight": pa.int64(),
        "train": pa.bool_(),
        "score": draw(st.sampled_from([pa.float32(), pa.float64()])),
        "tags": of(text()),
        'k"é\n': text(),
        "meta": pa.struct({"a": text(), "b": pa.int64(), "c": of(pa.int64())}),
    }
    names = draw(st.permutations(sorted(members)))
    return of(pa.struct([(name, members[name]) for name in names]))


def as_dicts(column: Any) -> list[Any]:
    """The rows of a column as ``fit`` takes them: null members left out."""
    return [None if row is None else _without_nulls(row) for row in column.to_pylist()]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """Transcripts as an array, often a slice of one, or with children that are slices."""
    kind = draw(chat_types())
    before, given, after = (draw(st.lists(rows(), max_size=size)) for size in (2, 4, 2))
    whole = pa.array(before + given + after, kind)
    column = whole.slice(len(before), len(given))
    return _on_sliced_child(column) if draw(st.booleans()) else column


def _on_sliced_child(column: pa.Array) -> pa.Array:
    """The same rows on a child that does not begin where its buffers do."""
    kind = column.type
    if len(column) == 0 or not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return column
    offsets = np.asarray(column.offsets)
    first = int(offsets[0])
    mask = pa.array(np.asarray(column.is_null()))
    moved = pa.array(offsets - first, column.offsets.type)
    return type(column).from_arrays(moved, column.values.slice(first), type=kind, mask=mask)
