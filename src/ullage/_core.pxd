# What the other compiled modules take from _core: lengths of Python objects.
#
# Every function returns BAD (= UL_NOT_TEXT) for a value that has no length, and
# sets no exception: the caller asks the plain-Python writer, which names the place.
# All need the GIL and run no Python code, so borrowed references stay good; text
# of 256 KiB and more is measured without the GIL, on references of their own.

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint64_t

from ullage.native cimport ul_json_result, ul_json_status

cdef enum Role:
    NO_MESSAGE = 0
    SYSTEM = 1
    USER = 2
    ASSISTANT = 3
    TOOL = 4

# Escaped bytes of a str, without its quotes.
cdef uint64_t text_length(PyObject *text) noexcept

# The same for a key, without letting other threads run.
cdef uint64_t key_length(PyObject *key) noexcept

# Bytes of any JSON value; `depth` is how many arrays and objects enclose it.
cdef uint64_t value_length(PyObject *value, int depth) noexcept

# Canonical bytes of a value given as JSON text.
cdef ul_json_status scan(const uint8_t *text, size_t n, ul_json_result *result) noexcept

# Bytes of a message struct, and its role.
cdef uint64_t message_bytes(PyObject *message, Role *role) noexcept

# The value of a slot, borrowed; NULL where it was never set.
cdef PyObject *slot(PyObject *struct, Py_ssize_t offset) noexcept
cdef Py_ssize_t slot_offset(object cls, str name) except -1
