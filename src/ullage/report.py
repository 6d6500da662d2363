"""What a build takes and what it tells: input, counts, report and built context."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import msgspec

from .budget import ContextBudget, ContextBuildLimits, ContextTarget, TokenBoundEvidence
from .canonical import U64_MAX, shown
from .errors import TokenOverflow
from .history import ConversationProjection
from .messages import Constraint, GenerationRequest, Message, TextConstraint
from .wire import Wire, check_member, check_u64

__all__ = [
    "BuiltContext",
    "ContextBuildInput",
    "ContextBuildReport",
    "ContextCountAttempt",
    "ContextTokenBreakdown",
    "ContextTokenCount",
    "ContextTurnSelection",
]

ALGORITHM_VERSION = 1


class ContextBuildInput(Wire, frozen=True):
    """Everything a build looks at.  It is never changed.

    ``history`` holds ended turns, ``system`` texts that stay, ``current`` the
    messages of the turn being answered, ``pinned_turns`` ids of turns that stay.
    """

    wire_order: ClassVar[tuple[str, ...]] = (
        "history",
        "system",
        "current",
        "constraint",
        "pinned_turns",
        "state_version",
        "target",
        "budget",
        "limits",
    )

    history: ConversationProjection
    current: tuple[Message, ...]
    target: ContextTarget
    budget: ContextBudget
    system: tuple[str, ...] = ()
    constraint: Constraint = TextConstraint()
    pinned_turns: tuple[str, ...] = ()
    state_version: str | None = None
    limits: ContextBuildLimits = ContextBuildLimits()

    def __post_init__(self) -> None:
        for name, kind in (
            ("history", ConversationProjection),
            ("target", ContextTarget),
            ("budget", ContextBudget),
            ("limits", ContextBuildLimits),
        ):
            if not isinstance(getattr(self, name), kind):
                given = shown(getattr(self, name))
                raise TypeError(f"ContextBuildInput.{name} must be a {kind.__name__}, not {given}")
        for name in ("system", "pinned_turns"):
            texts = getattr(self, name)
            if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
                raise TypeError(f"ContextBuildInput.{name} must be texts in a tuple, not {shown(texts)}")
        if not isinstance(self.state_version, str | None):
            given = shown(self.state_version)
            raise TypeError(f"ContextBuildInput.state_version must be a str or None, not {given}")

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read plain data as ``to_dict`` gives it; null limits and a null config are the defaults.

        Raises DecodeError naming the path at fault.
        """
        if isinstance(data, dict):
            data = _without_null(data, "limits")
            if isinstance(data.get("history"), dict):
                data = data | {"history": _without_null(data["history"], "config")}
        return super().from_dict(data)


def _without_null(data: dict[str, Any], name: str) -> dict[str, Any]:
    if name in data and data[name] is None:
        return {key: item for key, item in data.items() if key != name}
    return data


class ContextTokenBreakdown(Wire, frozen=True, gc=False):
    """Tokens of the four parts of a request."""

    system: int
    messages: int
    constraint: int
    template: int

    def __post_init__(self) -> None:
        a, b, c, d = self.system, self.messages, self.constraint, self.template
        if type(a) is type(b) is type(c) is type(d) is int and 0 <= a | b | c | d <= U64_MAX:
            return  # quick, since one is made for every attempt
        check_u64(
            "ContextTokenBreakdown",
            system=self.system,
            messages=self.messages,
            constraint=self.constraint,
            template=self.template,
        )

    def total(self) -> int:
        """The sum.  Raises TokenOverflow past 2**64 - 1."""
        total = self.system + self.messages + self.constraint + self.template
        if total > U64_MAX:
            raise TokenOverflow
        return total


class ContextTokenCount(Wire, frozen=True, gc=False):
    """A counter's answer: for which target, by which method, with what evidence."""

    target: ContextTarget
    method: str
    evidence: TokenBoundEvidence
    tokens: ContextTokenBreakdown

    def __post_init__(self) -> None:
        if not isinstance(self.method, str):
            raise TypeError(f"ContextTokenCount.method must be a str, not {shown(self.method)}")
        check_member("ContextTokenCount", "evidence", self.evidence, TokenBoundEvidence)
        if not isinstance(self.tokens, ContextTokenBreakdown):
            raise TypeError(
                f"ContextTokenCount.tokens must be a ContextTokenBreakdown, not {shown(self.tokens)}"
            )


class ContextCountAttempt(Wire, frozen=True, gc=False):
    """One candidate counted.  ``total_reserved`` is its tokens with output reserve and safety margin."""

    removed_turns: int
    count: ContextTokenCount
    total_reserved: int


class ContextTurnSelection(Wire, frozen=True, gc=False):
    """What became of a turn.  ``protected`` means that it was pinned."""

    turn_id: str
    source_events: tuple[str, ...]
    retained: bool
    protected: bool


class ContextBuildReport(Wire, frozen=True):
    """Every count made and every turn kept or dropped, turns in the order of the history."""

    algorithm_version: int
    projection_version: int
    session_id: str
    source_tail: str | None
    source_event_count: int
    state_version: str | None
    target: ContextTarget
    budget: ContextBudget
    limits: ContextBuildLimits
    system_messages: int
    current_messages: int
    turns: tuple[ContextTurnSelection, ...]
    attempts: tuple[ContextCountAttempt, ...]

    def to_json(self) -> bytes:
        """The contract's JSON.  Raises JsonValueError naming the path of a text that has none."""
        try:
            return msgspec.json.encode(
                self
            )  # the same bytes, since a report holds no float and no JSON value
        except UnicodeEncodeError:
            return super().to_json()


class BuiltContext(Wire, frozen=True):
    """A request that fits, and how it came about."""

    request: GenerationRequest
    report: ContextBuildReport
