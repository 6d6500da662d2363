"""The joint of threshold and budget: windows only ever narrow, and the result says why."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Engine, ExactBytes, Scripted, Whole, outcome

import ullage
from ullage import ContextScope, HistoryShare, ScopeAnswer, ScopeOutcome, ScopeRecord, ThresholdSource
from ullage import scope as scope_module
from ullage import threshold as threshold_module
from ullage.narrow import narrow_budget

# --- transcripts and calls ---------------------------------------------------


def user(size: int) -> dict[str, Any]:
    return {"role": "user", "content": "u" * size}


def reply(size: int) -> dict[str, Any]:
    return {"role": "assistant", "content": "r" * size}


def exchange(size: int) -> list[dict[str, Any]]:
    function = {"name": "measure", "arguments": '{"cask":7}'}
    asked = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": function}]}
    return [asked, {"role": "tool", "tool_call_id": "c1", "content": "t" * size}]


sizes = st.integers(1, 400)


@st.composite
def transcripts(draw: st.DrawFn, system_between: bool = True) -> list[dict[str, Any]]:
    """Up to nine turns after a system message or none, some with a tool call, the last one open."""
    rows = [{"role": "system", "content": "s" * draw(sizes)}] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 8))):
        rows.append(user(draw(sizes)))
        rows.extend(exchange(draw(sizes)) if draw(st.booleans()) else [])
        rows.append(reply(draw(sizes)))
        if system_between and draw(st.integers(0, 5)) == 0:
            rows.append({"role": "system", "content": "m" * draw(sizes)})
    return [*rows, user(draw(sizes))]


class ByMessage:
    """Additive, and no measure of length: messages of one kind cost the same."""

    method = "test-by-message-v1"
    evidence = ullage.TokenBoundEvidence.VERIFIED_UPPER_BOUND
    template_tokens = 3

    def message_tokens(self, message: ullage.Message) -> int:
        return 40 if isinstance(message, ullage.ToolMessage) else 90

    def constraint_tokens(self, constraint: ullage.Constraint) -> int:
        return 11


COUNTERS: dict[str, Callable[[], Any]] = {
    "default": lambda: None,
    "additive": ExactBytes,
    "by-message": ByMessage,
    "complete": lambda: Whole(ExactBytes()),
}
TOOLS = [{"type": "function", "function": {"name": "measure", "parameters": {"type": "object"}}}]


@st.composite
def calls(draw: st.DrawFn, pins: bool = True) -> dict[str, Any]:
    """Arguments of ``fit`` but for the threshold: some fit whole, some are trimmed, some cannot fit."""
    messages = draw(transcripts())
    turns = sum(row["role"] == "user" for row in messages)
    reserve, margin = draw(st.integers(1, 300)), draw(st.integers(0, 100))
    return {
        "messages": messages,
        "window_tokens": reserve + margin + draw(st.integers(1, 4_000)),
        "output_reserve": reserve,
        "safety_margin": margin,
        "tools": draw(st.sampled_from([[], TOOLS])),
        "counter": COUNTERS[draw(st.sampled_from(sorted(COUNTERS)))](),
        "mode": ullage.TokenBudgetMode.SOFT,
        "pins": draw(st.sets(st.integers(0, turns - 1), max_size=2)) if pins else (),
    }


def ordinary(**changes: Any) -> dict[str, Any]:
    """A call that keeps about half of its history, and less under a threshold."""
    rows = [row for _ in range(20) for row in (user(100), reply(100))]
    given = {"messages": [*rows, user(20)], "window_tokens": 1_100, "output_reserve": 200}
    return given | changes


def fitted(call: dict[str, Any], *threshold: Any) -> tuple[Any, ...]:
    """Everything that a call gives: messages kept and the report's bytes, or all of its error."""

    def run() -> tuple[list[int], bytes]:
        result = ullage.fit(**call, **dict(zip(["compaction_threshold"], threshold, strict=False)))
        return result.kept, result.report.to_json()

    return outcome(run)


def never_more(call: dict[str, Any], lower: Any, higher: Any) -> None:
    """Assert that the first threshold keeps nothing, and allows nothing, that the second does not."""
    narrow, wide = (
        outcome(ullage.fit, **call, compaction_threshold=threshold) for threshold in (lower, higher)
    )
    if narrow[0] == "error":
        # Pinned turns are history: they may pass a budget that the higher threshold leaves room in.
        assert narrow[1] is ullage.DoesNotFit
        assert wide[0] == "value" or wide[1] is ullage.DoesNotFit
        return
    assert wide[0] == "value"
    assert set(narrow[1].kept) <= set(wide[1].kept)
    assert narrow[1].report.budget.window_tokens <= wide[1].report.budget.window_tokens
    assert wide[1].report.budget.window_tokens <= call["window_tokens"]


