"""The same interface in plain Python: the readable statement of the contract.

Nothing compiled is used here.  Lengths are found by writing the JSON and
measuring it, and every candidate of a build is counted again, whole, as the
contract says.  The compiled engine must give the same results and the same
errors; the test suite compares them on everything.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from .. import canonical
from ..budget import ContextTarget, TokenBoundEvidence
from ..contract import build_by_counting, check_input
from ..counting import AdditiveTokenCounter, ContextTokenCounter, count_additively
from ..messages import Constraint, GenerationRequest, Message
from ..report import BuiltContext, ContextBuildInput, ContextTokenCount
from ..wire import check_u64

__all__ = ["ByteHeuristicCounter", "CanonicalContextBuilder", "json_length", "json_text_length"]


def json_length(value: Any) -> int:
    """Bytes of the compact JSON of a value.  Raises JsonValueError naming the path."""
    return len(canonical.write(value))


def json_text_length(text: str | bytes) -> int:
    """Bytes of the compact JSON of the value that JSON text stands for.  Raises DecodeError."""
    return len(canonical.write(canonical.parse(text)))


class ByteHeuristicCounter(msgspec.Struct, frozen=True):
    """One token for four bytes of JSON, rounded up for each message and for the constraint."""

    method: ClassVar[str] = "serialized-utf8-ceil-div4-v1"
    evidence: ClassVar[TokenBoundEvidence] = TokenBoundEvidence.ESTIMATE

    template_tokens: int = 32

    def __post_init__(self) -> None:
        check_u64("ByteHeuristicCounter", template_tokens=self.template_tokens)

    def message_tokens(self, message: Message) -> int:
        """ceil(bytes / 4) of the message's JSON."""
        return -(-json_length(message) // 4)

    def constraint_tokens(self, constraint: Constraint) -> int:
        """ceil(bytes / 4) of the constraint's JSON."""
        return -(-json_length(constraint) // 4)

    def count(self, target: ContextTarget, request: GenerationRequest) -> ContextTokenCount:
        """The count of a complete request."""
        return count_additively(self, target, request)


class CanonicalContextBuilder:
    """Drops the oldest whole turns until the request fits, counting each candidate anew."""

    def build(
        self, input: ContextBuildInput, counter: ContextTokenCounter | AdditiveTokenCounter
    ) -> BuiltContext:
        """The request that fits and its report.  Raises ContextBuildError."""
        check_input(input)
        return build_by_counting(input, counter)
