"""What re-budgeting made of a batch: columns, reports, and the messages that stay."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import msgspec

from ._batch import Measures, Outcome, attempts, turns_of
from ._core import json_length
from .budget import ContextBudget
from .canonical import U64_MAX
from .contract import Outcome as TrimOutcome
from .contract import check_evidence
from .counters import ByteHeuristicCounter
from .errors import BatchError, ContextBuildError, JsonValueError, TranscriptError
from .fit import _budget, _Fitting, _target
from .formats.openai_chat import check_tools, read_tools
from .report import ContextBuildReport, ContextTurnSelection

if TYPE_CHECKING:  # numpy takes longer to import than all of ullage
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from .batch import TranscriptBatch

__all__ = ["BatchStatus", "RebudgetedBatch"]


class BatchStatus(IntEnum):
    """What became of a row, as the arrays of a batch hold it."""

    FITS = 0
    TRIMMED = 1
    DOES_NOT_FIT = 2
    NO_ROOM = 3  # output reserve and safety margin leave nothing of the row's window
    MESSAGES_OVERFLOW = 4
    TOTAL_OVERFLOW = 5

    NULL_ROW = 16
    NOT_UTF8 = 17  # some text of the row; comes before all that follow
    NULL_MESSAGE = 18
    ROLE = 19  # none, or none that is known
    CONTENT = 20  # none where there has to be
    CALL = 21  # a tool call without id, name or function, or of another type
    CALL_TWICE = 22  # one id for two calls of a message
    RESULT = 23  # a result that answers no waiting call
    INTERRUPTED = 24  # a message between a call and its result
    UNANSWERED = 25  # the row ends before every call has its result
    NUMBER = 26  # NaN or an infinity, which JSON does not have
    NO_TURN = 27  # nothing but system messages, or nothing at all
    MALFORMED = 28  # in another way, as the row's error tells

    @property
    def error_kind(self) -> str | None:
        """The kind of error that a row ends in: a ContextBuildError's, or Row, Encoding or Transcript."""
        return _ERROR_KINDS.get(self, "Transcript")


_ERROR_KINDS = {
    BatchStatus.FITS: None,
    BatchStatus.TRIMMED: None,
    BatchStatus.DOES_NOT_FIT: "DoesNotFit",
    BatchStatus.NO_ROOM: "Invalid",
    BatchStatus.MESSAGES_OVERFLOW: "Counter",
    BatchStatus.TOTAL_OVERFLOW: "Overflow",
    BatchStatus.NULL_ROW: "Row",
    BatchStatus.NOT_UTF8: "Encoding",
}


class Plan(msgspec.Struct, frozen=True):
    """What every row is re-budgeted to.  Raises as ``fit`` does for what no row could be sent with."""

    budget: ContextBudget
    windows: Any  # NDArray[np.uint64] of one window a row, or None
    counter: ByteHeuristicCounter
    tools: Sequence[Any]
    model: str | None
    constraint: int = 0  # tokens

    def __post_init__(self) -> None:
        if type(self.counter) is not ByteHeuristicCounter:
            raise TypeError(
                f"a batch is counted by ByteHeuristicCounter, not by {type(self.counter).__name__}"
            )
        budget = self.budget
        check_evidence(self.counter.method, self.counter.evidence, budget)
        window = budget.window_tokens if self.windows is None else U64_MAX
        _budget(window, budget.output_reserve, budget.safety_margin, budget.mode)
        _target(self.model)
        msgspec.structs.force_setattr(self, "constraint", _constraint_tokens(self.tools))

    @property
    def reserved(self) -> int:
        """Tokens kept free."""
        return self.budget.output_reserve + self.budget.safety_margin

    def of_row(self, row: int) -> ContextBudget:
        """The budget of one row.  Raises InvalidContext where nothing of the window is left."""
        if self.windows is None:
            return self.budget
        window = int(self.windows[row])
        _budget(window, self.budget.output_reserve, self.budget.safety_margin, self.budget.mode)
        return msgspec.structs.replace(self.budget, window_tokens=window)


