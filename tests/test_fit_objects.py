"""Messages that are objects: of a vendor's SDK, of this package, and of neither."""

from __future__ import annotations

import copy
from collections import OrderedDict, UserDict
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from chat_strategies import Dumped
from promises import (
    IMAGE,
    ROOMY,
    TOOL,
    asks,
    assistant,
    down_to,
    fit_and_check,
    needed,
    result,
    system,
    tokens,
    user,
)

import ullage
from ullage.errors import TranscriptError


def test_objects_are_measured_by_their_dump_and_come_back_as_themselves() -> None:
    chat = [system(), user("1"), asks("a"), result("a"), assistant(), user("2")]
    objects = [Dumped(message) for message in chat]
    assert needed(objects) == needed(chat)
    assert down_to(objects, [0, 5]).messages == [objects[0], objects[5]]
    mixed = [objects[0], chat[1], objects[2], chat[3], objects[4], chat[5]]
    assert down_to(mixed, [0, 5]).messages == [objects[0], chat[5]]


def test_objects_within_a_dict_are_measured_by_their_dump() -> None:
    plain = asks("a", "b")
    nested = {
        **plain,
        "tool_calls": [
            Dumped(plain["tool_calls"][0]),
            {**plain["tool_calls"][1], "function": Dumped(plain["tool_calls"][1]["function"])},
        ],
    }
    parts = [Dumped({"type": "text", "text": "é"})]
    for answer in (result("b", parts), Dumped(result("b", parts))):
        chat = [user(), nested, result("a"), answer]
        assert needed(chat) == needed([user(), plain, result("a"), result("b", "é")])
        assert fit_and_check(chat, **ROOMY).messages[1] is nested


def test_the_messages_of_this_package_serve_as_well() -> None:
    chat = [
        ullage.SystemMessage("s"),
        ullage.UserMessage("1"),
        ullage.AssistantMessage(None, (ullage.ToolCall("a", "f", {"k": 1.0}),)),
        ullage.ToolMessage("a", "r"),
        ullage.UserMessage("2"),
    ]
    down_to(chat, [0, 4])
    assert tokens(chat).messages == sum((len(message.to_json()) + 3) // 4 for message in chat[1:])


def test_any_mapping_is_a_message() -> None:
    chat = [system(), user("1"), asks("a"), result("a"), assistant(), user("2")]
    for kind in (OrderedDict, UserDict, MappingProxyType):
        messages = [kind(message) for message in chat]
        assert needed(messages) == needed(chat)
        assert ullage.fit(messages, **ROOMY).messages == messages


class Raises:
    def model_dump(self) -> Any:
        raise RuntimeError("not loaded")


class RaisesEarlier:
    @property
    def model_dump(self) -> Any:
        raise RuntimeError("not loaded")


@pytest.mark.parametrize("broken", [Raises(), RaisesEarlier()], ids=["call", "attribute"])
def test_a_dump_that_raises_is_named(broken: Any) -> None:
    for chat, path in (
        ([user(), broken], "messages[1]"),
        ([user([broken])], "messages[0].content[0]"),
        ([assistant("", tool_calls=[broken])], "messages[0].tool_calls[0]"),
        ([{**user(), "x": [{"y": broken}]}], "messages[0].x[0].y"),
    ):
        with pytest.raises(TranscriptError) as caught:
            ullage.fit(chat, **ROOMY)
        assert caught.value.path == path
        assert caught.value.reason == "model_dump raised RuntimeError: not loaded"
        assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(TranscriptError, match=r"tools\[0\]: model_dump raised"):
        ullage.fit([user()], tools=[broken], **ROOMY)


@pytest.mark.parametrize("dump", [None, "text", 1, [], Dumped({})])
def test_a_dump_that_is_no_dict_is_named(dump: Any) -> None:
    with pytest.raises(TranscriptError, match=r"messages\[0\]: model_dump gave a"):
        ullage.fit([Dumped(dump)], **ROOMY)


def test_an_object_without_a_dump_is_no_message() -> None:
    for item in (SimpleNamespace(role="user", content="x"), 1, None, "user", b"", ["user"]):
        with pytest.raises(TranscriptError, match=r"messages\[0\]: a message is a dict or has model_dump"):
            ullage.fit([item], **ROOMY)


def test_nothing_is_changed_in_the_input() -> None:
    chat = [
        user("1"),
        asks("a", arguments='{"b": 1, "a": 2}'),
        result("a", [{"type": "text", "text": "x"}]),
        user([IMAGE]),
    ]
    before, identities = copy.deepcopy(chat), list(map(id, chat))
    tools = [copy.deepcopy(TOOL)]
    for window in (1_000_000, 1300):
        ullage.fit(chat, window_tokens=window, output_reserve=100, tools=tools).report.to_json()
    assert chat == before
    assert list(map(id, chat)) == identities
    assert tools == [TOOL]