thresholds = st.floats(allow_nan=False) | st.floats(0, 1) | st.sampled_from([0, 0.45, 0.6, 0.75, 0.8, 1])
at_least_default = st.floats(0.8, allow_nan=False) | st.sampled_from([0.8, 1, math.inf])


# --- the default stands ------------------------------------------------------


@given(calls(), at_least_default)
def test_no_threshold_and_the_default_or_more_are_the_same_to_the_token(
    call: dict[str, Any], threshold: float
) -> None:
    plain = fitted(call)
    assert fitted(call, None) == plain
    assert fitted(call, 0.8) == plain
    assert fitted(call, threshold) == plain


@given(calls(), at_least_default)
def test_budget_for_the_builder_is_the_one_given_where_the_default_stands(
    call: dict[str, Any], threshold: float
) -> None:
    input = build_input(call)
    counter = Whole(ExactBytes())
    for standing in (None, 0.8, threshold):
        assert ullage.narrowed_budget(input, counter, standing) is input.budget
    assert counter.requests == []


def test_the_smallest_step_below_the_default_narrows() -> None:
    result = ullage.fit(**ordinary(), compaction_threshold=math.nextafter(0.8, 0))
    assert result.report.budget.window_tokens < 1_100


# --- budgets never rise ------------------------------------------------------


@given(calls(), thresholds, thresholds)
def test_budgets_never_rise_as_the_threshold_falls(call: dict[str, Any], a: float, b: float) -> None:
    lower, higher = sorted((a, b))
    never_more(call, lower, higher)
    never_more(call, higher, None)


@given(calls(), thresholds, thresholds)
def test_budgets_for_the_builder_never_rise_as_the_threshold_falls(
    call: dict[str, Any], a: float, b: float
) -> None:
    input, counter = build_input(call), ExactBytes()
    lower, higher = (ullage.narrowed_budget(input, counter, share) for share in sorted((a, b)))
    assert lower.window_tokens <= higher.window_tokens <= input.budget.window_tokens
    assert msgspec.structs.replace(lower, window_tokens=input.budget.window_tokens) == input.budget


any_size = st.integers(0, 2**64 - 1)


@given(any_size, any_size, any_size, st.integers(0), thresholds)
def test_windows_of_any_size_only_narrow(
    window: int, reserve: int, margin: int, overhead: int, threshold: float
) -> None:
    given = ullage.ContextBudget(window, reserve, safety_margin=margin)
    budget, share = narrow_budget(given, overhead, threshold)
    assert budget.window_tokens == share.window_tokens <= window
    if reserve + margin + overhead >= window:
        assert (budget, share.history_budget) == (given, 0)


# --- one direction only ------------------------------------------------------

figures = st.floats() | st.integers(-2, 5) | st.floats(0, 3) | st.none() | st.booleans() | st.text(max_size=3)
answers = (
    st.builds(ScopeAnswer, st.floats(-1, 4), st.floats(0, 1))
    | st.fixed_dictionaries({"score": figures, "confidence": figures})
    | st.fixed_dictionaries({"type": st.text(max_size=5), "score": figures, "confidence": figures})
    | figures
)
tables = st.lists(st.floats(allow_nan=False), min_size=4, max_size=4)
switches = st.sampled_from([True, False, None])


@contextmanager
def mapping_unclamped(table: list[float]) -> Iterator[None]:
    """Any thresholds at all, and no clamp in the mapping: only the selection checks."""

    def select(scope: str | None, enabled: bool | None = True) -> float | None:
        return ullage.select_context_budget(scope, enabled, mapping=table.__getitem__)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scope_module, "select_context_budget", select)
        yield


@contextmanager
def selection_unchecked(table: list[float]) -> Iterator[None]:
    """Any thresholds at all, and no check in the selection: only the mapping clamps."""

    def select(scope: ContextScope | None, enabled: bool | None = True) -> float | None:
        return None if scope is None else ullage.context_scope_to_threshold(list(ContextScope).index(scope))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scope_module, "select_context_budget", select)
        patch.setattr(threshold_module, "SCOPE_THRESHOLDS", dict(zip(ContextScope, table, strict=True)))
        yield


