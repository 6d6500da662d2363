"""Many transcripts at once: measured into one set of arrays, and re-budgeted there.

Columns of Arrow memory are read in place and text is never copied; the loops
are native and let other threads run.  What comes out for a row is what ``fit``
gives for that row alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ._arrow import TranscriptColumn, transcript_columns
from ._batch import Measures, Outcome, count_messages, measure, trim
from ._chat import EncodedChat
from .budget import ContextBudget
from .counters import ByteHeuristicCounter
from .errors import BatchError, JsonValueError, TranscriptError
from .rebudgeted import NO_TURN, BatchStatus, MeasuredRow, Plan, RebudgetedBatch, read_only

if TYPE_CHECKING:  # numpy takes longer to import than all of ullage
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["TranscriptBatch"]


_ROWS_AT_ONCE = 1024  # the least that is worth another thread


class TranscriptBatch:
    """Transcripts as arrays.  Made by ``from_arrow`` or ``from_messages``; never changes.

    The arrays are numpy's, read-only.  With n rows and m messages in all:

    message_offsets: int64[n + 1]; the messages of row r are those from
        message_offsets[r] to message_offsets[r + 1].
    roles: uint8[m]; 1 system, 2 user, 3 assistant, 4 tool.
    bytes: uint64[m]; of each message's compact JSON.
    turns: uint32[m]; numbered from 0 in each row, 2**32 - 1 for leading system
        messages, which belong to none.
    faults: uint8[n]; 0, or the BatchStatus of a row that cannot be sent.  Such a
        row has zeros in the arrays of messages.
    fault_messages: uint32[n]; the number of the message at fault in its row.
    """

    __slots__ = (
        "_columns",
        "_image_tokens",
        "_measures",
        "_merge_users",
        "_transcripts",
        "bytes",
        "fault_messages",
        "faults",
        "message_offsets",
        "roles",
        "turns",
    )

    _measures: Measures
    _columns: list[TranscriptColumn]
    _transcripts: list[Any]  # of from_messages, in place of columns
    _merge_users: bool
    _image_tokens: int
    message_offsets: NDArray[np.int64]
    roles: NDArray[np.uint8]
    bytes: NDArray[np.uint64]
    turns: NDArray[np.uint32]
    faults: NDArray[np.uint8]
    fault_messages: NDArray[np.uint32]

    def __init__(self) -> None:
        raise TypeError("a TranscriptBatch is made by from_arrow or from_messages")

    @classmethod
    def from_arrow(
        cls,
        source: Any,
        column: str | None = None,
        *,
        ignore: Iterable[str] = (),
        merge_users: bool = False,
        threads: int = 1,
    ) -> Self:
        """Measure a column of transcripts where it is.

        source: an array, record batch, table, chunked array or stream of any
            library with the Arrow PyCapsule protocol.  Its memory is kept alive
            and must not change; a stream is read to its end.
        column: the column of a table; by default ``messages``, or else the only
            one that holds transcripts: a list, large list or list view of
            structs with ``role`` and ``content``.
        ignore: members of the struct that are not to count, as ``"weight"`` or
            ``"tool_calls.index"``.
        merge_users: as in ``fit``.
        threads: how many threads measure.

        Role, content, ``name``, ``tool_call_id`` and ``tool_calls`` (a list of
        structs of id, type and function, that a struct of name and arguments)
        have the meaning that they have in ``fit``; arguments are JSON text.
        Every other member counts as ``,"key":value``.  A null member is left out,
        wherever it is.  Text may be of any Arrow type, dictionaries included.

        A row that is malformed, or not UTF-8, is told by ``faults``.  Raises
        BatchError, naming column and row, for a column of another type, for
        offsets, indexes and views that point outside what they belong to, and
        for a stream that fails; TypeError for what is no Arrow data.

        The protocol tells no sizes of buffers.  That they are as long as lengths
        and offsets say, and the text of a column as long as its last offset, is
        checked for pyarrow's objects, by pyarrow; of other producers it is taken
        on trust.
        """
        _check_threads(threads)
        _let_pyarrow_check(source)
        columns = transcript_columns(source, column, _names(ignore), merge_users)
        offsets = _offsets(sum(map(len, columns)))
        count_messages(columns, offsets)
        measures = Measures(offsets)
        _in_threads(
            threads,
            [
                partial(measure, part, measures, first, last)
                for part in columns
                for first, last in _slices(len(part), threads)
            ],
        )
        return cls._of(measures, columns, [], merge_users, 0)

    @classmethod
    def from_messages(
        cls, transcripts: Iterable[Sequence[Any]], *, merge_users: bool = False, image_tokens: int = 1024
    ) -> Self:
        """Measure transcripts as ``fit`` takes them, of which None is a null row.

        merge_users, image_tokens: as in ``fit``.

        A row that is malformed is told by ``faults``.
        """
        rows = [None if row is None else tuple(row) for row in transcripts]
        offsets = _offsets(len(rows))
        offsets[1:] = _running([0 if row is None else len(row) for row in rows])
        measures = Measures(offsets, _prices(int(offsets[-1])))
        for i, row in enumerate(rows):
            _measure_messages(measures, i, row, merge_users, image_tokens)
        return cls._of(measures, [], rows, merge_users, image_tokens)

    @classmethod
    def _of(
        cls,
        measures: Measures,
        columns: list[TranscriptColumn],
        transcripts: list[Any],
        merge_users: bool,
        image_tokens: int,
    ) -> Self:
        self = cls.__new__(cls)
        self._measures = measures
        self._columns = columns
        self._transcripts = transcripts
        self._merge_users = merge_users
        self._image_tokens = image_tokens
        for name in ("message_offsets", "roles", "bytes", "turns", "faults", "fault_messages"):
            setattr(self, name, read_only(getattr(measures, name)))
        return self

    def __len__(self) -> int:
        return len(self.faults)

    def __repr__(self) -> str:
        faulty = int((self.faults != 0).sum())
        return (
            f"<TranscriptBatch: {len(self):,} rows, {len(self.roles):,} messages, {faulty:,} rows at fault>"
        )

    def messages(self, row: int) -> list[Any]:
        """The messages of a row: dicts made from the column, or those given.

        Raises BatchError for a row that is null, or has text that is not UTF-8.
        """
        if not 0 <= row < len(self):
            raise IndexError(row)
        messages, at = None, row
        if self._transcripts:
            messages = self._transcripts[row]
        for column in self._columns:
            if at < len(column):
                try:
                    messages = column.messages(at)
                except UnicodeDecodeError as error:
                    raise BatchError(f"text that is not UTF-8: {error.reason}", row=row) from error
                break
            at -= len(column)
        if messages is None:
            raise BatchError("there is no transcript, but null", row=row)
        return list(messages)

    def _chat(self, row: int) -> Any:
        """A row as ``fit`` sees a chat.  Raises as ``fit`` does for one that is malformed."""
        if self._transcripts or self.faults[row]:
            return EncodedChat(self.messages(row), self._merge_users)
        return MeasuredRow(self._measures, row)

    def rebudget(
        self,
        budget: ContextBudget,
        *,
        windows: ArrayLike | None = None,
        threads: int = 1,
        counter: ByteHeuristicCounter | None = None,
        tools: Sequence[Any] = (),
        model: str | None = None,
    ) -> RebudgetedBatch:
        """Drop the oldest whole turns of each row until it fits, as ``fit`` does.

        budget: of every row; figures in tokens.
        windows: a window for each row, in place of the budget's; integers, one
            a row.
        threads: how many threads work, other threads running beside them.
        counter: the byte heuristic, for another template than its own.
        tools, model: as in ``fit``, of every row.

        What is wrong with a row is told by its status.  Raises as ``fit`` does
        for a budget, tools or a model that no row could be sent with, and
        ValueError for windows that are not one unsigned 64-bit integer a row.
        """
        _check_threads(threads)
        plan = Plan(budget, self._windows(windows), counter or ByteHeuristicCounter(), tools, model)
        outcome = Outcome(self._measures)
        _in_threads(
            threads,
            [
                partial(
                    trim,
                    self._measures,
                    outcome,
                    budget.window_tokens,
                    plan.windows,
                    plan.reserved,
                    plan.constraint,
                    plan.counter.template_tokens,
                    first,
                    last,
                )
                for first, last in _slices(len(self), threads)
            ],
        )
        return RebudgetedBatch(self, plan, outcome)

    def _windows(self, given: ArrayLike | None) -> NDArray[np.uint64] | None:
        if given is None:
            return None
        import numpy as np

        windows = np.asarray(given)
        if windows.shape != (len(self),) or (windows.dtype.kind not in "iu" and len(self)):
            raise ValueError(
                f"windows are {len(self):,} integers, one a row, not {windows.dtype} of shape {windows.shape}"
            )
        if windows.dtype.kind == "i" and (windows < 0).any():
            raise ValueError(f"the window of row {int((windows < 0).argmax()):,} is less than zero")
        return np.ascontiguousarray(windows, np.uint64)


# --- measuring -------------------------------------------------------------------


def _measure_messages(
    measures: Measures, row: int, messages: Sequence[Any] | None, merge_users: bool, image_tokens: int
) -> None:
    """Measure one row of Python objects, as ``fit`` does."""
    import numpy as np

    messages_of = slice(*measures.message_offsets[row : row + 2])
    try:
        if messages is None:
            raise BatchError("there is no transcript, but null", row=row)
        chat = EncodedChat(messages, merge_users)
    except (BatchError, TranscriptError, JsonValueError) as error:
        at = _MESSAGE.match(getattr(error, "path", ""))
        measures.faults[row] = BatchStatus.NULL_ROW if messages is None else BatchStatus.MALFORMED
        measures.fault_messages[row] = int(at[1]) if at else 0
        measures.roles[messages_of] = measures.bytes[messages_of] = measures.turn_counts[row] = 0
        measures.turns[messages_of] = NO_TURN
        return
    arrays = chat.arrays()
    measures.roles[messages_of] = np.frombuffer(arrays.roles, np.uint8)
    measures.bytes[messages_of] = np.frombuffer(arrays.lengths, np.uint64)
    measures.turns[messages_of] = np.frombuffer(arrays.turns, np.int64).astype(np.uint32)
    measures.turn_counts[row] = chat.turn_count
    if chat.parts and measures.prices is not None:
        parts = [chat.priced_parts(i) * image_tokens for i in range(len(messages))]
        measures.prices[messages_of] = parts


_MESSAGE = re.compile(r"messages\[([0-9]+)\]")


def _let_pyarrow_check(source: Any) -> None:
    """Buffers have sizes for pyarrow, unlike for us: it looks whether they are long enough."""
    check = getattr(source, "validate", None)
    if check is None or not type(source).__module__.startswith("pyarrow."):
        return
    try:
        check()
    except ValueError as error:  # what pyarrow.ArrowInvalid is
        raise BatchError(f"pyarrow finds the data unsound: {error}") from error


def _names(ignore: Iterable[str]) -> frozenset[str]:
    if isinstance(ignore, str):
        raise TypeError(f"ignore is a list of names, not the text {ignore!r}")
    return frozenset(ignore)


def _offsets(rows: int) -> NDArray[np.int64]:
    import numpy as np

    return np.zeros(rows + 1, np.int64)


def _prices(messages: int) -> NDArray[np.uint64]:
    import numpy as np

    return np.zeros(messages, np.uint64)


def _running(counts: list[int]) -> NDArray[np.int64]:
    import numpy as np

    return np.cumsum(counts, dtype=np.int64)


# --- threads ---------------------------------------------------------------------


def _check_threads(threads: int) -> None:
    if type(threads) is not int or threads < 1:
        raise ValueError(f"threads is an integer from 1, not {threads!r}")


def _slices(rows: int, threads: int) -> list[tuple[int, int]]:
    """Rows cut so that threads which finish early find more to do."""
    size = max(_ROWS_AT_ONCE, -(-rows // (8 * threads))) if threads > 1 else max(rows, 1)
    return [(first, min(first + size, rows)) for first in range(0, rows, size)]


def _in_threads(threads: int, tasks: list[Callable[[], None]]) -> None:
    """Run tasks; of those that fail, the first in order raises."""
    if threads == 1 or len(tasks) < 2:
        for task in tasks:
            task()
        return
    with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
        for running in [pool.submit(task) for task in tasks]:
            running.result()
