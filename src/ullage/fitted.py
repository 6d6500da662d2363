"""One fit of a transcript: its checks in the contract's order, and a result that is made when it is read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, get_args

from ._core import json_length
from ._transcript import Measured, Snapshot
from ._trim import derive_attempts
from .blank import is_blank
from .budget import ContextBudget, ContextBuildLimits, ContextTarget, TokenBoundEvidence, TokenBudgetMode
from .canonical import U64_MAX, located
from .contract import (
    PROJECTION_VERSION,
    Outcome,
    _check_current,
    _check_figures,
    build_report,
    check_evidence,
    count_limit,
    does_not_fit,
    input_length,
)
from .counters import ByteHeuristicCounter
from .counting import AdditiveTokenCounter, ask, token_figure
from .errors import (
    ContextBuildError,
    CounterOverflow,
    InvalidContext,
    InvalidShape,
    JsonValueError,
    ResourceLimit,
    TokenOverflow,
    UnverifiedCount,
)
from .history import ConversationProjection
from .messages import Constraint, GenerationRequest, Message, SystemMessage
from .narrow import HistoryShare, narrow_budget
from .report import (
    BuiltContext,
    ContextBuildInput,
    ContextBuildReport,
    ContextTokenBreakdown,
    ContextTokenCount,
)
from .scope import ScopeRecord
from .shape import check_constraint, check_messages

__all__ = ["FittedContext"]

_DEFAULT_LIMITS = ContextBuildLimits()
_Figures: TypeAlias = tuple[str, TokenBoundEvidence, int, int, int]  # as Frame has them


@dataclass(frozen=True, slots=True)
class Frame:
    """What all requests of a transcript have in common, measured."""

    counter: AdditiveTokenCounter
    system: tuple[str, ...]
    constraint: Constraint
    session_id: str
    system_messages: tuple[SystemMessage, ...]
    method: str
    evidence: TokenBoundEvidence
    system_tokens: int
    constraint_tokens: int
    template_tokens: int
    input_bytes: int  # of a build input without turns, pins, current messages, texts of the target and state

    @classmethod
    def of(
        cls, counter: AdditiveTokenCounter, system: Sequence[str], constraint: Constraint, session_id: str
    ) -> Self:
        """Check and measure.  Raises as Transcript does."""
        if isinstance(system, str):
            raise TypeError("system is a sequence of texts, not one text: write (text,)")
        texts = tuple(system)
        messages = tuple(SystemMessage(text) for text in texts)
        check_constraint(constraint)
        if not isinstance(session_id, str):
            raise TypeError(f"session_id must be a str, not {type(session_id).__name__}")
        # Brackets and commas of the array of seven parts, brackets of two of them, a target without texts.
        length = 8 + 2 * 2 + json_length(ContextTarget("", "")) - 4
        length += json_length(ConversationProjection(PROJECTION_VERSION, session_id, None, 0))
        for name, part in (("system", list(texts)), ("constraint", constraint)):
            try:
                length += json_length(part)
            except JsonValueError as error:
                raise located(error, name) from None
        figures: _Figures = ask(_frame_figures, counter, messages, constraint)
        return cls(counter, texts, constraint, session_id, messages, *figures, length)

    @property
    def nbytes(self) -> int:
        """Bytes of the frame and of its system messages."""
        parts = (self, self.system, self.system_messages, *self.system_messages)
        return sum(map(sys.getsizeof, parts))

    def price(self, added: Measured) -> None:
        """Take the counter's figures.  Raises CounterFailed."""
        if type(self.counter) is not ByteHeuristicCounter:  # whose figures are there already
            ask(added.price, self.counter.message_tokens)

    def history(self, count: int) -> dict[str, Any]:
        """What a projection tells of a session of so many messages."""
        return {
            "algorithm_version": PROJECTION_VERSION,
            "session_id": self.session_id,
            "source_tail": str(count - 1) if count else None,
            "source_event_count": count,
        }


def _frame_figures(
    counter: AdditiveTokenCounter, system: Sequence[SystemMessage], constraint: Constraint
) -> _Figures:
    tokens = sum(token_figure(counter.message_tokens(message), "message_tokens") for message in system)
    if tokens > U64_MAX:
        raise CounterOverflow
    constraint_tokens = token_figure(counter.constraint_tokens(constraint), "constraint_tokens")
    template_tokens = token_figure(counter.template_tokens, "template_tokens")
    return counter.method, counter.evidence, tokens, constraint_tokens, template_tokens