@contextmanager
def both_out(table: list[float]) -> Iterator[None]:
    """Any thresholds at all, straight into the call: only the window itself does not widen."""

    def select(scope: ContextScope | None, enabled: bool | None = True) -> float | None:
        return None if scope is None else table[list(ContextScope).index(scope)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scope_module, "select_context_budget", select)
        yield


@given(calls(), answers, switches)
def test_no_answer_and_no_configuration_raises_a_budget(
    call: dict[str, Any], answer: Any, enabled: bool | None
) -> None:
    record = ullage.decide_threshold(lambda *_: answer, call["messages"], enabled=enabled)
    never_more(call, record, None)
    never_more(call, record.apply({}).get("compaction_threshold"), None)


@pytest.mark.parametrize("guard_out", [mapping_unclamped, selection_unchecked, both_out])
@given(calls(), answers, tables, switches)
def test_no_answer_raises_a_budget_with_a_guard_taken_out(
    guard_out: Callable[[list[float]], Any],
    call: dict[str, Any],
    answer: Any,
    table: list[float],
    enabled: bool | None,
) -> None:
    with guard_out(table):
        record = ullage.decide_threshold(lambda *_: answer, call["messages"], enabled=enabled)
    never_more(call, record, None)
    never_more(call, record.apply({}).get("compaction_threshold"), None)


@pytest.mark.parametrize("guard_out", [mapping_unclamped, selection_unchecked])
@given(answers, tables)
def test_either_guard_alone_hands_on_no_threshold_above_the_default(
    guard_out: Callable[[list[float]], Any], answer: Any, table: list[float]
) -> None:
    with guard_out(table):
        record = ullage.decide_threshold(lambda *_: answer, "request")
    assert record.threshold is None or record.threshold <= 0.8


@given(calls(), thresholds)
def test_no_decision_raises_a_budget(call: dict[str, Any], decided: float) -> None:
    options = ullage.apply_decision({}, {"compaction_threshold": decided})
    never_more(call, options["compaction_threshold"], None)


@pytest.mark.parametrize("kind", list(ScopeOutcome))
@given(calls(), st.none() | thresholds)
def test_no_record_raises_a_budget(kind: ScopeOutcome, call: dict[str, Any], threshold: float | None) -> None:
    never_more(call, ScopeRecord(ullage.SCOPE_QUESTION, kind, threshold), None)


# --- whose threshold it is ---------------------------------------------------


@given(calls(), st.floats(allow_nan=False, allow_infinity=False), answers, st.none() | thresholds)
def test_explicit_threshold_always_wins(
    call: dict[str, Any], explicit: float, answer: Any, decided: float | None
) -> None:
    alone = fitted(call, explicit)
    record = ullage.decide_threshold(lambda *_: answer, call["messages"], threshold=explicit)
    assert fitted(call, record) == alone
    assert fitted(call | record.apply({"compaction_threshold": explicit})) == alone
    options = {"compaction_threshold": explicit}
    assert fitted(call | ullage.apply_decision(options, {"compaction_threshold": decided})) == alone


def decided(answer: Any, **settings: Any) -> ScopeRecord:
    return ullage.decide_threshold(lambda question, request: answer, "request", **settings)


@pytest.mark.parametrize(
    ("given", "threshold", "source"),
    [
        (None, None, ThresholdSource.DEFAULT),
        (0.6, 0.6, ThresholdSource.CALLER),
        (0.95, 0.8, ThresholdSource.CALLER),
        (math.inf, 0.8, ThresholdSource.CALLER),
        (-1, 0.0, ThresholdSource.CALLER),
        (decided(ScopeAnswer(0, 0.9)), 0.45, ThresholdSource.CLASSIFIER),
        (decided(ScopeAnswer(3, 0.9)), None, ThresholdSource.DEFAULT),
        (decided(ScopeAnswer(0, 0.4)), None, ThresholdSource.DEFAULT),
        (decided(ScopeAnswer(0, 0.9), enabled=False), None, ThresholdSource.DEFAULT),
        (decided(ScopeAnswer(0, 0.9), threshold=0.75), 0.75, ThresholdSource.CALLER),
    ],
)
@pytest.mark.parametrize("counter", [None, Whole(ExactBytes())], ids=["default", "complete"])
def test_result_says_which_threshold_held_and_whose_it_was(
    given: Any, threshold: float | None, source: ThresholdSource, counter: Any
) -> None:
    call = ordinary(counter=counter, window_tokens=5_000)
    share = ullage.fit(**call, compaction_threshold=given).share
    assert (share.threshold, share.source) == (threshold, source)
    assert HistoryShare.from_json(share.to_json()) == share


