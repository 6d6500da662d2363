"""How much of the window one request's history may take, and what may lower that.

A *compaction threshold* is a share of the window; 0.8 is the default.  A
threshold below it lowers the history budget in proportion, one above it changes
no budget.  A judgement of the request's scope may stand in for a threshold that
the caller left open, and can only ever lower the budget.

All arithmetic is IEEE double, in the order written, so that budgets agree to the
token with any other implementation of the same formulas.  Lengths of text are
UTF-16 code units.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from numbers import Real
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import UllageError

__all__ = [
    "ADDITIVE_SAFETY",
    "CHARS_PER_TOKEN",
    "CODE_CHARS_PER_TOKEN",
    "CONVERSATION_OVERHEAD_TOKENS",
    "DEFAULT_COMPACTION_THRESHOLD",
    "DEFAULT_RESERVE_SHARE",
    "HISTORY_SAFETY_FACTOR",
    "MAX_DEFAULT_RESERVE_TOKENS",
    "MESSAGE_OVERHEAD_TOKENS",
    "MIN_SCOPE_CONFIDENCE",
    "NATIVE_REPLAY_PROVIDERS",
    "PROVIDER_MULTIPLIERS",
    "SCOPE_THRESHOLDS",
    "TOOL_MARKER_TOKENS",
    "TOOL_REPLAY_MODES",
    "ContextBreakdown",
    "ContextCheck",
    "ContextScope",
    "ThresholdError",
    "ThresholdTypeError",
    "ToolReplayMode",
    "apply_decision",
    "check_context_budget",
    "context_scope_to_threshold",
    "estimate_message_tokens",
    "estimate_messages_tokens",
    "estimate_tokens",
    "get_provider_multiplier",
    "read_context_scope",
    "resolve_history_budget",
    "resolve_history_budgets",
    "select_context_budget",
]

# --- names and numbers -------------------------------------------------------


class ContextScope(StrEnum):
    """How much of the conversation a request leans on, narrowest first."""

    CURRENT_MESSAGE = "current-message"
    RECENT_TURNS = "recent-turns"
    FULL_CONVERSATION = "full-conversation"
    EVERYTHING = "everything"


ToolReplayMode: TypeAlias = Literal["full", "marker", "off"]

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

CHARS_PER_TOKEN: Final = 4
"""UTF-16 code units of prose that make a token."""
CODE_CHARS_PER_TOKEN: Final = 3
"""UTF-16 code units of code that make a token."""
ADDITIVE_SAFETY: Final = 0.05
"""Added to every estimate, as a share of the tokens before the provider's multiplier."""
MESSAGE_OVERHEAD_TOKENS: Final = 4
"""Added to each message and each prompt."""
CONVERSATION_OVERHEAD_TOKENS: Final = 24
"""Added once to a conversation that has messages."""
TOOL_MARKER_TOKENS: Final = 12 + MESSAGE_OVERHEAD_TOKENS
"""The cost of a tool call that is replayed as a marker."""
PROVIDER_MULTIPLIERS: Mapping[str, float] = MappingProxyType(
    {"anthropic": 1.23, "bedrock": 1.23, "google-ai": 1.18, "vertex": 1.18, "mistral": 1.26}
)
"""Tokens of a provider for one token of the common estimate; 1.0 for all others."""

DEFAULT_RESERVE_SHARE: Final = 0.35
"""The share of the window kept for the answer where ``max_tokens`` does not say."""
MAX_DEFAULT_RESERVE_TOKENS: Final = 64_000
"""The most tokens that this share may keep."""
TOOL_REPLAY_MODES: tuple[ToolReplayMode, ...] = ("full", "marker", "off")
"""How rows of tool calls and results come back in the next request."""
NATIVE_REPLAY_PROVIDERS: Final = frozenset(
    {"vertex", "google-ai", "google-vertex", "googlevertex", "google-ai-studio"}
)
"""Providers (lower case) that replay tool rows as stored, whatever the mode."""

_SCOPES: Final = tuple(ContextScope)
_THRESHOLD_FIX: Final = "pass a share of the window such as 0.6, or None for the default"
_SIZE_FIX: Final = "pass a finite number of tokens"
_ANSWER_FIX: Final = "pass the number that the classifier gave, or leave the answer out"


