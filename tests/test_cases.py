"""Failures that users of other packages have met, each with the outcome that is right here.

``cases.jsonl`` holds the inputs, and where each was reported; a test is named for the ``kind`` of its case.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from promises import check_fit, fit_and_check
from support import ExactBytes, Whole

import ullage
from ullage import reference
from ullage.budget import ContextBuildLimits, TokenBudgetMode
from ullage.errors import (
    DecodeError,
    DoesNotFit,
    InvalidContext,
    JsonValueError,
    ResourceLimit,
    TranscriptError,
    UnverifiedCount,
)

LINES = (Path(__file__).parent / "cases.jsonl").read_text(encoding="utf-8").split("\n")
CASES = {case["kind"]: case["input"] for case in map(json.loads, filter(None, LINES))}
RESERVE = 1


def expanded(item: Any) -> Any:
    """An input with its short forms written out."""
    if isinstance(item, list):
        return [expanded(element) for element in item]
    if not isinstance(item, dict):
        return item
    if "$repeat" in item:
        text, times = item["$repeat"]
        return text * times
    if "$concat" in item:
        return "".join(map(expanded, item["$concat"]))
    return {key: expanded(value) for key, value in item.items()}


@pytest.fixture
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The input of the case that the test is named for."""
    found: dict[str, Any] = expanded(CASES[request.function.__name__.removeprefix("test_")])
    return found


@pytest.fixture
def chat(case: dict[str, Any]) -> list[Any]:
    messages: list[Any] = case["messages"]
    return messages


def counted(chat: list[Any], **settings: Any) -> ullage.ContextTokenBreakdown:
    """The tokens of the whole transcript."""
    fitted = ullage.fit(chat, window_tokens=10**9, output_reserve=RESERVE, **settings)
    return fitted.report.attempts[0].count.tokens


def fit_to(chat: list[Any], window: int, **settings: Any) -> ullage.FitResult[Any]:
    return fit_and_check(chat, window_tokens=window, output_reserve=RESERVE, **settings)


def fit_to_fraction(case: dict[str, Any]) -> ullage.FitResult[Any]:
    """The window is a fraction of what the whole transcript counts."""
    return fit_to(case["messages"], int(case["budget_fraction"] * counted(case["messages"]).total()))


def cuts(chat: list[Any]) -> Iterator[ullage.FitResult[Any]]:
    """The results at every window at which another turn has to go, the whole transcript first."""
    with pytest.raises(DoesNotFit) as caught:
        ullage.fit(chat, window_tokens=RESERVE + 1, output_reserve=RESERVE)
    for attempt in caught.value.report.attempts:
        yield fit_to(chat, attempt.total_reserved)


def roles(result: ullage.FitResult[Any]) -> list[str]:
    return [message["role"] for message in result.messages]


