"""How much of the window one request's history may take, and what may lower that.

A *compaction threshold* is a share of the window; 0.8 is the default.  A
threshold below it lowers the history budget in proportion, one above it changes
no budget.  A judgement of the request's scope may stand in for a threshold that
the caller left open, and can only ever lower the budget.

All arithmetic is IEEE double, in the order written, so that budgets agree to the
token with any other implementation of the same formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .errors import ThresholdError, ThresholdTypeError

if TYPE_CHECKING:  # numpy takes longer to import than all of ullage: only what works on arrays does
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "DEFAULT_COMPACTION_THRESHOLD",
    "HISTORY_SAFETY_FACTOR",
    "MIN_SCOPE_CONFIDENCE",
    "SCOPE_THRESHOLDS",
    "ContextBreakdown",
    "ContextCheck",
    "ContextScope",
    "apply_decision",
    "context_scope_to_threshold",
    "read_context_scope",
    "resolve_history_budget",
    "resolve_history_budgets",
    "select_context_budget",
]

SIZE_FIX: Final = "pass a finite number of tokens"
_ANSWER_FIX: Final = "pass the number that the classifier gave, or leave the answer out"

# --- names and numbers -------------------------------------------------------


class ContextScope(StrEnum):
    """How much of the conversation a request leans on, narrowest first."""

    CURRENT_MESSAGE = "current-message"
    RECENT_TURNS = "recent-turns"
    FULL_CONVERSATION = "full-conversation"
    EVERYTHING = "everything"


DEFAULT_COMPACTION_THRESHOLD: Final = 0.8
"""The share of the window that stands where no threshold is given."""
HISTORY_SAFETY_FACTOR: Final = 0.95
"""The share of the free space that history may take at the default threshold."""
SCOPE_THRESHOLDS: Mapping[ContextScope, float] = MappingProxyType(
    {
        ContextScope.CURRENT_MESSAGE: 0.45,
        ContextScope.RECENT_TURNS: 0.60,
        ContextScope.FULL_CONVERSATION: 0.75,
        ContextScope.EVERYTHING: 0.80,
    }
)
"""The compaction threshold of each scope, narrowest first."""
MIN_SCOPE_CONFIDENCE: Final = 0.5
"""The confidence from which on an answer carries a scope."""

_SCOPES: Final = tuple(ContextScope)


class ContextBreakdown(msgspec.Struct, frozen=True):
    """The parts of a request, in estimated tokens."""

    system_prompt: int
    conversation_history: int
    current_prompt: int
    tool_definitions: int
    file_attachments: int


class ContextCheck(msgspec.Struct, frozen=True):
    """What ``check_context_budget`` found; sizes in tokens, ``usage_ratio`` = estimated / available."""

    within_budget: bool
    estimated_input_tokens: int
    available_input_tokens: int | float
    usage_ratio: float
    should_compact: bool
    breakdown: ContextBreakdown | None = None


# --- history budgets ---------------------------------------------------------


def resolve_history_budget(
    check: ContextCheck | Mapping[str, Any], compaction_threshold: float | None = None
) -> int:
    """The tokens that history may take: ``max(0, floor((available - overhead) * factor))``.

    ``factor = 0.95 * max(0, min(1, threshold / 0.8))``, and 0.95 without a
    threshold, so None and 0.8 give the same number; infinite thresholds clamp
    too.  ``overhead`` is system prompt + current prompt + tool definitions +
    file attachments of the check's breakdown, 0 without one.

    ``check`` is a ContextCheck or a mapping with the same names.  0 says that
    the overhead alone fills the space: report that, do not trim to nothing.
    Raises ThresholdError naming the part at fault.
    """
    fields = fields_of("check", check)
    available = checked_number("check.available_input_tokens", fields.get("available_input_tokens"), SIZE_FIX)
    threshold = checked_threshold("compaction_threshold", compaction_threshold)
    scale = max(0.0, min(1.0, threshold / DEFAULT_COMPACTION_THRESHOLD))
    # Room below zero is zero first: an overflow to -inf times a factor of 0 would be NaN.
    room = max(0.0, available - _overhead(fields.get("breakdown")))
    return math.floor(room * (HISTORY_SAFETY_FACTOR * scale))


def resolve_history_budgets(
    available: ArrayLike, overhead: ArrayLike, threshold: ArrayLike | None = None
) -> NDArray[np.float64]:
    """``resolve_history_budget`` for many requests at once, equal to it to the last bit.

    ``available`` and ``overhead`` are tokens, ``threshold`` shares of the window
    (None: no threshold in any row; 0.8 in a row is the same as none there).
    The three broadcast against each other.  Returns whole numbers of tokens as
    float64, in the broadcast shape.  Raises ThresholdError naming the argument
    and index at fault.
    """
    import numpy as np

    tokens = _column("available", available, SIZE_FIX)
    taken = _column("overhead", overhead, SIZE_FIX)
    shares = _column(
        "threshold",
        DEFAULT_COMPACTION_THRESHOLD if threshold is None else threshold,
        "pass 0.8 in rows without a threshold",
        infinite=True,
    )
    _refuse_first("overhead", taken, taken < 0, "is negative; pass the tokens already taken")
    try:
        np.broadcast_shapes(tokens.shape, taken.shape, shares.shape)
    except ValueError:
        shapes = f"{tokens.shape}, {taken.shape} and {shares.shape}"
        raise ThresholdError(
            f"available, overhead and threshold have the shapes {shapes}; pass shapes that broadcast"
        ) from None
    with np.errstate(over="ignore"):  # what overflows is clamped
        scale = np.maximum(0.0, np.minimum(1.0, shares / DEFAULT_COMPACTION_THRESHOLD))
        room = np.maximum(0.0, tokens - taken)
    return np.asarray(np.floor(room * (HISTORY_SAFETY_FACTOR * scale)) + 0.0)  # + 0.0: no negative zero


def _overhead(breakdown: Any) -> float:
    if breakdown is None:
        return 0.0
    fields = fields_of("check.breakdown", breakdown)

    def part(name: str) -> float:
        size = checked_number(f"check.breakdown.{name}", fields.get(name), SIZE_FIX)
        if size < 0:
            raise ThresholdError(f"check.breakdown.{name} is negative; {SIZE_FIX} of at least 0")
        return size

    # Not sum(): it compensates rounding from Python 3.12 on.
    return (
        part("system_prompt") + part("current_prompt") + part("tool_definitions") + part("file_attachments")
    )


# --- scope to threshold ------------------------------------------------------


def context_scope_to_threshold(index: float) -> float:
    """The threshold of a scope by its place (0 narrowest to 3 widest): ``min(0.8, table[index])``.

    The index is rounded half towards plus infinity and clamped to 0..3.  Raises
    ThresholdError for NaN or what is not a number.
    """
    scope = _scope_at(checked_number("index", index, "pass a number from 0 to 3", infinite=True))
    # One of two independent guards that no scope raises a budget; select_context_budget has the other.
    return min(DEFAULT_COMPACTION_THRESHOLD, SCOPE_THRESHOLDS[scope])


def read_context_scope(answers: Mapping[str, Any] | None) -> ContextScope | None:
    """The scope that a decision's answers carry, or None.

    ``answers["context"]`` must be of type ``score`` with a ``score`` (0 to 3,
    rounded and clamped as in ``context_scope_to_threshold``) and a
    ``confidence`` of at least 0.5; anything absent, unsure or of another type
    carries no scope.  All other answers are left unread.  Raises ThresholdError
    for a score or confidence that is NaN or not a number.
    """
    answer = None if answers is None else fields_of("answers", answers).get("context")
    if not isinstance(answer, Mapping) or answer.get("type") != "score":
        return None
    score, confidence = answer.get("score"), answer.get("confidence")
    if score is None or confidence is None:
        return None
    index = checked_number("answers['context']['score']", score, _ANSWER_FIX, infinite=True)
    sureness = checked_number("answers['context']['confidence']", confidence, _ANSWER_FIX, infinite=True)
    return _scope_at(index) if sureness >= MIN_SCOPE_CONFIDENCE else None


def select_context_budget(
    scope: str | None,
    enabled: bool | None = True,
    mapping: Callable[[int], float] = context_scope_to_threshold,
) -> float | None:
    """The threshold that a scope asks for, or None where it changes nothing.

    None for no scope, for a name that is not one of the four, where ``enabled``
    is False (None leaves the feature on), and for any threshold that is not
    below 0.8.  ``mapping`` takes the scope's place, 0 to 3.  Raises
    ThresholdError for a scope that is no text, or a mapping that gives NaN.
    """
    if scope is not None and not isinstance(scope, str):
        raise ThresholdTypeError(f"scope must be a scope's name or None, not {type(scope).__name__}")
    if switched_off(enabled) or scope not in _SCOPES:
        return None
    index = _SCOPES.index(ContextScope(scope))
    threshold = checked_number(
        f"mapping({index})", mapping(index), "return a share of the window", infinite=True
    )
    return threshold if threshold < DEFAULT_COMPACTION_THRESHOLD else None


def switched_off(enabled: bool | None) -> bool:
    """Whether the feature is off: only a boolean False says so, a stray 0 in a configuration does not."""
    if enabled is None or isinstance(enabled, bool):
        return enabled is False
    import numpy as np

    return isinstance(enabled, np.bool_) and not enabled


def apply_decision(options: Mapping[str, Any], decision: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of the options, with the decision's threshold where the caller set none.

    Both name it ``compaction_threshold``; absent and None are unset.  A value
    that the caller set always wins.  Raises ThresholdError naming the mapping
    whose threshold is NaN or not a number.
    """
    key = "compaction_threshold"
    applied = dict(fields_of("options", options))
    decided = None if decision is None else fields_of("decision", decision).get(key)
    given = applied.get(key)
    for name, value in (("options", given), ("decision", decided)):
        if value is not None:
            checked_threshold(f"{name}[{key!r}]", value)
    if given is None and decided is not None:
        applied[key] = decided
    return applied


