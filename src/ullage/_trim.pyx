# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Trimming: one call of the kernel, and the attempts that its figures stand for."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc

from ullage._core cimport slot_offset
from ullage.native cimport (
    UL_TRIM_COUNT_LIMIT,
    UL_TRIM_DOES_NOT_FIT,
    UL_TRIM_FITS,
    UL_TRIM_MESSAGES_OVERFLOW,
    UL_TRIM_TOTAL_OVERFLOW,
    UL_TRIM_ZERO,
    ul_trim,
    ul_trim_result,
    ul_trim_status,
    ul_trim_task,
)

from array import array

from ullage.contract import Outcome
from ullage.errors import CounterFailed, CounterOverflow, InvalidContext, TokenOverflow
from ullage.report import ContextCountAttempt, ContextTokenBreakdown, ContextTokenCount

cdef extern from "Python.h":
    void Py_INCREF(PyObject *o)
    void Py_DECREF(PyObject *o)

cdef dict OUTCOMES = {
    <int>UL_TRIM_FITS: Outcome.FITS,
    <int>UL_TRIM_DOES_NOT_FIT: Outcome.DOES_NOT_FIT,
    <int>UL_TRIM_COUNT_LIMIT: Outcome.COUNT_LIMIT,
}


cdef tuple trim_turns(const ul_trim_task *task):
    cdef ul_trim_result result
    cdef ul_trim_status status
    cdef uint64_t *attempts = <uint64_t *>malloc((task.turns + 1) * sizeof(uint64_t))
    if attempts == NULL:
        raise MemoryError
    with nogil:
        status = ul_trim(task, attempts, &result)
    try:
        if status == UL_TRIM_MESSAGES_OVERFLOW:
            raise CounterFailed(str(CounterOverflow())) from CounterOverflow()
        if status == UL_TRIM_TOTAL_OVERFLOW:
            raise TokenOverflow
        if status == UL_TRIM_ZERO:
            raise InvalidContext("zero input count")
        figures = array("Q")
        figures.frombytes((<char *>attempts)[: result.attempts * sizeof(uint64_t)])
        return OUTCOMES[<int>status], result.removed, figures
    finally:
        free(attempts)


cdef Py_ssize_t BREAKDOWN_MESSAGES = slot_offset(ContextTokenBreakdown, "messages")
cdef Py_ssize_t COUNT_TOKENS = slot_offset(ContextTokenCount, "tokens")
cdef Py_ssize_t ATTEMPT_REMOVED = slot_offset(ContextCountAttempt, "removed_turns")
cdef Py_ssize_t ATTEMPT_COUNT = slot_offset(ContextCountAttempt, "count")
cdef Py_ssize_t ATTEMPT_TOTAL = slot_offset(ContextCountAttempt, "total_reserved")


cdef inline void set_slot(PyObject *struct, Py_ssize_t offset, object value) noexcept:
    """Fill a slot of a struct that nobody else has seen yet."""
    cdef PyObject **place = <PyObject **>(<char *>struct + offset)
    cdef PyObject *before = place[0]
    Py_INCREF(<PyObject *>value)
    place[0] = <PyObject *>value
    Py_DECREF(before)


def derive_attempts(count, reserved, messages):
    """The attempts of a loop whose counts differ only in their message tokens.

    `count` is any of the counts, `reserved` the tokens kept free, `messages` the message tokens of each
    attempt.  Copies are filled in place: a build may have hundreds, and the checks of their constructors
    hold for all of them once they hold for one.
    """
    cdef object tokens = count.tokens
    cdef object base = tokens.system + tokens.constraint + tokens.template + reserved
    cdef object first = ContextCountAttempt(0, count, base)
    cdef list attempts = []
    cdef object one
    cdef Py_ssize_t removed = 0
    for figure in messages:
        tokens = _copy(tokens)
        set_slot(<PyObject *>tokens, BREAKDOWN_MESSAGES, figure)
        count = _copy(count)
        set_slot(<PyObject *>count, COUNT_TOKENS, tokens)
        one = _copy(first)
        set_slot(<PyObject *>one, ATTEMPT_REMOVED, removed)
        set_slot(<PyObject *>one, ATTEMPT_COUNT, count)
        set_slot(<PyObject *>one, ATTEMPT_TOTAL, base + figure)
        attempts.append(one)
        removed += 1
    return tuple(attempts)


cdef inline object _copy(object struct):
    return struct.__copy__()
