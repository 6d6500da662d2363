"""The contract of a build in plain Python: its checks in their order, and its loop.

This is what decides which fault is reported.  The compiled engine accepts good
input on its own, quickly; whatever it does not accept it hands over to here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol

from . import canonical
from .blank import is_blank
from .budget import ContextBudget, ContextTarget, TokenBoundEvidence, TokenBudgetMode
from .canonical import U64_MAX, shown
from .counting import (
    AdditiveTokenCounter,
    ContextTokenCounter,
    ask,
    check_counter,
    count_additively,
    is_additive,
)
from .errors import (
    ContextBuildError,
    CounterFailed,
    CountLimit,
    DoesNotFit,
    InvalidContext,
    JsonValueError,
    ResourceLimit,
    TokenOverflow,
    UnverifiedCount,
)
from .history import GroupKind, ProjectionGroup, TurnState
from .messages import AssistantMessage, GenerationRequest, Message, SystemMessage, ToolMessage, UserMessage
from .report import (
    ALGORITHM_VERSION,
    BuiltContext,
    ContextBuildInput,
    ContextBuildReport,
    ContextCountAttempt,
    ContextTokenCount,
    ContextTurnSelection,
)
from .shape import check_constraint, check_messages

__all__ = ["ContextBuilder", "build_by_counting", "check_input"]

PROJECTION_VERSION = 1


class ContextBuilder(Protocol):
    """Fits a history into a budget."""

    def build(
        self, input: ContextBuildInput, counter: ContextTokenCounter | AdditiveTokenCounter
    ) -> BuiltContext:
        """The request that fits and its report.  Raises ContextBuildError; never gives part of a request."""
        ...


# --- checks before anything is removed ----------------------------------------


def check_input(input: ContextBuildInput) -> None:
    """Raise the first fault of an input, in the contract's order."""
    budget, limits, history = input.budget, input.limits, input.history
    _check_figures(input)
    if (
        budget.mode is TokenBudgetMode.HARD
        and budget.output_evidence is not TokenBoundEvidence.VERIFIED_UPPER_BOUND
    ):
        raise UnverifiedCount(path="budget.output_evidence")
    if max(len(history.groups), len(history.turns)) > limits.max_groups:
        raise ResourceLimit("groups", path="history")
    if input_length(input) > limits.max_input_bytes:
        raise ResourceLimit("input bytes")
    if (
        len(input.system) + len(input.current) + sum(len(g.messages) for g in history.groups)
        > limits.max_messages
    ):
        raise ResourceLimit("messages")
    if history.algorithm_version != PROJECTION_VERSION:
        raise InvalidContext("unsupported projection version", path="history.algorithm_version")
    _check_current(input.current)
    _check_turns(input)
    _check_groups(input)
    if budget.output_reserve + budget.safety_margin > U64_MAX:
        raise TokenOverflow(path="budget")
    every_group = [message for group in history.groups for message in group.messages]
    check_messages([*system_messages(input), *every_group, *input.current])
    check_constraint(input.constraint)


def _check_figures(input: ContextBuildInput) -> None:
    figures = {f"limits.{name}": getattr(input.limits, name) for name in input.limits.__struct_fields__}
    figures["budget.window_tokens"] = input.budget.window_tokens
    figures["budget.output_reserve"] = input.budget.output_reserve
    blank = {f"target.{n}": not is_blank(getattr(input.target, n)) for n in input.target.__struct_fields__}
    for path, present in (figures | blank).items():
        if not present:
            raise InvalidContext("zero limit or blank target", path=path)


def input_length(input: ContextBuildInput) -> int:
    """Bytes of ``[history, system, current, constraint, pinned_turns, state_version, target]``."""
    names = ("history", "system", "current", "constraint", "pinned_turns", "state_version", "target")
    length = len(names) + 1  # brackets and commas
    for name in names:
        try:
            length += len(canonical.write(getattr(input, name)))
        except JsonValueError as error:
            raise canonical.located(error, name) from None
    return length


def _check_current(current: Sequence[Message]) -> None:
    if not (current and isinstance(current[0], UserMessage)):
        at = 0
    else:
        at = next((i for i, message in enumerate(current) if isinstance(message, SystemMessage)), -1)
    if at >= 0:
        raise InvalidContext(
            "current context must start with user and contain no system", path=f"current[{at}]"
        )
    check_messages(current, "current")


def _check_turns(input: ContextBuildInput) -> None:
    seen: set[str] = set()
    for i, turn in enumerate(input.history.turns):
        if is_blank(turn.turn_id) or turn.turn_id in seen or turn.state is TurnState.OPEN:
            raise InvalidContext("duplicate, blank or open historical turn", path=f"history.turns[{i}]")
        seen.add(turn.turn_id)
    pinned: set[str] = set()
    for i, turn_id in enumerate(input.pinned_turns):
        if turn_id not in seen or turn_id in pinned:
            raise InvalidContext("duplicate or unknown pinned turn", path=f"pinned_turns[{i}]")
        pinned.add(turn_id)