class Asked(ExactBytes):
    """Notes how often it is asked about each message."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def message_tokens(self, message: Any) -> int:
        self.asked.append(id(message))
        return (ullage.json_length(message) + 3) // 4


def test_every_case_has_its_test() -> None:
    assert len(CASES) == sum(map(bool, LINES)) == 30
    assert [kind for kind in CASES if f"test_{kind}" not in globals()] == []


# --- calls and results -----------------------------------------------------------------------


def test_tool_calls_without_results(case: dict[str, Any]) -> None:
    """The exchange is kept or dropped entire."""
    assert fit_to_fraction(case).kept == [0, 6]
    for result in cuts(case["messages"]):
        assert ("tool" in roles(result)) == (len(result.messages) == 7)


def test_trailing_tool_results_not_counted(case: dict[str, Any], chat: list[Any]) -> None:
    """The current turn is over the window on its own: refused, with the figures."""
    with pytest.raises(DoesNotFit) as caught:
        fit_to(chat, case["window"])
    assert caught.value.window == 600
    assert caught.value.needed > 600 + 2000
    assert caught.value.parts["current"] > 10_000 // 4


def test_result_lost_when_it_fits(case: dict[str, Any], chat: list[Any]) -> None:
    """All four messages come back."""
    assert fit_to(chat, case["window"]).messages == chat
    assert len(chat) == 4


def test_endless_shortening(case: dict[str, Any], chat: list[Any]) -> None:
    """It ends, and says that the request does not fit."""
    with pytest.raises(DoesNotFit) as caught:
        fit_to(chat, case["window"])
    assert len(caught.value.report.attempts) == 1


def test_parallel_calls_pair_by_id(case: dict[str, Any], chat: list[Any]) -> None:
    """Results come in any order within the block; nothing is added."""
    assert fit_to(chat, case["window"]).messages == chat


def test_mixed_orphans_in_one_block(case: dict[str, Any], chat: list[Any]) -> None:
    """Rejected: the first result that answers no call is named, and without it the second."""
    for index, call_id in ((0, "gone"), (3, "gone2")):
        with pytest.raises(TranscriptError, match=f"the result '{call_id}' answers no call") as caught:
            fit_to(chat, case["window"])
        assert caught.value.path == f"messages[{index}]"
        chat = [{"role": "user", "content": ""}, *chat[1:]]


def test_old_orphan_blocks_trimming(case: dict[str, Any]) -> None:
    """Rejected where the call is left without its result; trimming is never switched off in silence."""
    with pytest.raises(TranscriptError, match="'dead'") as caught:
        fit_to(case["messages"], 1000)
    assert caught.value.path == "messages[3]"
    whole = [message for i, message in enumerate(case["messages"]) if i != 2]
    assert fit_to(whole, int(case["budget_fraction"] * counted(whole).total())).kept == [0, 6]


def test_tool_role_text_only(chat: list[Any]) -> None:
    """A tool message always belongs to its call.  (Cuts are by tokens here, so all of them are made.)"""
    assert [result.kept for result in cuts(chat)] == [[*range(7)], [4, 5, 6], [6]]


def test_orphan_in_the_middle(case: dict[str, Any]) -> None:
    """No result without its call anywhere in the list."""
    assert fit_to_fraction(case).kept in ([2, 3, 4, 5, 6, 7, 8], [6, 7, 8], [8])
    assert [result.kept for result in cuts(case["messages"])][1:] == [[*range(2, 9)], [6, 7, 8], [8]]


def test_first_message_not_user(chat: list[Any]) -> None:
    """The first message that is kept after the system messages is the user's.  (Cuts by tokens.)"""
    for result in cuts(chat):
        assert roles(result)[:2] == ["system", "user"]


def test_reasoning_only_message_left(case: dict[str, Any]) -> None:
    """Parts of a message are never removed; the turn goes whole."""
    assert fit_to_fraction(case).kept == [4]
    for result in cuts(case["messages"]):
        assert result.kept in ([0, 1, 2, 3, 4], [4])


def test_linked_parts_beyond_calls(case: dict[str, Any]) -> None:
    """Links of any kind lie within a turn."""
    assert fit_to_fraction(case).kept == [4]
    assert [result.kept for result in cuts(case["messages"])] == [[0, 1, 2, 3, 4], [4]]


# --- what stays --------------------------------------------------------------------------------


def test_system_prompt_dropped(chat: list[Any]) -> None:
    """The system message is kept.  (Cuts by tokens.)"""
    assert [result.kept for result in cuts(chat)] == [[*range(6)], [0, 3, 4, 5], [0, 5]]


def test_notice_text_changes_the_agent(case: dict[str, Any]) -> None:
    """Nothing is added to the conversation: the report is separate data."""
    for result in cuts(case["messages"]):
        assert all(any(message is given for given in case["messages"]) for message in result.messages)
    with pytest.raises(DoesNotFit):  # here half of the transcript is less than what must stay
        fit_to_fraction(case)


def test_empty_input(case: dict[str, Any], chat: list[Any]) -> None:
    """A typed error that says what is missing."""
    with pytest.raises(TranscriptError, match="a transcript needs a message that is not a system message"):
        fit_to(chat, case["window"])


# --- what counts ---------------------------------------------------------------------------------


def test_tool_schema_undercounted(case: dict[str, Any], chat: list[Any]) -> None:
    """Every byte of the serialised schema counts."""
    (tool,) = case["tools"]
    whole = counted(chat, tools=[tool], counter=ExactBytes()).constraint
    schema = tool["function"]["parameters"]["properties"]["a"]
    assert list(schema) == ["anyOf", "default", "title"]
    for key, item in schema.items():
        less = json.loads(json.dumps(tool))
        del less["function"]["parameters"]["properties"]["a"][key]
        member = len(f',"{key}":') + len(json.dumps(item, separators=(",", ":")))
        assert counted(chat, tools=[less], counter=ExactBytes()).constraint == whole - member
    assert whole > len(tool["function"]["description"]) == 400


