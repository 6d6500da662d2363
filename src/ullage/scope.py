"""The seam for a classifier: one question about a request, whose answer may lower its history budget.

Anything that can be called with the question and the request may answer it: a
small model, a calibrated head, a rule.  Its answer goes through reading,
selecting and applying (``ullage.threshold``) and comes back as a record of what
was asked, answered and applied.  A classifier that fails, answers nonsense or
takes too long leaves the request exactly as it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from .errors import ThresholdError, ThresholdTypeError
from .threshold import (
    ContextScope,
    apply_decision,
    checked_number,
    read_context_scope,
    select_context_budget,
    switched_off,
)
from .wire import Wire

if TYPE_CHECKING:  # takes as long to import as all of ullage: only the awaited call does
    from asyncio import Future

__all__ = [
    "SCOPE_QUESTION",
    "SCOPE_TIMEOUT_SECONDS",
    "AsyncScopeClassifier",
    "ScopeAnswer",
    "ScopeClassifier",
    "ScopeLevel",
    "ScopeOutcome",
    "ScopeQuestion",
    "ScopeRecord",
    "decide_threshold",
    "decide_threshold_async",
]

# --- the question ------------------------------------------------------------


class ScopeLevel(Wire, frozen=True, forbid_unknown_fields=True):
    """One level of the rubric: the score that stands for it, its scope, and when to give it."""

    score: int
    scope: ContextScope
    text: str


class ScopeQuestion(Wire, frozen=True, forbid_unknown_fields=True):
    """A question with an ordered scale as its answer: scores between two levels are allowed."""

    name: str
    text: str
    levels: tuple[ScopeLevel, ...]


SCOPE_QUESTION: Final = ScopeQuestion(
    name="context",
    text="How far back in the conversation must one read to answer the newest message well?",
    levels=(
        ScopeLevel(
            0,
            ContextScope.CURRENT_MESSAGE,
            "Not at all. The newest message says all that its answer needs; a stranger to the conversation "
            "would answer it equally well.",
        ),
        ScopeLevel(
            1,
            ContextScope.RECENT_TURNS,
            "A few turns. The message continues what was just said: it corrects, confirms or follows up the "
            "last exchanges and points at nothing before them.",
        ),
        ScopeLevel(
            2,
            ContextScope.FULL_CONVERSATION,
            "Most of it. The answer builds on decisions, facts or results from different parts of the "
            "conversation, though not on every detail of them.",
        ),
        ScopeLevel(
            3,
            ContextScope.EVERYTHING,
            "All of it, word for word. The message asks to sum up, compare, search or audit the "
            "conversation, or one lost detail could make the answer wrong.",
        ),
    ),
)
"""The scope question and its rubric, as data: render it into a prompt or a training example as you like."""

SCOPE_TIMEOUT_SECONDS: Final = 2.0
"""How long ``decide_threshold_async`` waits unless told otherwise."""


# --- the classifier ----------------------------------------------------------


class ScopeAnswer(Wire, frozen=True, forbid_unknown_fields=True):
    """A place on the rubric (0 to 3, anything between) and how sure of it the classifier is (0 to 1).

    An answer with a confidence below 0.5 carries no scope.  The confidence
    should be calibrated: a figure that a language model states of itself is not.
    Raises ThresholdError for a figure that is not a finite number.
    """

    score: float
    confidence: float

    def __post_init__(self) -> None:
        for name in ("score", "confidence"):
            figure = checked_number(f"ScopeAnswer.{name}", getattr(self, name), "pass a finite number")
            msgspec.structs.force_setattr(self, name, figure)


_Request = TypeVar("_Request", contravariant=True)


class ScopeClassifier(Protocol[_Request]):
    """Answers the scope question about a request: its text, its messages, whatever the caller hands over.

    The answer is a ScopeAnswer, or a mapping with ``score`` and ``confidence``
    (and perhaps ``type``: any other than ``score`` carries no scope), or None
    from a classifier that has no scope to give.
    """

    def __call__(
        self, question: ScopeQuestion, request: _Request, /
    ) -> ScopeAnswer | Mapping[str, Any] | None: ...


class AsyncScopeClassifier(Protocol[_Request]):
    """The same, awaited.  It must not block the event loop: no time limit reaches into a blocking call."""

    def __call__(
        self, question: ScopeQuestion, request: _Request, /
    ) -> Awaitable[ScopeAnswer | Mapping[str, Any] | None]: ...


# --- the record --------------------------------------------------------------


class ScopeOutcome(StrEnum):
    """Why the applied threshold is what it is."""

    LOWERED = "lowered"
    """The scope asked for a threshold below the default, and it was applied."""
    WIDEST = "widest"
    """The request leans on everything: the default stands."""
    NO_SCOPE = "no-scope"
    """No answer, one of another type, or one below the confidence bar."""
    GIVEN = "given"
    """The caller set a threshold; the classifier was not asked."""
    DISABLED = "disabled"
    """The feature is switched off; the classifier was not asked."""
    FAILED = "failed"
    """The classifier raised; ``problem`` says what."""
    NONSENSE = "nonsense"
    """The answer cannot be read; ``problem`` says why."""
    TIMED_OUT = "timed-out"
    """The classifier outlasted its time limit."""


class ScopeRecord(Wire, frozen=True, forbid_unknown_fields=True):
    """What was asked, answered and applied for one request.

    ``threshold`` is what to hand on as ``compaction_threshold``: the caller's
    own, one that the scope lowered, or None, which leaves the default; handed on
    as a whole, the record also tells ``FitResult.share`` whose it was.  The
    request itself is not kept, so a record may be logged where the conversation
    may not.
    """

    question: ScopeQuestion
    outcome: ScopeOutcome
    threshold: float | None = None
    answer: ScopeAnswer | None = None
    scope: ContextScope | None = None
    problem: str | None = None

    def apply(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the options, with the record's threshold where ``compaction_threshold`` is unset."""
        return apply_decision(options, {"compaction_threshold": self.threshold})


