"""A Transcript as it changes: what may follow what, the last turn, pins, arrays, copies, memory."""

from __future__ import annotations

import copy
import pickle
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from request_strategies import (
    any_messages,
)
from support import PY, ExactBytes, outcome
from transcript_strategies import (
    NOW,
    ROOMY,
    TARGET,
    asks,
    built_from,
    changed_transcripts,
    down_to,
    exchange,
    fit,
    fit_all,
    same,
    sound_fits,
    state_of,
    three_turns,
)

import ullage
from ullage.errors import (
    InvalidContext,
    InvalidShape,
    JsonValueError,
    TranscriptError,
)
from ullage.messages import (
    AssistantMessage,
    JsonSchema,
    Message,
    NativeTools,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

# --- orders ---------------------------------------------------------------------------------------

PENDING = [UserMessage("u"), asks("a", "b")]

DISORDERS: dict[str, tuple[list[Message], Any, type[Exception], str]] = {
    "a result without a call": (
        [UserMessage("u")],
        ToolMessage("c", "r"),
        TranscriptError,
        "messages[1]: tool result at message 1 has no pending matching call",
    ),
    "a result at the start": (
        [],
        ToolMessage("c", "r"),
        TranscriptError,
        "messages[0]: tool result at message 0 has no pending matching call",
    ),
    "a second result": (
        [*PENDING, ToolMessage("a", "r")],
        ToolMessage("a", "r"),
        TranscriptError,
        "messages[3]: tool result at message 3 has no pending matching call",
    ),
    "a user message between call and result": (
        PENDING,
        UserMessage("v"),
        TranscriptError,
        "messages[2]: message 2 interrupts a pending tool-call group",
    ),
    "an answer between call and result": (
        [*PENDING, ToolMessage("b", "r")],
        AssistantMessage("v"),
        TranscriptError,
        "messages[3]: message 3 interrupts a pending tool-call group",
    ),
    "an empty answer": (
        [UserMessage("u")],
        AssistantMessage(),
        TranscriptError,
        "messages[1]: assistant message has neither content nor tool calls",
    ),
    "a blank name": (
        [],
        AssistantMessage(None, (ToolCall("c", " ", {}),)),
        TranscriptError,
        "messages[0].tool_calls[0].name: tool or schema name must not be blank",
    ),
    "arguments that are no object": (
        [],
        AssistantMessage(None, (ToolCall("c", "f", "{}"),)),
        TranscriptError,
        "messages[0].tool_calls[0].arguments: tool-call arguments must be a parsed JSON object",
    ),
    "an id twice": (
        [],
        asks("c", "c"),
        TranscriptError,
        "messages[0].tool_calls[1].id: duplicate tool-call ID within one assistant group",
    ),
    "a system message": (
        [UserMessage("u")],
        SystemMessage("s"),
        TranscriptError,
        "messages[1]: a transcript holds no system message: give its text as system=(...)",
    ),
    "no message": (
        [UserMessage("u")],
        {"role": "user"},
        TypeError,
        "messages[1] must be a message, not dict",
    ),
    "no JSON": (
        [UserMessage("u")],
        asks("c", arguments={"q": [float("nan")]}),
        JsonValueError,
        "messages[1].tool_calls[0].arguments.q[0]: nan has no JSON form",
    ),
    "a lone surrogate": (
        [],
        UserMessage("a\ud800"),
        JsonValueError,
        "messages[0].content: a lone surrogate at character 1",
    ),
}


@pytest.mark.parametrize("way", ["append", "extend", "extend after good ones"])
@pytest.mark.parametrize(("before", "message", "error", "text"), DISORDERS.values(), ids=DISORDERS)
def test_a_message_out_of_order_is_named_and_changes_nothing(
    before: list[Message], message: Any, error: type[Exception], text: str, way: str
) -> None:
    transcript = ullage.Transcript()
    split = 0 if way == "extend after good ones" else len(before)
    transcript.extend(before[:split])
    then = pickle.dumps(transcript)
    change, given = transcript.append, message
    if way != "append":
        change, given = transcript.extend, [*before[split:], message, UserMessage("never reached")]
    with pytest.raises(error) as caught:
        change(given)
    assert type(caught.value) is error
    assert str(caught.value) == text
    assert pickle.dumps(transcript) == then
    transcript.extend(before[split:])
    assert transcript.messages == tuple(before)


@given(st.lists(any_messages, max_size=8), st.data())
def test_messages_are_taken_one_by_one_or_all_at_once(messages: list[Any], data: st.DataObject) -> None:
    one_by_one, at_once = ullage.Transcript(), ullage.Transcript()
    found = None
    for message in messages:
        found = outcome(one_by_one.append, message)
        if found[0] == "error":
            break
    if found is None or found[0] == "value":
        at_once.extend(messages)
        assert pickle.dumps(at_once) == pickle.dumps(one_by_one)
    else:
        assert outcome(at_once.extend, messages) == found
        assert len(at_once) == 0


def test_calls_may_be_answered_in_any_order_and_ids_come_again() -> None:
    transcript = ullage.Transcript()
    transcript.extend([*PENDING, ToolMessage("b", "r")])
    transcript.append(ToolMessage("a", "r"))
    transcript.extend([asks("a"), ToolMessage("a", "r"), AssistantMessage("answer")])
    assert transcript.turn_count == 1


def test_nothing_is_fitted_while_a_call_waits_for_its_result() -> None:
    transcript = ullage.Transcript(system=("s",))
    transcript.extend(PENDING)
    with pytest.raises(InvalidShape) as caught:
        fit_all(transcript)
    assert str(caught.value).endswith("message 3 interrupts a pending tool-call group")
    assert "append it" in caught.value.__notes__[0]
    with pytest.raises(TranscriptError):
        transcript.projection()
    with pytest.raises(InvalidContext):  # which comes first in the contract's order
        transcript.fit((), budget=ROOMY, target=TARGET)
    assert transcript.copy().messages == transcript.messages
    assert transcript.remove_last_turn() == PENDING
    fit_all(transcript)


def test_a_greeting_is_a_turn_of_its_own() -> None:
    transcript = ullage.Transcript()
    transcript.extend([AssistantMessage("hello"), *exchange(), UserMessage("u"), AssistantMessage("a")])
    assert transcript.arrays().turns.tolist() == [0, 0, 0, 1, 1]
    same(transcript, built_from(transcript, budget=down_to(transcript, 1)))
    transcript.remove_last_turn()
    assert len(transcript.replace_last_turn([AssistantMessage("good day")])) == 3
    assert transcript.arrays().turns.tolist() == [0]


def test_a_subclass_of_a_message_is_refused() -> None:
    class Mine(UserMessage, frozen=True, tag="user"):
        pass

    transcript = ullage.Transcript()
    with pytest.raises(TypeError, match=r"messages\[0\] must be a message, not Mine"):
        transcript.append(Mine("u"))
    with pytest.raises(TypeError, match=r"current\[0\] must be a message, not Mine"):
        transcript.fit([Mine("u")], budget=ROOMY, target=TARGET)


def test_ids_are_compared_as_text() -> None:
    class Id(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            raise AssertionError("nothing of the caller's runs while a transcript changes")

        def __hash__(self) -> int:
            raise AssertionError("nothing of the caller's runs while a transcript changes")

    transcript = ullage.Transcript()
    transcript.extend([UserMessage("u"), asks("a"), ToolMessage(Id("a"), "r"), asks(Id("b"))])
    transcript.append(ToolMessage("b", "r"))
    assert len(transcript) == 5


# --- the last turn --------------------------------------------------------------------------------


def test_the_last_turn_can_be_removed_and_replaced() -> None:
    transcript = three_turns()
    first, second = transcript.messages[:4], transcript.messages[4]
    assert transcript.remove_last_turn() == [UserMessage("third"), AssistantMessage("answer")]
    assert transcript.replace_last_turn([UserMessage("edited"), UserMessage("more")]) == [second]
    assert transcript.messages == (*first, UserMessage("edited"), UserMessage("more"))
    fresh = ullage.Transcript()
    fresh.extend(transcript.messages)
    assert state_of(fresh) == state_of(transcript)


def test_a_pin_goes_with_the_turn_that_is_removed_and_stays_on_one_that_is_replaced() -> None:
    transcript = three_turns()
    transcript.pin(2)
    transcript.replace_last_turn([UserMessage("edited"), UserMessage("unpinned")])
    assert transcript.pinned_turns == ("turn-2",)
    transcript.remove_last_turn()
    transcript.remove_last_turn()
    transcript.append(UserMessage("another"))
    assert transcript.pinned_turns == ()
    same(transcript, built_from(transcript))


def test_removing_ends_at_the_first_turn() -> None:
    transcript = three_turns()
    for _ in range(3):
        transcript.remove_last_turn()
    assert (len(transcript), transcript.turn_count, transcript.messages) == (0, 0, ())
    with pytest.raises(IndexError, match="the transcript has no turn"):
        transcript.remove_last_turn()
    with pytest.raises(IndexError, match="the transcript has no turn"):
        transcript.replace_last_turn([UserMessage("u")])
    same(transcript, built_from(transcript))


@pytest.mark.parametrize(
    ("messages", "error", "text"),
    [
        ([], ValueError, "nothing to put in the place of the last turn: use remove_last_turn"),
        ([AssistantMessage("a")], TranscriptError, "messages[5]: a turn begins with a user message"),
        ([ToolMessage("c", "r")], TranscriptError, "messages[5]: a turn begins with a user message"),
        (
            [UserMessage("u"), ToolMessage("c", "r")],
            TranscriptError,
            "messages[6]: tool result at message 6 has no pending matching call",
        ),
        (
            [UserMessage("u"), UserMessage("\udc00")],
            JsonValueError,
            "messages[6].content: a lone surrogate at character 0",
        ),
        ([SystemMessage("s")], TranscriptError, "messages[5]: a transcript holds no system message"),
    ],
)
def test_a_replacement_that_is_refused_changes_nothing(
    messages: list[Any], error: type[Exception], text: str
) -> None:
    transcript = three_turns()
    transcript.pin(2)
    before = state_of(transcript)
    with pytest.raises(error) as caught:
        transcript.replace_last_turn(messages)
    assert str(caught.value).startswith(text)
    assert state_of(transcript) == before


# --- pins -----------------------------------------------------------------------------------------


def test_pinned_turns_stay_until_they_are_unpinned() -> None:
    transcript = three_turns()
    transcript.pin("turn-0")
    transcript.pin(0)
    budget = down_to(transcript, 2)
    report = transcript.fit(NOW, budget=budget, target=TARGET).report
    assert [(turn.retained, turn.protected) for turn in report.turns] == [(True, True), *[(False, False)] * 2]
    same(transcript, built_from(transcript, budget=budget))
    transcript.unpin("turn-0")
    transcript.unpin(0)
    assert transcript.pinned_turns == ()


@pytest.mark.parametrize(
    "turn", [3, -1, 2**70, True, 1.0, None, "turn-3", "turn-", "turn-01", "0", "turn-٣", "x"]
)
def test_an_unknown_turn_cannot_be_pinned(turn: Any) -> None:
    transcript = three_turns()
    for change in (transcript.pin, transcript.unpin):
        with pytest.raises(InvalidContext, match="duplicate or unknown pinned turn"):
            change(turn)


# --- construction ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"system": "one text"}, TypeError, "system is a sequence of texts, not one text: write (text,)"),
        ({"system": (1,)}, TypeError, "SystemMessage.content must be a str, not 1"),
        ({"system": ("\ud800",)}, JsonValueError, "system[0]: a lone surrogate at character 0"),
        ({"session_id": "\ud800"}, JsonValueError, "session_id: a lone surrogate at character 0"),
        ({"session_id": 1}, TypeError, "session_id must be a str, not int"),
        (
            {"constraint": JsonSchema("n", {"a": float("inf")})},
            JsonValueError,
            "constraint.schema.a: inf has no JSON form",
        ),
        (
            {"constraint": NativeTools(())},
            InvalidShape,
            "invalid context message shape: native-tool constraint requires at least one candidate",
        ),
        ({"constraint": None}, TypeError, "constraint must be a constraint, not NoneType"),
    ],
)
def test_what_is_the_same_in_every_request_is_checked_at_once(
    settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        ullage.Transcript(**settings)
    assert str(caught.value) == text


# --- arrays ---------------------------------------------------------------------------------------


@given(changed_transcripts(parallel=3, counter=ExactBytes()))
def test_arrays_tell_roles_sizes_and_turns(transcript: ullage.Transcript) -> None:
    arrays, messages = transcript.arrays(), transcript.messages
    kinds = {UserMessage: "USER", AssistantMessage: "ASSISTANT", ToolMessage: "TOOL"}
    assert [ullage.MessageRole(role).name for role in arrays.roles] == [kinds[type(m)] for m in messages]
    lengths = [PY.json_length(message) for message in messages]
    assert arrays.bytes.tolist() == arrays.tokens.tolist() == lengths
    starts = [i for i, message in enumerate(messages) if i == 0 or isinstance(message, UserMessage)]
    assert arrays.turn_starts.tolist() == starts
    assert np.flatnonzero(np.diff(arrays.turns, prepend=-1)).tolist() == starts
    sums = np.zeros(len(starts), np.uint64)
    np.add.at(sums, arrays.turns, arrays.tokens)
    assert arrays.turn_tokens.tolist() == sums.tolist()
    assert [f"turn-{turn}" for turn in np.flatnonzero(arrays.pins)] == list(transcript.pinned_turns)
    types = ("uint8", "uint64", "uint64", "int64", "int64", "uint64", "bool")
    assert tuple(array.dtype.name for array in arrays) == types
    assert not any(array.flags.writeable for array in arrays)


def test_arrays_stay_as_they_are_when_the_transcript_changes() -> None:
    transcript = three_turns()
    arrays = transcript.arrays()
    before = [array.tolist() for array in arrays]
    transcript.append(AssistantMessage("longer"))
    transcript.pin(0)
    transcript.replace_last_turn([UserMessage("u" * 100)])
    transcript.extend([UserMessage("u")] * 1_000)
    assert [array.tolist() for array in arrays] == before


def test_roles_are_those_of_the_native_walk() -> None:
    transcript = ullage.Transcript()
    transcript.extend([UserMessage("u"), *exchange()])
    assert transcript.arrays().roles.tolist() == [
        ullage.MessageRole.USER,
        ullage.MessageRole.ASSISTANT,
        ullage.MessageRole.TOOL,
    ]


# --- copies ---------------------------------------------------------------------------------------


@given(st.data())
def test_copies_and_pickles_are_the_same_and_on_their_own(data: st.DataObject) -> None:
    transcript, input = data.draw(sound_fits())
    before = outcome(fit, transcript, input)
    for other in (
        transcript.copy(),
        copy.copy(transcript),
        copy.deepcopy(transcript),
        pickle.loads(pickle.dumps(transcript)),
    ):
        assert (other.messages, other.pinned_turns) == (transcript.messages, transcript.pinned_turns)
        assert (other.system, other.constraint) == (transcript.system, transcript.constraint)
        assert other.session_id == transcript.session_id
        again = outcome(fit, other, input)
        if before[0] == "error":
            assert again == before
        else:
            assert again[1].to_json() == before[1].to_json()
        other.extend([UserMessage("u"), AssistantMessage("a")])
        if other.turn_count > 1:
            other.pin(0)
    assert len(transcript) == len(transcript.messages)
    after = outcome(fit, transcript, input)
    assert after == before or after[1].to_json() == before[1].to_json()


def test_a_copy_of_a_subclass_keeps_its_own_state() -> None:
    original = Named()
    original.name = "cellar"
    original.append(UserMessage("u"))
    for other in (original.copy(), pickle.loads(pickle.dumps(original))):
        assert type(other) is Named
        assert (other.name, other.messages) == ("cellar", original.messages)


class Named(ullage.Transcript):
    name = ""


def test_a_copy_takes_up_where_calls_wait() -> None:
    transcript = ullage.Transcript()
    transcript.extend([*PENDING, ToolMessage("b", "r")])
    other = pickle.loads(pickle.dumps(transcript))
    with pytest.raises(TranscriptError):
        other.append(UserMessage("u"))
    other.append(ToolMessage("a", "r"))
    assert len(other) == len(transcript) + 1


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["append", "extend"])
@pytest.mark.parametrize("shape", [[UserMessage("u")], [UserMessage("u"), AssistantMessage("a")] * 2])
@pytest.mark.parametrize("count", [0, 1, 7, 100, 1_000, 20_000, 20_001])
def test_a_message_takes_at_most_64_bytes(shape: list[Message], way: str, count: int) -> None:
    messages = (shape * count)[:count]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        transcript = ullage.Transcript()
        if way == "append":
            for message in messages:
                transcript.append(message)
        else:
            transcript.extend(messages)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert transcript.nbytes <= 64 * count + 1_024
    assert held <= 64 * count + 2_048  # the counter among it
    assert held >= transcript.nbytes - 1_024 or sys.version_info < (3, 12)


@pytest.mark.parametrize("left", [0, 1, 500, 900])
def test_memory_goes_back_with_the_turns(left: int) -> None:
    transcript = ullage.Transcript()
    transcript.extend([UserMessage(str(number)) for number in range(1_000)])
    while len(transcript) > left:
        transcript.remove_last_turn()
    assert transcript.nbytes <= 64 * left + 1_024
    transcript.extend([UserMessage("u")] * 500)
    transcript.pin(left + 499)
    assert transcript.arrays().bytes.sum() == sum(map(PY.json_length, transcript.messages))
    assert transcript.pinned_turns == (f"turn-{left + 499}",)


def test_system_texts_count_as_messages() -> None:
    texts = tuple(f"rule {number}" for number in range(50))
    assert ullage.Transcript().nbytes < ullage.Transcript(system=texts).nbytes <= 64 * 50 + 1_024


def test_names_are_few() -> None:
    transcript = three_turns(session_id="cellar")
    assert repr(transcript) == "<Transcript: 7 messages in 3 turns>"
    assert transcript.session_id == transcript.projection().session_id == "cellar"
    assert fit_all(transcript).report.session_id == "cellar"
