"""The builder's promises, on both engines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from request_strategies import build_inputs, replace
from support import (
    PY,
    C,
    Engine,
    ExactBytes,
    Scripted,
    Whole,
    build_outcome,
    history,
    outcome,
    raised,
    sound,
    turn,
)

import ullage
from ullage.budget import (
    ContextBudget,
    ContextBuildLimits,
    ContextTarget,
    TokenBoundEvidence,
    TokenBudgetMode,
)
from ullage.errors import (
    ContextBuildError,
    CounterFailed,
    CountLimit,
    DoesNotFit,
    TokenOverflow,
    UnverifiedCount,
)
from ullage.messages import (
    AssistantMessage,
    SystemMessage,
    UserMessage,
)
from ullage.report import BuiltContext, ContextBuildInput, ContextTokenBreakdown, ContextTokenCount

U64_MAX = 2**64 - 1
VERIFIED = TokenBoundEvidence.VERIFIED_UPPER_BOUND


# --- what holds for every build -----------------------------------------------------------


def check_promises(input: ContextBuildInput, built: BuiltContext) -> None:
    report = built.report
    retained = {turn.turn_id for turn in report.turns if turn.retained}
    removable = [t.turn_id for t in input.history.turns if t.turn_id not in input.pinned_turns]
    removed = [turn.turn_id for turn in report.turns if not turn.retained]
    groups = [group for group in input.history.groups if group.turn_id in retained]

    assert removed == removable[: len(removed)]  # the oldest that may go, and no other
    assert [turn.turn_id for turn in report.turns] == [turn.turn_id for turn in input.history.turns]
    assert [turn.turn_id for turn in report.turns if turn.protected] == [
        t.turn_id for t in input.history.turns if t.turn_id in input.pinned_turns
    ]
    assert [event for turn in report.turns for event in turn.source_events] == [
        event for group in input.history.groups for event in group.source_events
    ]
    kept = [message for group in groups for message in group.messages]
    messages = built.request.messages
    assert messages == (*map(SystemMessage, input.system), *kept, *input.current)
    for message, one in zip(messages[len(input.system) :], [*kept, *input.current], strict=True):
        assert message is one
    assert built.request.constraint is input.constraint
    built.request.validate_shape()

    reserved = input.budget.output_reserve + input.budget.safety_margin
    totals = [attempt.total_reserved for attempt in report.attempts]
    assert [attempt.removed_turns for attempt in report.attempts] == list(range(len(removed) + 1))
    assert all(a.total_reserved == a.count.tokens.total() + reserved for a in report.attempts)
    assert totals[-1] <= input.budget.window_tokens < min([U64_MAX + 1, *totals[:-1]])
    assert (report.target, report.budget, report.limits) == (input.target, input.budget, input.limits)
    assert (report.system_messages, report.current_messages) == (len(input.system), len(input.current))


@settings(max_examples=100)
@given(build_inputs())
def test_every_request_built_keeps_the_promises(input: ContextBuildInput) -> None:
    before = input.to_json()
    for engine in (C, PY):
        for counter in (engine.byte_heuristic(0), ExactBytes()):
            kind, built, *rest = outcome(engine.build, input, counter)
            if kind == "value":
                check_promises(input, built)
            else:
                assert issubclass(built, ContextBuildError)
                assert (rest[2] is not None) == (built in (DoesNotFit, CountLimit))
    assert input.to_json() == before


@settings(max_examples=100)
@given(build_inputs())
def test_an_additive_counter_gives_what_counting_every_candidate_gives(input: ContextBuildInput) -> None:
    for engine in (C, PY):
        for counter in (engine.byte_heuristic(3), ExactBytes()):
            derived = build_outcome(engine, input, counter)
            assert derived == build_outcome(engine, input, Whole(counter))


# --- the loop -------------------------------------------------------------------------------


def test_a_total_equal_to_the_window_fits(engine: Engine) -> None:
    whole = engine.build(sound(), engine.byte_heuristic()).report.attempts[0].total_reserved
    assert len(engine.build(sound(whole), engine.byte_heuristic()).report.attempts) == 1
    assert len(engine.build(sound(whole - 1), engine.byte_heuristic()).report.attempts) == 2


def test_the_oldest_unpinned_turns_go_first(engine: Engine) -> None:
    error = raised(engine, sound(101))
    assert [turn.retained for turn in error.report.turns] == [False, True, False]
    second = error.report.attempts[1].total_reserved
    input = sound(second)
    built = engine.build(input, engine.byte_heuristic())
    assert [turn.retained for turn in built.report.turns] == [False, True, True]
    check_promises(input, built)


def test_a_turn_without_groups_costs_an_attempt(engine: Engine) -> None:
    empty = history(turn("e0"), turn("e1"), turn("t", "question"))
    fixed = engine.build(sound(history=history(), pinned_turns=()), engine.byte_heuristic())
    window = fixed.report.attempts[0].total_reserved
    built = engine.build(sound(window, history=empty, pinned_turns=()), engine.byte_heuristic())
    assert [attempt.removed_turns for attempt in built.report.attempts] == [0, 1, 2, 3]
    assert [turn.source_events for turn in built.report.turns] == [(), (), ("t-0",)]


def test_a_counter_of_whole_requests_sees_every_candidate(engine: Engine) -> None:
    last = raised(engine, sound(101)).report.attempts[-1].total_reserved
    counter = Whole(engine.byte_heuristic())
    built = engine.build(sound(last), counter)
    assert [len(request.messages) for request in counter.requests] == [14, 10, 6]
    assert counter.requests[-1] == built.request


def test_an_additive_counter_is_asked_about_each_message_once() -> None:
    asked: list[Any] = []

    class Asked(ExactBytes):
        def message_tokens(self, message: Any) -> int:
            asked.append(message)
            return super().message_tokens(message)

    with pytest.raises(DoesNotFit):
        C.build(sound(101), Asked())
    assert len(asked) == len({id(message) for message in asked}) == 14


def test_a_count_need_not_fall_when_a_turn_goes(engine: Engine) -> None:
    counts = [{"system": 0, "messages": n, "constraint": 0, "template": 0} for n in (500, 900, 300)]
    input = sound(400)
    built = engine.build(input, Scripted(counts, input.target))
    assert [a.total_reserved for a in built.report.attempts] == [600, 1000, 400]


def test_a_counter_that_gives_count_a_new_meaning_is_asked_for_counts(engine: Engine) -> None:
    class Doubling(type(engine.byte_heuristic())):  # type: ignore[misc]
        def count(self, target: Any, request: Any) -> Any:
            counted = super().count(target, request)
            return replace(counted, tokens=replace(counted.tokens, template=2 * counted.tokens.template))

    class Free(type(engine.byte_heuristic())):  # type: ignore[misc]
        def message_tokens(self, message: Any) -> int:
            return 0

    assert engine.build(sound(), Doubling(50)).report.attempts[0].count.tokens.template == 100
    assert engine.build(sound(), Free(50)).report.attempts[0].count.tokens.messages == 0


def test_lists_serve_where_tuples_are_meant(engine: Engine) -> None:
    input = sound(170, current=(UserMessage("now"), AssistantMessage("then")))
    as_lists = replace(
        input,
        current=list(input.current),
        system=list(input.system),
        pinned_turns=list(input.pinned_turns),
        history=replace(
            input.history,
            turns=list(input.history.turns),
            groups=[
                replace(group, messages=list(group.messages), source_events=list(group.source_events))
                for group in input.history.groups
            ],
        ),
    )
    assert build_outcome(engine, as_lists, engine.byte_heuristic()) == build_outcome(
        engine, input, engine.byte_heuristic()
    )


# --- errors that carry the report -----------------------------------------------------------


def test_what_cannot_fit_is_refused_with_the_figures(engine: Engine) -> None:
    input = sound(150, budget=ContextBudget(150, 100, safety_margin=7))
    error = raised(engine, input)
    assert isinstance(error, DoesNotFit)
    assert (error.kind, str(error)) == ("DoesNotFit", "minimum necessary context exceeds the budget")
    last = error.report.attempts[-1]
    assert error.needed == last.total_reserved == sum(error.parts.values())
    assert error.window == 150
    current = engine.byte_heuristic().message_tokens(input.current[0])
    assert error.parts == {
        "system": last.count.tokens.system,
        "pinned": last.count.tokens.messages - current,
        "current": current,
        "constraint": last.count.tokens.constraint,
        "template": 32,
        "output_reserve": 100,
        "safety_margin": 7,
    }
    assert f"needed {error.needed:,} tokens, window 150" in error.__notes__[0]
    assert "output_reserve alone takes 67% of the window" in error.__notes__


def test_a_counter_of_whole_requests_cannot_tell_the_current_turn_apart(engine: Engine) -> None:
    error = raised(engine, sound(150), Whole(engine.byte_heuristic()))
    assert error.parts["messages"] == error.report.attempts[-1].count.tokens.messages
    assert "current" not in error.parts


def test_too_many_counts_are_refused_with_the_turn_still_retained(engine: Engine) -> None:
    error = raised(engine, sound(101, limits=ContextBuildLimits(max_count_calls=1)))
    assert isinstance(error, CountLimit)
    assert (error.kind, str(error)) == ("CountLimit", "context counting attempt limit reached")
    assert [turn.retained for turn in error.report.turns] == [True, True, True]
    assert len(error.report.attempts) == 1
    assert "max_count_calls" in error.__notes__[0]
    with pytest.raises(DoesNotFit):  # nothing more may go: that comes before the limit
        engine.build(sound(101, limits=ContextBuildLimits(max_count_calls=3)), engine.byte_heuristic())
    pinned = sound(101, pinned_turns=("t0", "t1", "t2"), limits=ContextBuildLimits(max_count_calls=1))
    assert isinstance(raised(engine, pinned), DoesNotFit)


# --- counters at fault ----------------------------------------------------------------------


def test_what_a_counter_raises_is_the_cause(engine: Engine) -> None:
    input = sound()
    for counter in (Scripted([], input.target, error="no vocabulary"), Whole(None)):
        error = raised(engine, input, counter)
        assert isinstance(error, CounterFailed)
        assert str(error) == f"context counter failed: {error.__cause__}"
        assert error.report is None
    assert isinstance(error.__cause__, AttributeError)


@pytest.mark.parametrize("figure", [-1, 2**64, True, 1.0, None, "1"])
@pytest.mark.parametrize("source", ["message_tokens", "constraint_tokens", "template_tokens"])
def test_a_figure_outside_u64_is_refused(engine: Engine, figure: Any, source: str) -> None:
    counter = ExactBytes()
    setattr(counter, source, figure if source == "template_tokens" else lambda item: figure)
    error = raised(engine, sound(), counter)
    assert error.kind == "Counter"
    assert isinstance(error.__cause__, ValueError)
    assert source in str(error)


def test_a_counter_that_raises_in_any_of_its_members_fails(engine: Engine) -> None:
    class Broken(ExactBytes):
        @property
        def method(self) -> str:  # type: ignore[override]
            raise LookupError("no method")

    error = raised(engine, sound(), Broken())
    assert (error.kind, str(error)) == ("Counter", "context counter failed: no method")


def test_an_answer_that_is_no_count_is_refused(engine: Engine) -> None:
    class Wrong:
        def count(self, target: Any, request: Any) -> Any:
            return 12

    assert "count gave a int, not a ContextTokenCount" in str(raised(engine, sound(), Wrong()))


def test_a_count_for_another_target_is_refused(engine: Engine) -> None:
    counts = [{"system": 1, "messages": 1, "constraint": 1, "template": 1}]
    error = raised(engine, sound(), Scripted(counts, ContextTarget("m", "r2")))
    assert isinstance(error, UnverifiedCount)
    assert str(error) == "counter evidence is unverified or bound to another target"


@pytest.mark.parametrize("method", ["", " ", "\u2003"])
def test_a_blank_method_is_refused(engine: Engine, method: str) -> None:
    counter = ExactBytes()
    counter.method = method
    assert isinstance(raised(engine, sound(), counter), UnverifiedCount)


def test_hard_mode_takes_verified_bounds_only(engine: Engine) -> None:
    hard = ContextBudget(10_000, 100, VERIFIED, 0, TokenBudgetMode.HARD)
    assert isinstance(raised(engine, sound(budget=hard)), UnverifiedCount)
    assert engine.build(sound(budget=hard), ExactBytes()).report.budget == hard
    unvouched = replace(hard, output_evidence=TokenBoundEvidence.ESTIMATE)
    error = raised(engine, sound(budget=unvouched), ExactBytes())
    assert isinstance(error, UnverifiedCount)
    assert error.path == "budget.output_evidence"


# --- arithmetic at the edges of 64 bits --------------------------------------------------------


class Flat(ExactBytes):
    """The same figure for everything."""

    def __init__(self, message: int, constraint: int = 0, template: int = 0) -> None:
        self.message = message
        self.constraint = constraint
        self.template_tokens = template

    def message_tokens(self, message: Any) -> int:
        return self.message

    def constraint_tokens(self, constraint: Any) -> int:
        return self.constraint


def alone(window: int, reserve: int, margin: int = 0) -> ContextBuildInput:
    """A current message and nothing else."""
    return sound(
        history=history(),
        pinned_turns=(),
        system=(),
        budget=ContextBudget(window, reserve, safety_margin=margin),
    )


def test_the_largest_figures_that_fit(engine: Engine) -> None:
    built = engine.build(alone(U64_MAX, 1), Flat(U64_MAX - 1))
    assert built.report.attempts[0].total_reserved == U64_MAX
    assert engine.build(alone(U64_MAX, 1, U64_MAX - 2), Flat(1)).report.attempts[0].total_reserved == U64_MAX


@pytest.mark.parametrize(
    ("input", "counter", "kind"),
    [
        (alone(U64_MAX, 1), Flat(U64_MAX), "Overflow"),
        (alone(U64_MAX, 1), Flat(U64_MAX - 1, 1, 1), "Overflow"),
        (alone(U64_MAX, U64_MAX, 1), Flat(1), "Overflow"),
        (alone(1, U64_MAX), Flat(1), "Overflow"),
        (sound(system=("a", "b")), Flat(2**63), "Counter"),
        (sound(), Flat(2**63), "Counter"),
        (sound(system=(), history=history(turn("t", "q")), pinned_turns=()), Flat(2**63), "Counter"),
        (alone(10, 1), Flat(0), "Invalid"),
    ],
)
def test_sums_past_64_bits_and_of_nothing_are_refused(
    engine: Engine, input: ContextBuildInput, counter: Any, kind: str
) -> None:
    error = raised(engine, input, counter)
    assert error.kind == kind
    assert error.report is None
    texts = {
        "Overflow": "context token arithmetic overflow",
        "Counter": "context counter failed: token overflow",
        "Invalid": "invalid context configuration: zero input count",
    }
    assert str(error) == texts[kind]
    assert build_outcome(engine, input, Whole(counter)) == build_outcome(engine, input, counter)


def test_counts_add_up_to_their_parts() -> None:
    tokens = ContextTokenBreakdown(1, 2, 3, U64_MAX - 6)
    assert tokens.total() == U64_MAX
    with pytest.raises(TokenOverflow):
        ContextTokenBreakdown(1, 2, 3, U64_MAX - 5).total()
    count = ContextTokenCount(ContextTarget("m", "r"), "m", VERIFIED, tokens)
    assert ullage.ContextTokenCount.from_json(count.to_json()) == count
