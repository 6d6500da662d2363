"""What became of a row, and of all rows together."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

__all__ = ["RejectKind", "Row", "RowStatus", "Size", "Summary", "Tally", "noted", "rejected"]


class RowStatus(StrEnum):
    """What became of a row."""

    KEPT = "kept"
    TRIMMED = "trimmed"
    REJECTED = "rejected"


class RejectKind(StrEnum):
    """Why a row was rejected.  Other kinds are those of ContextBuildError."""

    ENCODING = "Encoding"  # not UTF-8
    JSON = "Json"  # not strict JSON, or nested too deep
    ROW = "Row"  # JSON, but no transcript in it, or two
    TRANSCRIPT = "Transcript"  # a transcript that cannot be sent
    PROJECTION = "Projection"  # a session journal that breaks its rules
    DOES_NOT_FIT = "DoesNotFit"  # what must stay is too large


class Size(NamedTuple):
    """How large a transcript is.  ``tokens`` are those of the whole request, nothing kept free."""

    turns: int = 0
    messages: int = 0
    tokens: int = 0

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(self.turns + other.turns, self.messages + other.messages, self.tokens + other.tokens)


_NOTHING = Size()


class Row(NamedTuple):
    """A row after re-budgeting.

    ``output`` is the row as it is to be written, ``report`` the contract's
    JSON where the plan asks for it.  A rejected row has neither, but ``kind``
    and ``message``, and no sizes.
    """

    status: RowStatus
    output: bytes = b""
    before: Size = _NOTHING
    after: Size = _NOTHING
    report: bytes = b""
    kind: str = ""
    message: str = ""


def rejected(kind: str, message: object) -> Row:
    """A row that was not fitted, and why."""
    return Row(RowStatus.REJECTED, kind=str(kind), message=str(message))


def noted(error: Exception) -> str:
    """What an error says to do, where it does: the figures and the remedy come first."""
    return "; ".join(getattr(error, "__notes__", ())) or str(error)


@dataclass(slots=True)
class Tally:
    """How many rows were rejected for reasons of one kind, and the first of them."""

    rows: int
    line: int
    message: str


@dataclass(slots=True)
class Summary:
    """All rows together.  Sizes are those of the rows that were written; ``unit`` is what a row is called."""

    unit: str = "line"
    rows_in: int = 0
    rows_out: int = 0
    rejected: int = 0
    trimmed: int = 0
    before: Size = _NOTHING
    after: Size = _NOTHING
    reasons: dict[str, Tally] = field(default_factory=dict)

    def add(self, line: int, row: Row) -> None:
        """Count a row that was written, or rejected at that line."""
        if row.status is RowStatus.REJECTED:
            self.rejected += 1
            self.reasons.setdefault(row.kind, Tally(0, line, row.message)).rows += 1
            return
        self.rows_out += 1
        self.trimmed += row.status is RowStatus.TRIMMED
        self.before = self.before.plus(row.before)
        self.after = self.after.plus(row.after)

    def check(self) -> None:
        """Raise RuntimeError where a row was lost."""
        if self.rows_in != self.rows_out + self.rejected:
            raise RuntimeError(
                f"{self.rows_in} rows came in, {self.rows_out} were written and {self.rejected} rejected"
            )
