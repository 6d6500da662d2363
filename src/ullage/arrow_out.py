"""What leaves a batch as Arrow data, through pyarrow: its columns, and the transcripts that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .rebudgeted import BatchStatus

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("this needs pyarrow: pip install 'ullage[arrow]'") from error

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .batch import TranscriptBatch
    from .rebudgeted import RebudgetedBatch

__all__ = ["columns_of", "filtered_columns"]

_FIGURES = (
    *("turns_kept", "turns_dropped", "messages_kept", "messages_dropped"),
    *("tokens_before", "tokens_after"),
)


def columns_of(result: RebudgetedBatch) -> pa.RecordBatch:
    """The columns of a re-budgeted batch."""
    measured = result.status <= BatchStatus.DOES_NOT_FIT
    faulty = result.status >= BatchStatus.NULL_MESSAGE
    retained = pa.LargeListArray.from_arrays(pa.array(result.message_offsets), pa.array(result.retained))
    return pa.RecordBatch.from_pydict(
        {
            "status": _named(result.status, {status: status.name for status in BatchStatus}),
            "error_kind": _named(result.status, {status: status.error_kind for status in BatchStatus}),
            "fault_message": pa.array(result._batch.fault_messages, mask=~faulty),
            **{name: pa.array(getattr(result, name), mask=~measured) for name in _FIGURES},
            "retained": retained,
        }
    )


def _named(codes: NDArray[np.uint8], names: dict[BatchStatus, str | None]) -> pa.DictionaryArray:
    """Codes as the names that stand for them, null where there is none."""
    known = sorted({name for name in names.values() if name is not None})
    places = np.zeros(max(names) + 1, np.int8)
    absent = np.zeros(max(names) + 1, np.bool_)
    for code, name in names.items():
        places[code] = 0 if name is None else known.index(name)
        absent[code] = name is None
    return pa.DictionaryArray.from_arrays(pa.array(places[codes], mask=absent[codes]), pa.array(known))


# --- the transcripts that stay ---------------------------------------------------


def filtered_columns(
    batch: TranscriptBatch, retained: NDArray[np.bool_], sent: NDArray[np.bool_]
) -> pa.ChunkedArray:
    """The column that a batch was read from, without the messages that go; null where a row is not sent."""
    if not batch._columns:
        raise TypeError("only a batch that was read from Arrow memory has a column to filter")
    kind = _list_type(pa.field(batch._columns[0]).type)
    chunks, row = [], 0
    for column in batch._columns:
        if len(column) == 0:
            continue
        rows = slice(row, row + len(column))
        offsets = batch.message_offsets[row : row + len(column) + 1]
        messages = retained[offsets[0] : offsets[-1]]
        chunks.append(_filtered(pa.array(column), offsets - offsets[0], messages, sent[rows], kind))
        row += len(column)
    return pa.chunked_array(chunks, kind)


def _list_type(kind: pa.DataType) -> pa.DataType:
    """The type of what is left of a list: views have no such order as offsets need."""
    return pa.large_list(kind.field(0)) if _is_view(kind) else kind


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _filtered(
    rows: Any,
    offsets: NDArray[np.int64],
    retained: NDArray[np.bool_],
    sent: NDArray[np.bool_],
    kind: pa.DataType,
) -> pa.Array:
    counts = np.diff(offsets)
    stays = retained & np.repeat(sent, counts)
    values = _filterable(_messages_of(rows, offsets)).filter(pa.array(stays)).cast(kind.value_type)
    kept = np.concatenate(([0], np.cumsum(stays)))[offsets]
    whole = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    offset_type = pa.int64() if pa.types.is_large_list(kind) else pa.int32()
    return whole.from_arrays(pa.array(kept, offset_type), values, type=kind, mask=pa.array(~sent))


def _messages_of(rows: Any, offsets: NDArray[np.int64]) -> Any:
    """The messages of all rows, one after the other."""
    starts = np.asarray(rows.offsets, np.int64)[: len(rows)]
    counts = np.diff(offsets)
    shifts = (starts - offsets[:-1])[counts > 0]
    if len(shifts) == 0:
        return rows.values.slice(0, 0)
    if (shifts == shifts[0]).all():  # as they stand in memory
        return rows.values.slice(shifts[0], offsets[-1])
    return _filterable(rows.values).take(
        pa.array(np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1]))
    )


def _filterable(values: Any) -> Any:
    """The same values, text views as large text: pyarrow does not filter views."""
    kind = _without_views(values.type)
    return values if kind == values.type else values.cast(kind)


def _without_views(kind: pa.DataType) -> pa.DataType:
    if kind == pa.string_view():
        return pa.large_string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.field(0).with_type(_without_views(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.field(0).with_type(_without_views(kind.value_type)))
    return kind
