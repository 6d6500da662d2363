# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The texts of messages in the order in which a chat template sets them: their UTF-8 bytes, or the texts.

Walks the contract's messages and ordinary OpenAI dicts in place.  Whatever is not plainly ordinary is only
listed, for the readable way (ChatTemplate.message in ullage.exact.template), which comes to the same.
"""

cimport cython
from cpython cimport array
from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from ullage._core cimport ASSISTANT, NO_MESSAGE, SYSTEM, TOOL, USER, Role, slot, slot_offset, value_length
from ullage.native cimport UL_NOT_TEXT, ul_utf8_length_latin1, ul_utf8_length_ucs2, ul_utf8_length_ucs4

from array import array as new_array

from ullage.errors import JsonValueError
from ullage.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage

cdef extern from "Python.h":
    bint PyUnicode_Check(PyObject *o)
    bint PyUnicode_CheckExact(PyObject *o)
    bint PyUnicode_IS_ASCII(PyObject *o)
    int PyUnicode_KIND(PyObject *s)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject *s)
    void *PyUnicode_DATA(PyObject *s)
    uint32_t PyUnicode_READ_CHAR(PyObject *s, Py_ssize_t i)
    bint PyDict_CheckExact(PyObject *o)
    bint PyList_CheckExact(PyObject *o)
    bint PyTuple_CheckExact(PyObject *o)
    Py_ssize_t PyList_GET_SIZE(PyObject *o)
    PyTypeObject *Py_TYPE(PyObject *o)
    PyObject *Py_None

cdef uint64_t BAD = UL_NOT_TEXT

cdef Py_ssize_t SYSTEM_CONTENT = slot_offset(SystemMessage, "content")
cdef Py_ssize_t USER_CONTENT = slot_offset(UserMessage, "content")
cdef Py_ssize_t ASSISTANT_CONTENT = slot_offset(AssistantMessage, "content")
cdef Py_ssize_t ASSISTANT_CALLS = slot_offset(AssistantMessage, "tool_calls")
cdef Py_ssize_t TOOL_CALL_ID = slot_offset(ToolMessage, "call_id")
cdef Py_ssize_t TOOL_CONTENT = slot_offset(ToolMessage, "content")
cdef Py_ssize_t CALL_ID = slot_offset(ToolCall, "id")
cdef Py_ssize_t CALL_NAME = slot_offset(ToolCall, "name")
cdef Py_ssize_t CALL_ARGUMENTS = slot_offset(ToolCall, "arguments")

cdef array.array UNSIGNED = new_array("Q")


cdef uint64_t utf8_length(PyObject *text) noexcept:
    """UTF-8 bytes of a str; BAD where it holds a lone surrogate."""
    cdef size_t n = <size_t>PyUnicode_GET_LENGTH(text)
    cdef int kind = PyUnicode_KIND(text)
    if PyUnicode_IS_ASCII(text):
        return n
    if kind == 1:
        return ul_utf8_length_latin1(<const uint8_t *>PyUnicode_DATA(text), n)
    if kind == 2:
        return ul_utf8_length_ucs2(<const uint16_t *>PyUnicode_DATA(text), n)
    return ul_utf8_length_ucs4(<const uint32_t *>PyUnicode_DATA(text), n)


def utf8_bytes(str text not None, /):
    """UTF-8 bytes of a text.  Raises JsonValueError for a lone surrogate."""
    cdef uint64_t length = utf8_length(<PyObject *>text)
    if length == BAD:
        raise JsonValueError("a lone surrogate")
    return length


cdef inline bint is_key(PyObject *key, const char *name, Py_ssize_t n) noexcept:
    return (
        PyUnicode_GET_LENGTH(key) == n and PyUnicode_IS_ASCII(key) and memcmp(PyUnicode_DATA(key), name, n) == 0
    )


cdef inline Role role_of(PyObject *text) noexcept:
    """The role that a text names; NO_MESSAGE for any that is not ordinary."""
    if not PyUnicode_CheckExact(text):
        return NO_MESSAGE
    if is_key(text, b"user", 4):
        return USER
    if is_key(text, b"assistant", 9):
        return ASSISTANT
    if is_key(text, b"tool", 4):
        return TOOL
    if is_key(text, b"system", 6) or is_key(text, b"developer", 9):
        return SYSTEM
    return NO_MESSAGE


cdef inline bint is_plain(PyObject *text) noexcept:
    """Whether an id or a name is plainly not blank."""
    return (
        PyUnicode_CheckExact(text)
        and PyUnicode_GET_LENGTH(text) > 0
        and 0x21 <= PyUnicode_READ_CHAR(text, 0) <= 0x7E
    )


cdef inline bint is_nothing(PyObject *value) noexcept:
    return value == Py_None or (PyList_CheckExact(value) and PyList_GET_SIZE(value) == 0)


@cython.final
cdef class Texts:
    """What a template sets of each of some messages."""

    cdef readonly list texts      # of all messages in order, or None where only their bytes are wanted
    cdef readonly array.array counts  # of each message, how many texts
    cdef readonly array.array fixed   # tokens of its frame
    cdef readonly array.array bytes   # UTF-8 bytes of its texts
    cdef readonly list others     # the indexes of the messages that are not ordinary; their figures are 0
    cdef uint64_t message_tokens, name_tokens, call_tokens
    cdef object arguments_text
    cdef uint64_t row_fixed, row_bytes, row_texts

    def __init__(self, messages, frame, arguments_text=None):
        """Walk the messages.

        `frame` holds the tokens of a message, of a name and of a call, each below 2**32; `arguments_text` gives
        the canonical JSON of a contract's arguments: without it only bytes are found.
        """
        cdef tuple items = tuple(messages)
        cdef Py_ssize_t n = len(items)
        cdef Py_ssize_t i, before
        self.message_tokens, self.name_tokens, self.call_tokens = frame
        self.arguments_text = arguments_text
        self.texts = None if arguments_text is None else []
        self.counts = array.clone(UNSIGNED, n, zero=True)
        self.fixed = array.clone(UNSIGNED, n, zero=True)
        self.bytes = array.clone(UNSIGNED, n, zero=True)
        self.others = []
        for i in range(n):
            self.row_fixed = self.message_tokens
            self.row_bytes = self.row_texts = 0
            before = 0 if self.texts is None else len(self.texts)
            if self._message(items[i]):
                self.counts.data.as_ulonglongs[i] = self.row_texts
                self.fixed.data.as_ulonglongs[i] = self.row_fixed
                self.bytes.data.as_ulonglongs[i] = self.row_bytes
            else:
                self.others.append(i)
                if self.texts is not None:
                    del self.texts[before:]

    def bounds(self):
        """Of each message, the tokens of its frame and a token for each byte of its texts."""
        cdef Py_ssize_t n = len(self.fixed)
        cdef array.array sums = array.clone(UNSIGNED, n, zero=False)
        cdef Py_ssize_t i
        for i in range(n):
            sums.data.as_ulonglongs[i] = self.fixed.data.as_ulonglongs[i] + self.bytes.data.as_ulonglongs[i]
        return sums

    def figures(self, array.array costs not None):
        """Of each message, the tokens of its frame and of its texts, `costs` being those of each text.

        Raises OverflowError for a sum past 2**64 - 1.
        """
        cdef Py_ssize_t n = len(self.fixed)
        cdef array.array sums = array.clone(UNSIGNED, n, zero=False)
        cdef Py_ssize_t i
        cdef Py_ssize_t at = 0
        cdef uint64_t left, total, cost
        if costs.typecode != "Q" or len(costs) != len(self.texts):
            raise ValueError("one cost for each text")
        for i in range(n):
            total = self.fixed.data.as_ulonglongs[i]
            for left in range(self.counts.data.as_ulonglongs[i]):
                cost = costs.data.as_ulonglongs[at]
                at += 1
                if total + cost < total:
                    raise OverflowError("the tokens of a message pass 2**64 - 1")
                total += cost
            sums.data.as_ulonglongs[i] = total
        return sums

    # -- one message ------------------------------------------------------------------

    cdef bint _message(self, object message) except -1:
        cdef PyObject *item = <PyObject *>message
        cdef PyTypeObject *cls = Py_TYPE(item)
        if PyDict_CheckExact(item):
            return self._chat(message)
        if cls == <PyTypeObject *>UserMessage:
            return self._add("user") and self._add(<object>slot(item, USER_CONTENT))
        if cls == <PyTypeObject *>AssistantMessage:
            return self._assistant(item)
        if cls == <PyTypeObject *>ToolMessage:
            return (
                self._add("tool")
                and self._add(<object>slot(item, TOOL_CALL_ID))
                and self._add(<object>slot(item, TOOL_CONTENT))
            )
        if cls == <PyTypeObject *>SystemMessage:
            return self._add("system") and self._add(<object>slot(item, SYSTEM_CONTENT))
        return False

    cdef bint _add(self, object text) except -1:
        """Set one text; False where it is none that can be encoded."""
        cdef uint64_t length
        if not PyUnicode_CheckExact(<PyObject *>text):
            return False
        length = utf8_length(<PyObject *>text)
        if length == BAD:
            return False
        self.row_bytes += length
        self.row_texts += 1
        if self.texts is not None:
            self.texts.append(text)
        return True

    cdef bint _assistant(self, PyObject *message) except -1:
        cdef object content = <object>slot(message, ASSISTANT_CONTENT)
        cdef object calls = <object>slot(message, ASSISTANT_CALLS)
        cdef PyObject *call
        if not self._add("assistant") or not PyTuple_CheckExact(<PyObject *>calls):
            return False
        if content is not None and not self._add(content):
            return False
        for item in <tuple>calls:
            call = <PyObject *>item
            if Py_TYPE(call) != <PyTypeObject *>ToolCall:
                return False
            self.row_fixed += self.call_tokens
            if not self._add(<object>slot(call, CALL_ID)) or not self._add(<object>slot(call, CALL_NAME)):
                return False
            if not self._arguments(<object>slot(call, CALL_ARGUMENTS)):
                return False
        return True

    cdef bint _arguments(self, object arguments) except -1:
        cdef uint64_t length
        if self.texts is None:
            length = value_length(<PyObject *>arguments, 0)
            if length == BAD:
                return False
            self.row_bytes += length
            self.row_texts += 1
            return True
        try:
            return self._add(self.arguments_text(arguments))
        except JsonValueError:  # named from within the arguments, not from the message
            return False

    # -- dicts ----------------------------------------------------------------------------

    cdef bint _chat(self, dict message) except -1:
        cdef Py_ssize_t position = 0
        cdef PyObject *key
        cdef PyObject *item
        cdef object role = None  # owned, all of them: another thread may change the dict
        cdef object content = None
        cdef object name = None
        cdef object calls = None
        cdef object call_id = None
        cdef Role kind
        while PyDict_Next(message, &position, &key, &item):
            if not PyUnicode_Check(key):
                return False
            if is_key(key, b"role", 4):
                role = <object>item
            elif is_key(key, b"content", 7):
                content = <object>item
            elif is_key(key, b"name", 4):
                name = <object>item
            elif is_key(key, b"tool_calls", 10):
                calls = <object>item
            elif is_key(key, b"tool_call_id", 12):
                call_id = <object>item
            elif not is_nothing(item):
                return False
        kind = role_of(<PyObject *>role)
        if kind == NO_MESSAGE or not self._add(role):
            return False
        if name is not None:
            if not is_plain(<PyObject *>name) or not self._add(name):
                return False
            self.row_fixed += self.name_tokens
        if kind == TOOL:
            if not is_plain(<PyObject *>call_id) or not self._add(call_id):
                return False
        elif call_id is not None:
            return False
        if calls is not None:
            if kind != ASSISTANT:
                return False
            if not is_nothing(<PyObject *>calls):
                if not self._chat_calls(calls):
                    return False
                if content is None:
                    return True
        if PyList_CheckExact(<PyObject *>content):
            content = joined_parts(<list>content)
        return self._add(content)

    cdef bint _chat_calls(self, object calls) except -1:
        cdef Py_ssize_t i
        if not PyList_CheckExact(<PyObject *>calls):
            return False
        for i in range(len(<list>calls)):
            if i >= len(<list>calls):  # another thread shortened it
                return False
            call = (<list>calls)[i]
            if not PyDict_CheckExact(<PyObject *>call) or not self._chat_call(call):
                return False
        return True

    cdef bint _chat_call(self, dict call) except -1:
        cdef Py_ssize_t position = 0
        cdef PyObject *key
        cdef PyObject *item
        cdef object call_id = None
        cdef object function = None
        cdef object name = None
        cdef object arguments = None
        while PyDict_Next(call, &position, &key, &item):
            if not PyUnicode_Check(key):
                return False
            if is_key(key, b"id", 2):
                call_id = <object>item
            elif is_key(key, b"function", 8):
                function = <object>item
            elif is_key(key, b"type", 4):
                if not PyUnicode_Check(item) or not is_key(item, b"function", 8):
                    return False
            elif not is_nothing(item):
                return False
        if not PyDict_CheckExact(<PyObject *>function):
            return False
        position = 0
        while PyDict_Next(<dict>function, &position, &key, &item):
            if not PyUnicode_Check(key):
                return False
            if is_key(key, b"name", 4):
                name = <object>item
            elif is_key(key, b"arguments", 9):
                arguments = <object>item
            elif not is_nothing(item):
                return False
        if not is_plain(<PyObject *>call_id) or not is_plain(<PyObject *>name):
            return False
        self.row_fixed += self.call_tokens
        return self._add(call_id) and self._add(name) and self._add(arguments)


cdef object joined_parts(list parts):
    """The text of parts that hold text and nothing else; None for any other."""
    cdef Py_ssize_t i
    cdef list texts = []
    cdef object part
    for i in range(len(parts)):
        if i >= len(parts):  # another thread shortened it
            return None
        part = parts[i]
        if not PyDict_CheckExact(<PyObject *>part) or len(<dict>part) != 2:
            return None
        kind = (<dict>part).get("type")
        text = (<dict>part).get("text")
        if not PyUnicode_CheckExact(<PyObject *>kind) or not is_key(<PyObject *>kind, b"text", 4):
            return None
        if not PyUnicode_CheckExact(<PyObject *>text):
            return None
        texts.append(text)
    return texts[0] if len(texts) == 1 else "".join(texts)
