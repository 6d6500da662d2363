"""Counter protocols, and counting a complete request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from . import canonical
from .budget import ContextTarget, TokenBoundEvidence
from .canonical import U64_MAX
from .errors import CounterFailed, CounterOverflow, JsonValueError
from .messages import Constraint, GenerationRequest, Message, SystemMessage
from .report import ContextTokenBreakdown, ContextTokenCount
from .wire import check_u64

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


def check_counter(counter: object) -> None:
    """Raise TypeError for what is no counter: a class, a text, anything without the methods."""
    counts = isinstance(counter, ContextTokenCounter) and not isinstance(counter, (str, bytes))
    if isinstance(counter, type) or not (is_additive(counter) or counts):
        hint = "; make an instance of it" if isinstance(counter, type) else ""
        raise TypeError(f"a counter has message_tokens or count, {canonical.shown(counter)} is none{hint}")


def count_additively(
    counter: AdditiveTokenCounter, target: ContextTarget, request: GenerationRequest
) -> ContextTokenCount:
    """The count of a request as the sum over its messages.  Raises CounterOverflow."""
    system = messages = 0
    for message in request.messages:
        tokens = token_figure(counter.message_tokens(message), "message_tokens")
        if isinstance(message, SystemMessage):
            system += tokens
        else:
            messages += tokens
        if system > U64_MAX or messages > U64_MAX:
            raise CounterOverflow
    constraint = token_figure(counter.constraint_tokens(request.constraint), "constraint_tokens")
    template = token_figure(counter.template_tokens, "template_tokens")
    breakdown = ContextTokenBreakdown(system, messages, constraint, template)
    return ContextTokenCount(target, counter.method, counter.evidence, breakdown)


def ask(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a counter.  Whatever it raises becomes CounterFailed, with that as the cause."""
    try:
        return function(*arguments)
    except Exception as error:
        raise CounterFailed(str(error)) from error


def token_figure(value: object, source: str) -> int:
    """A figure that a counter gave.  Raises ValueError where it is not unsigned 64-bit."""
    if type(value) is not int or not 0 <= value <= U64_MAX:
        raise ValueError(f"{source} gave {value!r}, not an integer from 0 to 2**64 - 1")
    return value


class ByteHeuristic(msgspec.Struct, frozen=True):
    """One token for four bytes of JSON; the engines differ only in how they find the bytes."""

    method: ClassVar[str] = "serialized-utf8-ceil-div4-v1"
    evidence: ClassVar[TokenBoundEvidence] = TokenBoundEvidence.ESTIMATE

    template_tokens: int = 32

    def __post_init__(self) -> None:
        check_u64(type(self).__name__, template_tokens=self.template_tokens)

    def _bytes(self, item: Message | Constraint) -> int:
        raise AssertionError("an engine gives the length")

    def message_tokens(self, message: Message) -> int:
        """ceil(bytes / 4) of the message's JSON.  Raises JsonValueError naming the path at fault."""
        return (self._bytes(message) + 3) // 4

    def constraint_tokens(self, constraint: Constraint) -> int:
        """ceil(bytes / 4) of the constraint's JSON."""
        return (self._bytes(constraint) + 3) // 4

    def count(self, target: ContextTarget, request: GenerationRequest) -> ContextTokenCount:
        """The count of a complete request, rounded up for each message and for the constraint.

        Raises CounterOverflow, or JsonValueError naming the value at fault from the request on.
        """
        try:
            return count_additively(self, target, request)
        except JsonValueError:
            canonical.write(request)  # raises the same, with the whole path
            raise


_ENGINES = ("ullage.counters", "ullage.reference")
_MEANINGS = frozenset({"_bytes", "message_tokens", "messages_tokens", "constraint_tokens", "count"})


def counts_bytes(counter: object) -> bool:
    """Whether a counter is the byte heuristic of either engine, with no other meaning given by a subclass."""
    if not isinstance(counter, ByteHeuristic):
        return False
    for cls in type(counter).__mro__:
        if cls.__module__ in _ENGINES:
            return True
        if _MEANINGS.intersection(vars(cls)):
            return False
    return False
