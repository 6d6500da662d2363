"""The joint of threshold and budget: a compaction threshold narrows the window that a build may use.

The window in force is the overhead (system, current turn, constraint and
template, counted as everything else is), the history budget of
``resolve_history_budget``, the output reserve and the safety margin together,
and never more than the window given.  No threshold, and 0.8 or more, leave it
as it is.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .budget import ContextBudget
from .contract import checked_count, system_messages
from .counting import AdditiveTokenCounter, ContextTokenCounter, ask, count_additively, is_additive
from .messages import GenerationRequest
from .report import ContextBuildInput
from .scope import ScopeOutcome, ScopeRecord
from .threshold import DEFAULT_COMPACTION_THRESHOLD, checked_threshold, resolve_history_budget
from .wire import Wire

__all__ = ["HistoryShare", "ThresholdSource", "narrowed_budget"]


class ThresholdSource(StrEnum):
    """Where a threshold comes from."""

    CALLER = "caller"
    CLASSIFIER = "classifier"
    DEFAULT = "default"


class HistoryShare(Wire, frozen=True):
    """What a call left to history: the threshold and its source, and tokens.

    ``threshold`` is the one in force, 0 to 0.8: what was given above 0.8 is 0.8,
    and None says that none was given.  ``overhead`` is what the request takes
    without history, ``history_budget`` what ``resolve_history_budget`` gives
    history beside it; both are None where no threshold was given and a counter
    of complete requests was not asked.  ``window_tokens`` is the window in
    force: one that ends where the history budget does for a threshold below 0.8,
    else the window given, in which history may take all that is free.
    """

    threshold: float | None
    source: ThresholdSource
    overhead: int | None
    history_budget: int | None
    window_tokens: int


def narrow_budget(
    budget: ContextBudget, overhead: int, compaction_threshold: float | ScopeRecord | None
) -> tuple[ContextBudget, HistoryShare]:
    """The budget in force, and what it leaves to history; figures in tokens.

    Below 0.8 the window is ``min(window, overhead + history budget + reserve +
    margin)``, the history budget being ``resolve_history_budget`` of what the
    other three leave free.  Raises ThresholdError for a threshold that is NaN or
    not a number.
    """
    threshold, source = _in_force(compaction_threshold)
    kept_free = budget.output_reserve + budget.safety_margin
    free = budget.window_tokens - kept_free - overhead
    history = resolve_history_budget({"available_input_tokens": free}, threshold)
    if _narrows(threshold):
        window = min(budget.window_tokens, overhead + history + kept_free)
        budget = msgspec.structs.replace(budget, window_tokens=window)
    return budget, HistoryShare(threshold, source, overhead, history, budget.window_tokens)


def _narrows(threshold: float | None) -> bool:
    return threshold is not None and threshold < DEFAULT_COMPACTION_THRESHOLD


def _in_force(given: float | ScopeRecord | None) -> tuple[float | None, ThresholdSource]:
    source = ThresholdSource.CALLER
    if isinstance(given, ScopeRecord):
        if given.outcome is not ScopeOutcome.GIVEN:
            source = ThresholdSource.CLASSIFIER
        given = given.threshold
    if given is None:
        return None, ThresholdSource.DEFAULT
    threshold = checked_threshold("compaction_threshold", given)
    return max(0.0, min(DEFAULT_COMPACTION_THRESHOLD, threshold)), source


def narrowed_budget(
    input: ContextBuildInput,
    counter: ContextTokenCounter | AdditiveTokenCounter,
    compaction_threshold: float | ScopeRecord | None,
) -> ContextBudget:
    """The budget to build with under a threshold: ``input.budget``, its window narrowed, never widened.

    The window ends where the history budget does: ``overhead + history budget +
    output_reserve + safety_margin`` tokens, at most the window given.  The
    overhead is what ``counter`` gives for the request without its history; it is
    asked only where the threshold is below 0.8.  Pinned turns are history.

        budget = ullage.narrowed_budget(input, counter, 0.6)
        builder.build(msgspec.structs.replace(input, budget=budget), counter)

    Raises ThresholdError for a threshold that is NaN or not a number, and
    CounterFailed, UnverifiedCount or TokenOverflow as a build does.
    """
    if not _narrows(_in_force(compaction_threshold)[0]):
        return input.budget
    return narrow_budget(input.budget, _overhead(input, counter), compaction_threshold)[0]


def _overhead(input: ContextBuildInput, counter: ContextTokenCounter | AdditiveTokenCounter) -> int:
    """Tokens of the request without any history: system, current turn, constraint and template."""
    request = GenerationRequest((*system_messages(input), *input.current), input.constraint)
    if is_additive(counter):
        answer = ask(count_additively, counter, input.target, request)
    else:
        answer = ask(counter.count, input.target, request)  # type: ignore[union-attr]
    return checked_count(answer, input.target, input.budget).tokens.total()
