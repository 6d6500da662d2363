"""Hypothesis strategies for chat transcripts as people have them, sound ones and broken ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from strategies import Text, any_values, json_objects, json_texts, json_values, texts


class Dumped:
    """An object of some SDK: all it can do is to dump itself."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def model_dump(self) -> Any:
        return self.data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dumped) and self.data == other.data

    __hash__ = None  # type: ignore[assignment]


_short = st.one_of(st.text("ab é字\n", max_size=12), st.text("x", min_size=50, max_size=300), texts())
_members = st.one_of(
    st.just({}),
    st.just({}),
    st.just({"name": "ann"}),
    st.just({"refusal": None, "annotations": [], "audio": None}),
    st.dictionaries(st.sampled_from(["name", "x", "é", "cache_control"]), json_values, max_size=2),
)

_text_parts = st.builds(lambda text: {"type": "text", "text": text}, _short)
_parts = st.one_of(
    _text_parts,
    _text_parts,
    _text_parts.map(lambda part: {**part, "cache_control": {"type": "ephemeral"}}),
    st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 200}}),
    st.just({"type": "file", "file": {"file_id": "f-1"}}),
    st.just({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
    st.builds(lambda value: {"type": "reasoning", "text": value}, json_values),
)
_contents = st.one_of(
    _short, _short, _short, st.lists(_text_parts, max_size=3), st.lists(_parts, max_size=3), _short.map(Text)
)

_arguments = st.one_of(
    json_objects.map(json.dumps),
    json_objects.map(lambda value: json.dumps(value, ensure_ascii=False, indent=1)),
    st.sampled_from(["{}", "", " ", "{", "not JSON", '"text"', "[1]", "null", '{"a":1,"a":2}', '{"a":NaN}']),
    json_texts,
    json_objects,
    st.none(),
)


@st.composite
def _calls(draw: st.DrawFn, call_id: str) -> dict[str, Any]:
    function = {"name": draw(st.sampled_from(["f", "lookup", "字"])), "arguments": draw(_arguments)}
    kind = draw(st.integers(0, 7))
    if kind == 0:
        return {"id": call_id, "type": "custom", "custom": {"name": "f", "input": draw(_short)}}
    if kind == 1:
        return {"id": call_id, "function": function}
    if kind == 2:
        return {"index": 0, "id": call_id, "type": "function", "function": {**function, "strict": True}}
    return {"id": call_id, "type": "function", "function": function}


@st.composite
def _blocks(draw: st.DrawFn) -> list[dict[str, Any]]:
    """An assistant message with calls, and their results in any order."""
    ids = draw(st.lists(st.sampled_from(["a", "b", "c", "é1", " d"]), min_size=1, max_size=3, unique=True))
    asks = {
        "role": "assistant",
        "content": draw(st.one_of(st.none(), st.none(), _contents)),
        "tool_calls": [draw(_calls(call_id)) for call_id in ids],
        **draw(_members),
    }
    if draw(st.integers(0, 5)) == 0:
        del asks["content"]
    results = [
        {"role": "tool", "tool_call_id": call_id, "content": draw(_contents), **draw(_members)}
        for call_id in draw(st.permutations(ids))
    ]
    return [asks, *results]


@st.composite
def _messages(draw: st.DrawFn, roles: tuple[str, ...]) -> list[dict[str, Any]]:
    message = {"role": draw(st.sampled_from(roles)), "content": draw(_contents), **draw(_members)}
    if draw(st.integers(0, 7)) == 0:
        message[draw(st.sampled_from(["tool_calls", "tool_call_id", "function_call"]))] = None
    return [message]


_legacy = st.one_of(st.none(), _contents).map(
    lambda content: [
        {"role": "assistant", "content": content, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "42"},
    ]
)
_others = st.one_of(
    _messages(("user",)),
    _messages(("user",)),
    _messages(("assistant",)),
    _blocks(),
    _messages(("system", "developer")),
    _legacy,
)


@st.composite
def chats(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Transcripts that can be sent, with all that people put into them."""
    messages = draw(st.one_of(st.just([]), _messages(("system", "developer"))))
    for block in draw(st.lists(_others, max_size=7)):
        messages = messages + block
    return messages + draw(_messages(("user",)))


@st.composite
def broken_chats(draw: st.DrawFn) -> list[Any]:
    """Transcripts with something changed that may make them impossible to send."""
    messages: list[Any] = [dict(message) for message in draw(chats())]
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(messages) - 1)) if messages else 0
        kind = draw(st.integers(0, 6))
        if not messages or kind == 0:
            messages.insert(at, draw(st.one_of(any_values, _messages(("tool",)).map(lambda one: one[0]))))
        elif kind == 1:
            del messages[at]
        elif kind == 2:
            messages.insert(draw(st.integers(0, len(messages))), messages[at])
        elif isinstance(messages[at], dict):
            messages[at] = _with_change(draw, messages[at])
    return messages


def _with_change(draw: st.DrawFn, message: dict[str, Any]) -> dict[str, Any]:
    changed = dict(message)
    key = draw(st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "x", 1, "\ud800"]))
    if draw(st.booleans()):
        changed.pop(key, None)
        return changed
    if key == "role":
        changed[key] = draw(st.sampled_from(["user", "tool", "assistant", "system", "User", "", None, 1, []]))
        return changed
    calls = changed.get("tool_calls")
    if key == "tool_calls" and isinstance(calls, list) and calls and draw(st.booleans()):
        call = draw(st.sampled_from(calls))
        call = call if isinstance(call, dict) else {}
        field = draw(st.sampled_from(["id", "type", "function", "x"]))
        changed[key] = [*calls, {**call, field: draw(any_values)}]
        return changed
    changed[key] = draw(st.one_of(any_values, st.lists(any_values, max_size=2), _contents))
    return changed