# --- deciding ----------------------------------------------------------------


def decide_threshold(
    classifier: ScopeClassifier[_Request],
    request: _Request,
    *,
    threshold: float | None = None,
    enabled: bool | None = True,
) -> ScopeRecord:
    """Ask the classifier about a request, and say which compaction threshold to use.

    ``threshold`` is the caller's own, if there is one: it always wins, and the
    classifier is then not asked; nor is it where ``enabled`` is False.  An
    exception that the classifier raises ends up in the record.  There is no time
    limit: a blocking call cannot be stopped from here, so bound it inside the
    classifier.

    Raises ThresholdError for a ``threshold`` that is not a finite number.
    """
    settled = _settled(threshold, enabled)
    if settled is not None:
        return settled
    try:
        answer: object = classifier(SCOPE_QUESTION, request)
    except Exception as error:
        return _without_effect(ScopeOutcome.FAILED, _described(error))
    if isinstance(answer, Coroutine):
        answer.close()
        return _without_effect(ScopeOutcome.NONSENSE, "a coroutine is no answer; use decide_threshold_async")
    return _judged(answer)


async def decide_threshold_async(
    classifier: AsyncScopeClassifier[_Request],
    request: _Request,
    *,
    threshold: float | None = None,
    enabled: bool | None = True,
    timeout: float | None = SCOPE_TIMEOUT_SECONDS,
) -> ScopeRecord:
    """``decide_threshold`` for a classifier that is awaited.

    ``timeout`` is in seconds, None for no limit.  A classifier that outlasts the
    limit is cancelled and not waited for, even where it resists.  Cancelling
    this call cancels the classifier too.

    Raises ThresholdError for a ``threshold`` that is not a finite number or a
    ``timeout`` that is not positive.
    """
    import asyncio

    if timeout is not None and checked_number("timeout", timeout, "pass seconds, or None for no limit") <= 0:
        raise ThresholdError(f"timeout is {timeout}; pass seconds above 0, or None for no limit")
    settled = _settled(threshold, enabled)
    if settled is not None:
        return settled
    try:
        pending: object = classifier(SCOPE_QUESTION, request)
        if not isinstance(pending, Awaitable):
            return _without_effect(ScopeOutcome.NONSENSE, "the answer came unawaited; use decide_threshold")
        task = asyncio.ensure_future(pending)
    except Exception as error:
        return _without_effect(ScopeOutcome.FAILED, _described(error))
    try:
        # Not wait_for: it waits on for a task that resists being cancelled.
        await asyncio.wait({task}, timeout=timeout)
        if not task.done():
            return _without_effect(ScopeOutcome.TIMED_OUT, f"no answer within {timeout} s")
    finally:
        if not task.done():
            task.add_done_callback(_drop_result)
            task.cancel()
    if task.cancelled():
        return _without_effect(ScopeOutcome.FAILED, "the classifier was cancelled")
    try:
        answer = task.result()
    except Exception as error:
        return _without_effect(ScopeOutcome.FAILED, _described(error))
    return _judged(answer)


def _settled(threshold: float | None, enabled: bool | None) -> ScopeRecord | None:
    """The record of a request whose classifier need not be asked."""
    if threshold is not None:
        # Finite: a record has a JSON form, and infinity has none.
        given = checked_number(
            "threshold", threshold, "pass a finite share of the window, or None for the default"
        )
        return ScopeRecord(SCOPE_QUESTION, ScopeOutcome.GIVEN, given)
    if switched_off(enabled):
        return _without_effect(ScopeOutcome.DISABLED)
    return None


def _judged(value: object) -> ScopeRecord:
    """The record of an answer: read, selected, applied."""
    try:
        answer = _as_answer(value)
        if answer is None:
            return _without_effect(ScopeOutcome.NO_SCOPE)
        scope = read_context_scope({"context": {"type": "score", **answer.to_dict()}})
    except Exception as error:  # a mapping from outside may raise anything
        return _without_effect(ScopeOutcome.NONSENSE, _described(error))
    threshold = select_context_budget(scope)
    if scope is None:
        outcome = ScopeOutcome.NO_SCOPE
    else:
        outcome = ScopeOutcome.WIDEST if threshold is None else ScopeOutcome.LOWERED
    return ScopeRecord(SCOPE_QUESTION, outcome, threshold, answer, scope)


def _as_answer(value: object) -> ScopeAnswer | None:
    if value is None or isinstance(value, ScopeAnswer):
        return value
    if not isinstance(value, Mapping):
        raise ThresholdTypeError(f"{type(value).__name__} is no answer; give a ScopeAnswer")
    if value.get("type", "score") != "score":
        return None
    for name in ("score", "confidence"):
        if value.get(name) is None:
            raise ThresholdError(f"the answer has no {name}; give a ScopeAnswer")
    return ScopeAnswer(value["score"], value["confidence"])


def _without_effect(outcome: ScopeOutcome, problem: str | None = None) -> ScopeRecord:
    return ScopeRecord(SCOPE_QUESTION, outcome, problem=problem)


def _described(error: BaseException) -> str:
    """The error in one line or few, whatever its own text does (and without what JSON cannot hold)."""
    import traceback

    text = "".join(traceback.format_exception_only(error)).strip()
    return text.encode("utf-8", "backslashreplace").decode()


def _drop_result(task: Future[Any]) -> None:
    # Asking for the exception keeps the loop from reporting it as never retrieved.
    if not task.cancelled():
        task.exception()
