"""What several test modules share: the two engines, counters, and outcomes that compare as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import ullage
from ullage import canonical, reference
from ullage.budget import ContextTarget, TokenBoundEvidence
from ullage.errors import ContextBuildError
from ullage.messages import Constraint, GenerationRequest, Message
from ullage.report import ContextTokenBreakdown, ContextTokenCount


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
        from ullage.counting import count_additively

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