class FittedContext:
    """A request that fits, and how it came about; both are made when first read.

    Stands for a BuiltContext: ``built`` is one, equal to the builder's, and it is
    pickled as one.  It holds 17 bytes for each turn of the transcript, 8 for each
    count, and the transcript's messages.
    """

    __slots__ = ("_budget", "_figures", "_fitting", "_given", "_removed", "_report", "_request")

    def __init__(
        self,
        fitting: Fitting,
        given: ContextBudget,
        budget: ContextBudget,
        removed: int,
        figures: Sequence[int],
    ) -> None:
        self._fitting = fitting
        self._given = given
        self._budget = budget
        self._removed = removed
        self._figures = figures
        self._request: GenerationRequest | None = None
        self._report: ContextBuildReport | None = None

    @property
    def request(self) -> GenerationRequest:
        """System texts, the messages of the turns that stay, the current messages; and the constraint."""
        if self._request is None:
            self._request = self._fitting.request(self._removed)
        return self._request

    @property
    def report(self) -> ContextBuildReport:
        """Every count and every turn kept or dropped."""
        if self._report is None:
            self._report = self._fitting.report(self._budget, self._removed, self._figures)
        return self._report

    @property
    def built(self) -> BuiltContext:
        """Both together."""
        return BuiltContext(self.request, self.report)

    @property
    def share(self) -> HistoryShare:
        """Which threshold was in force, from where, and what it left to history."""
        return self._fitting.narrow(self._given)[1]

    def to_json(self) -> bytes:
        """The contract's JSON of a BuiltContext."""
        return self.built.to_json()

    def __reduce__(self) -> tuple[Any, ...]:
        return BuiltContext, (self.request, self.report)

    def __repr__(self) -> str:
        return f"<FittedContext: {self._removed:,} of {self._fitting.past.turns:,} turns dropped>"


