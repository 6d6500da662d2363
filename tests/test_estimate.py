"""Estimates and the budget check: the recorded outcomes, what must hold for any text, and what is refused."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_threshold import decode, pythonic, read_vectors

from ullage import estimate as module
from ullage.errors import UllageError
from ullage.estimate import (
    check_context_budget,
    estimate_message_tokens,
    estimate_messages_tokens,
    estimate_tokens,
    get_provider_multiplier,
)

# --- recorded outcomes -------------------------------------------------------

RUNNERS: dict[str, Any] = {
    "getProviderMultiplier": get_provider_multiplier,
    "estimateTokens": lambda text=None, **rest: estimate_tokens(text, **rest),
    "estimateMessageTokens": estimate_message_tokens,
    "estimateMessagesTokens": lambda messages=None, **rest: estimate_messages_tokens(messages, **rest),
    "checkContextBudget": lambda **rest: msgspec.to_builtins(check_context_budget(**rest)),
}


@pytest.mark.parametrize("vector", [*read_vectors("estimate"), *read_vectors("budget_check")])
def test_outcome_is_the_recorded_one(vector: dict[str, Any]) -> None:
    arguments = pythonic(decode(vector["input"]))
    assert RUNNERS[vector["fn"]](**arguments) == pythonic(decode(vector["output"]))


# --- estimates ---------------------------------------------------------------


@given(st.text(st.characters(), max_size=40))
def test_text_is_measured_in_utf16_units(text: str) -> None:
    units = sum(2 if ord(character) > 0xFFFF else 1 for character in text)
    base = -(-units // 4)
    assert estimate_tokens(text) == math.ceil(base * 1.0 + base * 0.05)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e21, "1e+21"),
        (-1.5e300, "-1.5e+300"),
        (1e-7, "1e-7"),
        (1.25e-7, "1.25e-7"),
        (1e-6, "0.000001"),
        (-0.0, "0"),
        (100.0, "100"),
        (10**20, "100000000000000000000"),
        (10**21, "1e+21"),
        (2**53 + 1, "9007199254740992"),
        (0.1 + 0.2, "0.30000000000000004"),
        (5e-324, "5e-324"),
        (123456.789, "123456.789"),
        (False, "false"),
        ({"a": [1, None], "b": {}}, '{"a":[1,null],"b":{}}'),
        ('\u2028"\x00\x1f\b\x7f/é', '"\u2028\\"\\u0000\\u001f\\b\x7f/é"'),
        ("\ud800", '"\\ud800"'),
        ("\udc00\ud800", '"\\udc00\\ud800"'),
        ("\ud83d\ude00", '"\ud83d\ude00"'),  # two halves in a row are one character there
    ],
)
def test_values_are_spelled_as_ecmascript_spells_them(value: Any, text: str) -> None:
    assert module._json_text("value", value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_read_back_as_themselves(number: float) -> None:
    assert float(module._number_text(number)) == number


def test_zero_and_false_are_counted_as_the_json_they_are() -> None:
    assert estimate_message_tokens({"content": 0}) == estimate_message_tokens({"content": 7})
    assert estimate_message_tokens({"content": False}) == estimate_message_tokens({"content": "false"})
    assert estimate_message_tokens({"content": ""}) == 4


def test_window_of_nothing_is_in_full_use() -> None:
    check = check_context_budget(0)
    assert (check.available_input_tokens, check.usage_ratio, check.should_compact) == (0, 1, True)


# --- what is refused ---------------------------------------------------------

NAN, INF = math.nan, math.inf
ullage: Any = module  # untyped, so that wrong types can be passed


@pytest.mark.parametrize("wrong", [NAN, True, "0.5", 10**400, [0.5]])
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda wrong: ullage.check_context_budget(wrong), "window_tokens"),
        (lambda wrong: ullage.check_context_budget(100, max_tokens=wrong), "max_tokens"),
        (lambda wrong: ullage.check_context_budget(100, compaction_threshold=wrong), "compaction_threshold"),
    ],
)
def test_what_is_no_number_is_refused_by_name(call: Any, name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(name)) as caught:
        call(wrong)
    assert isinstance(caught.value, UllageError)
    assert isinstance(caught.value, TypeError) == (not isinstance(wrong, (int, float)) or wrong is True)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: ullage.get_provider_multiplier(1), "provider"),
        (lambda: ullage.estimate_tokens(7), "text"),
        (lambda: ullage.estimate_tokens(b"text"), "text"),
        (lambda: ullage.estimate_message_tokens("hi"), "message"),
        (lambda: ullage.estimate_message_tokens({"content": NAN}), "message.content"),
        (lambda: ullage.estimate_message_tokens({"args": {"at": {1, 2}}}), "message.args['at']"),
        (lambda: ullage.estimate_message_tokens({"args": {1: 2}}), "message.args"),
        (lambda: ullage.estimate_message_tokens({"result": {"error": b"no"}}), "message.result.error"),
        (lambda: ullage.estimate_messages_tokens([{}, 7]), "messages[1]"),
        (lambda: ullage.estimate_messages_tokens({"content": "hi"}), "messages"),
        (lambda: ullage.check_context_budget(INF), "window_tokens"),
        (lambda: ullage.check_context_budget(-1), "window_tokens"),
        (lambda: ullage.check_context_budget(100, max_tokens=INF), "max_tokens"),
        (lambda: ullage.check_context_budget(100, provider=7), "provider"),
        (lambda: ullage.check_context_budget(100, system_prompt=["hi"]), "system_prompt"),
        (lambda: ullage.check_context_budget(100, current_prompt=7), "current_prompt"),
        (lambda: ullage.check_context_budget(100, tool_replay_mode="some"), "tool_replay_mode"),
        (
            lambda: ullage.check_context_budget(100, tool_definitions=[{}, {"f": print}]),
            "tool_definitions[1]['f']",
        ),
        (lambda: ullage.check_context_budget(100, tool_definitions="{}"), "tool_definitions"),
        (lambda: ullage.check_context_budget(100, file_attachments=["text"]), "file_attachments[0]"),
        (
            lambda: ullage.check_context_budget(100, conversation_messages=[{"content": [INF]}]),
            "conversation_messages[0].content[0]",
        ),
    ],
)
def test_bad_input_is_refused_by_name(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(name)) as caught:
        call()
    assert isinstance(caught.value, UllageError)


def test_value_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="tool_definitions"):
        ullage.check_context_budget(100, tool_definitions=[endless])