def test_budget_ignores_tools_and_system(case: dict[str, Any], chat: list[Any]) -> None:
    """The complete request decides: messages, tools, template and reserve."""
    tokens = counted(chat, tools=case["tools"])
    assert tokens.constraint > 2000
    assert tokens.system > 1000
    assert tokens.template == 32
    window = case["window"]
    reserve = window - tokens.total()
    whole = fit_and_check(chat, window_tokens=window, output_reserve=reserve, tools=case["tools"])
    assert whole.messages == chat
    cut = fit_and_check(chat, window_tokens=window, output_reserve=reserve + 1, tools=case["tools"])
    assert cut.kept == [0, 3]
    with pytest.raises(DoesNotFit):
        fit_and_check(chat, window_tokens=window, output_reserve=1000, tools=case["tools"])


def test_unknown_content_part(case: dict[str, Any], chat: list[Any]) -> None:
    """A file counts the price that the caller sets; Hard mode refuses and names part 1."""
    assert counted(chat, image_tokens=700).messages == counted(chat, image_tokens=0).messages + 700
    window: dict[str, Any] = {"window_tokens": case["window"], "output_reserve": RESERVE}
    with pytest.raises(UnverifiedCount) as caught:
        ullage.fit(chat, mode=TokenBudgetMode.HARD, counter=ExactBytes(), **window)
    assert caught.value.path == "messages[0].content[1]"


def test_image_base64_counted_as_text(chat: list[Any]) -> None:
    """A price for each image, the same for every spelling, and the report says which."""
    result = fit_to(chat, 10_000)
    (attempt,) = result.report.attempts
    assert 1024 < attempt.count.tokens.messages < 1100
    assert attempt.count.method.endswith("+parts-at-1024")
    part = chat[0]["content"][1]
    chat[0]["content"][1] = {"type": "image_url", "image_url": {"url": part["image_url"]}}
    assert fit_to(chat, 10_000).report.to_json() == result.report.to_json()


def test_image_counted_as_zero(chat: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not nothing, always the same, and no request is made."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a network request")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert {counted(chat).messages for _ in range(3)} == {1024 + 7}


def test_cjk_without_spaces_is_one_word(chat: list[Any]) -> None:
    """6,000 bytes are 1,500 tokens, and the frame of the message comes on top."""
    assert counted(chat).messages == (6000 + len('{"role":"user","content":""}')) // 4


def test_lone_surrogate(chat: list[Any]) -> None:
    """A typed error that names messages[0].content, wherever the text is counted or written."""
    text = chat[0]["content"].replace("\\ud83d", "\ud83d")
    assert len(text) == len("bad ? half")
    for counter in (None, ExactBytes(), Whole(ExactBytes())):
        with pytest.raises(JsonValueError, match="a lone surrogate at character 4") as caught:
            ullage.fit(
                [{"role": "user", "content": text}], window_tokens=99, output_reserve=1, counter=counter
            )
        assert caught.value.path == "messages[0].content"
    message = ullage.UserMessage(text)
    for measure in (ullage.json_length, reference.json_length, ullage.UserMessage.to_json):
        with pytest.raises(JsonValueError, match="content: a lone surrogate at character 4"):
            measure(message)  # type: ignore[operator]
    for read in (ullage.json_text_length, reference.json_text_length, ullage.UserMessage.from_json):
        with pytest.raises(DecodeError):
            read('{"role":"user","content":"bad \\ud83d half"}')  # type: ignore[operator]


def test_one_very_long_word(chat: list[Any]) -> None:
    """A limit in bytes refuses before anything is counted; without one the word counts its bytes."""
    assert counted(chat).messages == (100_000 + 28) // 4
    counter = Asked()
    with pytest.raises(ResourceLimit, match="input bytes"):
        fit_to(chat, 10**6, limits=ContextBuildLimits(max_input_bytes=99_999), counter=counter)
    assert counter.asked == []


