"""The everyday call: messages in, the messages that fit and their report out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from ._chat import EncodedChat
from ._core import json_length
from ._trim import derive_attempts
from .blank import is_blank
from .budget import ContextBudget, ContextBuildLimits, ContextTarget, TokenBoundEvidence, TokenBudgetMode
from .canonical import U64_MAX, located, shown
from .contract import (
    PROJECTION_VERSION,
    Outcome,
    check_evidence,
    checked_count,
    count_limit,
    does_not_fit,
    remove_until_fit,
)
from .counters import ByteHeuristicCounter
from .counting import (
    AdditiveTokenCounter,
    ContextTokenCounter,
    ask,
    check_counter,
    counts_bytes,
    is_additive,
    token_figure,
)
from .errors import CounterOverflow, InvalidContext, JsonValueError, ResourceLimit, UnverifiedCount
from .formats.openai_chat import check_tools, constraint_with_extra, read_message, read_tools, with_extra
from .messages import (
    GenerationRequest,
    Message,
    SystemMessage,
    TextConstraint,
)
from .narrow import HistoryShare, ThresholdSource, narrow_budget
from .report import (
    ALGORITHM_VERSION,
    ContextBuildReport,
    ContextCountAttempt,
    ContextTokenBreakdown,
    ContextTokenCount,
)
from .scope import ScopeRecord

__all__ = ["FitResult", "fit"]

M = TypeVar("M")

FORMATS = ("openai",)
UNSPECIFIED = "unspecified"
_TURN = re.compile("turn-(0|[1-9][0-9]{0,18})")
_DEFAULT_COUNTER = ByteHeuristicCounter()
_DEFAULT_LIMITS = ContextBuildLimits()
_TEXT_CONSTRAINT_BYTES = json_length(TextConstraint())


class FitResult(Generic[M]):
    """The messages that fit, and what became of the others.

    ``messages`` are the caller's own objects, unchanged, in their order;
    ``kept`` their indexes in the input.
    """

    __slots__ = ("_attempts", "_fitting", "_removed", "_report", "messages")

    messages: list[M]

    def __init__(
        self, fitting: _Fitting, removed: int, attempts: Sequence[int] | Sequence[ContextCountAttempt]
    ) -> None:
        self._fitting = fitting
        self._removed = removed
        self._attempts = attempts
        self._report: ContextBuildReport | None = None
        self.messages = fitting.chat.kept_messages(removed)

    @property
    def kept(self) -> list[int]:
        """The indexes of the messages that stay, ascending."""
        return self._fitting.chat.kept(self._removed)

    @property
    def share(self) -> HistoryShare:
        """Which threshold was in force, from where, and what it left to history."""
        return self._fitting.share()

    @property
    def report(self) -> ContextBuildReport:
        """Every count and every turn kept or dropped; made when first read."""
        if self._report is None:
            self._report = self._fitting.report(self._removed, self._attempts)
        return self._report

    def __repr__(self) -> str:
        total = len(self._fitting.chat.messages)
        return f"<FitResult: {len(self.messages)} of {total} messages, {self._removed} turns dropped>"


def fit(
    messages: Iterable[M],
    *,
    window_tokens: int,
    output_reserve: int,
    safety_margin: int = 0,
    tools: Sequence[Any] = (),
    format: str | None = None,
    counter: ContextTokenCounter | AdditiveTokenCounter | None = None,
    model: str | None = None,
    mode: TokenBudgetMode = TokenBudgetMode.SOFT,
    pins: Iterable[str | int] = (),
    image_tokens: int = 1024,
    merge_users: bool = False,
    compaction_threshold: float | ScopeRecord | None = None,
    limits: ContextBuildLimits | None = None,
) -> FitResult[M]:
    """Drop the oldest whole turns until the request fits the context window.

    A turn starts at a user message and takes the assistant and tool messages
    that follow.  Leading system messages, later system messages, the last turn
    and pinned turns stay.  A tool call is never parted from its results.

    messages: OpenAI chat messages: dicts, objects with ``model_dump``, or this
        package's own message types.
    window_tokens, output_reserve, safety_margin: the context window, the room
        kept for the answer, and room for what the counter misses, in tokens.
    tools: tool definitions as the API takes them; counted whole.
    format: the messages' format; ``"openai"`` is the default.
    counter: how tokens are counted; a token for four bytes of JSON by default.
    model: named as the target in the report.
    mode: HARD refuses counts that are not verified upper bounds, and vouches
        for ``output_reserve`` as one.
    pins: turns that stay, as ``"turn-3"`` or 3; turns are numbered from 0, a
        system message after the first turn being a turn of its own.
    image_tokens: the price of an image, audio or file part.
    merge_users: consecutive user messages open one turn, not one each.
    compaction_threshold: how much of the window the request may carry as
        history, as a share of which 0.8 is the default and the most; lower it
        to narrow the window.  A record of ``decide_threshold`` stands for its
        threshold.
    limits: the largest input accepted; by default as large as the input is.

    Raises TranscriptError naming the message for a malformed transcript,
    JsonValueError naming the value for one that has no JSON form, DoesNotFit
    with the figures where what must stay is too large, and the other
    ContextBuildErrors as the builder does.
    """
    if format is not None and format not in FORMATS:
        raise ValueError(f"format is one of {', '.join(FORMATS)}, not {shown(format)}")
    if type(image_tokens) is not int or not 0 <= image_tokens < 2**32:
        raise ValueError(f"image_tokens must be an integer from 0 to 2**32 - 1, not {shown(image_tokens)}")
    if not isinstance(mode, TokenBudgetMode):
        raise TypeError(f"mode is TokenBudgetMode.HARD or SOFT, not {shown(mode)}")
    if not isinstance(limits, ContextBuildLimits | None):
        raise TypeError(f"limits is a ContextBuildLimits or None, not {shown(limits)}")
    if counter is not None:
        check_counter(counter)
    fitting = _Fitting(
        EncodedChat(messages, merge_users),
        tools,
        counter if counter is not None else _DEFAULT_COUNTER,
        _target(model),
        _budget(window_tokens, output_reserve, safety_margin, mode),
        image_tokens,
        limits,
        compaction_threshold,
    )
    for i, pin in enumerate(pins):
        fitting.pin(pin, f"pins[{i}]")
    return fitting.run()


def _target(model: str | None) -> ContextTarget:
    if model is None:
        return ContextTarget(UNSPECIFIED, UNSPECIFIED)
    if not isinstance(model, str):
        raise TypeError(f"model is a str or None, not {type(model).__name__}")
    if is_blank(model):
        raise InvalidContext("zero limit or blank target", path="model")
    try:
        json_length(model)
    except JsonValueError as error:
        raise located(error, "model") from None
    return ContextTarget(model, UNSPECIFIED)


def _budget(window: int, reserve: int, margin: int, mode: TokenBudgetMode) -> ContextBudget:
    hard = mode is TokenBudgetMode.HARD
    evidence = TokenBoundEvidence.VERIFIED_UPPER_BOUND if hard else TokenBoundEvidence.ESTIMATE
    budget = ContextBudget(window, reserve, evidence, margin, mode)
    for name, tokens in (("window_tokens", window), ("output_reserve", reserve)):
        if tokens == 0:
            raise InvalidContext(f"{name} is zero", path=name)
    if reserve + margin >= window:
        name = "output_reserve" if reserve >= window else "safety_margin"
        raise InvalidContext(
            f"output_reserve and safety_margin leave nothing of window_tokens ({window:,})", path=name
        )
    return budget


class _Fitting:
    """One call of ``fit``: what it was given, and the figures found."""

    def __init__(
        self,
        chat: EncodedChat,
        tools: Sequence[Any],
        counter: ContextTokenCounter | AdditiveTokenCounter,
        target: ContextTarget,
        budget: ContextBudget,
        image_tokens: int,
        limits: ContextBuildLimits | None,
        compaction_threshold: float | ScopeRecord | None,
    ) -> None:
        if isinstance(compaction_threshold, ScopeRecord) and compaction_threshold.threshold is None:
            compaction_threshold = None  # the request stays exactly as it was
        self.compaction_threshold = compaction_threshold
        self.overhead: int | None = None
        self.chat = chat
        self.counter = counter
        self.target = target
        self.given = self.budget = budget
        self.image_tokens = image_tokens
        self.counted_by = ("", TokenBoundEvidence.ESTIMATE)
        self.constraint, self.extra = read_tools(tools)
        self.constraint_bytes = self._constraint_length(tools) + len(self.extra.encode())
        self.limits = self._limits(limits)

    def _constraint_length(self, tools: Sequence[Any]) -> int:
        if not tools:
            return _TEXT_CONSTRAINT_BYTES
        try:
            return json_length(self.constraint)
        except JsonValueError:
            check_tools(tools)  # names the place as the caller sees it
            raise

    def _limits(self, given: ContextBuildLimits | None) -> ContextBuildLimits:
        """The limits in force: those given, or else such that this input is inside all of them."""
        length = self.chat.total_bytes + self.constraint_bytes
        messages, turns = len(self.chat.messages), self.chat.turn_count
        if given is None:
            default = _DEFAULT_LIMITS
            if length <= default.max_input_bytes and messages <= default.max_count_calls:
                return default  # neither turns nor messages can pass the others
            return ContextBuildLimits(
                max(default.max_input_bytes, length),
                max(default.max_groups, turns),
                max(default.max_messages, messages),
                max(default.max_count_calls, turns),
            )
        for name in given.__struct_fields__:
            if getattr(given, name) == 0:
                raise InvalidContext("zero limit or blank target", path=f"limits.{name}")
        if turns > given.max_groups:
            raise ResourceLimit("groups", path="messages")
        if length > given.max_input_bytes:
            raise ResourceLimit("input bytes", path="messages")
        if messages > given.max_messages:
            raise ResourceLimit("messages", path="messages")
        return given

    def pin(self, turn: str | int, path: str) -> None:
        number = turn
        if isinstance(turn, str):
            named = _TURN.fullmatch(turn)
            number = int(named[1]) if named else -1
        if type(number) is not int or not 0 <= number < self.chat.turn_count:
            raise InvalidContext("duplicate or unknown pinned turn", path=path)
        self.chat.pin(number)

    # -- counting

    def run(self) -> FitResult[Any]:
        if is_additive(self.counter):
            return self._run_additive(self.counter)  # type: ignore[arg-type]
        return self._run_counting(self.counter)  # type: ignore[arg-type]

    def _run_additive(self, counter: AdditiveTokenCounter) -> FitResult[Any]:
        messages = None if counts_bytes(counter) else self._contract_messages()
        constraint, template, method, evidence = ask(self._weigh, counter, messages)
        self.counted_by = (method, evidence)
        self._check_evidence(method, evidence)
        self.fixed = ContextTokenBreakdown(self.chat.system_tokens, 0, constraint, template)
        self._narrow(self.chat.system_tokens + self.chat.current_tokens + constraint + template)
        outcome, removed, attempts = self.chat.trim(
            constraint, template, self._reserved, self.budget.window_tokens, self.limits.max_count_calls
        )
        if outcome is not Outcome.FITS:
            raise self._error(outcome, self.report(removed, attempts), self.chat.current_tokens)
        return FitResult(self, removed, attempts)

    def _weigh(
        self, counter: AdditiveTokenCounter, messages: list[Message] | None
    ) -> tuple[int, int, str, TokenBoundEvidence]:
        """Find the tokens of every turn; return the counter's other figures, its method and its evidence."""
        if messages is None:
            self.chat.weigh(self.image_tokens, None)
            constraint = (self.constraint_bytes + 3) // 4
        else:
            figures = [token_figure(counter.message_tokens(item), "message_tokens") for item in messages]
            self.chat.weigh(self.image_tokens, figures)
            whole = constraint_with_extra(self.constraint, self.extra)
            constraint = token_figure(counter.constraint_tokens(whole), "constraint_tokens")
        template = token_figure(counter.template_tokens, "template_tokens")
        return constraint, template, counter.method, counter.evidence

    def _contract_messages(self) -> list[Message]:
        """The messages as the contract has them, what has no place there appended to their text."""
        read = [read_message(item, f"messages[{i}]") for i, item in enumerate(self.chat.messages)]
        return [with_extra(message) for message in read]

    def _run_counting(self, counter: ContextTokenCounter) -> FitResult[Any]:
        messages = self._contract_messages()
        constraint = constraint_with_extra(self.constraint, self.extra)

        def count_kept(kept: Sequence[int]) -> ContextTokenCount:
            request = GenerationRequest(tuple([messages[i] for i in kept]), constraint)
            answer = checked_count(ask(counter.count, self.target, request), self.target, self.budget)
            self._check_evidence(answer.method, answer.evidence)
            tokens = ask(self._with_prices, answer.tokens, [messages[i] for i in kept], kept)
            return ContextTokenCount(
                answer.target, self._method(answer.method), self._evidence(answer.evidence), tokens
            )

        def count(removed: int) -> ContextTokenCount:
            return count_kept(self.chat.kept(removed))

        if self.compaction_threshold is not None:
            self._narrow(count_kept(self.chat.without_history()).tokens.total())
        attempts, outcome = remove_until_fit(
            count, self.chat.removable(), self.budget, self.limits.max_count_calls
        )
        removed = attempts[-1].removed_turns
        if outcome is not Outcome.FITS:
            raise self._error(outcome, self.report(removed, attempts), None)
        return FitResult(self, removed, attempts)

    def _with_prices(
        self, tokens: ContextTokenBreakdown, messages: Sequence[Message], kept: Sequence[int]
    ) -> ContextTokenBreakdown:
        """The count of a candidate, and the prices of its parts."""
        if not self.chat.parts:
            return tokens
        system, others = tokens.system, tokens.messages
        for message, i in zip(messages, kept, strict=True):
            price = self.chat.priced_parts(i) * self.image_tokens
            if isinstance(message, SystemMessage):
                system += price
            else:
                others += price
        if max(system, others) > U64_MAX:
            raise CounterOverflow
        return ContextTokenBreakdown(system, others, tokens.constraint, tokens.template)

    def _narrow(self, overhead: int) -> None:
        self.overhead = overhead
        if self.compaction_threshold is not None:
            self.budget, _ = narrow_budget(self.given, overhead, self.compaction_threshold)

    def share(self) -> HistoryShare:
        if self.overhead is None:  # a counter that was not asked about it
            return HistoryShare(None, ThresholdSource.DEFAULT, None, None, self.budget.window_tokens)
        return narrow_budget(self.given, self.overhead, self.compaction_threshold)[1]

    def _check_evidence(self, method: str, evidence: TokenBoundEvidence) -> None:
        check_evidence(method, evidence, self.budget)
        if self.budget.mode is TokenBudgetMode.HARD and self.chat.parts:
            error = UnverifiedCount(path=self.chat.priced_path)
            error.add_note(
                f"{self.chat.priced_path} has a price, not a verified count: use Soft mode or remove it"
            )
            raise error

    @property
    def _reserved(self) -> int:
        return self.budget.output_reserve + self.budget.safety_margin

    # -- reporting

    def _method(self, method: str) -> str:
        """The counter's method, and what was counted in another way."""
        if self.chat.parts:
            method += f"+parts-at-{self.image_tokens}"
        return f"{method}+raw-arguments" if self.chat.raw else method

    def _evidence(self, evidence: TokenBoundEvidence) -> TokenBoundEvidence:
        return TokenBoundEvidence.ESTIMATE if self.chat.parts else evidence

    def report(
        self, removed: int, attempts: Sequence[int] | Sequence[ContextCountAttempt]
    ) -> ContextBuildReport:
        counted: Sequence[Any] = attempts
        if isinstance(attempts[0], int):
            method, evidence = self.counted_by
            tokens = msgspec.structs.replace(self.fixed, messages=attempts[0])
            first = ContextTokenCount(self.target, self._method(method), self._evidence(evidence), tokens)
            counted = derive_attempts(first, self._reserved, counted)
        chat = self.chat
        return ContextBuildReport(
            algorithm_version=ALGORITHM_VERSION,
            projection_version=PROJECTION_VERSION,
            session_id=UNSPECIFIED,
            source_tail=str(len(chat.messages) - 1),
            source_event_count=len(chat.messages),
            state_version=None,
            target=self.target,
            budget=self.budget,
            limits=self.limits,
            system_messages=chat.prefix,
            current_messages=chat.current_messages(),
            turns=chat.selections(removed),
            attempts=tuple(counted),
        )

    def _error(self, outcome: Outcome, report: ContextBuildReport, current: int | None) -> Exception:
        if outcome is Outcome.COUNT_LIMIT:
            return count_limit(report)
        error = does_not_fit(report, current)
        if self.budget.window_tokens < self.given.window_tokens:
            error.add_note(
                f"compaction_threshold narrowed the window from {self.given.window_tokens:,} to "
                f"{self.budget.window_tokens:,}; pinned turns count as history"
            )
        return error
