"""Thresholds: the recorded outcomes, what must hold for any input, and what is refused."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage import threshold as module
from ullage.errors import UllageError
from ullage.estimate import check_context_budget
from ullage.threshold import (
    DEFAULT_COMPACTION_THRESHOLD,
    SCOPE_THRESHOLDS,
    ContextBreakdown,
    ContextCheck,
    ContextScope,
    apply_decision,
    context_scope_to_threshold,
    read_context_scope,
    resolve_history_budget,
    resolve_history_budgets,
    select_context_budget,
)

# --- recorded outcomes -------------------------------------------------------

GOLDEN = Path(__file__).parent / "golden"
# Inside these, keys are data and not names of the interface.
DATA_KEYS = {"answers", "message"}


def read_vectors(name: str) -> list[Any]:
    lines = (GOLDEN / f"{name}.jsonl").read_text("utf-8").split("\n")
    return [pytest.param(vector, id=vector["id"]) for vector in map(json.loads, filter(None, lines))]


def decode(value: Any) -> Any:
    """The value with its ``$repeat`` and ``$js`` written out."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"$repeat"}:
        text, times = value["$repeat"]
        return text * times
    if value.keys() == {"$js"}:
        return float(value["$js"].replace("Infinity", "inf"))
    return {key: decode(item) for key, item in value.items()}