def test_scope_of_an_answer_is_the_threshold_of_the_call() -> None:
    for answer, threshold in zip(range(4), (0.45, 0.6, 0.75, None), strict=True):
        record = decided(ScopeAnswer(answer, 1.0))
        assert fitted(ordinary(), record) == fitted(ordinary(), threshold)
        read_back = ScopeRecord.from_json(record.to_json())
        assert fitted(ordinary(), read_back) == fitted(ordinary(), threshold)


# --- the figures -------------------------------------------------------------


@given(calls(pins=False), thresholds)
def test_window_in_force_is_overhead_history_budget_and_what_stays_free(
    call: dict[str, Any], threshold: float
) -> None:
    ended, result = outcome(ullage.fit, **call, compaction_threshold=threshold)[:2]
    if ended == "error":
        return
    share, budget = result.share, result.report.budget
    kept_free = call["output_reserve"] + call["safety_margin"]
    check = {
        "available_input_tokens": call["window_tokens"] - kept_free,
        "breakdown": {
            "system_prompt": share.overhead,
            "current_prompt": 0,
            "tool_definitions": 0,
            "file_attachments": 0,
        },
    }
    assert share.history_budget == ullage.resolve_history_budget(check, threshold)
    derived = share.overhead + share.history_budget + kept_free
    assert share.window_tokens == (derived if threshold < 0.8 else call["window_tokens"])
    assert budget.window_tokens == share.window_tokens
    assert (budget.output_reserve, budget.safety_margin) == (call["output_reserve"], call["safety_margin"])


@given(calls(pins=False), thresholds)
def test_overhead_is_what_the_request_takes_without_its_history(
    call: dict[str, Any], threshold: float
) -> None:
    roomy = call | {"window_tokens": 10**6}
    share = ullage.fit(**roomy, compaction_threshold=threshold).share
    current = len(call["messages"]) - 1
    bare = [row for i, row in enumerate(call["messages"]) if row["role"] == "system" or i == current]
    alone = ullage.fit(**roomy | {"messages": bare})
    assert share.overhead == alone.report.attempts[0].count.tokens.total()


@pytest.mark.parametrize("additive", [ExactBytes(), ByMessage(), ullage.ByteHeuristicCounter()])
@given(calls(), thresholds)
def test_additive_counters_and_counters_of_complete_requests_agree(
    additive: Any, call: dict[str, Any], threshold: float
) -> None:
    def run(counter: Any) -> tuple[Any, ...]:
        result = outcome(ullage.fit, **call | {"counter": counter}, compaction_threshold=threshold)
        if result[0] == "value":
            return (result[1].kept, result[1].share, result[1].report.to_json())
        # Only an additive counter can tell the current turn from the pinned ones, in the figures and notes.
        kind, text, figures, report = result[1:5]
        return (kind, text, figures | {"parts": None}, report)

    assert run(additive) == run(Whole(additive))


# --- the builder -------------------------------------------------------------


def build_input(call: dict[str, Any]) -> ullage.ContextBuildInput:
    """The same transcript as the builder takes it; system messages inside it are left out."""
    system = [row["content"] for row in call["messages"][:1] if row["role"] == "system"]
    *past, current = [row for row in call["messages"] if row["role"] != "system"]
    groups: list[ullage.ProjectionGroup] = []
    turns: list[ullage.ProjectedTurn] = []
    for i, row in enumerate(past):
        if row["role"] == "user":
            turns.append(
                ullage.ProjectedTurn(f"turn-{len(turns)}", ullage.TurnState.COMPLETED, str(i), False)
            )
        kind, group = as_group(row, past[i + 1] if i + 1 < len(past) else None)
        if group:
            groups.append(ullage.ProjectionGroup(turns[-1].turn_id, kind, (str(i),), group))
    return ullage.ContextBuildInput(
        history=ullage.ConversationProjection(
            algorithm_version=1,
            session_id="unspecified",
            source_tail=str(len(past)),
            source_event_count=len(past),
            groups=tuple(groups),
            turns=tuple(turns),
        ),
        current=(ullage.UserMessage(current["content"]),),
        target=ullage.ContextTarget("unspecified", "unspecified"),
        budget=ullage.ContextBudget(
            call["window_tokens"], call["output_reserve"], safety_margin=call.get("safety_margin", 0)
        ),
        system=tuple(system),
        pinned_turns=tuple(f"turn-{turn}" for turn in call.get("pins", ()) if turn < len(turns)),
    )


