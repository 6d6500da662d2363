"""The compiled builder: each message is measured once, all attempts are derived from the figures."""

from __future__ import annotations

from . import _build
from ._trim import derive_attempts
from .budget import TokenBoundEvidence
from .contract import (
    Outcome,
    build_by_counting,
    build_report,
    check_evidence,
    check_input,
    count_limit,
    does_not_fit,
)
from .counters import ByteHeuristicCounter
from .counting import AdditiveTokenCounter, ContextTokenCounter, ask, check_counter, is_additive, token_figure
from .messages import GenerationRequest
from .report import BuiltContext, ContextBuildInput, ContextTokenBreakdown, ContextTokenCount

__all__ = ["CanonicalContextBuilder"]


class CanonicalContextBuilder:
    """Drops the oldest whole turns until the request fits.

    Time grows with the text once and with the turns once, not with the number
    of attempts, for a counter that is additive per message; any other counter
    is asked about every complete candidate.  Stateless: threads may share it.
    """

    def build(
        self, input: ContextBuildInput, counter: ContextTokenCounter | AdditiveTokenCounter
    ) -> BuiltContext:
        """The request that fits and its report.

        Raises ContextBuildError (its subclasses say why), or JsonValueError for
        a value in the input that has no JSON form; never gives part of a request.
        """
        check_counter(counter)
        encoded = _build.encode(input)
        if encoded is None:
            check_input(input)
        if encoded is None or not is_additive(counter):
            return build_by_counting(input, counter)
        return _derive(input, counter, encoded)  # type: ignore[arg-type]


def _derive(
    input: ContextBuildInput, counter: AdditiveTokenCounter, encoded: _build.EncodedBuild
) -> BuiltContext:
    budget = input.budget
    constraint, template, method, evidence = ask(_price, input, counter, encoded)
    check_evidence(method, evidence, budget)
    reserved = budget.output_reserve + budget.safety_margin
    outcome, removed, messages = encoded.trim(
        constraint, template, reserved, budget.window_tokens, input.limits.max_count_calls
    )
    tokens = ContextTokenBreakdown(encoded.system_tokens, messages[0], constraint, template)
    first = ContextTokenCount(input.target, method, evidence, tokens)
    attempts = derive_attempts(first, reserved, messages)
    report = build_report(input, encoded.selections(removed), attempts)
    if outcome is Outcome.DOES_NOT_FIT:
        raise does_not_fit(report, encoded.current_tokens)
    if outcome is Outcome.COUNT_LIMIT:
        raise count_limit(report)
    return BuiltContext(GenerationRequest(encoded.messages(removed), input.constraint), report)


def _price(
    input: ContextBuildInput, counter: AdditiveTokenCounter, encoded: _build.EncodedBuild
) -> tuple[int, int, str, TokenBoundEvidence]:
    """Take the counter's figures for the messages; return the others, its method and its evidence."""
    if type(counter) is not ByteHeuristicCounter:  # whose figures the encoding already holds
        encoded.price(counter)
    constraint = token_figure(counter.constraint_tokens(input.constraint), "constraint_tokens")
    template = token_figure(counter.template_tokens, "template_tokens")
    return constraint, template, counter.method, counter.evidence