class Fitting:
    """A transcript at one moment and the turn to be answered, for any number of budgets."""

    __slots__ = (
        "current",
        "frame",
        "limits",
        "measured",
        "past",
        "sound",
        "state",
        "target",
        "threshold",
        "tokens",
    )

    def __init__(
        self,
        frame: Frame,
        past: Snapshot,
        current: Iterable[Message],
        target: ContextTarget,
        state_version: str | None,
        compaction_threshold: float | ScopeRecord | None,
        limits: ContextBuildLimits | None,
    ) -> None:
        if isinstance(compaction_threshold, ScopeRecord) and compaction_threshold.threshold is None:
            compaction_threshold = None
        self.frame = frame
        self.past = past
        self.current = tuple(current)
        self.target = target
        self.state = state_version
        self.threshold = compaction_threshold
        self.measured = Measured(self.current)
        self.tokens: int | None = None  # of the current messages, once they are counted
        length = past.input_bytes(frame.input_bytes, self.measured, target, state_version)
        self.limits, within = self._limits(limits, length or 0)
        self.sound = (
            within
            and length is not None
            and past.complete
            and self.measured.is_current()
            and not is_blank(target.model)
            and not is_blank(target.template_revision)
        )

    def _limits(self, given: ContextBuildLimits | None, length: int) -> tuple[ContextBuildLimits, bool]:
        """The limits in force, by default as large as the input is, and whether it is inside them."""
        groups = max(self.past.groups, self.past.turns)
        if given is not None:
            within = (
                groups <= given.max_groups
                and length <= given.max_input_bytes
                and self._messages <= given.max_messages
                and 0
                not in (given.max_groups, given.max_input_bytes, given.max_messages, given.max_count_calls)
            )
            return given, within
        default = _DEFAULT_LIMITS
        if length <= default.max_input_bytes and self._messages <= default.max_count_calls:
            return default, True  # neither turns nor groups can pass the others
        limits = ContextBuildLimits(
            max(default.max_input_bytes, length),
            max(default.max_groups, groups),
            max(default.max_messages, self._messages),
            max(default.max_count_calls, self.past.turns + 1),
        )
        return limits, True

    @property
    def _messages(self) -> int:
        return len(self.frame.system) + len(self.current) + self.past.count

    # -- one budget

    def run(self, budget: ContextBudget) -> FittedContext:
        """The request that fits.  Raises as Transcript.fit does."""
        frame = self.frame
        reserved = budget.output_reserve + budget.safety_margin
        if not (
            self.sound
            and budget.window_tokens
            and budget.output_reserve
            and reserved <= U64_MAX
            and (
                budget.mode is not TokenBudgetMode.HARD
                or budget.output_evidence is TokenBoundEvidence.VERIFIED_UPPER_BOUND
            )
        ):
            raise self._fault(budget)
        current = self._weigh()
        check_evidence(frame.method, frame.evidence, budget)
        given = budget
        if self.threshold is not None:
            budget = self.narrow(given)[0]
        outcome, removed, figures = self.past.trim(
            frame.system_tokens,
            current,
            frame.constraint_tokens,
            frame.template_tokens,
            reserved,
            budget.window_tokens,
            self.limits.max_count_calls,
        )
        if outcome is not Outcome.FITS:
            raise self._error(outcome, given, self.report(budget, removed, figures))
        return FittedContext(self, given, budget, removed, figures)

    def _weigh(self) -> int:
        """The tokens of the current messages.  Raises CounterFailed, also where all messages overflow."""
        if self.tokens is None:
            self.frame.price(self.measured)
            tokens: int = ask(self.measured.total_tokens)
            ask(self.past.total_tokens, tokens)
            self.tokens = tokens
        return self.tokens

    def narrow(self, budget: ContextBudget) -> tuple[ContextBudget, HistoryShare]:
        """The budget in force, and what it leaves to history."""
        frame = self.frame
        overhead = frame.system_tokens + self._weigh() + frame.constraint_tokens + frame.template_tokens
        return narrow_budget(budget, overhead, self.threshold)

    # -- results

    def request(self, removed: int) -> GenerationRequest:
        """The request without the first so many turns that may go."""
        messages = (*self.frame.system_messages, *self.past.kept(removed), *self.current)
        return GenerationRequest(messages, self.frame.constraint)

    def report(self, budget: ContextBudget, removed: int, figures: Sequence[int]) -> ContextBuildReport:
        """The report; ``figures`` are the message tokens of each attempt."""
        frame = self.frame
        fixed = (frame.constraint_tokens, frame.template_tokens)
        tokens = ContextTokenBreakdown(frame.system_tokens, figures[0], *fixed)
        first = ContextTokenCount(self.target, frame.method, frame.evidence, tokens)
        attempts = derive_attempts(first, budget.output_reserve + budget.safety_margin, figures)
        return build_report(self._input(budget), self.past.selections(removed), attempts)

    def _input(self, budget: ContextBudget) -> ContextBuildInput:
        """The build input, but without the groups and turns of its history."""
        return ContextBuildInput(
            history=ConversationProjection(**self.frame.history(self.past.count)),
            current=self.current,
            target=self.target,
            budget=budget,
            system=self.frame.system,
            constraint=self.frame.constraint,
            state_version=self.state,
            limits=self.limits,
        )

    # -- errors

    def _error(self, outcome: Outcome, given: ContextBudget, report: ContextBuildReport) -> ContextBuildError:
        if outcome is Outcome.COUNT_LIMIT:
            return count_limit(report)
        error = does_not_fit(report, self.tokens)
        if report.budget.window_tokens < given.window_tokens:
            error.add_note(
                f"compaction_threshold narrowed the window from {given.window_tokens:,} to "
                f"{report.budget.window_tokens:,}; pinned turns count as history"
            )
        return error

    def _fault(self, budget: ContextBudget) -> Exception:
        """The first fault of the input, in the contract's order; the text is not measured again for it."""
        given = self._input(budget)
        _check_figures(given)
        hard = budget.mode is TokenBudgetMode.HARD
        if hard and budget.output_evidence is not TokenBoundEvidence.VERIFIED_UPPER_BOUND:
            return UnverifiedCount(path="budget.output_evidence")
        if max(self.past.groups, self.past.turns) > self.limits.max_groups:
            return ResourceLimit("groups", path="history")
        length = input_length(given)  # raises for a value without a JSON form
        if length + self.past.history_bytes + self.past.pins_bytes > self.limits.max_input_bytes:
            return ResourceLimit("input bytes")
        if self._messages > self.limits.max_messages:
            return ResourceLimit("messages")
        _check_current(self.current)
        if budget.output_reserve + budget.safety_margin > U64_MAX:
            return TokenOverflow(path="budget")
        return self._open_call()

    def _open_call(self) -> Exception:
        """What is left: a call that waits for its result, or something that only looks like a message."""
        try:
            check_messages([*self.frame.system_messages, *self.past.kept(), *self.current])
        except InvalidShape as error:
            error.add_note(
                "a call of the transcript's last turn waits for its result: append it, or remove the turn"
            )
            return error
        for i, message in enumerate(self.current):
            if type(message) not in get_args(Message):
                return TypeError(f"current[{i}] must be a message, not {type(message).__name__}")
        return InvalidContext("the current messages changed while they were measured", path="current")
