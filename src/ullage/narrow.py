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
from .threshold import DEFAULT_COMPACTION_THRESHOLD, resolve_history_budget
from .wire import Wire

__all__ = ["HistoryShare", "ThresholdSource", "context_overhead", "narrow_budget", "narrowed_budget"]


class ThresholdSource(StrEnum):
    """Where a threshold comes from."""

    CALLER = "caller"
    CLASSIFIER = "classifier"
    DEFAULT = "default"


class HistoryShare(Wire, frozen=True):
    """What a call left to history: the threshold (None for the default), its source, and tokens.

    ``overhead`` is what the request takes without history, ``history_budget``
    what history may take (both None where no threshold was given and the counter
    cannot tell them without another count), ``window_tokens`` the window in force.
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

    Raises ThresholdError for a threshold that is not a number.
    """
    threshold, source = _threshold(compaction_threshold)
    kept_free = budget.output_reserve + budget.safety_margin
    check = {
        "available_input_tokens": budget.window_tokens - kept_free,
        "breakdown": {
            "system_prompt": overhead,
            "current_prompt": 0,
            "tool_definitions": 0,
            "file_attachments": 0,
        },
    }
    history = resolve_history_budget(check, threshold)
    if threshold is not None and threshold < DEFAULT_COMPACTION_THRESHOLD:
        window = min(budget.window_tokens, overhead + history + kept_free)
        budget = msgspec.structs.replace(budget, window_tokens=window)
    return budget, HistoryShare(threshold, source, overhead, history, budget.window_tokens)


def _threshold(given: float | ScopeRecord | None) -> tuple[float | None, ThresholdSource]:
    if not isinstance(given, ScopeRecord):
        return given, ThresholdSource.DEFAULT if given is None else ThresholdSource.CALLER
    if given.threshold is None:
        return None, ThresholdSource.DEFAULT
    by_caller = given.outcome is ScopeOutcome.GIVEN
    return given.threshold, ThresholdSource.CALLER if by_caller else ThresholdSource.CLASSIFIER


def context_overhead(input: ContextBuildInput, counter: ContextTokenCounter | AdditiveTokenCounter) -> int:
    """Tokens of a build's request without any history: system, current turn, constraint and template.

    Raises CounterFailed, UnverifiedCount or TokenOverflow as a build does.
    """
    request = GenerationRequest((*system_messages(input), *input.current), input.constraint)
    if is_additive(counter):
        answer = ask(count_additively, counter, input.target, request)
    else:
        answer = ask(counter.count, input.target, request)  # type: ignore[union-attr]
    return checked_count(answer, input.target, input.budget).tokens.total()


def narrowed_budget(
    input: ContextBuildInput,
    counter: ContextTokenCounter | AdditiveTokenCounter,
    compaction_threshold: float | ScopeRecord | None,
) -> ContextBudget:
    """The budget to build with under a threshold: ``input.budget`` with its window narrowed, never widened."""
    return narrow_budget(input.budget, context_overhead(input, counter), compaction_threshold)[0]
