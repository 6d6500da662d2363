# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Lengths of Python objects as JSON: the bridge to the native kernels.

Reads strings, dicts and message structs in place; nothing is serialised.
"""

from cpython.dict cimport PyDict_Next, PyDict_Size
from cpython.exc cimport PyErr_Clear, PyErr_Occurred
from cpython.mem cimport PyMem_Free
from cpython.object cimport PyObject, PyTypeObject
from libc.math cimport isfinite
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strlen

from ullage.native cimport (
    UL_JSON_OK,
    UL_JSON_SCRATCH,
    UL_MAX_DEPTH,
    UL_NOT_TEXT,
    ul_decimal_length,
    ul_double_length_quick,
    ul_i64_length,
    ul_json_children,
    ul_json_reason,
    ul_json_result,
    ul_json_scanner,
    ul_json_span,
    ul_json_status,
    ul_json_text_length,
    ul_text_kernels,
    ul_text_kernels_best,
    ul_text_kernels_named,
    ul_u64_length,
)

import os

from msgspec import Struct

from ullage import canonical
from ullage.errors import DecodeError, JsonValueError
from ullage.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage

cdef extern from "Python.h":
    """
    #include <structmember.h>

    /* Where a msgspec field lives in its object, or -1 where it is not a plain slot. */
    static Py_ssize_t member_offset(PyObject *descriptor) {
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
        PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : -1;
    }
    """
    Py_ssize_t member_offset(PyObject *descriptor)
    int PyUnicode_KIND(PyObject *s)
    void *PyUnicode_DATA(PyObject *s)
    bint PyUnicode_IS_ASCII(PyObject *s)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject *s)
    bint PyUnicode_Check(PyObject *o)
    bint PyLong_Check(PyObject *o)
    bint PyFloat_Check(PyObject *o)
    bint PyDict_Check(PyObject *o)
    bint PyList_Check(PyObject *o)
    bint PyTuple_Check(PyObject *o)
    bint PyObject_TypeCheck(PyObject *o, PyTypeObject *cls)
    PyTypeObject *Py_TYPE(PyObject *o)
    PyObject *PyList_GET_ITEM(PyObject *o, Py_ssize_t i)
    PyObject *PyTuple_GET_ITEM(PyObject *o, Py_ssize_t i)
    Py_ssize_t PyList_GET_SIZE(PyObject *o)
    Py_ssize_t PyTuple_GET_SIZE(PyObject *o)
    double PyFloat_AS_DOUBLE(PyObject *o)
    long long PyLong_AsLongLongAndOverflow(PyObject *o, int *overflow)
    unsigned long long PyLong_AsUnsignedLongLong(PyObject *o)
    char *PyOS_double_to_string(double x, char code, int precision, int flags, int *kind)
    double PyOS_string_to_double(const char *text, char **end, PyObject *overflow) except? -1.0
    void Py_INCREF(PyObject *o)
    void Py_DECREF(PyObject *o)
    PyObject *Py_None
    PyObject *Py_True
    PyObject *Py_False

cdef uint64_t BAD = UL_NOT_TEXT
cdef size_t WITHOUT_GIL = 256 * 1024  # bytes of text from which on other threads may run meanwhile

cdef const ul_text_kernels *kernels = ul_text_kernels_best()
cdef uint64_t key_seed = int.from_bytes(os.urandom(8), "little")


# --- text ----------------------------------------------------------------------


cdef uint64_t text_length(PyObject *text) noexcept:
    cdef size_t n = <size_t>PyUnicode_GET_LENGTH(text)
    cdef void *data = PyUnicode_DATA(text)
    cdef int kind = 0 if PyUnicode_IS_ASCII(text) else PyUnicode_KIND(text)
    cdef uint64_t length
    if n * (kind if kind else 1) < WITHOUT_GIL:
        return _units_length(kernels, data, n, kind)
    Py_INCREF(text)
    with nogil:
        length = _units_length(kernels, data, n, kind)
    Py_DECREF(text)
    return length


cdef uint64_t key_length(PyObject *key) noexcept:
    # The GIL is held throughout: the caller borrows the item that goes with the key.
    cdef int kind = 0 if PyUnicode_IS_ASCII(key) else PyUnicode_KIND(key)
    return _units_length(kernels, PyUnicode_DATA(key), <size_t>PyUnicode_GET_LENGTH(key), kind)


cdef inline uint64_t _units_length(
    const ul_text_kernels *by, const void *data, size_t n, int kind
) noexcept nogil:
    if kind == 0:
        return by.utf8(<const uint8_t *>data, n)
    if kind == 1:
        return by.latin1(<const uint8_t *>data, n)
    if kind == 2:
        return by.ucs2(<const uint16_t *>data, n)
    return by.ucs4(<const uint32_t *>data, n)


# --- numbers --------------------------------------------------------------------


cdef uint64_t _double_length(double x) noexcept:
    """Bytes of a finite double, or 0 where memory runs out."""
    cdef unsigned length = ul_double_length_quick(x)
    cdef char *text
    if length:
        return length
    text = PyOS_double_to_string(x, c"r", 0, 0, NULL)
    if text == NULL:
        PyErr_Clear()
        return 0
    length = _repr_length(text)
    PyMem_Free(text)
    return length


cdef unsigned _repr_length(const char *text) noexcept:
    """The length of a double, from the shortest digits as CPython prints them."""
    cdef int negative = text[0] == c"-"
    cdef const char *c = text + negative
    cdef unsigned digits = 0
    cdef unsigned zeros = 0  # a run of zeros that counts only if another digit follows
    cdef int point = 0
    cdef int exponent = 0
    cdef int sign
    cdef bint fraction = False
    while c[0] and c[0] != c"e":
        if c[0] == c".":
            fraction = True
        elif digits == 0 and c[0] == c"0":
            point -= fraction
        else:
            point += not fraction
            if c[0] == c"0":
                zeros += 1
            else:
                digits += zeros + 1
                zeros = 0
        c += 1
    if c[0] == c"e":
        sign = -1 if c[1] == c"-" else 1
        c += 2
        while c[0]:
            exponent = 10 * exponent + (c[0] - c"0")
            c += 1
        exponent *= sign
    if digits == 0:
        return ul_decimal_length(negative, 1, 1)
    return ul_decimal_length(negative, digits, point + exponent)


cdef unsigned _number_length(void *context, const char *digits, size_t n) noexcept nogil:
    """ul_json_scanner.number_length: read as Python reads, then measure."""
    with gil:
        return _parsed_length(digits, n)


cdef unsigned _parsed_length(const char *digits, size_t n) noexcept:
    cdef char small[64]
    cdef char *copy = small
    cdef double x
    cdef unsigned length = 0
    if n >= sizeof(small):
        copy = <char *>malloc(n + 1)
        if copy == NULL:
            return 0
    memcpy(copy, digits, n)
    copy[n] = 0
    try:
        x = PyOS_string_to_double(copy, NULL, NULL)
        if isfinite(x):
            length = <unsigned>_double_length(x)
    except ValueError:
        length = 0
    if copy != small:
        free(copy)
    return length


# --- values ---------------------------------------------------------------------


cdef uint64_t value_length(PyObject *value, int depth) noexcept:
    cdef uint64_t length
    if PyUnicode_Check(value):
        length = text_length(value)
        return BAD if length == BAD else length + 2
    if PyDict_Check(value) or PyList_Check(value) or PyTuple_Check(value):
        if depth == UL_MAX_DEPTH:
            return BAD
        Py_INCREF(value)  # another thread may drop it while long text is measured
        if PyDict_Check(value):
            length = _dict_length(value, depth + 1)
        elif PyList_Check(value):
            length = _list_length(value, depth + 1)
        else:
            length = _tuple_length(value, depth + 1)
        Py_DECREF(value)
        return length
    return _scalar_length(value)


cdef uint64_t _scalar_length(PyObject *value) noexcept:
    cdef int overflow = 0
    cdef long long signed_value
    cdef unsigned long long unsigned_value
    cdef uint64_t length
    if value == Py_None or value == Py_True:
        return 4
    if value == Py_False:
        return 5
    if PyLong_Check(value):
        signed_value = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow == 0:
            return ul_i64_length(signed_value)
        if overflow < 0:
            return BAD
        unsigned_value = PyLong_AsUnsignedLongLong(value)
        if PyErr_Occurred():
            PyErr_Clear()
            return BAD
        return ul_u64_length(unsigned_value)
    if PyFloat_Check(value) and isfinite(PyFloat_AS_DOUBLE(value)):
        length = _double_length(PyFloat_AS_DOUBLE(value))
        return length if length else BAD
    return BAD


cdef uint64_t _dict_length(PyObject *value, int depth) noexcept:
    cdef Py_ssize_t size = PyDict_Size(<object>value)
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t seen = 0
    cdef PyObject *key
    cdef PyObject *item
    cdef uint64_t length = 2
    cdef uint64_t key_bytes, item_bytes
    while PyDict_Next(<object>value, &position, &key, &item):
        if not PyUnicode_Check(key):
            return BAD
        key_bytes = key_length(key)
        if key_bytes == BAD:
            return BAD
        item_bytes = value_length(item, depth)
        if item_bytes == BAD:
            return BAD
        length += key_bytes + item_bytes + 3  # quotes and colon
        seen += 1
    if seen != size:  # changed by another thread
        return BAD
    return length + <uint64_t>(size - 1 if size else 0)


cdef uint64_t _list_length(PyObject *value, int depth) noexcept:
    cdef Py_ssize_t i = 0
    cdef uint64_t length = 2
    cdef uint64_t item_bytes
    while i < PyList_GET_SIZE(value):
        item_bytes = value_length(PyList_GET_ITEM(value, i), depth)
        if item_bytes == BAD:
            return BAD
        length += item_bytes + (i > 0)
        i += 1
    return length


cdef uint64_t _tuple_length(PyObject *value, int depth) noexcept:
    cdef Py_ssize_t i
    cdef uint64_t length = 2
    cdef uint64_t item_bytes
    for i in range(PyTuple_GET_SIZE(value)):
        item_bytes = value_length(PyTuple_GET_ITEM(value, i), depth)
        if item_bytes == BAD:
            return BAD
        length += item_bytes + (i > 0)
    return length


def json_length(value, /):
    """Bytes of the compact JSON of a value, found without writing it.

    The value is a str, int, float, bool, None, list, tuple or dict (or a wire
    type of this package), nested at most 127 deep.

    Raises JsonValueError naming the path of a value that has no JSON form.
    """
    cdef uint64_t length = value_length(<PyObject *>value, 0)
    if length == BAD and isinstance(value, Struct):
        length = _wire_length(value)
    if length != BAD:
        return length
    return len(canonical.write(value))


cdef uint64_t _wire_length(object struct) except? 0:
    cdef uint64_t length = 1  # two braces, and one comma less than members
    cdef uint64_t key_bytes, item_bytes
    cdef list members = canonical.fields(struct)
    for key, item in members:
        key_bytes = value_length(<PyObject *>key, 0)
        item_bytes = _field_length(item)
        if item_bytes == BAD:
            return BAD
        length += key_bytes + item_bytes + 2
    return length if members else 2


cdef uint64_t _field_length(object item) except? 0:
    cdef uint64_t length, item_bytes
    if isinstance(item, Struct):
        return _wire_length(item)
    if not (isinstance(item, (list, tuple)) and item and isinstance(item[0], Struct)):
        return value_length(<PyObject *>item, 0)
    length = 1
    for element in item:
        if not isinstance(element, Struct):
            return BAD
        item_bytes = _wire_length(element)
        if item_bytes == BAD:
            return BAD
        length += item_bytes + 1
    return length


# --- JSON text ------------------------------------------------------------------


cdef ul_json_status scan(const uint8_t *text, size_t n, ul_json_result *result) noexcept:
    cdef ul_json_scanner scanner
    cdef ul_json_status status
    scanner.text = kernels
    scanner.number_length = _number_length
    scanner.context = NULL
    scanner.seed = key_seed
    scanner.scratch = NULL
    scanner.scratch_size = 0
    while True:
        if n < WITHOUT_GIL:
            status = ul_json_text_length(text, n, &scanner, result)
        else:
            with nogil:
                status = ul_json_text_length(text, n, &scanner, result)
        free(scanner.scratch)
        if status != UL_JSON_SCRATCH:
            return status
        scanner.scratch_size = result.wanted
        scanner.scratch = malloc(result.wanted)
        if scanner.scratch == NULL:
            return status


def json_text_length(text, /):
    """Bytes of the compact JSON of the value that JSON text stands for, found without building it.

    The text is a str or UTF-8 bytes and is read strictly (RFC 8259); of a
    repeated key the last one counts.

    Raises DecodeError with the byte offset at fault.
    """
    cdef ul_json_result result
    cdef ul_json_status status
    cdef const uint8_t *data
    cdef size_t n
    cdef bytes encoded
    if isinstance(text, str) and PyUnicode_IS_ASCII(<PyObject *>text):
        data = <const uint8_t *>PyUnicode_DATA(<PyObject *>text)
        n = <size_t>PyUnicode_GET_LENGTH(<PyObject *>text)
    else:
        if isinstance(text, str):
            try:
                encoded = text.encode()
            except UnicodeEncodeError as error:
                raise DecodeError(f"a lone surrogate at character {error.start}") from None
        elif isinstance(text, bytes):
            encoded = text
        else:
            raise TypeError(f"JSON text is str or bytes, not {type(text).__name__}")
        data = <const uint8_t *><const char *>encoded
        n = <size_t>len(encoded)
    status = scan(data, n, &result)
    if status == UL_JSON_OK:
        return result.length
    if status == UL_JSON_SCRATCH:
        raise MemoryError
    raise DecodeError(f"malformed JSON at byte {result.offset}: {ul_json_reason(status).decode()}")


def json_children(bytes text not None, Py_ssize_t start=0, /):
    """Where the members of the object, or the elements of the array, at byte ``start`` of JSON text lie.

    A list of (key start, key end, value start, value end): keys as written, between their quotes, and empty
    for elements.  The text is one that json_text_length accepts and is not checked again.

    Raises IndexError for a start outside the text.
    """
    cdef ul_json_span few[256]
    cdef ul_json_span *spans = few
    cdef const uint8_t *data = <const uint8_t *><const char *>text
    cdef size_t n = <size_t>len(text)
    cdef size_t count, i
    if not 0 <= start < len(text):
        raise IndexError(start)
    count = ul_json_children(data, n, <size_t>start, few, 256)
    if count > 256:
        spans = <ul_json_span *>malloc(count * sizeof(ul_json_span))
        if spans == NULL:
            raise MemoryError
        ul_json_children(data, n, <size_t>start, spans, count)
    try:
        return [
            (spans[i].key_start, spans[i].key_end, spans[i].value_start, spans[i].value_end) for i in range(count)
        ]
    finally:
        if spans != few:
            free(spans)


# --- messages --------------------------------------------------------------------


cdef Py_ssize_t slot_offset(object cls, str name) except -1:
    cdef object descriptor = cls.__dict__[name]
    cdef Py_ssize_t offset = member_offset(<PyObject *>descriptor)
    if offset < 0:
        raise ImportError(f"{cls.__name__}.{name} is not stored as this version of ullage expects of msgspec")
    return offset


cdef PyObject *slot(PyObject *struct, Py_ssize_t offset) noexcept:
    return (<PyObject **>(<char *>struct + offset))[0]


cdef Py_ssize_t SYSTEM_CONTENT = slot_offset(SystemMessage, "content")
cdef Py_ssize_t USER_CONTENT = slot_offset(UserMessage, "content")
cdef Py_ssize_t ASSISTANT_CONTENT = slot_offset(AssistantMessage, "content")
cdef Py_ssize_t ASSISTANT_CALLS = slot_offset(AssistantMessage, "tool_calls")
cdef Py_ssize_t TOOL_CALL_ID = slot_offset(ToolMessage, "call_id")
cdef Py_ssize_t TOOL_CONTENT = slot_offset(ToolMessage, "content")
cdef Py_ssize_t CALL_ID = slot_offset(ToolCall, "id")
cdef Py_ssize_t CALL_NAME = slot_offset(ToolCall, "name")
cdef Py_ssize_t CALL_ARGUMENTS = slot_offset(ToolCall, "arguments")

# What stands around the texts.
cdef uint64_t SYSTEM_FRAME = len('{"role":"system","content":}')
cdef uint64_t USER_FRAME = len('{"role":"user","content":}')
cdef uint64_t ASSISTANT_FRAME = len('{"role":"assistant","content":}')
cdef uint64_t CALLS_FRAME = len(',"tool_calls":[]')
cdef uint64_t TOOL_FRAME = len('{"role":"tool","call_id":,"content":}')
cdef uint64_t CALL_FRAME = len('{"id":,"name":,"arguments":}')


cdef uint64_t message_bytes(PyObject *message, Role *role) noexcept:
    cdef PyTypeObject *cls = Py_TYPE(message)
    cdef uint64_t length, more
    if cls == <PyTypeObject *>UserMessage:
        role[0] = USER
        length = value_length(slot(message, USER_CONTENT), 0)
        return BAD if length == BAD else length + USER_FRAME
    if cls == <PyTypeObject *>AssistantMessage:
        role[0] = ASSISTANT
        length = value_length(slot(message, ASSISTANT_CONTENT), 0)
        more = _calls_length(slot(message, ASSISTANT_CALLS))
        return BAD if length == BAD or more == BAD else length + more + ASSISTANT_FRAME
    if cls == <PyTypeObject *>ToolMessage:
        role[0] = TOOL
        length = value_length(slot(message, TOOL_CONTENT), 0)
        more = value_length(slot(message, TOOL_CALL_ID), 0)
        return BAD if length == BAD or more == BAD else length + more + TOOL_FRAME
    if cls == <PyTypeObject *>SystemMessage:
        role[0] = SYSTEM
        length = value_length(slot(message, SYSTEM_CONTENT), 0)
        return BAD if length == BAD else length + SYSTEM_FRAME
    role[0] = NO_MESSAGE
    return BAD


cdef uint64_t _calls_length(PyObject *calls) noexcept:
    cdef Py_ssize_t count, i
    cdef PyObject *call
    cdef uint64_t length, id_bytes, name_bytes, argument_bytes
    if not PyTuple_Check(calls):
        return BAD
    count = PyTuple_GET_SIZE(calls)
    if count == 0:
        return 0
    length = CALLS_FRAME + <uint64_t>(count - 1)
    for i in range(count):
        call = PyTuple_GET_ITEM(calls, i)
        if Py_TYPE(call) != <PyTypeObject *>ToolCall:
            return BAD
        id_bytes = value_length(slot(call, CALL_ID), 0)
        name_bytes = value_length(slot(call, CALL_NAME), 0)
        argument_bytes = value_length(slot(call, CALL_ARGUMENTS), 0)
        if id_bytes == BAD or name_bytes == BAD or argument_bytes == BAD:
            return BAD
        length += id_bytes + name_bytes + argument_bytes + CALL_FRAME
    return length


def message_length(message, /):
    """Bytes of the compact JSON of a message.  Raises JsonValueError naming the path at fault."""
    cdef Role role
    cdef uint64_t length = message_bytes(<PyObject *>message, &role)
    if length != BAD:
        return length
    return len(canonical.write(message))


# --- for tests and benchmarks -----------------------------------------------------


def kernel_name():
    """The name of the text kernels in use."""
    return kernels.name.decode()


def text_length_with(str name not None, str text not None):
    """Escaped bytes of a text by the kernels of that name.

    Raises LookupError where this processor lacks them, JsonValueError for a lone surrogate.
    """
    cdef const ul_text_kernels *chosen = ul_text_kernels_named(name.encode())
    cdef size_t n = <size_t>PyUnicode_GET_LENGTH(<PyObject *>text)
    cdef void *data = PyUnicode_DATA(<PyObject *>text)
    cdef int kind = 0 if PyUnicode_IS_ASCII(<PyObject *>text) else PyUnicode_KIND(<PyObject *>text)
    cdef uint64_t length
    if chosen == NULL:
        raise LookupError(f"no {name} kernels on this processor")
    length = _units_length(chosen, data, n, kind)
    if length == BAD:
        raise JsonValueError("a lone surrogate")
    return length