def pythonic(value: Any) -> Any:
    """The value with the names of the interface in Python spelling."""
    if not isinstance(value, dict):
        return value
    names = {key: re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", key) for key in value}
    return {name: value[key] if name in DATA_KEYS else pythonic(value[key]) for key, name in names.items()}


def run_select(config: dict[str, Any] | None = None, context_scope: str | None = None) -> float | None:
    switch = {"enabled": config["context_budget"]} if config and "context_budget" in config else {}
    return select_context_budget(context_scope, **switch)


def run_pipeline(
    params: dict[str, Any],
    answers: dict[str, Any],
    options: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> dict[str, Any]:
    scope = read_context_scope(answers)
    threshold = run_select(config, scope)
    effective = apply_decision(options or {}, {"compaction_threshold": threshold}).get("compaction_threshold")
    check = check_context_budget(**params, compaction_threshold=effective)
    found = {"context_scope": scope, "threshold": threshold, "effective": effective}
    return {name: value for name, value in found.items() if value is not None} | {
        "should_compact": check.should_compact,
        "within_budget": check.within_budget,
        "history_budget": resolve_history_budget(check, effective),
    }


RUNNERS: dict[str, Any] = {
    "resolveHistoryBudget": lambda result, **rest: resolve_history_budget(result, **rest),
    "contextScopeToThreshold": context_scope_to_threshold,
    "readContextScope": read_context_scope,
    "selectContextBudget": run_select,
    "applyClassifierThreshold": apply_decision,
    "pipeline": run_pipeline,
}


@pytest.mark.parametrize("vector", read_vectors("threshold"))
def test_outcome_is_the_recorded_one(vector: dict[str, Any]) -> None:
    arguments = pythonic(decode(vector["input"]))
    assert RUNNERS[vector["fn"]](**arguments) == pythonic(decode(vector["output"]))


# --- history budgets ---------------------------------------------------------

sizes = st.integers(-(10**7), 10**7) | st.floats(allow_nan=False, allow_infinity=False)
overheads = st.integers(0, 10**7) | st.floats(0, allow_infinity=False)
thresholds = st.floats(allow_nan=False) | st.floats(0, 1) | st.sampled_from([0, 0.45, 0.6, 0.75, 0.8, 1])


def check_of(available: float, overhead: float = 0) -> dict[str, Any]:
    parts = {"system_prompt": overhead, "current_prompt": 0, "tool_definitions": 0, "file_attachments": 0}
    return {"available_input_tokens": available, "breakdown": parts}


@given(sizes, overheads)
def test_no_threshold_and_the_default_give_the_same_budget(available: float, overhead: float) -> None:
    check = check_of(available, overhead)
    budget = resolve_history_budget(check)
    assert resolve_history_budget(check, None) == budget
    assert resolve_history_budget(check, 0.8) == budget
    assert resolve_history_budget(check, math.inf) == budget


@given(sizes, overheads, thresholds, thresholds)
def test_budgets_never_rise_as_the_threshold_falls(
    available: float, overhead: float, a: float, b: float
) -> None:
    check = check_of(available, overhead)
    lower, higher = sorted((a, b))
    assert resolve_history_budget(check, lower) <= resolve_history_budget(check, higher)
    assert 0 <= resolve_history_budget(check, higher) <= resolve_history_budget(check)


@given(st.lists(st.tuples(sizes, overheads, thresholds)))
def test_budgets_of_a_batch_are_those_of_its_rows(rows: list[tuple[float, float, float]]) -> None:
    available, overhead, shares = (np.array([row[i] for row in rows], np.float64) for i in range(3))
    alone = [resolve_history_budget(check_of(a, o), t) for a, o, t in rows]
    batch = resolve_history_budgets(available, overhead, shares)
    assert batch.dtype == np.float64
    assert [int(budget) for budget in batch] == alone
    assert not np.signbit(batch).any()
    default = resolve_history_budgets(available, overhead)
    assert [int(budget) for budget in default] == [resolve_history_budget(check_of(a, o)) for a, o, _ in rows]


def test_batch_arguments_broadcast() -> None:
    budgets = resolve_history_budgets([[100], [1000]], 0, [0.45, 0.6, 0.8])
    assert budgets.tolist() == [[53, 71, 95], [534, 712, 950]]
    assert resolve_history_budgets(100, 0, 0.6) == 71


def test_order_of_operations_is_kept() -> None:
    # 0.95 * (0.6 / 0.8) is not 0.7125, and floor shows it.
    assert resolve_history_budget({"available_input_tokens": 64_000}, 0.6) == 45_599
    assert math.floor(64_000 * 0.7125) == 45_600


def test_overhead_is_added_without_compensation() -> None:
    # In doubles 1e16 + 1 is 1e16; a sum that makes up for that would give 36.
    parts = {"system_prompt": 1e16, "current_prompt": 1, "tool_definitions": 1, "file_attachments": 0}
    assert resolve_history_budget({"available_input_tokens": 1e16 + 40, "breakdown": parts}) == 38


def test_checks_are_taken_as_structs_or_mappings() -> None:
    check = check_context_budget(8192, system_prompt="Be brief.", current_prompt="Why?")
    assert isinstance(check, ContextCheck)
    assert isinstance(check.breakdown, ContextBreakdown)
    assert resolve_history_budget(check) == resolve_history_budget(msgspec.to_builtins(check))
    assert resolve_history_budget(msgspec.structs.replace(check, breakdown=None)) > resolve_history_budget(
        check
    )


# --- one direction only ------------------------------------------------------

figures = st.floats(allow_nan=False) | st.integers(-2, 5) | st.floats(0, 3)
bad_tables = st.lists(st.floats(allow_nan=False), min_size=4, max_size=4)
switches = st.sampled_from([True, False, None])


def answers_of(score: float, confidence: float) -> dict[str, Any]:
    return {"context": {"type": "score", "score": score, "confidence": confidence}}


@given(sizes, overheads, figures, figures, switches)
def test_no_answer_raises_a_budget(
    available: float, overhead: float, score: float, confidence: float, enabled: bool | None
) -> None:
    threshold = select_context_budget(read_context_scope(answers_of(score, confidence)), enabled)
    options = apply_decision({}, {"compaction_threshold": threshold})
    check = check_of(available, overhead)
    assert resolve_history_budget(check, options.get("compaction_threshold")) <= resolve_history_budget(check)
    assert threshold is None or threshold < DEFAULT_COMPACTION_THRESHOLD


@given(sizes, overheads, st.sampled_from(ContextScope), bad_tables, switches)
def test_selection_alone_holds_where_the_mapping_does_not_clamp(
    available: float, overhead: float, scope: ContextScope, table: list[float], enabled: bool | None
) -> None:
    threshold = select_context_budget(scope, enabled, mapping=table.__getitem__)
    assert threshold is None or threshold < DEFAULT_COMPACTION_THRESHOLD
    check = check_of(available, overhead)
    assert resolve_history_budget(check, threshold) <= resolve_history_budget(check)


@given(sizes, overheads, figures, bad_tables)
def test_mapping_alone_holds_where_the_selection_does_not_check(
    available: float, overhead: float, index: float, table: list[float]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SCOPE_THRESHOLDS", dict(zip(ContextScope, table, strict=True)))
        threshold = context_scope_to_threshold(index)
    assert threshold <= DEFAULT_COMPACTION_THRESHOLD
    options = apply_decision({}, {"compaction_threshold": threshold})
    check = check_of(available, overhead)
    assert resolve_history_budget(check, options["compaction_threshold"]) <= resolve_history_budget(check)


@given(sizes, overheads, thresholds)
def test_no_decision_raises_a_budget(available: float, overhead: float, decided: float) -> None:
    options = apply_decision({}, {"compaction_threshold": decided})
    check = check_of(available, overhead)
    assert resolve_history_budget(check, options["compaction_threshold"]) <= resolve_history_budget(check)


@given(thresholds, thresholds | st.none())
def test_explicit_threshold_always_wins(explicit: float, decided: float | None) -> None:
    options = MappingProxyType({"compaction_threshold": explicit, "provider": "openai"})
    applied = apply_decision(options, {"compaction_threshold": decided})
    assert applied == options
    assert apply_decision(options, None) == options


def test_options_come_back_as_a_copy() -> None:
    options: dict[str, Any] = {"compaction_threshold": None}
    assert apply_decision(options, {"compaction_threshold": 0.45}) == {"compaction_threshold": 0.45}
    assert options == {"compaction_threshold": None}
    assert apply_decision(options, None) is not options


@given(figures)
def test_score_and_index_round_half_upwards_and_clamp(score: float) -> None:
    nearest = min((0, 1, 2, 3), key=lambda place: (abs(place - score), -place)) if -1 < score < 4 else score
    place = int(max(0, min(3, nearest)))
    assert read_context_scope(answers_of(score, 0.5)) == list(ContextScope)[place]
    assert context_scope_to_threshold(score) == list(SCOPE_THRESHOLDS.values())[place]


def test_last_double_below_one_half_rounds_down() -> None:
    assert read_context_scope(answers_of(0.49999999999999994, 0.9)) == "current-message"


def test_scope_is_read_whatever_else_the_answers_say() -> None:
    answers = answers_of(1, 0.9) | {"route": {"type": "choice", "confidence": math.nan}, "why": object()}
    assert read_context_scope(answers) == ContextScope.RECENT_TURNS


def test_only_false_switches_the_selection_off() -> None:
    assert select_context_budget("current-message", False) is None
    assert select_context_budget("current-message", np.False_) is None  # type: ignore[arg-type]
    assert select_context_budget("current-message", None) == 0.45
    assert select_context_budget("current-message", 0) == 0.45  # type: ignore[arg-type]


# --- what is refused ---------------------------------------------------------

NAN, INF = math.nan, math.inf
CHECK = {"available_input_tokens": 100}
ullage: Any = module  # untyped, so that wrong types can be passed


@pytest.mark.parametrize("wrong", [NAN, True, "0.5", 10**400, [0.5]])
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda wrong: ullage.resolve_history_budget(CHECK, wrong), "compaction_threshold"),
        (
            lambda wrong: ullage.resolve_history_budget({"available_input_tokens": wrong}),
            "available_input_tokens",
        ),
        (lambda wrong: ullage.resolve_history_budget(check_of(100, wrong)), "check.breakdown.system_prompt"),
        (lambda wrong: ullage.context_scope_to_threshold(wrong), "index"),
        (lambda wrong: ullage.read_context_scope(answers_of(wrong, 0.9)), "score"),
        (lambda wrong: ullage.read_context_scope(answers_of(1, wrong)), "confidence"),
        (lambda wrong: ullage.select_context_budget("recent-turns", mapping=lambda _: wrong), "mapping(1)"),
        (lambda wrong: ullage.apply_decision({"compaction_threshold": wrong}, None), "options"),
        (lambda wrong: ullage.apply_decision({}, {"compaction_threshold": wrong}), "decision"),
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
        (lambda: ullage.resolve_history_budget({"available_input_tokens": INF}), "available_input_tokens"),
        (lambda: ullage.resolve_history_budget({}), "available_input_tokens"),
        (lambda: ullage.resolve_history_budget(100), "check"),
        (lambda: ullage.resolve_history_budget(check_of(100, INF)), "check.breakdown.system_prompt"),
        (lambda: ullage.resolve_history_budget(check_of(100, -1)), "check.breakdown.system_prompt"),
        (lambda: ullage.resolve_history_budget(CHECK | {"breakdown": {}}), "check.breakdown.system_prompt"),
        (lambda: ullage.resolve_history_budgets([1, 2, NAN], 0), "available[2]"),
        (lambda: ullage.resolve_history_budgets(1, INF), "overhead"),
        (lambda: ullage.resolve_history_budgets(1, [[0, 1], [0, -1]]), "overhead[1, 1]"),
        (lambda: ullage.resolve_history_budgets(1, 0, [0.8, NAN]), "threshold[1]"),
        (lambda: ullage.resolve_history_budgets(1, 0, [None, 0.8]), "threshold"),
        (lambda: ullage.resolve_history_budgets([True], 0), "available"),
        (lambda: ullage.resolve_history_budgets(["1"], 0), "available"),
        (lambda: ullage.resolve_history_budgets([1, 2], [1, 2, 3]), "available, overhead and threshold"),
        (lambda: ullage.read_context_scope([]), "answers"),
        (lambda: ullage.select_context_budget(2), "scope"),
        (lambda: ullage.apply_decision([], None), "options"),
        (lambda: ullage.apply_decision({}, 0.45), "decision"),
    ],
)
def test_bad_input_is_refused_by_name(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(name)) as caught:
        call()
    assert isinstance(caught.value, UllageError)