def _constraint_tokens(tools: Sequence[Any]) -> int:
    constraint, extra = read_tools(tools)
    try:
        length = json_length(constraint) + len(extra.encode())
    except JsonValueError:
        check_tools(tools)  # names the place as the caller sees it
        raise
    return (length + 3) // 4


class RebudgetedBatch:
    """A batch and what became of its rows.

    The arrays are numpy's, read-only.  With n rows and m messages in all:

    status: uint8[n]; a BatchStatus.
    turns_kept, turns_dropped, messages_kept, messages_dropped: uint32[n].
    tokens_before, tokens_after: uint64[n]; of the whole request, template and
        tools included, nothing reserved.
    retained: bool[m]; which messages stay.
    message_offsets: int64[n + 1]; the messages of row r are those from
        message_offsets[r] to message_offsets[r + 1].

    Where a row does not fit, the figures are those of what has to stay, and its
    tokens_after what would be needed.  All other rows that are neither FITS nor
    TRIMMED have zeros.
    """

    __slots__ = (
        "_batch",
        "_plan",
        "message_offsets",
        "messages_dropped",
        "messages_kept",
        "retained",
        "status",
        "tokens_after",
        "tokens_before",
        "turns_dropped",
        "turns_kept",
    )

    message_offsets: NDArray[np.int64]
    status: NDArray[np.uint8]
    turns_dropped: NDArray[np.uint32]
    turns_kept: NDArray[np.uint32]
    messages_dropped: NDArray[np.uint32]
    messages_kept: NDArray[np.uint32]
    tokens_before: NDArray[np.uint64]
    tokens_after: NDArray[np.uint64]
    retained: NDArray[np.bool_]

    def __init__(self, batch: TranscriptBatch, plan: Plan, outcome: Outcome) -> None:
        import numpy as np

        measured = outcome.statuses <= BatchStatus.DOES_NOT_FIT
        turns = np.where(measured, batch._measures.turn_counts, 0).astype(np.uint32)
        messages = np.where(measured, np.diff(batch.message_offsets), 0).astype(np.uint32)
        self._batch = batch
        self._plan = plan
        self.message_offsets = batch.message_offsets
        self.status = read_only(outcome.statuses)
        self.turns_dropped = read_only(outcome.turns_dropped)
        self.turns_kept = read_only(turns - outcome.turns_dropped)
        self.messages_dropped = read_only(outcome.messages_dropped)
        self.messages_kept = read_only(messages - outcome.messages_dropped)
        self.tokens_before = read_only(outcome.tokens_before)
        self.tokens_after = read_only(outcome.tokens_after)
        self.retained = read_only(outcome.retained)

    def __len__(self) -> int:
        return len(self.status)

    def __repr__(self) -> str:
        fits, trimmed = (int((self.status == status).sum()) for status in _SENT)
        return f"<RebudgetedBatch: {len(self):,} rows, {fits:,} fit, {trimmed:,} trimmed>"

    # -- one row

    def report(self, row: int) -> ContextBuildReport:
        """What ``fit`` reports of a row; where it does not fit, of what has to stay.

        Raises the error of any other row, as ``fit`` does, or BatchError for one
        that is null or not UTF-8.
        """
        try:
            return self._fitted(row)
        except ContextBuildError as error:
            if error.report is None:
                raise
            return error.report

    def error(self, row: int) -> Exception | None:
        """The error that ``fit`` ends in for a row, or None where it fits.  BatchError: see ``report``."""
        try:
            self._fitted(row)
        except (BatchError, ContextBuildError, TranscriptError, JsonValueError) as error:
            return error
        return None

    def messages(self, row: int) -> list[Any]:
        """The messages of a row that stay.  Raises as ``report`` does, and DoesNotFit."""
        error = self.error(row)
        if error is not None:
            raise error
        first, last = self.message_offsets[row : row + 2]
        retained = self.retained[first:last].tolist()
        return [message for message, stays in zip(self._batch.messages(row), retained, strict=True) if stays]

    def _fitted(self, row: int) -> ContextBuildReport:
        if not 0 <= row < len(self):
            raise IndexError(row)
        batch, plan = self._batch, self._plan
        fitting = _Fitting(
            batch._chat(row),
            plan.tools,
            plan.counter,
            _target(plan.model),
            plan.of_row(row),
            batch._image_tokens,
            None,
            None,
        )
        return fitting.run().report

    # -- all rows

    def to_arrow(self) -> pa.RecordBatch:
        """The columns as a pyarrow record batch of n rows.

        ``status`` and ``error_kind`` are names in a dictionary, ``fault_message``
        the number of the message at fault, ``retained`` a list of booleans.
        Figures that a row has not are null.  Raises ImportError without pyarrow.
        """
        from .arrow_out import columns_of

        return columns_of(self)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The same for any library that speaks the Arrow PyCapsule protocol."""
        schema, array = self.to_arrow().__arrow_c_array__(requested_schema)
        return schema, array

    def filtered(self) -> pa.ChunkedArray:
        """The column of transcripts with the messages that stay, each with all its members.

        A row that cannot be sent is null.  Lists come back as what they were, list
        views as large lists; chunks are those of the source.  Raises ImportError
        without pyarrow, TypeError for a batch that was not read from Arrow memory.
        """
        from .arrow_out import filtered_columns

        return filtered_columns(self._batch, self.retained, self.status <= BatchStatus.TRIMMED)


_SENT = (BatchStatus.FITS, BatchStatus.TRIMMED)


class MeasuredRow:
    """A sound row of a batch as ``fit`` sees a chat; its messages are known by their numbers alone."""

    parts = 0
    priced_path = ""

    def __init__(self, measures: Measures, row: int) -> None:
        first, last = (int(at) for at in measures.message_offsets[row : row + 2])
        tokens, self._stays, self.system_tokens = turns_of(measures, row)
        self._measures = measures
        self._row = row
        self._turns: list[int] = measures.turns[first:last].tolist()
        self.messages = range(last - first)
        self.turn_count = len(tokens)
        self.current = max(
            turn for turn, role in zip(self._turns, measures.roles[first:last], strict=True) if role != SYSTEM
        )
        self.raw = bool(measures.raw_arguments[row])
        self.total_bytes = int(measures.bytes[first:last].sum())
        self.current_tokens = tokens[self.current]
        self.prefix = self._turns.count(NO_TURN)

    def weigh(self, price: int, figures: Sequence[int] | None) -> None:
        """Nothing is left to do: tokens were found when the row was measured."""

    def trim(
        self, constraint: int, template_tokens: int, reserved: int, window: int, max_counts: int
    ) -> tuple[TrimOutcome, int, Sequence[int]]:
        """As EncodedChat does."""
        return attempts(self._measures, self._row, constraint, template_tokens, reserved, window, max_counts)

    def kept_messages(self, removed: int) -> list[int]:
        """The numbers of the messages that stay without the first ``removed`` turns that may go."""
        gone = self._gone(removed)
        return [i for i, turn in enumerate(self._turns) if turn not in gone]

    def selections(self, removed: int) -> tuple[ContextTurnSelection, ...]:
        """As EncodedChat does."""
        gone = self._gone(removed)
        events: list[list[str]] = [[] for _ in self._stays]
        for i, turn in enumerate(self._turns):
            if turn != NO_TURN:
                events[turn].append(str(i))
        return tuple(
            ContextTurnSelection(f"turn-{i}", tuple(events[i]), i not in gone, stays)
            for i, stays in enumerate(self._stays)
            if i != self.current
        )

    def current_messages(self) -> int:
        """How many messages the current turn has."""
        return self._turns.count(self.current)

    def _gone(self, removed: int) -> set[int]:
        return set([turn for turn, stays in enumerate(self._stays) if not stays][:removed])


NO_TURN = 2**32 - 1
"""The turn of a leading system message."""

SYSTEM = 1
"""The role of a system message in the arrays."""


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, not to be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