class ThresholdError(UllageError, ValueError):
    """A value that no threshold, size or estimate can be made of; the text names the argument and the fix."""


class ThresholdTypeError(ThresholdError, TypeError):
    """A value of a type that the argument does not take."""


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
    fields = _fields("check", check)
    available = checked_number(
        "check.available_input_tokens", fields.get("available_input_tokens"), _SIZE_FIX
    )
    threshold = _threshold("compaction_threshold", compaction_threshold)
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
    tokens = _column("available", available, _SIZE_FIX)
    taken = _column("overhead", overhead, _SIZE_FIX)
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
    fields = _fields("check.breakdown", breakdown)

    def part(name: str) -> float:
        size = checked_number(f"check.breakdown.{name}", fields.get(name), _SIZE_FIX)
        if size < 0:
            raise ThresholdError(f"check.breakdown.{name} is negative; {_SIZE_FIX} of at least 0")
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
    answer = None if answers is None else _fields("answers", answers).get("context")
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
    return isinstance(enabled, (bool, np.bool_)) and not enabled


def apply_decision(options: Mapping[str, Any], decision: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of the options, with the decision's threshold where the caller set none.

    Both name it ``compaction_threshold``; absent and None are unset.  A value
    that the caller set always wins.  Raises ThresholdError naming the mapping
    whose threshold is NaN or not a number.
    """
    key = "compaction_threshold"
    applied = dict(_fields("options", options))
    decided = None if decision is None else _fields("decision", decision).get(key)
    given = applied.get(key)
    for name, value in (("options", given), ("decision", decided)):
        if value is not None:
            _threshold(f"{name}[{key!r}]", value)
    if given is None and decided is not None:
        applied[key] = decided
    return applied


def _scope_at(index: float) -> ContextScope:
    # Rounding keeps order and the ends are whole, so clamping first gives the same place.  Not
    # floor(x + 0.5): that sum rounds 0.49999999999999994 up to 1.
    clamped = max(0.0, min(3.0, index))
    whole = math.floor(clamped)
    return _SCOPES[whole + (clamped - whole >= 0.5)]


# --- estimates ---------------------------------------------------------------


def get_provider_multiplier(provider: str | None = None) -> float:
    """The multiplier of a provider key (exact, lower case); 1.0 for any other and for None."""
    if provider is not None and not isinstance(provider, str):
        raise ThresholdTypeError(f"provider must be a provider's key or None, not {type(provider).__name__}")
    return 1.0 if provider is None else PROVIDER_MULTIPLIERS.get(provider, 1.0)


def estimate_tokens(text: str | None, provider: str | None = None, is_code: bool | None = False) -> int:
    """The tokens of a text: ``base = ceil(units / 4)``, then ``ceil(base * multiplier + base * 0.05)``.

    ``units`` are UTF-16 code units, and 3 of them make a token of code.  0 for
    None and the empty text.  Raises ThresholdTypeError for what is no text.
    """
    multiplier = get_provider_multiplier(provider)
    return _tokens(_text("text", text), multiplier, CODE_CHARS_PER_TOKEN if is_code else CHARS_PER_TOKEN)


def estimate_message_tokens(message: Mapping[str, Any], provider: str | None = None) -> int:
    """The tokens of a message: 4 + its content + a tool row's args + its result's error.

    ``message`` is a mapping with ``content`` and, in tool rows, ``args`` and
    ``result`` (a mapping with ``error``).  Absent, None and the empty text
    count 0, text counts as it is, anything else as its compact JSON text in
    ECMAScript's spelling.  A tool row's name and its result's value are not
    counted.  Raises ThresholdError naming the member that is not JSON.
    """
    return _message_tokens("message", message, get_provider_multiplier(provider))


def estimate_messages_tokens(
    messages: Iterable[Mapping[str, Any]] | None, provider: str | None = None
) -> int:
    """The tokens of a conversation: the sum of its messages + 24; 0 for none.  Errors as for one message."""
    return _conversation_tokens("messages", messages, provider, "full")


def _tokens(text: str, multiplier: float, chars: int = CHARS_PER_TOKEN) -> int:
    units = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
    base = math.ceil(units / chars)
    return math.ceil(base * multiplier + base * ADDITIVE_SAFETY)


def _message_tokens(path: str, message: Any, multiplier: float) -> int:
    fields = _fields(path, message)
    result = fields.get("result")
    error = result.get("error") if isinstance(result, Mapping) else None
    parts = (("content", fields.get("content")), ("args", fields.get("args")), ("result.error", error))
    tokens = (_tokens(_content(f"{path}.{name}", value), multiplier) for name, value in parts)
    return MESSAGE_OVERHEAD_TOKENS + sum(tokens)


def _conversation_tokens(name: str, messages: Any, provider: str | None, mode: ToolReplayMode) -> int:
    multiplier = get_provider_multiplier(provider)
    tokens = counted = 0
    for path, message in _items(name, messages):
        role = _fields(path, message).get("role")
        if mode != "full" and role in ("tool_call", "tool_result"):
            tokens += TOOL_MARKER_TOKENS if mode == "marker" and role == "tool_call" else 0
        else:
            counted += 1
            tokens += _message_tokens(path, message, multiplier)
    return tokens + (CONVERSATION_OVERHEAD_TOKENS if counted else 0)


# --- the check ---------------------------------------------------------------


def check_context_budget(
    window_tokens: float,
    *,
    provider: str | None = None,
    max_tokens: float | None = None,
    system_prompt: str | None = None,
    current_prompt: str | None = None,
    conversation_messages: Iterable[Mapping[str, Any]] | None = (),
    tool_definitions: Iterable[Any] | None = (),
    file_attachments: Iterable[Mapping[str, Any]] | None = (),
    compaction_threshold: float | None = None,
    tool_replay_mode: ToolReplayMode = "full",
) -> ContextCheck:
    """Whether a request fits its window, and whether its history should be compacted.

    ``window_tokens`` is the model's whole window; what is available for input is
    the window less ``max_tokens`` if that is given and positive, else less
    ``min(64000, ceil(window * 0.35))``.  Each prompt costs its estimate + 4 (0
    when empty), each tool definition the estimate of its JSON text, each
    attachment (a mapping with ``content``) the estimate of that, the messages
    as in ``estimate_messages_tokens``.

    ``usage_ratio`` is estimated / available, 1 where nothing is available;
    ``should_compact`` says that it reached the threshold, taken as given.
    ``tool_replay_mode`` says how rows of the roles ``tool_call`` and
    ``tool_result`` come back: ``full`` counts them as stored, ``marker`` 16
    tokens a call and no results, ``off`` neither; NATIVE_REPLAY_PROVIDERS
    always count in full.

    Raises ThresholdError naming the argument.
    """
    window = checked_number("window_tokens", window_tokens, _SIZE_FIX)
    if window < 0:
        raise ThresholdError("window_tokens is negative; pass the model's whole window, in tokens")
    available = window - _reserve(window, max_tokens)
    threshold = _threshold("compaction_threshold", compaction_threshold)
    if tool_replay_mode not in TOOL_REPLAY_MODES:
        raise ThresholdError(f"tool_replay_mode must be full, marker or off, not {tool_replay_mode!r}")
    multiplier = get_provider_multiplier(provider)
    native = provider is not None and provider.lower() in NATIVE_REPLAY_PROVIDERS
    breakdown = ContextBreakdown(
        system_prompt=_prompt_tokens("system_prompt", system_prompt, multiplier),
        conversation_history=_conversation_tokens(
            "conversation_messages", conversation_messages, provider, "full" if native else tool_replay_mode
        ),
        current_prompt=_prompt_tokens("current_prompt", current_prompt, multiplier),
        tool_definitions=sum(
            _tokens(_json_text(path, tool), multiplier)
            for path, tool in _items("tool_definitions", tool_definitions)
        ),
        file_attachments=sum(
            _tokens(_content(f"{path}.content", _fields(path, file).get("content")), multiplier)
            for path, file in _items("file_attachments", file_attachments)
        ),
    )
    estimated = sum(msgspec.structs.astuple(breakdown))
    ratio = estimated / available if available > 0 else 1.0
    return ContextCheck(
        within_budget=estimated <= available,
        estimated_input_tokens=estimated,
        available_input_tokens=int(available) if available.is_integer() else available,
        usage_ratio=ratio,
        should_compact=ratio >= threshold,
        breakdown=breakdown,
    )


def _reserve(window: float, max_tokens: float | None) -> float:
    given = 0.0 if max_tokens is None else checked_number("max_tokens", max_tokens, f"{_SIZE_FIX}, or None")
    return given if given > 0 else min(MAX_DEFAULT_RESERVE_TOKENS, math.ceil(window * DEFAULT_RESERVE_SHARE))


def _prompt_tokens(name: str, prompt: str | None, multiplier: float) -> int:
    text = _text(name, prompt)
    return _tokens(text, multiplier) + MESSAGE_OVERHEAD_TOKENS if text else 0


# --- text of values, as ECMAScript's JSON.stringify writes it ----------------

_MAX_DEPTH: Final = 127
_LONE_SURROGATE: Final = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")
_quote: Final[Callable[[str], str]] = json.JSONEncoder(ensure_ascii=False).encode


def _content(path: str, value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _json_text(path, value)


def _json_text(path: str, value: Any, depth: int = 0) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", _quote(value))
    if isinstance(value, (int, float)):
        return _number_text(checked_number(path, value, "JSON has finite numbers only, pass text"))
    if not isinstance(value, (list, tuple, Mapping)):
        raise ThresholdTypeError(f"{path} is not JSON: {type(value).__name__}; pass plain data")
    if depth == _MAX_DEPTH:
        raise ThresholdError(f"{path} is nested more than {_MAX_DEPTH} deep (or holds itself); flatten it")
    if not isinstance(value, Mapping):
        return f"[{','.join(_json_text(f'{path}[{i}]', item, depth + 1) for i, item in enumerate(value))}]"
    members = []
    for key, item in value.items():
        if not isinstance(key, str):
            raise ThresholdTypeError(
                f"{path} has the key {key!r}, and JSON has text keys only; pass it as text"
            )
        members.append(f"{_json_text(path, key)}:{_json_text(f'{path}[{key!r}]', item, depth + 1)}")
    return f"{{{','.join(members)}}}"


def _number_text(x: float) -> str:
    """ECMA-262, Number::toString: positional from 1e-6 to below 1e21, no trailing ``.0``, no ``-0``."""
    if x == 0:
        return "0"
    shortest = Decimal(float.__repr__(abs(x))).normalize().as_tuple()
    digits = "".join(map(str, shortest.digits))
    point = len(digits) + int(shortest.exponent)
    if len(digits) <= point <= 21:
        text = digits.ljust(point, "0")
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        text = f"{digits[0]}.{digits[1:]}".rstrip(".") + f"e{point - 1:+d}"
    return text if x > 0 else f"-{text}"


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


def _threshold(name: str, value: float | None) -> float:
    if value is None:
        return DEFAULT_COMPACTION_THRESHOLD
    return checked_number(name, value, _THRESHOLD_FIX, infinite=True)


def _text(name: str, value: str | None) -> str:
    if value is not None and not isinstance(value, str):
        raise ThresholdTypeError(f"{name} must be text or None, not {type(value).__name__}")
    return value or ""


def _fields(name: str, value: Any) -> Mapping[str, Any]:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if not isinstance(value, Mapping):
        raise ThresholdTypeError(f"{name} must be a mapping, not {type(value).__name__}")
    return value


def _items(name: str, values: Any) -> Iterable[tuple[str, Any]]:
    if values is None:
        return ()
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise ThresholdTypeError(f"{name} must be a sequence, not {type(values).__name__}; put it in a list")
    return ((f"{name}[{index}]", value) for index, value in enumerate(values))


def _column(name: str, values: ArrayLike, fix: str, *, infinite: bool = False) -> NDArray[np.float64]:
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
        index = [int(place[0]) for place in np.nonzero(np.atleast_1d(bad))]
        where = f"{name}{index}" if array.ndim else name
        raise ThresholdError(f"{where} {fault}")