def _check_groups(input: ContextBuildInput) -> None:
    order = {turn.turn_id: i for i, turn in enumerate(input.history.turns)}
    last = 0
    for i, group in enumerate(input.history.groups):
        path = f"history.groups[{i}]"
        turn = order.get(group.turn_id)
        if turn is None:
            raise InvalidContext("unknown group turn", path=path)
        if turn < last or not group.source_events:
            raise InvalidContext("unordered or unsourced group", path=path)
        if not _well_formed(group):
            raise InvalidContext("invalid projection group shape", path=path)
        last = turn


def _well_formed(group: ProjectionGroup) -> bool:
    messages = group.messages
    if group.kind is GroupKind.TOOL_EXCHANGE:
        if len(messages) != 2:
            return False
        asked, answer = messages
        return (
            isinstance(asked, AssistantMessage)
            and len(asked.tool_calls) == 1
            and isinstance(answer, ToolMessage)
            and answer.call_id == asked.tool_calls[0].id
        )
    if len(messages) != 1:
        return False
    only = messages[0]
    if group.kind is GroupKind.USER:
        return isinstance(only, UserMessage)
    return isinstance(only, AssistantMessage) and only.content is not None and not only.tool_calls


# --- the loop -----------------------------------------------------------------


class Outcome(Enum):
    """How a loop ended."""

    FITS = 0
    DOES_NOT_FIT = 1
    COUNT_LIMIT = 2


def remove_until_fit(
    count: Callable[[int], ContextTokenCount], removable: int, budget: ContextBudget, max_count_calls: int
) -> tuple[list[ContextCountAttempt], Outcome]:
    """Count the complete candidate, drop the oldest turn that may go, count again, until it fits.

    ``count(removed)`` counts the candidate without the first ``removed`` of the
    ``removable`` turns; whatever it raises ends the loop.
    """
    attempts: list[ContextCountAttempt] = []
    for removed in range(removable + 1):
        attempts.append(attempt(budget, removed, count(removed)))
        if attempts[-1].total_reserved <= budget.window_tokens:
            return attempts, Outcome.FITS
        if removed < removable and len(attempts) >= max_count_calls:
            return attempts, Outcome.COUNT_LIMIT
    return attempts, Outcome.DOES_NOT_FIT


def attempt(budget: ContextBudget, removed: int, count: ContextTokenCount) -> ContextCountAttempt:
    """Record a count.  Raises TokenOverflow, or InvalidContext for a count of nothing."""
    total = count.tokens.total()
    if total == 0:
        raise InvalidContext("zero input count")
    reserved = total + budget.output_reserve + budget.safety_margin
    if reserved > U64_MAX:
        raise TokenOverflow
    return ContextCountAttempt(removed, count, reserved)


def checked_count(count: Any, target: ContextTarget, budget: ContextBudget) -> ContextTokenCount:
    """A counter's answer.  Raises CounterFailed where it is none, UnverifiedCount where it may not serve."""
    if not isinstance(count, ContextTokenCount):
        raise CounterFailed(f"count gave a {type(count).__name__}, not a ContextTokenCount")
    check_evidence(count.method, count.evidence, budget)
    if count.target != target:
        raise _unverified(f"the count is for {shown(count.target)}, the request for {shown(target)}")
    return count


def check_evidence(method: str, evidence: TokenBoundEvidence, budget: ContextBudget) -> None:
    """Raise UnverifiedCount for a blank method, or for an estimate in Hard mode."""
    if not isinstance(method, str) or not isinstance(evidence, TokenBoundEvidence):
        raise CounterFailed(
            f"the counter gave {shown(method)} as its method and {shown(evidence)} as its evidence"
        )
    if is_blank(method):
        raise _unverified("the counter names no method")
    if budget.mode is TokenBudgetMode.HARD and evidence is not TokenBoundEvidence.VERIFIED_UPPER_BOUND:
        raise _unverified(
            f"Hard mode takes verified upper bounds only, and {method} is an estimate: use Soft mode with a "
            "safety margin, or a counter whose evidence is VERIFIED_UPPER_BOUND"
        )


def _unverified(note: str) -> UnverifiedCount:
    error = UnverifiedCount()
    error.add_note(note)
    return error


