"""Counter protocols, and counting a complete request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from .budget import ContextTarget, TokenBoundEvidence
from .canonical import U64_MAX
from .errors import CounterFailed, CounterOverflow
from .messages import Constraint, GenerationRequest, Message, SystemMessage
from .report import ContextTokenBreakdown, ContextTokenCount

__all__ = ["AdditiveTokenCounter", "ContextTokenCounter", "count_additively", "is_additive"]


@runtime_checkable
class ContextTokenCounter(Protocol):
    """Counts a complete request.  Whatever it raises ends the build as CounterFailed."""

    def count(self, target: ContextTarget, request: GenerationRequest) -> ContextTokenCount:
        """The tokens of the request's four parts, each unsigned 64-bit."""
        ...


@runtime_checkable
class AdditiveTokenCounter(Protocol):
    """A counter whose figure for a request is the sum of figures for its messages.

    The builder asks about each message once, however many turns it removes.
    Figures are unsigned 64-bit.
    """

    @property
    def method(self) -> str:
        """A name for the way of counting, not blank."""
        ...

    @property
    def evidence(self) -> TokenBoundEvidence:
        """What the figures are worth."""
        ...

    @property
    def template_tokens(self) -> int:
        """Tokens that the chat template adds to every request."""
        ...

    def message_tokens(self, message: Message) -> int:
        """Tokens of one message, wherever it stands."""
        ...

    def constraint_tokens(self, constraint: Constraint) -> int:
        """Tokens of the constraint."""
        ...


def is_additive(counter: object) -> bool:
    """Whether a counter's ``message_tokens`` may stand for its ``count``.

    Not where a subclass has given ``count`` a new meaning and left ``message_tokens`` as it was.
    """
    for cls in type(counter).__mro__:
        if "message_tokens" in vars(cls):
            return True
        if "count" in vars(cls):
            return False
    return hasattr(counter, "message_tokens")


def count_additively(
    counter: AdditiveTokenCounter, target: ContextTarget, request: GenerationRequest
) -> ContextTokenCount:
    """The count of a request as the sum over its messages.  Raises CounterOverflow."""
    system = messages = 0
    for message in request.messages:
        tokens = counter.message_tokens(message)
        if isinstance(message, SystemMessage):
            system += tokens
        else:
            messages += tokens
        if system > U64_MAX or messages > U64_MAX:
            raise CounterOverflow
    breakdown = ContextTokenBreakdown(
        system, messages, counter.constraint_tokens(request.constraint), counter.template_tokens
    )
    return ContextTokenCount(target, counter.method, counter.evidence, breakdown)


def ask(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a counter.  Whatever it raises becomes CounterFailed, with that as the cause."""
    try:
        return function(*arguments)
    except Exception as error:
        raise CounterFailed(str(error)) from error


def ask_tokens(function: Callable[..., Any], *arguments: object) -> int:
    """Call a counter for one figure.  Raises CounterFailed where that is not unsigned 64-bit."""
    tokens = ask(function, *arguments)
    if type(tokens) is not int or not 0 <= tokens <= U64_MAX:
        name = getattr(function, "__name__", "the counter")
        raise CounterFailed(f"{name} gave {tokens!r}, not an integer from 0 to 2**64 - 1")
    return tokens
