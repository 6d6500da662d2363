"""The same interface in plain Python: the readable statement of the contract.

Nothing compiled is used here.  Lengths are found by writing the JSON and
measuring it, and every candidate of a build is counted again, whole, as the
contract says.  The compiled engine must give the same results and the same
errors; the test suite compares them on everything.
"""

from __future__ import annotations

from typing import Any

from .. import canonical
from ..contract import build_by_counting, check_input
from ..counting import AdditiveTokenCounter, ByteHeuristic, ContextTokenCounter
from ..messages import Constraint, Message
from ..report import BuiltContext, ContextBuildInput

__all__ = ["ByteHeuristicCounter", "CanonicalContextBuilder", "json_length", "json_text_length"]


def json_length(value: Any) -> int:
    """Bytes of the compact JSON of a value.  Raises JsonValueError naming the path."""
    return len(canonical.write(value))


def json_text_length(text: str | bytes) -> int:
    """Bytes of the compact JSON of the value that JSON text stands for.  Raises DecodeError."""
    return len(canonical.write(canonical.parse(text)))


class ByteHeuristicCounter(ByteHeuristic, frozen=True):
    """One token for four bytes of JSON, rounded up for each message and for the constraint."""

    def _bytes(self, item: Message | Constraint) -> int:
        return json_length(item)


class CanonicalContextBuilder:
    """Drops the oldest whole turns until the request fits, counting each candidate anew."""

    def build(
        self, input: ContextBuildInput, counter: ContextTokenCounter | AdditiveTokenCounter
    ) -> BuiltContext:
        """The request that fits and its report.  Raises ContextBuildError."""
        check_input(input)
        return build_by_counting(input, counter)
