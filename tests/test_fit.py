"""The everyday call keeps its promises."""

from __future__ import annotations

from typing import Any

import pytest
from chat_strategies import chats
from hypothesis import given, settings
from hypothesis import strategies as st
from promises import ROOMY, asks, assistant, down_to, fit_and_check, needed, result, system, user
from support import ExactBytes, Whole, outcome

import ullage
from ullage.errors import DoesNotFit, InvalidContext, TranscriptError

# --- for every transcript -------------------------------------------------------------------


@given(st.data(), chats(), st.integers(0, 1500), st.booleans(), st.sampled_from([0, 85, 1024]))
def test_every_result_keeps_the_promises(
    data: st.DataObject, chat: list[Any], room: int, merge: bool, price: int
) -> None:
    turns = len(ullage.fit(chat, merge_users=merge, **ROOMY).report.turns) + 1
    pins = tuple(data.draw(st.lists(st.integers(0, turns - 1), max_size=2)))
    settings: dict[str, Any] = {
        "window_tokens": 60 + room,
        "output_reserve": 10,
        "safety_margin": data.draw(st.sampled_from([0, 5])),
        "merge_users": merge,
        "image_tokens": price,
    }
    kind, error, *_ = outcome(fit_and_check, chat, pins=pins, **settings)
    assert kind == "value" or error is DoesNotFit


@settings(max_examples=50)
@given(chats(), st.floats(0.1, 1.0))
def test_no_limits_never_end_in_a_limit(chat: list[Any], share: float) -> None:
    chat = chat * 20
    window = max(200, int(share * needed(chat)))
    kind, error, *_ = outcome(fit_and_check, chat, window_tokens=window, output_reserve=10)
    assert kind == "value" or error is DoesNotFit


@given(chats(), st.integers(0, 1500))
def test_a_result_fits_again_as_it_is(chat: list[Any], room: int) -> None:
    settings: dict[str, Any] = {"window_tokens": 60 + room, "output_reserve": 10}
    kind, fitted, *_ = outcome(ullage.fit, chat, **settings)
    if kind == "value":
        again = ullage.fit(fitted.messages, **settings)
        assert again.messages == fitted.messages
        assert len(again.report.attempts) == 1
        assert again.report.attempts[0].count.tokens == fitted.report.attempts[-1].count.tokens


@given(chats(), st.integers(0, 1500), st.lists(st.integers(0, 300), min_size=1, max_size=3))
def test_an_additive_counter_agrees_with_counting_each_candidate_anew(
    chat: list[Any], room: int, figures: list[int]
) -> None:
    class Table(ExactBytes):
        template_tokens = 3

        def message_tokens(self, message: Any) -> int:
            return figures[super().message_tokens(message) % len(figures)]

    settings: dict[str, Any] = {"window_tokens": 60 + room, "output_reserve": 10}
    found = outcome(fit_and_check, chat, counter=Table(), **settings)
    anew = outcome(fit_and_check, chat, counter=Whole(Table()), **settings)
    assert found[0] == anew[0]
    if found[0] == "value":
        assert found[1].kept == anew[1].kept
        assert found[1].report.to_json() == anew[1].report.to_json()
    else:
        assert found[1] is anew[1]
        assert found[4] == anew[4]


# --- turns ---------------------------------------------------------------------------------------


def test_what_fits_comes_back_whole_and_as_a_list() -> None:
    chat = [system(), user(), assistant()]
    for given_as in (chat, tuple(chat), iter(chat)):
        fitted = ullage.fit(given_as, **ROOMY)
        assert isinstance(fitted.messages, list)
        assert [id(message) for message in fitted.messages] == [id(message) for message in chat]
    assert repr(fitted) == "<FitResult: 3 of 3 messages, 0 turns dropped>"


def test_the_oldest_turns_go_first_and_whole() -> None:
    chat = [system(), user("1"), assistant(), user("2"), asks("a"), result("a"), assistant(), user("3")]
    for kept in (list(range(8)), [0, 3, 4, 5, 6, 7], [0, 7]):
        down_to(chat, kept)


def test_each_of_consecutive_users_opens_a_turn() -> None:
    chat = [user("1"), user("2"), assistant(), user("3"), user("4")]
    for kept in ([1, 2, 3, 4], [3, 4], [4]):
        down_to(chat, kept)


def test_consecutive_users_may_be_joined() -> None:
    chat = [user("1"), user("2"), assistant(), user("3"), user("4")]
    down_to(chat, [3, 4], merge_users=True)
    with pytest.raises(DoesNotFit):
        ullage.fit(chat, window_tokens=needed([chat[3]]), output_reserve=100, merge_users=True)
    chat.insert(1, system("between"))  # a system message parts them
    assert [t.turn_id for t in ullage.fit(chat, merge_users=True, **ROOMY).report.turns] == [
        "turn-0",
        "turn-1",
        "turn-2",
    ]


