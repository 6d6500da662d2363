"""A Transcript's fits: the builder's own reports, whatever was appended, pinned or removed before."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_strategies import (
    U64_MAX,
    Table,
    replace,
)
from strategies import texts
from support import PY, C, ExactBytes, Whole, outcome
from transcript_strategies import (
    NOW,
    ROOMY,
    TARGET,
    asks,
    built_from,
    changed_transcripts,
    down_to,
    fit,
    fit_all,
    same,
    sound_fits,
    state_of,
    three_turns,
    unsound_fits,
)

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
    ResourceLimit,
    ThresholdError,
    TranscriptError,
    UnverifiedCount,
)
from ullage.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from ullage.report import ContextBuildInput


@given(sound_fits())
def test_a_fit_is_the_builders_own(sound: tuple[ullage.Transcript, ContextBuildInput]) -> None:
    same(*sound)


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