def as_group(row: dict[str, Any], after: dict[str, Any] | None) -> tuple[Any, tuple[ullage.Message, ...]]:
    kinds = ullage.GroupKind
    if row["role"] == "user":
        return kinds.USER, (ullage.UserMessage(row["content"]),)
    if row["role"] == "assistant" and row["content"] is not None:
        return kinds.ASSISTANT, (ullage.AssistantMessage(row["content"]),)
    if row["role"] == "tool" or after is None:
        return kinds.TOOL_EXCHANGE, ()  # it went with its call
    asked = row["tool_calls"][0]
    arguments = msgspec.json.decode(asked["function"]["arguments"])
    call = ullage.ToolCall(asked["id"], asked["function"]["name"], arguments)
    result = ullage.ToolMessage(after["tool_call_id"], after["content"])
    return kinds.TOOL_EXCHANGE, (ullage.AssistantMessage(None, (call,)), result)


@given(calls(), transcripts(system_between=False), thresholds)
def test_builder_with_the_narrowed_budget_gives_the_figures_of_fit(
    engine: Engine, call: dict[str, Any], messages: list[dict[str, Any]], threshold: float
) -> None:
    turns = sum(row["role"] == "user" for row in messages)
    pins = [turn for turn in call["pins"] if turn < turns - 1]
    counter = call["counter"] or engine.byte_heuristic()
    call |= {"messages": messages, "tools": [], "pins": pins, "counter": counter}
    given = build_input(call)
    budget = ullage.narrowed_budget(given, counter, threshold)
    built = outcome(engine.build, msgspec.structs.replace(given, budget=budget), counter)
    result = outcome(ullage.fit, **call, compaction_threshold=threshold)
    assert built[:1] == result[:1]
    if result[0] == "error":
        assert result[1] is ullage.DoesNotFit
        assert built[1:4] == result[1:4]  # the class, the text and the figures
        return
    ours, theirs = built[1].report, result[1].report
    assert ours.budget == theirs.budget
    assert ours.attempts == theirs.attempts
    assert [(turn.turn_id, turn.retained, turn.protected) for turn in ours.turns] == [
        (turn.turn_id, turn.retained, turn.protected) for turn in theirs.turns
    ]


# --- where nothing is left ---------------------------------------------------


@given(calls(pins=False), thresholds)
def test_overhead_that_fills_the_space_fails_as_without_a_threshold(
    call: dict[str, Any], threshold: float
) -> None:
    big = call | {"messages": [*call["messages"][:-1], user(5_000)], "counter": ExactBytes()}
    plain = fitted(big)
    assert plain[:2] == ("error", ullage.DoesNotFit)
    assert fitted(big, threshold) == plain
    given = build_input(big)
    assert ullage.narrowed_budget(given, ExactBytes(), threshold) == given.budget


@given(calls(pins=False), thresholds)
def test_overhead_that_just_fits_is_kept_whatever_the_threshold(
    call: dict[str, Any], threshold: float
) -> None:
    share = ullage.fit(**call | {"window_tokens": 10**6}, compaction_threshold=0).share
    assert share.history_budget == 0
    exact = call | {"window_tokens": share.window_tokens}
    assert fitted(exact, threshold) == fitted(exact)


def test_pinned_turn_larger_than_the_history_budget_does_not_fit() -> None:
    call = ordinary(pins=[0, 1, 2, 3, 4, 5, 6])
    assert 0 in ullage.fit(**call).kept
    with pytest.raises(ullage.DoesNotFit) as caught:
        ullage.fit(**call, compaction_threshold=0.45)
    assert caught.value.report is not None
    assert caught.value.window == caught.value.report.budget.window_tokens < 1_100


# --- classifiers that fail ---------------------------------------------------


def raising(question: Any, request: Any) -> ScopeAnswer:
    raise RuntimeError("out of memory")


async def never_answering(question: Any, request: Any) -> ScopeAnswer:
    await asyncio.Event().wait()
    return ScopeAnswer(0, 1)


WITHOUT_EFFECT = {
    "raises": lambda: ullage.decide_threshold(raising, "request"),
    "nonsense": lambda: decided("as little as possible"),
    "no-number": lambda: decided({"score": math.nan, "confidence": 1}),
    "no-answer": lambda: decided(None),
    "unsure": lambda: decided(ScopeAnswer(0, 0.49)),
    "timed-out": lambda: asyncio.run(ullage.decide_threshold_async(never_answering, "request", timeout=0.01)),
}


