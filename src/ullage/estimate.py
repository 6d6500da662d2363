"""Estimates of a request's tokens from the length of its text, and whether it fits its window.

Lengths of text are UTF-16 code units, arithmetic is IEEE double in the order
written, values count as ECMAScript's ``JSON.stringify`` spells them: the
figures agree to the token with any other implementation of the same formulas.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from .errors import ThresholdError, ThresholdTypeError
from .threshold import SIZE_FIX, ContextBreakdown, ContextCheck, checked_number, checked_threshold, fields_of

__all__ = [
    "ADDITIVE_SAFETY",
    "CHARS_PER_TOKEN",
    "CODE_CHARS_PER_TOKEN",
    "CONVERSATION_OVERHEAD_TOKENS",
    "DEFAULT_RESERVE_SHARE",
    "MAX_DEFAULT_RESERVE_TOKENS",
    "MESSAGE_OVERHEAD_TOKENS",
    "NATIVE_REPLAY_PROVIDERS",
    "PROVIDER_MULTIPLIERS",
    "TOOL_MARKER_TOKENS",
    "TOOL_REPLAY_MODES",
    "ToolReplayMode",
    "check_context_budget",
    "estimate_message_tokens",
    "estimate_messages_tokens",
    "estimate_tokens",
    "get_provider_multiplier",
]

ToolReplayMode: TypeAlias = Literal["full", "marker", "off"]

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
    fields = fields_of(path, message)
    result = fields.get("result")
    error = result.get("error") if isinstance(result, Mapping) else None
    parts = (("content", fields.get("content")), ("args", fields.get("args")), ("result.error", error))
    tokens = (_tokens(_content(f"{path}.{name}", value), multiplier) for name, value in parts)
    return MESSAGE_OVERHEAD_TOKENS + sum(tokens)


def _conversation_tokens(name: str, messages: Any, provider: str | None, mode: ToolReplayMode) -> int:
    multiplier = get_provider_multiplier(provider)
    tokens = counted = 0
    for path, message in _items(name, messages):
        role = fields_of(path, message).get("role")
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
    window = checked_number("window_tokens", window_tokens, SIZE_FIX)
    if window < 0:
        raise ThresholdError("window_tokens is negative; pass the model's whole window, in tokens")
    available = window - _reserve(window, max_tokens)
    threshold = checked_threshold("compaction_threshold", compaction_threshold)
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
            _tokens(_content(f"{path}.content", fields_of(path, file).get("content")), multiplier)
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
    given = 0.0 if max_tokens is None else checked_number("max_tokens", max_tokens, f"{SIZE_FIX}, or None")
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


def _text(name: str, value: str | None) -> str:
    if value is not None and not isinstance(value, str):
        raise ThresholdTypeError(f"{name} must be text or None, not {type(value).__name__}")
    return value or ""


def _items(name: str, values: Any) -> Iterable[tuple[str, Any]]:
    if values is None:
        return ()
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise ThresholdTypeError(f"{name} must be a sequence, not {type(values).__name__}; put it in a list")
    return ((f"{name}[{index}]", value) for index, value in enumerate(values))
