"""The compiled walk over chat messages measures what the readable reader measures."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from chat_strategies import Dumped, broken_chats, chats
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import Text, texts
from support import PY, Whole, outcome

import ullage
from ullage import _chat, canonical, reference
from ullage._chat import EncodedChat
from ullage.formats.openai_chat import read_message
from ullage.messages import SystemMessage

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def reader_bytes(item: Any) -> int:
    """What the reader makes of a message: the contract message, and all that has no place there."""
    read = read_message(item, "m")
    return len(canonical.write(read.message)) + len(read.extra.encode())


def fitted(chat: list[Any], **named: Any) -> tuple[Any, ...]:
    """All that a fit tells, without the objects."""
    told = outcome(ullage.fit, chat, **named)
    if told[0] == "value":
        return (told[1].kept, told[1].report.to_json())
    return told


def wrapped(chat: list[Any]) -> list[Any]:
    """The same messages by way of ``model_dump``, which only the reader understands."""
    return [Dumped(message) if isinstance(message, dict) else message for message in chat]


def wrapped_within(chat: list[Any]) -> list[Any]:
    """Dicts that hold objects of an SDK."""
    changed = []
    for message in chat:
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        if isinstance(calls, list):
            message = {**message, "tool_calls": [Dumped(c) if isinstance(c, dict) else c for c in calls]}
        changed.append(message)
    return changed


ODD = [
    {"role": "user", "content": "x", "tool_calls": None},
    {"role": "user", "content": "x", "tool_call_id": None},
    {"role": "user", "content": "x", "tool_calls": []},
    {"role": "system", "content": "x", "tool_call_id": None},
    {"role": "assistant", "content": "x", "tool_call_id": None},
    {"role": "assistant", "content": "x", "tool_calls": None},
    {"role": "assistant", "content": "x", "tool_calls": []},
    {"role": "assistant", "content": "", "tool_calls": ()},
    {"role": "assistant", "content": None, "refusal": "no"},
    {"role": "assistant", "refusal": "no"},
    {"role": "assistant", "content": "x", "function_call": None},
    {"role": "user", "content": []},
    {"role": "user", "content": ({"type": "text", "text": "x"},)},
    {"role": "user", "content": [{"type": "text", "text": "x", "n": 1}]},
    {"role": "user", "content": [{"type": "text", "text": 1}]},
    {"role": "user", "content": [{"type": "text"}]},
    {"role": "user", "content": [{"type": ["text"], "text": "x"}]},
    {"role": "user", "content": [{"type": {"a": 1}}]},
    {"role": "user", "content": [{}]},
    {"role": Text("user"), Text("content"): Text("x\n")},
    {"role": "developer", "content": "x", "é\n": {"a": [1.5, None]}},
]


@pytest.mark.parametrize("message", ODD, ids=repr)
def test_an_odd_message_is_measured_alike(message: dict[str, Any]) -> None:
    chat = [message, {"role": "user", "content": "u"}]
    encoded = EncodedChat(chat, False)
    assert encoded.total_bytes == sum(map(reader_bytes, chat))
    assert encoded.total_bytes == EncodedChat(wrapped(chat), False).total_bytes


@given(chats())
@example([{"role": "user", "content": "x", "tool_calls": None}])
@example(
    [
        {"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "42"},
    ]
)
def test_every_message_takes_the_bytes_that_the_reader_finds(chat: list[dict[str, Any]]) -> None:
    lengths = [reader_bytes(message) for message in chat]
    assert EncodedChat(chat, False).total_bytes == sum(lengths)
    waiting: set[str] = set()
    for i, message in enumerate(chat):  # every prefix that can stand alone
        read = read_message(message, "m")
        waiting = waiting - set(read.answers) | set(read.asks)
        if not waiting and any(m["role"] not in ("system", "developer") for m in chat[: i + 1]):
            assert EncodedChat(chat[: i + 1], False).total_bytes == sum(islice(lengths, i + 1))


@given(chats(), st.sampled_from([0, 1, 1024]))
def test_tokens_are_rounded_up_for_each_message(chat: list[dict[str, Any]], price: int) -> None:
    tokens = {True: 0, False: 0}
    for message in chat:
        read = read_message(message, "m")
        parts = read.parts * price
        tokens[isinstance(read.message, SystemMessage)] += (reader_bytes(message) + 3) // 4 + parts
    result = ullage.fit(chat, window_tokens=10**9, output_reserve=1, image_tokens=price)
    (attempt,) = result.report.attempts
    assert attempt.count.tokens == ullage.ContextTokenBreakdown(tokens[True], tokens[False], 4, 32)


@given(chats(), st.integers(0, 3000), st.booleans())
def test_the_slow_way_gives_the_same_report(chat: list[dict[str, Any]], room: int, merge: bool) -> None:
    settings: dict[str, Any] = {"window_tokens": 50 + room, "output_reserve": 10, "merge_users": merge}
    expected = fitted(chat, **settings)
    assert fitted(wrapped(chat), **settings) == expected
    assert fitted(wrapped_within(chat), **settings) == expected
    assert fitted(wrapped(chat[::2]), **settings) == fitted(chat[::2], **settings)


@given(broken_chats(), st.integers(0, 3000))
@example([{"role": "user", "content": [{"type": []}]}], 3000)
@example([{"role": "assistant", "tool_calls": [{"id": "c", "type": [], "function": {}}]}], 3000)
@example([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [CALL, CALL]}], 3000)
@example(
    [{"role": "assistant", "tool_calls": [{**CALL, "id": "c\ud83d"}]}, {"role": "user", "content": ""}], 3000
)
def test_a_fault_is_the_same_fault_either_way(chat: list[Any], room: int) -> None:
    settings: dict[str, Any] = {"window_tokens": 50 + room, "output_reserve": 10}
    expected = fitted(chat, **settings)
    assert fitted(wrapped(chat), **settings) == expected
    assert expected[0] != "error" or issubclass(expected[1], ullage.UllageError)


class OfMessages(reference.ByteHeuristicCounter, frozen=True):
    """A counter that is asked about the contract's messages, as any but the byte heuristic is."""

    def message_tokens(self, message: ullage.Message) -> int:
        return super().message_tokens(message)


