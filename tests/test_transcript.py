"""A Transcript's promises: the builder's own reports, whatever was appended, pinned or removed before."""

from __future__ import annotations

import copy
import pickle
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_strategies import (
    BLANKS,
    U64_MAX,
    Table,
    any_messages,
    blocks,
    budgets,
    constraints,
    limits_for,
    replace,
    targets,
)
from strategies import texts
from support import PY, C, ExactBytes, Whole, outcome

import ullage
from ullage.budget import (
    ContextBudget,
    ContextBuildLimits,
    ContextTarget,
    TokenBoundEvidence,
    TokenBudgetMode,
)
from ullage.contract import input_length
from ullage.errors import (
    ContextBuildError,
    CounterFailed,
    CountLimit,
    DoesNotFit,
    InvalidContext,
    InvalidShape,
    JsonValueError,
    ResourceLimit,
    ThresholdError,
    TranscriptError,
    UnverifiedCount,
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
from ullage.report import ContextBuildInput

TARGET = ContextTarget("m", "r")
NOW = (UserMessage("now"),)
ROOMY = ContextBudget(10**9, 100)


def asks(*ids: str, arguments: Any = None) -> AssistantMessage:
    return AssistantMessage(None, tuple(ToolCall(i, "f", arguments or {"q": 1}) for i in ids))


def exchange(call_id: str = "c") -> list[Message]:
    return [asks(call_id), ToolMessage(call_id, "result")]


def three_turns(**settings: Any) -> ullage.Transcript:
    """Of four, one and two messages."""
    transcript = ullage.Transcript(**settings)
    transcript.extend([UserMessage("first"), *exchange(), AssistantMessage("answer")])
    transcript.extend([UserMessage("second"), UserMessage("third"), AssistantMessage("answer")])
    return transcript


def built_from(transcript: ullage.Transcript, **changes: Any) -> ContextBuildInput:
    """The build input that the transcript stands for."""
    given: dict[str, Any] = {"current": NOW, "target": TARGET, "budget": ROOMY, **changes}
    return ContextBuildInput(
        history=transcript.projection(),
        system=transcript.system,
        constraint=transcript.constraint,
        pinned_turns=transcript.pinned_turns,
        **given,
    )


def fit(transcript: ullage.Transcript, input: ContextBuildInput, scaled: bool = False) -> Any:
    """``fit`` of what is not the transcript's in a build input."""
    return transcript.fit(
        input.current,
        budget=input.budget,
        target=input.target,
        state_version=input.state_version,
        limits=None if scaled else input.limits,
    )


def down_to(transcript: ullage.Transcript, removed: int, current: Any = NOW) -> ContextBudget:
    """The budget in which so many turns go."""
    with pytest.raises(DoesNotFit) as caught:
        transcript.fit(current, budget=ContextBudget(101, 100), target=TARGET)
    assert caught.value.report is not None
    return ContextBudget(caught.value.report.attempts[removed].total_reserved, 100)


def state_of(transcript: ullage.Transcript) -> tuple[Any, ...]:
    arrays = transcript.arrays()
    return (
        transcript.messages,
        *(array.tolist() for array in arrays),
        fit(transcript, built_from(transcript, budget=ROOMY)).to_json(),
    )


# --- the builder's reports ------------------------------------------------------------------------


class Model:
    """What a transcript should hold: its turns, and which are pinned."""

    def __init__(self) -> None:
        self.turns: list[list[Message]] = []
        self.pins: set[int] = set()

    def extend(self, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, UserMessage) or not self.turns:
                self.turns.append([])
            self.turns[-1].append(message)

    @property
    def messages(self) -> list[Message]:
        return [message for turn in self.turns for message in turn]


@st.composite
def pieces(draw: st.DrawFn, parallel: int = 1) -> list[Message]:
    """Messages that may be appended at any time."""
    piece = st.one_of(
        st.builds(UserMessage, texts()).map(lambda message: [message]),
        st.builds(AssistantMessage, texts()).map(lambda message: [message]),
        blocks(parallel=parallel),
    )
    return [message for part in draw(st.lists(piece, min_size=1, max_size=4)) for message in part]


@st.composite
def changed_transcripts(draw: st.DrawFn, parallel: int = 1, **settings: Any) -> ullage.Transcript:
    """A transcript with a life behind it, checked against a model at its end."""
    transcript, model = ullage.Transcript(**settings), Model()
    results = []
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(
            st.sampled_from(["append", "extend", "extend", "pin", "unpin", "remove", "replace", "fit"])
        )
        last = len(model.turns) - 1
        if kind == "append":
            for message in (added := draw(pieces(parallel))):
                transcript.append(message)
            model.extend(added)
        elif kind == "extend":
            transcript.extend(iter(added := draw(pieces(parallel))))
            model.extend(added)
        elif kind == "fit":
            results.append((taken := fit_all(transcript), copy.copy(transcript)))
            assert taken.request.messages[len(transcript.system) : -1] == transcript.messages
        elif last < 0:
            continue
        elif kind == "pin":
            turn = draw(st.integers(0, last))
            transcript.pin(draw(st.sampled_from([turn, f"turn-{turn}"])))
            model.pins.add(turn)
        elif kind == "unpin":
            turn = draw(st.integers(0, last))
            transcript.unpin(turn)
            model.pins.discard(turn)
        elif kind == "remove":
            assert transcript.remove_last_turn() == model.turns.pop()
            model.pins.discard(last)
        else:
            added = [UserMessage(draw(texts())), *draw(pieces(parallel))]
            assert transcript.replace_last_turn(added) == model.turns.pop()
            model.extend(added)
    assert list(transcript.messages) == model.messages
    assert all(a is b for a, b in zip(transcript.messages, model.messages, strict=True))
    assert transcript.pinned_turns == tuple(f"turn-{turn}" for turn in sorted(model.pins))
    assert (len(transcript), transcript.turn_count) == (len(model.messages), len(model.turns))
    for taken, then in results:  # which does not depend on what came after
        assert taken.to_json() == fit_all(then).to_json()
    return transcript


def fit_all(transcript: ullage.Transcript) -> ullage.FittedContext:
    return transcript.fit(NOW, budget=ROOMY, target=TARGET)


def settings_of_transcripts() -> st.SearchStrategy[dict[str, Any]]:
    evidence = st.sampled_from(TokenBoundEvidence)
    sound_tables = st.builds(
        Table,
        st.lists(st.integers(0, 100), min_size=1, max_size=3),
        st.just("m"),
        evidence,
        st.integers(0, 9),
    )
    return st.fixed_dictionaries(
        {
            "counter": st.one_of(
                st.builds(ullage.ByteHeuristicCounter, st.integers(0, 40)),
                st.builds(ExactBytes),
                sound_tables,
            ),
            "system": st.lists(texts(), max_size=2).map(tuple),
            "constraint": constraints,
            "session_id": st.one_of(st.just("unspecified"), texts()),
        }
    )


@st.composite
def sound_fits(draw: st.DrawFn) -> tuple[ullage.Transcript, ContextBuildInput]:
    transcript = draw(changed_transcripts(**draw(settings_of_transcripts())))
    current: list[Any] = [UserMessage(draw(texts()))]
    for _ in range(draw(st.integers(0, 2))):
        current += draw(st.one_of(blocks(), st.just([UserMessage("more")]), st.just([AssistantMessage("")])))
    input = built_from(
        transcript,
        current=tuple(current),
        target=draw(targets),
        state_version=draw(st.one_of(st.none(), texts())),
    )
    input = replace(input, budget=draw(budgets(input)))
    return transcript, replace(input, limits=draw(limits_for(input)))


def same(transcript: ullage.Transcript, input: ContextBuildInput, counter: Any = None) -> None:
    """The fit gives what both engines' builders give: the same result or the same error."""
    counter = counter or transcript.counter
    kind, result, *rest = outcome(fit, transcript, input)
    for engine in (C, PY):
        expected = outcome(engine.build, input, counter)
        if kind == "error":
            assert ("error", result, *rest) == expected
            continue
        assert expected[0] == "value", expected
        built = expected[1]
        assert result.report.to_json() == built.report.to_json()
        assert (result.report, result.request) == (built.report, built.request)
        assert all(a is b for a, b in zip(*later_messages(result, built, input), strict=True))
        assert result.to_json() == built.to_json()
        assert result.built == built


def later_messages(a: Any, b: Any, input: ContextBuildInput) -> tuple[Any, Any]:
    fixed = len(input.system)
    return a.request.messages[fixed:], b.request.messages[fixed:]


@given(sound_fits())
def test_a_fit_is_the_builders_own(sound: tuple[ullage.Transcript, ContextBuildInput]) -> None:
    same(*sound)


@st.composite
def unsound_fits(draw: st.DrawFn) -> tuple[ullage.Transcript, ContextBuildInput]:
    """Up to three things wrong with what ``fit`` is given."""
    transcript, input = draw(sound_fits())
    edges = st.sampled_from([0, 1, 100, 2**63, U64_MAX - 1, U64_MAX])
    text = st.sampled_from([*BLANKS, "m", "\ud800"])
    evidence, mode = st.sampled_from(TokenBoundEvidence), st.sampled_from(TokenBudgetMode)
    faults = {
        "current": st.lists(any_messages, max_size=3).map(tuple),
        "budget": st.builds(ContextBudget, edges, edges, evidence, edges, mode),
        "target": st.builds(ContextTarget, text, text),
        "state_version": texts(True),
        "limits": st.builds(ContextBuildLimits, *[st.sampled_from([0, 1, 5, 300, 2**63])] * 4),
    }
    for name in draw(st.lists(st.sampled_from(sorted(faults)), min_size=1, max_size=3)):
        input = replace(input, **{name: draw(faults[name])})
    return transcript, input


@given(unsound_fits())
def test_a_fault_is_the_builders_own(unsound: tuple[ullage.Transcript, ContextBuildInput]) -> None:
    same(*unsound)


@given(
    sound_fits(), st.sampled_from([-1, 0]), st.sampled_from(["max_input_bytes", "max_messages", "max_groups"])
)
def test_limits_hold_to_the_unit(
    sound: tuple[ullage.Transcript, ContextBuildInput], step: int, name: str
) -> None:
    transcript, input = sound
    history = input.history
    messages = len(input.system) + len(input.current) + len(transcript)
    edge = {
        "max_input_bytes": input_length(input),
        "max_messages": messages,
        "max_groups": max(1, len(history.groups), len(history.turns)),
    }[name]
    if edge + step:
        limits = replace(ContextBuildLimits(), **{name: edge + step})
        same(transcript, replace(input, limits=limits))


@given(sound_fits())
def test_without_limits_none_is_in_the_way(sound: tuple[ullage.Transcript, ContextBuildInput]) -> None:
    transcript, input = sound
    kind, result, *rest = outcome(fit, transcript, input, scaled=True)
    if kind == "value":
        same(transcript, replace(input, limits=result.report.limits))
    else:
        assert result not in (ResourceLimit, CountLimit)
        limits = ContextBuildLimits(U64_MAX, U64_MAX, U64_MAX, U64_MAX)
        assert (kind, result, rest[0]) == outcome(C.build, replace(input, limits=limits), transcript.counter)[
            :3
        ]


def test_without_limits_they_grow_with_the_transcript() -> None:
    transcript = ullage.Transcript()
    transcript.extend([UserMessage("x")] * 9_000)
    transcript.append(UserMessage("x" * 2**24))
    report = transcript.fit(NOW, budget=down_to(transcript, 8_000), target=TARGET).report
    assert len(report.attempts) == 8_001
    limits = report.limits
    assert (limits.max_groups, limits.max_messages, limits.max_count_calls) == (9_001, 9_002, 9_002)
    input = built_from(transcript, budget=report.budget, limits=limits)
    assert report.to_json() == C.build(input, transcript.counter).report.to_json()


@given(st.data(), st.lists(st.floats(0.1, 1.3), min_size=1, max_size=5))
def test_many_windows_give_what_each_gives_alone(data: st.DataObject, shares: list[float]) -> None:
    transcript, input = data.draw(sound_fits())
    whole = outcome(fit, transcript, replace(input, budget=ROOMY), scaled=True)
    total = whole[1].report.attempts[0].total_reserved if whole[0] == "value" else 1_000
    windows = [ContextBudget(max(1, int(share * total)), 100) for share in shares]
    given: Any = {"current": input.current, "target": input.target, "limits": input.limits}
    results = transcript.fit_many(windows, **given, return_errors=True)
    for budget, result in zip(windows, results, strict=True):
        alone = outcome(transcript.fit, budget=budget, **given)
        if isinstance(result, ContextBuildError):
            assert (type(result), str(result)) == alone[1:3]
        else:
            assert result.to_json() == alone[1].to_json()
    if any(isinstance(result, ContextBuildError) for result in results):
        with pytest.raises(ContextBuildError):
            transcript.fit_many(windows, **given)
    else:
        assert [r.to_json() for r in transcript.fit_many(windows, **given)] == [r.to_json() for r in results]


@given(st.data(), st.floats(0.1, 1.1))
def test_parallel_calls_stay_together_as_in_the_everyday_call(data: st.DataObject, share: float) -> None:
    transcript = data.draw(changed_transcripts(parallel=3))
    current = UserMessage(data.draw(texts()))
    chat = [*transcript.messages, current]
    whole = ullage.fit(chat, window_tokens=10**9, output_reserve=1).report.attempts[0].total_reserved
    window = max(2, int(share * whole))
    pins = transcript.pinned_turns
    kind, everyday, *_ = outcome(ullage.fit, chat, window_tokens=window, output_reserve=1, pins=pins)
    result = outcome(
        transcript.fit,
        (current,),
        budget=ContextBudget(window, 1),
        target=ContextTarget("unspecified", "unspecified"),
    )
    assert result[0] == kind
    if kind == "error":
        assert (result[1], result[2]) == (everyday, str(everyday()))
        return
    assert result[1].report.attempts == everyday.report.attempts
    assert result[1].report.turns == everyday.report.turns
    assert list(result[1].request.messages) == everyday.messages


def test_a_projection_holds_single_calls_only() -> None:
    transcript = ullage.Transcript()
    transcript.extend([UserMessage("u"), asks("a", "b"), ToolMessage("b", "r"), ToolMessage("a", "r")])
    with pytest.raises(TranscriptError) as caught:
        transcript.projection()
    assert caught.value.path == "messages[1].tool_calls"
    assert fit_all(transcript).request.messages == (*transcript.messages, *NOW)


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


# --- counters -------------------------------------------------------------------------------------


class Listening(ExactBytes):
    """Keeps what it was asked about."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def message_tokens(self, message: Message) -> int:
        self.asked.append(message)
        return super().message_tokens(message)


def test_a_counter_is_asked_about_each_message_once() -> None:
    counter = Listening()
    transcript = three_turns(counter=counter, system=("s",))
    asked = [SystemMessage("s"), *transcript.messages]
    assert counter.asked == asked
    for budget in (down_to(transcript, 1), down_to(transcript, 2)):
        transcript.fit(NOW, budget=budget, target=TARGET)
    copied = pickle.loads(pickle.dumps(transcript))
    copy.copy(transcript).remove_last_turn()
    assert counter.asked == [*asked, *NOW * 4]
    assert copied.counter.asked == counter.asked


def test_only_additive_counters_serve() -> None:
    class Overruled(ullage.ByteHeuristicCounter, frozen=True):
        def count(self, target: Any, request: Any) -> Any:
            raise NotImplementedError

    for counter in (Whole(ExactBytes()), Overruled(), object()):
        with pytest.raises(TypeError, match="needs an AdditiveTokenCounter"):
            ullage.Transcript(counter)  # type: ignore[arg-type]


def test_a_reference_counter_serves_too() -> None:
    transcript = three_turns(counter=PY.byte_heuristic(7))
    input = built_from(transcript, budget=down_to(transcript, 1))
    same(transcript, input)
    assert fit(transcript, input).to_json() == fit(three_turns(counter=C.byte_heuristic(7)), input).to_json()


def test_what_a_counter_raises_is_a_counter_failure_and_changes_nothing() -> None:
    counter = Table([5], "m", TokenBoundEvidence.ESTIMATE, 0)
    transcript = three_turns(counter=counter)
    before = state_of(transcript)
    for figure in (ValueError("no"), -1, 2**64, None, 1.0):
        counter.figures[:] = [figure]
        for change in (
            lambda: transcript.append(UserMessage("u")),
            lambda: transcript.replace_last_turn([UserMessage("u")]),
            lambda: fit_all(transcript),
            lambda: ullage.Transcript(counter),
        ):
            with pytest.raises(CounterFailed) as caught:
                change()
            assert isinstance(caught.value.__cause__, ValueError) or figure is not None
    counter.figures[:] = [5]
    assert state_of(transcript) == before


def test_a_turn_whose_tokens_overflow_is_refused() -> None:
    counter = Table([2**63], "m", TokenBoundEvidence.ESTIMATE, 0)
    transcript = ullage.Transcript(counter)
    transcript.append(UserMessage("u"))
    for change in (
        lambda: transcript.append(AssistantMessage("a")),
        lambda: transcript.extend([UserMessage("u"), AssistantMessage("a")]),
        lambda: transcript.replace_last_turn([UserMessage("u"), AssistantMessage("a")]),
    ):
        with pytest.raises(CounterFailed, match="token overflow"):
            change()
    assert len(transcript) == 1
    transcript.append(UserMessage("u"))  # a turn of its own
    same(transcript, built_from(transcript))
    with pytest.raises(CounterFailed, match="token overflow"):
        ullage.Transcript(counter, system=("a", "b"))


def test_hard_mode_needs_verified_counts() -> None:
    evidence = TokenBoundEvidence.VERIFIED_UPPER_BOUND
    hard = ContextBudget(10**6, 100, evidence, 0, TokenBudgetMode.HARD)
    assert three_turns(counter=ExactBytes()).fit(NOW, budget=hard, target=TARGET)
    with pytest.raises(UnverifiedCount):
        three_turns().fit(NOW, budget=hard, target=TARGET)
    blank = Table([5], " ", evidence, 0)
    for counter, overflows in ((blank, False), (Table([2**63], " ", evidence, 0), True)):
        transcript = ullage.Transcript(counter)
        transcript.extend([UserMessage("u"), UserMessage("u")])
        same(transcript, built_from(transcript, budget=hard))
        with pytest.raises(CounterFailed if overflows else UnverifiedCount):
            transcript.fit(NOW, budget=hard, target=TARGET)


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


# --- thresholds -----------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.data(), st.sampled_from([None, 0.0, 0.1, 0.3, 0.5, 0.8, 2.0]))
def test_a_threshold_narrows_as_it_does_for_the_builder(data: st.DataObject, threshold: float | None) -> None:
    transcript, input = data.draw(sound_fits())
    input = replace(
        input, budget=replace(input.budget, mode=TokenBudgetMode.SOFT), limits=ContextBuildLimits()
    )
    given: Any = {"budget": input.budget, "target": input.target, "state_version": input.state_version}
    kind, result, *rest = outcome(
        transcript.fit, input.current, **given, compaction_threshold=threshold, limits=input.limits
    )
    narrowed = replace(input, budget=ullage.narrowed_budget(input, transcript.counter, threshold))
    expected = outcome(C.build, narrowed, transcript.counter)
    if kind == "error":
        assert (result, rest[0], rest[2]) == (expected[1], expected[2], expected[4])
        return
    assert result.to_json() == expected[1].to_json()
    assert result.share.window_tokens == narrowed.budget.window_tokens
    assert result.share.overhead is not None


def test_a_threshold_that_does_not_fit_is_named_in_the_error() -> None:
    transcript = three_turns()
    transcript.pin(0)
    budget = down_to(transcript, 2)
    with pytest.raises(DoesNotFit) as caught:
        transcript.fit(NOW, budget=budget, target=TARGET, compaction_threshold=0.0)
    assert caught.value.__notes__[-1].startswith("compaction_threshold narrowed the window")
    with pytest.raises(ThresholdError):
        transcript.fit(NOW, budget=budget, target=TARGET, compaction_threshold=float("nan"))


# --- results --------------------------------------------------------------------------------------


def test_a_result_does_not_change_when_the_transcript_does() -> None:
    transcript = three_turns()
    transcript.pin(1)
    budget = down_to(transcript, 1)
    at_once = transcript.fit(NOW, budget=budget, target=TARGET).to_json()
    later = [transcript.fit(NOW, budget=budget, target=TARGET) for _ in range(4)]
    transcript.append(AssistantMessage("more"))
    assert later[0].to_json() == at_once
    transcript.unpin(1)
    transcript.pin(0)
    assert later[1].to_json() == at_once
    transcript.replace_last_turn([UserMessage("x"), AssistantMessage("y")])
    assert later[2].to_json() == at_once
    for _ in range(3):
        transcript.remove_last_turn()
    transcript.extend([UserMessage("z")] * 100)
    del transcript
    assert later[3].to_json() == at_once


def test_a_result_is_made_once_and_pickled_as_what_it_stands_for() -> None:
    fitted = fit_all(three_turns())
    assert fitted.report is fitted.report
    assert fitted.request is fitted.request
    restored = pickle.loads(pickle.dumps(fitted))
    assert type(restored) is ullage.BuiltContext
    assert restored == fitted.built
    assert repr(fitted) == "<FittedContext: 0 of 3 turns dropped>"


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


def test_system_texts_count_as_messages() -> None:
    texts = tuple(f"rule {number}" for number in range(50))
    assert ullage.Transcript().nbytes < ullage.Transcript(system=texts).nbytes <= 64 * 50 + 1_024


def test_names_are_few() -> None:
    transcript = three_turns(session_id="cellar")
    assert repr(transcript) == "<Transcript: 7 messages in 3 turns>"
    assert transcript.session_id == transcript.projection().session_id == "cellar"
    assert fit_all(transcript).report.session_id == "cellar"