def build_by_counting(
    input: ContextBuildInput, counter: ContextTokenCounter | AdditiveTokenCounter
) -> BuiltContext:
    """Build by counting each candidate whole.  The input has passed ``check_input``."""
    pinned = set(input.pinned_turns)
    turn_ids = [turn.turn_id for turn in input.history.turns]
    removable = [turn_id for turn_id in turn_ids if turn_id not in pinned]

    def retained(removed: int) -> dict[str, bool]:
        return dict.fromkeys(turn_ids, True) | dict.fromkeys(removable[:removed], False)

    check_counter(counter)

    def count(removed: int) -> ContextTokenCount:
        request = candidate(input, retained(removed))
        if is_additive(counter):
            answer = ask(count_additively, counter, input.target, request)
        else:
            answer = ask(counter.count, input.target, request)  # type: ignore[union-attr]
        return checked_count(answer, input.target, input.budget)

    attempts, outcome = remove_until_fit(count, len(removable), input.budget, input.limits.max_count_calls)
    kept = retained(attempts[-1].removed_turns)
    report = make_report(input, kept, attempts)
    if outcome is Outcome.DOES_NOT_FIT:
        raise does_not_fit(report, _current_tokens(input, counter))
    if outcome is Outcome.COUNT_LIMIT:
        raise count_limit(report)
    return BuiltContext(candidate(input, kept), report)


def system_messages(input: ContextBuildInput) -> list[SystemMessage]:
    """The system texts as messages."""
    return [SystemMessage(text) for text in input.system]


def candidate(input: ContextBuildInput, retained: dict[str, bool]) -> GenerationRequest:
    """The request that holds the retained turns."""
    kept = [
        message for group in input.history.groups if retained[group.turn_id] for message in group.messages
    ]
    return GenerationRequest((*system_messages(input), *kept, *input.current), input.constraint)


def make_report(
    input: ContextBuildInput, retained: dict[str, bool], attempts: Sequence[ContextCountAttempt]
) -> ContextBuildReport:
    """The report of a build that kept the retained turns."""
    events: dict[str, list[str]] = {turn_id: [] for turn_id in retained}
    for group in input.history.groups:
        events[group.turn_id].extend(group.source_events)
    pinned = set(input.pinned_turns)
    turns = (
        ContextTurnSelection(turn_id, tuple(events[turn_id]), kept, turn_id in pinned)
        for turn_id, kept in retained.items()
    )
    return build_report(input, tuple(turns), tuple(attempts))


def build_report(
    input: ContextBuildInput,
    turns: tuple[ContextTurnSelection, ...],
    attempts: tuple[ContextCountAttempt, ...],
) -> ContextBuildReport:
    """The report, turns in the order of the history."""
    history = input.history
    return ContextBuildReport(
        algorithm_version=ALGORITHM_VERSION,
        projection_version=history.algorithm_version,
        session_id=history.session_id,
        source_tail=history.source_tail,
        source_event_count=history.source_event_count,
        state_version=input.state_version,
        target=input.target,
        budget=input.budget,
        limits=input.limits,
        system_messages=len(input.system),
        current_messages=len(input.current),
        turns=turns,
        attempts=attempts,
    )


# --- errors that carry the report ------------------------------------------------


def _current_tokens(
    input: ContextBuildInput, counter: ContextTokenCounter | AdditiveTokenCounter
) -> int | None:
    if not is_additive(counter):
        return None
    return sum(ask(counter.message_tokens, message) for message in input.current)  # type: ignore[union-attr]


def does_not_fit(report: ContextBuildReport, current_tokens: int | None) -> ContextBuildError:
    """The error for a minimum that is too large; ``current_tokens`` where the counter can tell."""
    last, budget = report.attempts[-1], report.budget
    tokens = last.count.tokens
    parts = {"system": tokens.system}
    if current_tokens is None:
        parts["messages"] = tokens.messages
    else:
        parts["pinned"] = tokens.messages - current_tokens
        parts["current"] = current_tokens
    parts["constraint"] = tokens.constraint
    parts["template"] = tokens.template
    parts["output_reserve"] = budget.output_reserve
    parts["safety_margin"] = budget.safety_margin
    error = DoesNotFit(report=report, needed=last.total_reserved, window=budget.window_tokens, parts=parts)
    listed = ", ".join(f"{name} {value:,}" for name, value in parts.items())
    error.add_note(
        f"needed {last.total_reserved:,} tokens, window {budget.window_tokens:,} ({listed}): shorten the "
        "system text or the current turn, unpin turns, lower the reserve, or take a larger window"
    )
    if 2 * budget.output_reserve > budget.window_tokens:
        share = budget.output_reserve / budget.window_tokens
        error.add_note(f"output_reserve alone takes {share:.0%} of the window")
    return error


def count_limit(report: ContextBuildReport) -> ContextBuildError:
    """The error for too many counts."""
    error = CountLimit(report=report)
    error.add_note(
        f"{len(report.attempts)} counts were made and the request still does not fit: raise "
        "limits.max_count_calls, or start from a shorter history"
    )
    return error