def _scope_at(index: float) -> ContextScope:
    # Rounding keeps order and the ends are whole, so clamping first gives the same place.  Not
    # floor(x + 0.5): that sum rounds 0.49999999999999994 up to 1.
    clamped = max(0.0, min(3.0, index))
    whole = math.floor(clamped)
    return _SCOPES[whole + (clamped - whole >= 0.5)]


# --- arguments ---------------------------------------------------------------


def checked_number(name: str, value: Any, fix: str, *, infinite: bool = False) -> float:
    """The value as a float; ThresholdError, naming it and the fix, for NaN, infinity or what is no number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ThresholdTypeError(f"{name} must be a number, not {type(value).__name__}; {fix}")
    try:
        number = float(value)
    except OverflowError:
        raise ThresholdError(f"{name} is too large for a double; {fix}") from None
    if math.isnan(number) or (math.isinf(number) and not infinite):
        raise ThresholdError(f"{name} is {number}; {fix}")
    return number


def checked_threshold(name: str, value: float | None) -> float:
    """The threshold, 0.8 for None; ThresholdError naming it for NaN or what is no number."""
    if value is None:
        return DEFAULT_COMPACTION_THRESHOLD
    return checked_number(
        name, value, "pass a share of the window such as 0.6, or None for the default", infinite=True
    )


def fields_of(name: str, value: Any) -> Mapping[str, Any]:
    """A mapping as it is, a struct as one; ThresholdTypeError naming it for anything else."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if not isinstance(value, Mapping):
        raise ThresholdTypeError(f"{name} must be a mapping, not {type(value).__name__}")
    return value


def _column(name: str, values: ArrayLike, fix: str, *, infinite: bool = False) -> NDArray[np.float64]:
    import numpy as np

    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise ThresholdTypeError(f"{name} must hold numbers, not {array.dtype}; {fix}")
    numbers = array.astype(np.float64)
    _refuse_first(
        name, numbers, np.isnan(numbers) if infinite else ~np.isfinite(numbers), f"is not finite; {fix}"
    )
    return numbers


def _refuse_first(name: str, array: NDArray[np.float64], bad: NDArray[np.bool_], fault: str) -> None:
    if bad.any():
        where = f"{name}{[int(place[0]) for place in bad.nonzero()]}" if array.ndim else name
        raise ThresholdError(f"{where} {fault}")