@pytest.mark.parametrize("counter", list(COUNTERS))
@pytest.mark.parametrize("failure", list(WITHOUT_EFFECT))
def test_classifier_that_fails_leaves_the_request_exactly_as_it_was(failure: str, counter: str) -> None:
    record = WITHOUT_EFFECT[failure]()
    call = ordinary(counter=COUNTERS[counter](), window_tokens=2_000)
    assert record.threshold is None
    plain = fitted(call)
    assert plain[0] == "value"
    assert fitted(call, record) == plain
    assert fitted(call | record.apply({})) == plain
    given = build_input(call)
    assert ullage.narrowed_budget(given, ExactBytes(), record) is given.budget


# --- what is refused ---------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (math.nan, ullage.ThresholdError),
        (10**400, ullage.ThresholdError),
        (True, ullage.ThresholdTypeError),
        (False, ullage.ThresholdTypeError),
        ("0.6", ullage.ThresholdTypeError),
        ([0.6], ullage.ThresholdTypeError),
        ({"threshold": 0.6}, ullage.ThresholdTypeError),
    ],
)
@pytest.mark.parametrize("in_record", [False, True])
@pytest.mark.parametrize("counter", [None, Whole(ExactBytes())], ids=["default", "complete"])
def test_threshold_that_is_no_number_is_refused_by_name(
    wrong: Any, error: type[ullage.ThresholdError], in_record: bool, counter: Any
) -> None:
    threshold = ScopeRecord(ullage.SCOPE_QUESTION, ScopeOutcome.GIVEN, wrong) if in_record else wrong
    with pytest.raises(error, match="compaction_threshold"):
        ullage.fit(**ordinary(counter=counter), compaction_threshold=threshold)
    with pytest.raises(error, match="compaction_threshold"):
        ullage.narrowed_budget(build_input(ordinary()), ExactBytes(), threshold)


@pytest.mark.parametrize("threshold", [None, 0.45, 0.8])
@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"window_tokens": -1}, "window_tokens"),
        ({"window_tokens": 0}, "window_tokens"),
        ({"window_tokens": True}, "window_tokens"),
        ({"window_tokens": 1e6}, "window_tokens"),
        ({"window_tokens": 2**64}, "window_tokens"),
        ({"output_reserve": -1}, "output_reserve"),
        ({"output_reserve": 0}, "output_reserve"),
        ({"output_reserve": 1_100}, "output_reserve"),
        ({"output_reserve": 2_000}, "output_reserve"),
        ({"safety_margin": -1}, "safety_margin"),
        ({"safety_margin": "5"}, "safety_margin"),
        ({"safety_margin": 900}, "safety_margin"),
        ({"safety_margin": 1_100}, "safety_margin"),
    ],
)
def test_budget_that_leaves_nothing_is_refused_by_name(
    changes: dict[str, Any], name: str, threshold: float | None
) -> None:
    with pytest.raises((ValueError, ullage.InvalidContext), match=name) as caught:
        ullage.fit(**ordinary(**changes), compaction_threshold=threshold)
    assert getattr(caught.value, "path", name) == name


class Hopeless:
    """Additive, and raises."""

    method = "test-hopeless-v1"
    evidence = ullage.TokenBoundEvidence.ESTIMATE
    template_tokens = 0

    def message_tokens(self, message: ullage.Message) -> int:
        raise RuntimeError("no vocabulary")

    def constraint_tokens(self, constraint: ullage.Constraint) -> int:
        return 0


UNSPECIFIED = ullage.ContextTarget("unspecified", "unspecified")
PARTS = {"system": 1, "messages": 1, "constraint": 1, "template": 1}


@pytest.mark.parametrize(
    "counter",
    [
        Hopeless(),
        Whole(Hopeless()),
        Scripted([PARTS], ullage.ContextTarget("another", "1")),
        Scripted([PARTS], UNSPECIFIED, method=" "),
        Scripted([dict.fromkeys(PARTS, 2**63)], UNSPECIFIED),
    ],
    ids=["additive", "complete", "target", "method", "overflow"],
)
def test_counter_that_fails_fails_the_narrowing_as_it_fails_a_build(engine: Engine, counter: Any) -> None:
    given = build_input(ordinary())
    narrowing = outcome(ullage.narrowed_budget, given, counter, 0.6)
    assert narrowing[0] == "error"
    assert narrowing == outcome(engine.build, given, counter)