def test_a_greeting_is_a_turn_and_may_go() -> None:
    chat = [system(), assistant("hello"), user("1"), assistant(), user("2")]
    for kept in ([0, 2, 3, 4], [0, 4]):
        down_to(chat, kept)


def test_a_transcript_may_be_a_greeting_alone() -> None:
    down_to([assistant("hello")], [0])


def test_leading_system_and_developer_messages_are_the_system_part() -> None:
    chat = [system(), system("d", "developer"), user("1"), assistant(), user("2")]
    report = down_to(chat, [0, 1, 4]).report
    assert report.system_messages == 2
    assert [turn.turn_id for turn in report.turns] == ["turn-0"]


def test_a_system_message_in_the_middle_is_a_protected_turn() -> None:
    chat = [user("1"), assistant(), system("m"), user("2"), assistant(), system("n", "developer"), user("3")]
    report = down_to(chat, [2, 5, 6]).report
    assert report.system_messages == 0
    assert [(turn.source_events, turn.retained, turn.protected) for turn in report.turns] == [
        (("0", "1"), False, False),
        (("2",), True, True),
        (("3", "4"), False, False),
        (("5",), True, True),
    ]
    assert report.attempts[-1].count.tokens.system == 2 * ((len('{"role":"system","content":"m"}') + 3) // 4)


def test_text_after_a_system_message_continues_the_turn_it_interrupted() -> None:
    chat = [
        user("1"),
        assistant(),
        system("m"),
        assistant("more"),
        user("2"),
        assistant(),
        system("n"),
        assistant(),
    ]
    fitted = down_to(chat, [2, 4, 5, 6, 7])
    assert fitted.report.turns[0].source_events == ("0", "1", "3")
    assert fitted.report.current_messages == 3


def test_the_last_turn_stays_though_a_system_message_ends_the_transcript() -> None:
    chat = [user("1"), assistant(), user("2"), assistant(), system("end")]
    down_to(chat, [2, 3, 4])


def test_pinned_turns_stay() -> None:
    chat = [user("1"), assistant(), user("2"), user("3"), user("4")]
    for pins in (("turn-0",), (0,), (0, "turn-0"), [0], iter(["turn-0"])):
        window = needed([chat[i] for i in (0, 1, 4)])
        assert ullage.fit(chat, window_tokens=window, output_reserve=100, pins=pins).kept == [0, 1, 4]
    report = down_to(chat, [0, 1, 3, 4], pins=(0, 2)).report
    assert [turn.protected for turn in report.turns] == [True, False, True]
    down_to(chat, [4], pins=("turn-3",))


@pytest.mark.parametrize(
    "pin",
    [
        "turn-4",
        4,
        -1,
        "turn--1",
        "t",
        "turn-",
        "turn-01",
        "turn-١",
        "0",
        None,
        1.0,
        True,
        10**30,
        "turn-" + "9" * 30,
    ],
)
def test_a_pin_that_is_no_turn_is_refused(pin: Any) -> None:
    with pytest.raises(InvalidContext, match="duplicate or unknown pinned turn") as caught:
        ullage.fit([user(), user(), user(), user()], pins=[0, pin], **ROOMY)
    assert caught.value.path == "pins[1]"


# --- tool calls -----------------------------------------------------------------------------------


def test_parallel_calls_take_results_in_any_order_and_stay_together() -> None:
    chat = [user("1"), asks("A", "B", "C"), result("C"), result("A"), result("B"), assistant(), user("2")]
    assert fit_and_check(chat, **ROOMY).messages == chat
    down_to(chat, [6])


def test_an_id_may_be_used_again_in_a_later_block() -> None:
    chat = [user("1"), asks("a"), result("a"), asks("a"), result("a"), assistant(), user("2")]
    assert fit_and_check(chat, **ROOMY).messages == chat


@pytest.mark.parametrize(
    ("chat", "path", "reason"),
    [
        ([result("a"), user()], "messages[0]", "the result 'a' answers no call that is waiting for one"),
        ([user(), asks("a"), result("b")], "messages[2]", "the result 'b' answers no call"),
        ([user(), asks("a"), result("a"), result("a")], "messages[3]", "the result 'a' answers no call"),
        ([user(), asks("a"), user()], "messages[2]", "between a tool call and its result ('a')"),
        ([user(), asks("a", "b"), result("b"), assistant()], "messages[3]", "and its result ('a')"),
        ([user(), asks("a"), system(), result("a")], "messages[2]", "a message stands between"),
        ([user(), asks("a", "b"), result("b")], "messages[2]", "ends before every tool call has its result"),
        ([user(), asks("a", "a"), result("a")], "messages[1]", "the call id 'a' is used twice"),
        ([user(), asks("")], "messages[1].tool_calls[0].id", "an id is a text that is not blank, not ''"),
        ([user(), asks("\u3000")], "messages[1].tool_calls[0].id", "an id is a text that is not blank"),
        ([user(), assistant(None)], "messages[1]", "needs content or tool calls"),
        ([user(), assistant(None, tool_calls=[])], "messages[1]", "an assistant message needs content"),
        ([user(), {"role": "assistant"}], "messages[1]", "an assistant message needs content or tool calls"),
        ([user(), assistant(tool_calls={})], "messages[1].tool_calls", "tool_calls is a list, not dict"),
        ([user(), assistant(tool_calls=["x"])], "messages[1].tool_calls[0]", "a tool call is a dict"),
        ([user(), assistant(tool_calls=[{"id": "a"}])], "messages[1].tool_calls[0]", "needs its member"),
        ([user(None)], "messages[0].content", "a message of this role needs content"),
        ([{"role": "user"}], "messages[0].content", "a message of this role needs content"),
        ([system(None), user()], "messages[0].content", "a message of this role needs content"),
        ([user(), asks("a"), result("a", None)], "messages[2].content", "needs content"),
        ([user(), asks("a"), {"role": "tool", "content": ""}], "messages[2]", "needs tool_call_id"),
        ([user(3)], "messages[0].content", "content is text, null or a list of parts, not int"),
        ([user(["x"])], "messages[0].content[0]", "a content part is a dict, not str"),
        ([{"role": "User", "content": ""}], "messages[0].role", "the role is one of system, developer, user"),
        ([{"content": "x"}], "messages[0].role", "not None"),
        ([user(), "x"], "messages[1]", "a message is a dict or has model_dump, not str"),
        ([], "messages", "a transcript needs a message that is not a system message"),
        ([system()], "messages", "a transcript needs a message that is not a system message"),
        ([ullage.AssistantMessage()], "messages[0]", "an assistant message needs content or tool calls"),
        (
            [ullage.AssistantMessage(None, (ullage.ToolCall("a", " ", {}),)), ullage.ToolMessage("a", "")],
            "messages[0].tool_calls[0].name",
            "a tool call needs a name",
        ),
    ],
)  # fmt: skip
def test_a_malformed_transcript_names_the_message(chat: list[Any], path: str, reason: str) -> None:
    with pytest.raises(TranscriptError) as caught:
        ullage.fit(chat, **ROOMY)
    assert caught.value.path == path
    assert reason in caught.value.reason
    assert str(caught.value) == f"{path}: {caught.value.reason}"


@pytest.mark.parametrize("arguments", ["", " ", "{", "[1]", '"x"', "null", None, [1], "{}", {}, {"k": 1}])
def test_arguments_of_every_kind_are_counted(arguments: Any) -> None:
    chat = [user("1"), asks("a", arguments=arguments), result("a"), user("2")]
    method = fit_and_check(chat, **ROOMY).report.attempts[0].count.method
    raw = isinstance(arguments, str | None) and arguments != "{}"
    assert method == "serialized-utf8-ceil-div4-v1" + ("+raw-arguments" if raw else "")
    down_to(chat, [3])


def test_an_old_function_call_is_paired_by_its_name() -> None:
    call = assistant(None, function_call={"name": "f", "arguments": "{}"})
    answer = {"role": "function", "name": "f", "content": "42"}
    chat = [user("1"), call, answer, user("2")]
    assert fit_and_check(chat, **ROOMY).messages == chat
    down_to(chat, [3])
    with pytest.raises(TranscriptError, match="answers no call"):
        ullage.fit([user(), answer], **ROOMY)


def test_blocks_of_another_format_are_refused_not_parted() -> None:
    chat = [
        {"role": "user", "content": "weather? " * 50},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "rain"}]},
    ]
    with pytest.raises(ullage.TranscriptError, match="tool_use block") as told:
        ullage.fit(chat, window_tokens=250, output_reserve=100)
    assert told.value.path == "messages[1].content[0]"


def test_a_tool_message_needs_to_say_which_call_it_answers() -> None:
    part = {"type": "text", "text": "x", "cache_control": {"type": "e"}}
    chat = [{"role": "user", "content": "q"}, {"role": "tool", "content": [part]}]
    with pytest.raises(ullage.TranscriptError, match="needs tool_call_id"):
        ullage.fit(chat, window_tokens=1000, output_reserve=100)


def test_hard_mode_says_why_an_estimate_is_refused() -> None:
    mode = ullage.TokenBudgetMode.HARD
    with pytest.raises(ullage.UnverifiedCount) as told:
        ullage.fit([{"role": "user", "content": "q"}], window_tokens=1000, output_reserve=100, mode=mode)
    assert "Hard mode takes verified upper bounds only" in told.value.__notes__[0]


@pytest.mark.parametrize("counter", [5, "x", ullage.ByteHeuristicCounter, lambda messages: 1])
def test_what_is_no_counter_is_refused_by_name(counter: Any) -> None:
    with pytest.raises(TypeError, match="a counter has message_tokens or count"):
        ullage.fit(
            [{"role": "user", "content": "q"}], window_tokens=1000, output_reserve=100, counter=counter
        )