def test_double_count_without_assistant(case: dict[str, Any], chat: list[Any]) -> None:
    """A provider's figures are no input of the call: each message is counted once, by one counter."""
    tokens = counted(chat)
    assert (tokens.system, tokens.messages) == (8, 8)
    figures = {"provider_reported_tokens": case["provider_reported_tokens"]}
    with pytest.raises(TypeError, match="provider_reported_tokens"):
        ullage.fit(chat, window_tokens=1000, output_reserve=1, **figures)


# --- work ------------------------------------------------------------------------------------------


def conversation(messages: int, size: int) -> list[dict[str, str]]:
    """Users and assistants in turn, each message of so many bytes."""
    text = "x" * (size - len('{"role":"user","content":""}'))
    return [{"role": "assistant" if i % 2 else "user", "content": text} for i in range(messages - 1)] + [
        {"role": "user", "content": text}
    ]


def test_quadratic_trimming(case: dict[str, Any]) -> None:
    """Each message is counted once, however many turns go."""
    given = case["generator"]
    chat = conversation(given["messages"], 4 * given["total_tokens"] // given["messages"])
    counter = Asked()
    result = fit_to(chat, given["window"], counter=counter)
    assert len(counter.asked) == len(set(counter.asked)) == 1000
    assert len(result.report.attempts) > 400


def test_reserialise_per_iteration(case: dict[str, Any]) -> None:
    """One pass over the messages, then subtraction."""
    given = case["generator"]
    chat = conversation(given["messages"], given["bytes"] // given["messages"])
    counter = Asked()
    result = fit_to(chat, given["window_tokens"], counter=counter)
    assert len(counter.asked) == 792
    figures = [attempt.count.tokens.messages for attempt in result.report.attempts]
    assert len(figures) > 1
    assert len({before - after for before, after in pairwise(figures)}) == 1


def test_trims_every_turn_breaks_prompt_cache(case: dict[str, Any]) -> None:
    """The result gives the first index kept.  (High and low water marks are not part of ``fit``.)"""
    chat = []
    for _ in range(case["turns"]):
        chat += [{"role": "user", "content": "q"}]
        chat += [{"role": "assistant", "content": "x" * 800}] * (case["messages_per_turn"] - 1)
    result = ullage.fit(chat, window_tokens=case["window"], output_reserve=RESERVE)
    check_fit(chat, result, window_tokens=case["window"], output_reserve=RESERVE)
    assert 0 < result.kept[0] < len(chat)
    assert result.kept[0] % case["messages_per_turn"] == 0
    dropped = [turn for turn in result.report.turns if not turn.retained]
    assert result.kept[0] == 1 + int(dropped[-1].source_events[-1])


# --- configuration -----------------------------------------------------------------------------------


def test_reserve_eats_the_window(case: dict[str, Any]) -> None:
    """The reserve is a line of its own, and is flagged where it takes most of the window."""
    chat = [{"role": "user", "content": "x" * 4 * case["prompt_tokens"]}]
    with pytest.raises(DoesNotFit) as caught:
        ullage.fit(chat, window_tokens=case["window"], output_reserve=case["reserve"])
    assert caught.value.parts["output_reserve"] == case["reserve"]
    assert caught.value.parts["current"] == case["prompt_tokens"] + 7
    assert "output_reserve alone takes 90% of the window" in caught.value.__notes__


def test_margin_disables_trimming(case: dict[str, Any], chat: list[Any]) -> None:
    """A configuration error that names the margin."""
    with pytest.raises(InvalidContext, match="leave nothing of window_tokens") as caught:
        ullage.fit(chat, window_tokens=case["window"], output_reserve=1, safety_margin=case["margin"])
    assert caught.value.path == "safety_margin"


def test_wrong_builtin_window(case: dict[str, Any]) -> None:
    """The window is an argument of the call; the name of a model decides nothing."""
    chat = [{"role": "user", "content": "hi"}]
    with pytest.raises(TypeError, match="window_tokens"):
        ullage.fit(chat, output_reserve=1, model=case["model"])  # type: ignore[call-arg]
    for window in (case["window_documented"], case["window_builtin"]):
        report = ullage.fit(chat, window_tokens=window, output_reserve=1, model=case["model"]).report
        assert report.budget.window_tokens == window
        assert report.target.model == "gpt-5.1"
