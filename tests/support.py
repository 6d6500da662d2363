"""What several test modules share: the engines, counters, a sound input, outcomes that compare as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

import ullage
from ullage import canonical, reference
from ullage.budget import ContextBudget, ContextTarget, TokenBoundEvidence
from ullage.counting import count_additively
from ullage.errors import ContextBuildError
from ullage.history import ConversationProjection, GroupKind, ProjectedTurn, ProjectionGroup, TurnState
from ullage.messages import (
    AssistantMessage,
    Constraint,
    GenerationRequest,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from ullage.report import ContextBuildInput, ContextTokenBreakdown, ContextTokenCount


class Engine(NamedTuple):
    """One implementation of the contract."""

    name: str
    json_length: Callable[[Any], int]
    json_text_length: Callable[[str | bytes], int]
    byte_heuristic: Callable[..., Any]
    build: Callable[..., ullage.BuiltContext]


C = Engine(
    "c",
    ullage.json_length,
    ullage.json_text_length,
    ullage.ByteHeuristicCounter,
    ullage.CanonicalContextBuilder().build,
)
PY = Engine(
    "py",
    reference.json_length,
    reference.json_text_length,
    reference.ByteHeuristicCounter,
    reference.CanonicalContextBuilder().build,
)


# --- counters -------------------------------------------------------------------


class ExactBytes:
    """Additive: one token a byte."""

    method = "test-byte-v1"
    evidence = TokenBoundEvidence.VERIFIED_UPPER_BOUND
    template_tokens = 17

    def message_tokens(self, message: Message) -> int:
        return reference.json_length(message)

    def constraint_tokens(self, constraint: Constraint) -> int:
        return reference.json_length(constraint)


class Whole:
    """Counts complete requests only: gives what an additive counter gives, but does not say so."""

    def __init__(self, counter: Any) -> None:
        self.counter = counter
        self.requests: list[GenerationRequest] = []

    def count(self, target: ContextTarget, request: GenerationRequest) -> ContextTokenCount:
        self.requests.append(request)
        return count_additively(self.counter, target, request)


class Scripted:
    """Gives a list of counts, one a call; the last one repeats."""

    def __init__(
        self,
        counts: Iterable[dict[str, int]],
        target: ContextTarget,
        *,
        method: str = "script-1",
        evidence: TokenBoundEvidence = TokenBoundEvidence.ESTIMATE,
        error: str | None = None,
    ) -> None:
        self.counts = list(counts)
        self.target = target
        self.method = method
        self.evidence = evidence
        self.error = error
        self.calls = 0

    def count(self, target: ContextTarget, request: GenerationRequest) -> ContextTokenCount:
        self.calls += 1
        if self.error is not None and self.calls >= max(1, len(self.counts)):
            raise RuntimeError(self.error)
        tokens = ContextTokenBreakdown(**self.counts[min(self.calls, len(self.counts)) - 1])
        return ContextTokenCount(self.target, self.method, self.evidence, tokens)


# --- build inputs -----------------------------------------------------------------


def turn(name: str, *texts: str, state: TurnState = TurnState.COMPLETED) -> tuple[Any, list[Any]]:
    """A turn of a user text, an exchange and an answer, as long as there are texts."""
    groups = []
    for i, (kind, text) in enumerate(zip(GroupKind, texts, strict=False)):
        if kind is GroupKind.USER:
            messages: tuple[Any, ...] = (UserMessage(text),)
        elif kind is GroupKind.ASSISTANT:
            messages = (AssistantMessage(text),)
        else:
            messages = (AssistantMessage(None, (ToolCall("c", "f", {"q": text}),)), ToolMessage("c", text))
        groups.append(ProjectionGroup(name, kind, (f"{name}-{i}",), messages))
    return ProjectedTurn(name, state, f"{name}-end", False), groups


def history(*turns: tuple[Any, list[Any]]) -> ConversationProjection:
    groups = [group for _, of_turn in turns for group in of_turn]
    return ConversationProjection(
        1, "s", "tail", len(groups), groups=tuple(groups), turns=tuple(turn for turn, _ in turns)
    )


def sound(window: int = 100_000, **changes: Any) -> ContextBuildInput:
    """Three turns, of which the second is pinned."""
    turns = [turn(f"t{i}", f"question {i}", f"answer {i}", f"result {i}") for i in range(3)]
    return ContextBuildInput(
        **{
            "history": history(*turns),
            "current": (UserMessage("now"),),
            "target": ContextTarget("m", "r"),
            "budget": ContextBudget(window, 100),
            "system": ("rules",),
            "pinned_turns": ("t1",),
            **changes,
        }
    )


def raised(engine: Engine, input: ContextBuildInput, counter: Any = None) -> ContextBuildError:
    with pytest.raises(ContextBuildError) as caught:
        engine.build(input, counter or engine.byte_heuristic())
    return caught.value


# --- outcomes --------------------------------------------------------------------


def build_outcome(engine: Engine, input: ullage.ContextBuildInput, counter: Any) -> bytes:
    """A build as JSON, in the form of the recorded outcomes."""
    try:
        return b'{"ok":%s}' % engine.build(input, counter).to_json()
    except ContextBuildError as error:
        report = b"null" if error.report is None else error.report.to_json()
        text = canonical.write(str(error))
        return b'{"error":{"kind":"%s","message":%s,"report":%s}}' % (error.kind.encode(), text, report)


def outcome(function: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[Any, ...]:
    """What a call gives: its value, or all that its error tells."""
    try:
        return ("value", function(*arguments, **named))
    except Exception as error:
        return ("error", *told(error))


def told(error: BaseException) -> tuple[Any, ...]:
    """Everything about an error that a caller can see."""
    names = ("kind", "reason", "path", "needed", "window", "parts")
    report = getattr(error, "report", None)
    cause = error.__cause__
    return (
        type(error),
        str(error),
        {name: getattr(error, name, None) for name in names},
        None if report is None else report.to_json(),
        getattr(error, "__notes__", []),
        None if cause is None else (type(cause), str(cause)),
    )
