# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Batches of transcripts: measured into arrays and trimmed there, other threads running meanwhile."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from ullage._arrow cimport TranscriptColumn
from ullage._trim cimport trim_turns
from ullage.native cimport (
    UL_BATCH_BROKEN,
    UL_BATCH_DONE,
    UL_BATCH_SCRATCH,
    ul_batch,
    ul_batch_budget,
    ul_batch_count,
    ul_batch_measure,
    ul_batch_outcome,
    ul_batch_status,
    ul_batch_stop,
    ul_batch_trim,
    ul_batch_turns,
    ul_measurer,
    ul_text_kernels_best,
    ul_trim_task,
)

import os

from ullage._core import json_length, json_text_length
from ullage.errors import BatchError, DecodeError

cdef uint64_t seed = int.from_bytes(os.urandom(8), "little")


cdef void *_data(object array, int flags) except? NULL:
    """The address of an array's items.  The array, which has to be contiguous, keeps them."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, flags)
    PyBuffer_Release(&view)
    return view.buf


cdef list _arrays(list kinds):
    """Arrays of (dtype, length), not set to anything, in one block of memory.

    Pages that nobody has touched are what a batch costs beside its text, and of one
    large block the system makes fewer and larger ones.
    """
    import numpy as np

    arrays = []
    sizes = [np.dtype(dtype).itemsize * length for dtype, length in kinds]
    block = np.empty(sum(sizes) + 64 * (len(sizes) + 1), np.uint8)
    start = -block.ctypes.data % 64
    for (dtype, _), size in zip(kinds, sizes):
        arrays.append(block[start : start + size].view(dtype))
        start += (size + 63) // 64 * 64
    return arrays


# --- measuring -------------------------------------------------------------------


cdef unsigned _number_length(void *context, const char *digits, size_t n) noexcept nogil:
    with gil:
        try:
            return <unsigned>json_text_length(digits[:n])
        except DecodeError:
            return 0


cdef unsigned _double_length(void *context, double x) noexcept nogil:
    with gil:
        return <unsigned>json_length(x)


cdef class Measures:
    """The arrays of a batch, as ullage.h describes them; nothing is in those of messages yet."""

    cdef ul_batch batch
    cdef readonly object message_offsets, roles, bytes, turns, turn_counts
    cdef readonly object faults, fault_messages, raw_arguments, prices

    def __init__(self, message_offsets, prices=None):
        import numpy as np

        cdef int flags = PyBUF_SIMPLE | PyBUF_WRITABLE
        rows = len(message_offsets) - 1
        messages = message_offsets[rows]
        self.message_offsets = message_offsets
        self.prices = prices
        self.roles, self.bytes, self.turns, self.turn_counts = _arrays(
            [("u1", messages), ("u8", messages), ("u4", messages), ("u4", rows)]
        )
        self.faults = np.zeros(rows, np.uint8)
        self.fault_messages = np.zeros(rows, np.uint32)
        self.raw_arguments = np.zeros(rows, np.uint8)
        self.batch.message_offsets = <int64_t *>_data(self.message_offsets, flags)
        self.batch.roles = <uint8_t *>_data(self.roles, flags)
        self.batch.bytes = <uint64_t *>_data(self.bytes, flags)
        self.batch.turns = <uint32_t *>_data(self.turns, flags)
        self.batch.turn_counts = <uint32_t *>_data(self.turn_counts, flags)
        self.batch.faults = <uint8_t *>_data(self.faults, flags)
        self.batch.fault_messages = <uint32_t *>_data(self.fault_messages, flags)
        self.batch.raw_arguments = <uint8_t *>_data(self.raw_arguments, flags)
        self.batch.prices = NULL if prices is None else <const uint64_t *>_data(prices, PyBUF_SIMPLE)


cdef class TurnsOfRow:
    """Room for the turns of one row."""

    cdef uint64_t *tokens
    cdef uint8_t *stays

    def __cinit__(self, size_t turns):
        self.tokens = <uint64_t *>malloc((turns + 1) * sizeof(uint64_t))
        self.stays = <uint8_t *>malloc(turns + 1)
        if self.tokens == NULL or self.stays == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.tokens)
        free(self.stays)


def count_messages(list columns, message_offsets):
    """Fill the offsets, of which the first is zero, with where the messages of each row begin."""
    cdef TranscriptColumn column
    cdef ul_batch_stop stop
    cdef ul_batch_status status
    cdef int64_t *offsets = <int64_t *>_data(message_offsets, PyBUF_SIMPLE | PyBUF_WRITABLE)
    for column in columns:
        if column.length == 0:
            continue
        with nogil:
            status = ul_batch_count(&column.chat, offsets, &stop)
        if status != UL_BATCH_DONE:
            raise _broken(column, &stop)


def measure(TranscriptColumn column, Measures measures, int64_t first, int64_t last):
    """Measure rows [first, last) of a column.  Raises BatchError where it breaks its format."""
    cdef ul_measurer measurer
    cdef ul_batch_stop stop
    cdef ul_batch_status status
    measurer.scanner.text = ul_text_kernels_best()
    measurer.scanner.number_length = _number_length
    measurer.scanner.context = NULL
    measurer.scanner.seed = seed
    measurer.scanner.scratch = NULL
    measurer.scanner.scratch_size = 0
    measurer.double_length = _double_length
    stop.row = first
    while True:
        with nogil:
            status = ul_batch_measure(&column.chat, &measurer, stop.row, last, &measures.batch, &stop)
        if status != UL_BATCH_SCRATCH:
            break
        free(measurer.scanner.scratch)
        measurer.scanner.scratch_size = stop.wanted
        measurer.scanner.scratch = malloc(stop.wanted)
        if measurer.scanner.scratch == NULL:
            raise MemoryError
    free(measurer.scanner.scratch)
    if status == UL_BATCH_BROKEN:
        raise _broken(column, &stop)


cdef object _broken(TranscriptColumn column, ul_batch_stop *stop):
    reason = "an offset, an index or a view points outside what it belongs to"
    return BatchError(reason, column.path_of(stop.column), column.chat.first_row + stop.row)


# --- trimming --------------------------------------------------------------------


cdef class Outcome:
    """What became of the rows of a batch, as ullage.h describes it."""

    cdef ul_batch_outcome outcome
    cdef readonly object statuses, turns_dropped, messages_dropped, tokens_before, tokens_after, retained

    def __init__(self, Measures measures):
        rows = len(measures.faults)
        (
            self.statuses,
            self.turns_dropped,
            self.messages_dropped,
            self.tokens_before,
            self.tokens_after,
            self.retained,
        ) = _arrays(
            [("u1", rows), ("u4", rows), ("u4", rows), ("u8", rows), ("u8", rows), ("?", len(measures.roles))]
        )
        cdef int flags = PyBUF_SIMPLE | PyBUF_WRITABLE
        self.outcome.statuses = <uint8_t *>_data(self.statuses, flags)
        self.outcome.turns_dropped = <uint32_t *>_data(self.turns_dropped, flags)
        self.outcome.messages_dropped = <uint32_t *>_data(self.messages_dropped, flags)
        self.outcome.tokens_before = <uint64_t *>_data(self.tokens_before, flags)
        self.outcome.tokens_after = <uint64_t *>_data(self.tokens_after, flags)
        self.outcome.retained = <uint8_t *>_data(self.retained, flags)


def trim(
    Measures measures,
    Outcome outcome,
    uint64_t window,
    windows,
    uint64_t reserved,
    uint64_t constraint,
    uint64_t template_tokens,
    int64_t first,
    int64_t last,
):
    """Trim rows [first, last).  ``windows`` is a contiguous array of unsigned 64-bit, one a row, or None."""
    cdef ul_batch_budget budget
    cdef TurnsOfRow turns = TurnsOfRow(measures.turn_counts[first:last].max(initial=0))
    budget.constraint = constraint
    budget.template_tokens = template_tokens
    budget.reserved = reserved
    budget.window = window
    budget.windows = NULL if windows is None else <const uint64_t *>_data(windows, PyBUF_SIMPLE)
    with nogil:
        ul_batch_trim(&measures.batch, &budget, first, last, turns.tokens, turns.stays, &outcome.outcome)


def turns_of(Measures measures, Py_ssize_t row):
    """The tokens of each turn of a row, which of them stay, and the tokens of all system messages."""
    cdef TurnsOfRow turns
    cdef uint64_t system
    cdef Py_ssize_t i
    if not 0 <= row < len(measures.faults):
        raise IndexError(row)
    turns = TurnsOfRow(measures.turn_counts[row])
    system = ul_batch_turns(&measures.batch, row, turns.tokens, turns.stays)
    count = range(measures.turn_counts[row])
    return [turns.tokens[i] for i in count], [turns.stays[i] != 0 for i in count], system


def attempts(
    Measures measures,
    Py_ssize_t row,
    uint64_t constraint,
    uint64_t template_tokens,
    uint64_t reserved,
    uint64_t window,
    uint64_t max_counts,
):
    """Trim one sound row: the Outcome, how many turns went, and the message tokens of each attempt.

    Raises the contract's error for a sum that overflows.
    """
    cdef TurnsOfRow turns
    cdef ul_trim_task task
    if not 0 <= row < len(measures.faults):
        raise IndexError(row)
    turns = TurnsOfRow(measures.turn_counts[row])
    task.turns = measures.turn_counts[row]
    task.turn_tokens = turns.tokens
    task.turn_protected = turns.stays
    task.system = ul_batch_turns(&measures.batch, row, turns.tokens, turns.stays)
    task.current = 0  # a turn among the others, and one that stays
    task.constraint = constraint
    task.template_tokens = template_tokens
    task.reserved = reserved
    task.window = window
    task.max_counts = max_counts
    return trim_turns(&task)
