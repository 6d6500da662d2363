"""Budgets, targets and limits: what a build must keep to."""

from __future__ import annotations

from enum import Enum

from .wire import Wire, check_member, check_u64

__all__ = ["ContextBudget", "ContextBuildLimits", "ContextTarget", "TokenBoundEvidence", "TokenBudgetMode"]


class TokenBudgetMode(Enum):
    """Whether a budget takes estimates (SOFT) or only verified upper bounds (HARD)."""

    HARD = "Hard"
    SOFT = "Soft"


class TokenBoundEvidence(Enum):
    """What a token figure is worth."""

    VERIFIED_UPPER_BOUND = "VerifiedUpperBound"
    ESTIMATE = "Estimate"


class ContextTarget(Wire, frozen=True):
    """The model, and the revision of its chat template, that a count is for."""

    model: str
    template_revision: str


class ContextBudget(Wire, frozen=True):
    """A context window in tokens and what must stay free in it.

    Figures are unsigned 64-bit; a value outside is a ValueError at construction, a mode or evidence that is
    not a member of its enum a TypeError.
    """

    window_tokens: int
    output_reserve: int
    output_evidence: TokenBoundEvidence = TokenBoundEvidence.ESTIMATE
    safety_margin: int = 0
    mode: TokenBudgetMode = TokenBudgetMode.SOFT

    def __post_init__(self) -> None:
        check_u64(
            "ContextBudget",
            window_tokens=self.window_tokens,
            output_reserve=self.output_reserve,
            safety_margin=self.safety_margin,
        )
        check_member("ContextBudget", "output_evidence", self.output_evidence, TokenBoundEvidence)
        check_member("ContextBudget", "mode", self.mode, TokenBudgetMode)


class ContextBuildLimits(Wire, frozen=True):
    """The largest input a build accepts: bytes of JSON, groups or turns, messages, and counts made."""

    max_input_bytes: int = 16 * 1024 * 1024
    max_groups: int = 4096
    max_messages: int = 8192
    max_count_calls: int = 128

    def __post_init__(self) -> None:
        check_u64(
            "ContextBuildLimits",
            max_input_bytes=self.max_input_bytes,
            max_groups=self.max_groups,
            max_messages=self.max_messages,
            max_count_calls=self.max_count_calls,
        )
