"""Counters that ship with ullage."""

from __future__ import annotations

from ._core import json_length, message_length
from .counting import ByteHeuristic
from .messages import Constraint, Message

__all__ = ["ByteHeuristicCounter"]


class ByteHeuristicCounter(ByteHeuristic, frozen=True):
    """One token for four bytes of JSON, rounded up for each message and for the constraint.

    An estimate: about right for prose, far too low for dense JSON, hexadecimal
    and base64 (0.59, 0.44 and 0.37 of the true count for o200k_base).
    """

    def _bytes(self, item: Message | Constraint) -> int:
        return json_length(item)

    def message_tokens(self, message: Message) -> int:
        """ceil(bytes / 4) of the message's JSON.  Raises JsonValueError naming the path at fault."""
        return (message_length(message) + 3) // 4