@given(chats())
def test_the_byte_heuristic_of_either_engine_gives_the_same_report(chat: list[dict[str, Any]]) -> None:
    settings: dict[str, Any] = {"window_tokens": 10_000, "output_reserve": 10}
    plain = fitted(chat, counter=reference.ByteHeuristicCounter(), **settings)
    assert plain[:2] == fitted(chat, **settings)[:2]


@given(chats(), st.integers(0, 3000))
def test_counting_every_candidate_anew_gives_the_same_report(chat: list[dict[str, Any]], room: int) -> None:
    """A counter of whole requests is given the contract's messages, extra bytes and all."""
    settings: dict[str, Any] = {"window_tokens": 50 + room, "output_reserve": 10}
    counter = OfMessages()
    anew = fitted(chat, counter=Whole(counter), **settings)
    assert anew[:2] == fitted(chat, counter=counter, **settings)[:2]


@given(st.lists(texts(), min_size=1, max_size=4))
def test_text_in_parts_counts_as_the_text_joined(pieces: list[str]) -> None:
    parts = [{"type": "text", "text": piece} for piece in pieces]
    joined = EncodedChat([{"role": "user", "content": "".join(pieces)}], False)
    assert EncodedChat([{"role": "user", "content": parts}], False).total_bytes == joined.total_bytes


@given(chats())
def test_contract_messages_measure_as_themselves(chat: list[dict[str, Any]]) -> None:
    messages = [read_message(message, "m").message for message in chat]
    told = outcome(EncodedChat, messages, False)
    if told[0] == "value":
        assert told[1].total_bytes == sum(map(PY.json_length, messages))


def test_an_ordinary_transcript_never_needs_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(item: Any, path: str) -> Any:
        raise AssertionError(f"{path} went to the reader")

    chat = [
        {"role": "system", "content": "rules"},
        {"role": "developer", "content": [{"type": "text", "text": "more"}]},
        {"role": "user", "content": "字", "name": "ann"},
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL, {**CALL, "id": "d"}]},
        {"role": "tool", "tool_call_id": "d", "content": ""},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "é"}], "name": "f"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "\U0001f98a"},
    ]
    expected = sum(map(reader_bytes, chat))
    monkeypatch.setattr(_chat, "read_message", refuse)
    assert EncodedChat(chat, False).total_bytes == expected
    with pytest.raises(AssertionError, match=r"messages\[0\] went to the reader"):
        EncodedChat([Dumped(chat[2])], False)


def test_arguments_count_as_the_object_they_stand_for() -> None:
    def size(arguments: Any) -> int:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        answer = {"role": "tool", "tool_call_id": "c", "content": ""}
        return EncodedChat([{"role": "assistant", "tool_calls": [call]}, answer], False).total_bytes

    base = size("{}") - 2
    assert size('{ "b" : 1.50, "a": "\\u00e9", "b": 2 }') == base + len('{"a":"é","b":2}'.encode())
    assert size({"a": 1}) == base + len('{"a":1}')
    for raw in ("", " ", "{", "[1]", '"x"', "null", "12", '{"a":1}x', '{"a":"\\ud800"}'):
        assert size(raw) == base + len(canonical.write(raw))
    assert size(None) == size("")


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"id": "c\ud83d"}, "id"),
        ({"function": {"name": "f\ud83d", "arguments": "{}"}}, "function.name"),
        ({"function": {"name": "f", "arguments": "\ud83d"}}, "function.arguments"),
        ({"x": ["\ud83d"]}, "x[0]"),
    ],
)
def test_a_lone_surrogate_in_a_call_is_named(changes: dict[str, Any], path: str) -> None:
    call = {**CALL, **changes}
    chat = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": ""},
    ]
    with pytest.raises(ullage.JsonValueError) as caught:
        EncodedChat(chat, False)
    assert caught.value.path == f"messages[0].tool_calls[0].{path}"
