# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A chat transcript as arrays: role, bytes and turn of each message, tokens of each turn.

Walks ordinary OpenAI dicts in place.  Whatever is not plainly ordinary goes,
message by message, to the readable reader in ullage.formats.openai_chat, which
measures it to the same figures or names the fault.
"""

cimport cython
from cpython.dict cimport PyDict_Next
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp

from ullage._core cimport ASSISTANT, NO_MESSAGE, SYSTEM, TOOL, USER, Role, key_length, scan, text_length, value_length
from ullage._trim cimport trim_turns
from ullage.native cimport (
    UL_JSON_OK,
    UL_JSON_SCRATCH,
    UL_KIND_OBJECT,
    UL_NOT_TEXT,
    ul_json_result,
    ul_json_status,
    ul_trim_task,
)

from typing import NamedTuple

from ullage._core import message_length
from ullage.canonical import located, shown
from ullage.errors import CounterOverflow, JsonValueError, TranscriptError
from ullage.formats.openai_chat import read_message
from ullage.messages import AssistantMessage, SystemMessage, ToolMessage
from ullage.report import ContextTurnSelection

cdef extern from "Python.h":
    bint PyUnicode_Check(PyObject *o)
    bint PyUnicode_CheckExact(PyObject *o)
    bint PyUnicode_IS_ASCII(PyObject *o)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject *s)
    void *PyUnicode_DATA(PyObject *s)
    uint32_t PyUnicode_READ_CHAR(PyObject *s, Py_ssize_t i)
    PyObject *Py_None
    bint PyDict_CheckExact(PyObject *o)
    bint PyList_CheckExact(PyObject *o)
    Py_ssize_t PySet_GET_SIZE(object anyset)
    int PySet_Add(object anyset, object key) except -1
    int PySet_Discard(object anyset, object key) except -1

cdef uint64_t BAD = UL_NOT_TEXT

cdef uint64_t SYSTEM_FRAME = len('{"role":"system","content":}')
cdef uint64_t USER_FRAME = len('{"role":"user","content":}')
cdef uint64_t ASSISTANT_FRAME = len('{"role":"assistant","content":}')
cdef uint64_t CALLS_FRAME = len(',"tool_calls":[]')
cdef uint64_t TOOL_FRAME = len('{"role":"tool","call_id":,"content":}')
cdef uint64_t CALL_FRAME = len('{"id":,"name":,"arguments":}')
cdef uint64_t MEMBER_FRAME = len(',"":')
cdef uint64_t EMPTY_TEXT = len('""')

# The turn of a leading system message: no turn at all.
cdef int64_t PREFIX = -1


cdef inline bint is_key(PyObject *key, const char *name, Py_ssize_t n) noexcept:
    return (
        PyUnicode_GET_LENGTH(key) == n and PyUnicode_IS_ASCII(key) and memcmp(PyUnicode_DATA(key), name, n) == 0
    )


cdef Role role_of(PyObject *text) noexcept:
    """The role that a text names; NO_MESSAGE for any that is not ordinary."""
    if not PyUnicode_Check(text):
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


cdef uint64_t id_length(PyObject *text) noexcept:
    """Bytes of an id or a name that is plainly not blank; BAD for any other."""
    if not PyUnicode_CheckExact(text) or PyUnicode_GET_LENGTH(text) == 0:
        return BAD
    if not 0x21 <= PyUnicode_READ_CHAR(text, 0) <= 0x7E:
        return BAD
    return value_length(text, 0)


cdef uint64_t member_length(PyObject *key, PyObject *item) noexcept:
    """Bytes of one more member of an object."""
    cdef uint64_t key_bytes, item_bytes
    if not PyUnicode_Check(key):
        return BAD
    key_bytes = key_length(key)
    item_bytes = value_length(item, 1)
    return BAD if key_bytes == BAD or item_bytes == BAD else key_bytes + item_bytes + MEMBER_FRAME


class ChatArrays(NamedTuple):
    """The arrays of an EncodedChat, of 1, 8 and 8 bytes an item."""

    roles: bytes
    lengths: bytes
    turns: bytes


@cython.final
cdef class EncodedChat:
    """One transcript.  Figures are tokens; a price stands for each image, audio or file part."""

    cdef readonly tuple messages
    cdef bint merge_users
    cdef uint64_t *bytes
    cdef uint64_t *prices     # how many parts cost a price
    cdef uint8_t *roles
    cdef int64_t *turns       # of each message
    cdef uint64_t *turn_tokens
    cdef uint8_t *turn_stays  # current, pinned, or a system message
    cdef set pending          # ids of calls not yet answered
    cdef readonly Py_ssize_t turn_count, current, prefix
    cdef readonly uint64_t total_bytes, parts, system_tokens, current_tokens
    cdef readonly str priced_path
    cdef readonly bint raw

    def __cinit__(self, messages, bint merge_users):
        self.messages = tuple(messages)
        self.merge_users = merge_users
        self.pending = set()
        self.priced_path = ""
        cdef size_t n = <size_t>len(self.messages) + 1
        self.bytes = <uint64_t *>malloc(n * sizeof(uint64_t))
        self.prices = <uint64_t *>calloc(n, sizeof(uint64_t))
        self.roles = <uint8_t *>malloc(n)
        self.turns = <int64_t *>malloc(n * sizeof(int64_t))
        self.turn_tokens = <uint64_t *>malloc(n * sizeof(uint64_t))
        self.turn_stays = <uint8_t *>calloc(n, 1)
        if (
            self.bytes == NULL
            or self.prices == NULL
            or self.roles == NULL
            or self.turns == NULL
            or self.turn_tokens == NULL
            or self.turn_stays == NULL
        ):
            raise MemoryError

    def __dealloc__(self):
        free(self.bytes)
        free(self.prices)
        free(self.roles)
        free(self.turns)
        free(self.turn_tokens)
        free(self.turn_stays)

    def __init__(self, messages, merge_users):
        self._measure()
        self._divide()

    # -- measuring -----------------------------------------------------------------

    cdef int _measure(self) except -1:
        cdef Py_ssize_t i
        for i in range(len(self.messages)):
            if not self._ordinary(i, self.messages[i]):
                self._read(i)
            self.total_bytes += self.bytes[i]
        if self.pending:
            waiting = ", ".join(sorted(map(shown, self.pending))[:8])
            raise TranscriptError(
                f"the transcript ends before every tool call has its result ({waiting})",
                f"messages[{len(self.messages) - 1}]",
            )
        return 0

    cdef bint _ordinary(self, Py_ssize_t i, object message) except -1:
        """Measure a message in place; False, with nothing changed, where the reader must look at it."""
        cdef Py_ssize_t position = 0
        cdef PyObject *key
        cdef PyObject *item
        cdef Role role = NO_MESSAGE
        cdef object content = None  # owned: long text is measured while other threads run
        cdef object calls = None
        cdef object call_id = None
        cdef bint has_calls = False
        cdef bint has_call_id = False
        cdef uint64_t extra = 0
        cdef uint64_t more
        cdef Py_ssize_t left
        if not PyDict_CheckExact(<PyObject *>message):
            return False
        left = len(<dict>message)  # spares the call that finds the end
        while left and PyDict_Next(message, &position, &key, &item):
            left -= 1
            if not PyUnicode_Check(key):
                return False
            if is_key(key, b"role", 4):
                role = role_of(item)
            elif is_key(key, b"content", 7):
                content = <object>item
            elif is_key(key, b"tool_calls", 10):
                calls = <object>item
                has_calls = True
            elif is_key(key, b"tool_call_id", 12):
                call_id = <object>item
                has_call_id = True
            elif is_key(key, b"function_call", 13) and item != Py_None:  # it waits for a result
                return False
            else:
                more = member_length(key, item)
                if more == BAD:
                    return False
                extra += more
        if role == NO_MESSAGE or (has_calls and role != ASSISTANT) or (has_call_id and role != TOOL):
            return False
        return self._weigh(i, role, content, calls, call_id, extra)

    cdef bint _weigh(
        self, Py_ssize_t i, Role role, object content, object calls, object call_id, uint64_t extra
    ) except -1:
        cdef uint64_t length = 4 if content is None else content_length(content)
        cdef uint64_t more = 0
        if length == BAD or (role != TOOL and PySet_GET_SIZE(self.pending)):
            return False
        if role == ASSISTANT:
            if calls is not None:
                more = self._calls_length(calls)
                if more == BAD:
                    self.pending.clear()
                    return False
            if content is None and more == 0:
                return False
            length += ASSISTANT_FRAME + more
        elif content is None:
            return False
        elif role == TOOL:
            more = id_length(<PyObject *>call_id)
            if more == BAD or not PySet_Discard(self.pending, call_id):
                return False
            length += TOOL_FRAME + more
        else:
            length += USER_FRAME if role == USER else SYSTEM_FRAME
        self.bytes[i] = length + extra
        self.roles[i] = role
        return True

    cdef uint64_t _calls_length(self, object calls) except? 0:
        """Bytes of tool calls as the contract writes them, and of what has no place there; BAD where the
        reader must look.  Their ids are pending from now on."""
        cdef Py_ssize_t i
        cdef uint64_t length = 0
        cdef uint64_t more
        if not PyList_CheckExact(<PyObject *>calls):
            return BAD
        for i in range(len(<list>calls)):
            if i >= len(<list>calls):  # another thread shortened it
                return BAD
            more = self._call_length((<list>calls)[i])
            if more == BAD:
                return BAD
            length += more
        if length == 0:
            return 0
        if len(self.pending) != len(<list>calls):
            return BAD
        return length + CALLS_FRAME + <uint64_t>(len(<list>calls) - 1)

    cdef uint64_t _call_length(self, object call) except? 0:
        cdef Py_ssize_t position = 0
        cdef PyObject *key
        cdef PyObject *item
        cdef object function = None
        cdef object call_id = None
        cdef uint64_t length = CALL_FRAME
        cdef uint64_t id_bytes, more
        cdef Py_ssize_t left
        if not PyDict_CheckExact(<PyObject *>call):
            return BAD
        left = len(<dict>call)
        while left and PyDict_Next(call, &position, &key, &item):
            left -= 1
            if not PyUnicode_Check(key):
                return BAD
            if is_key(key, b"id", 2):
                call_id = <object>item
            elif is_key(key, b"function", 8):
                function = <object>item
            elif is_key(key, b"type", 4):
                if not PyUnicode_Check(item) or not is_key(item, b"function", 8):
                    return BAD
            else:
                more = member_length(key, item)
                if more == BAD:
                    return BAD
                length += more
        id_bytes = id_length(<PyObject *>call_id)
        if id_bytes == BAD or not PyDict_CheckExact(<PyObject *>function):
            return BAD
        PySet_Add(self.pending, call_id)
        more = self._function_length(function)
        return BAD if more == BAD else length + more + id_bytes

    cdef uint64_t _function_length(self, object function) except? 0:
        cdef Py_ssize_t position = 0
        cdef PyObject *key
        cdef PyObject *item
        cdef object name = None
        cdef object arguments = None
        cdef uint64_t length = 0
        cdef uint64_t name_bytes, more
        cdef Py_ssize_t left = len(<dict>function)
        while left and PyDict_Next(function, &position, &key, &item):
            left -= 1
            if not PyUnicode_Check(key):
                return BAD
            if is_key(key, b"name", 4):
                name = <object>item
            elif is_key(key, b"arguments", 9):
                arguments = <object>item
            else:
                more = member_length(key, item)
                if more == BAD:
                    return BAD
                length += more
        name_bytes = id_length(<PyObject *>name)
        if name_bytes == BAD or not PyUnicode_CheckExact(<PyObject *>arguments):
            return BAD
        more = self._arguments_length(arguments)
        return BAD if more == BAD else length + more + name_bytes

    cdef uint64_t _arguments_length(self, object arguments) except? 0:
        """Bytes of arguments given as JSON text: of the object it stands for, else of the text."""
        cdef ul_json_result result
        cdef ul_json_status status
        cdef bytes encoded
        if PyUnicode_IS_ASCII(<PyObject *>arguments):
            status = scan(
                <const uint8_t *>PyUnicode_DATA(<PyObject *>arguments),
                <size_t>PyUnicode_GET_LENGTH(<PyObject *>arguments),
                &result,
            )
        else:
            try:
                encoded = (<str>arguments).encode()
            except UnicodeEncodeError:
                return BAD
            status = scan(<const uint8_t *><const char *>encoded, <size_t>len(encoded), &result)
        if status == UL_JSON_OK and result.kind == UL_KIND_OBJECT:
            return result.length
        if status == UL_JSON_SCRATCH:
            raise MemoryError
        self.raw = True
        return value_length(<PyObject *>arguments, 0)

    cdef int _read(self, Py_ssize_t i) except -1:
        """Measure a message by the reader, which raises for a fault; then keep to the order of calls."""
        path = f"messages[{i}]"
        read = read_message(self.messages[i], path)
        role = {SystemMessage: SYSTEM, AssistantMessage: ASSISTANT, ToolMessage: TOOL}.get(type(read.message), USER)
        self.roles[i] = role
        try:
            self.bytes[i] = message_length(read.message) + len(read.extra.encode())
        except JsonValueError as error:
            raise located(error, path) from None
        self.prices[i] = read.parts
        self.parts += read.parts
        self.priced_path = self.priced_path or read.priced_path
        self.raw = self.raw or read.raw
        for call_id in read.answers:
            if call_id not in self.pending:
                raise TranscriptError(f"the result {shown(call_id)} answers no call that is waiting for one", path)
            self.pending.remove(call_id)
        if role != TOOL and PySet_GET_SIZE(self.pending):
            waiting = ", ".join(sorted(map(shown, self.pending))[:8])
            raise TranscriptError(f"a message stands between a tool call and its result ({waiting})", path)
        for call_id in read.asks:
            if call_id in self.pending:
                raise TranscriptError(f"the call id {shown(call_id)} is used twice in one message", path)
            self.pending.add(call_id)
        return 0

    # -- turns ---------------------------------------------------------------------

    cdef int _divide(self) except -1:
        """Give each message its turn.

        A user message opens one; assistant and tool messages belong to the turn
        that is open, or open one where none is; leading system messages belong to
        none, later ones are turns of their own and leave the open one open.
        """
        cdef Py_ssize_t i
        cdef int64_t opened = PREFIX
        cdef Role before = NO_MESSAGE
        cdef Role role = NO_MESSAGE
        cdef Py_ssize_t count = 0
        for i in range(len(self.messages)):
            before = role
            role = <Role>self.roles[i]
            if role == SYSTEM:
                if count == 0:
                    self.turns[i] = PREFIX
                    self.prefix += 1
                else:
                    self.turns[i] = count
                    self.turn_stays[count] = 1
                    count += 1
                continue
            if opened == PREFIX or (role == USER and not (self.merge_users and before == USER)):
                opened = count
                count += 1
            self.turns[i] = opened
        if opened == PREFIX:
            raise TranscriptError("a transcript needs a message that is not a system message", "messages")
        self.turn_count = count
        self.current = opened
        self.turn_stays[opened] = 1
        return 0

    def pin(self, Py_ssize_t turn):
        """Keep a turn whatever happens."""
        if not 0 <= turn < self.turn_count:
            raise IndexError(turn)
        self.turn_stays[turn] = 1

    # -- counting --------------------------------------------------------------------

    def priced_parts(self, Py_ssize_t i):
        """How many image, audio and file parts message `i` has."""
        return self.prices[i]

    def weigh(self, uint64_t price, figures):
        """Add up the tokens of each turn: of the byte heuristic, or the given figure of each message; and a
        price for each image, audio or file part.  Raises CounterOverflow past 2**64 - 1."""
        cdef Py_ssize_t i
        cdef uint64_t tokens
        self.system_tokens = 0
        for i in range(self.turn_count):
            self.turn_tokens[i] = 0
        for i in range(len(self.messages)):
            tokens = (self.bytes[i] + 3) >> 2 if figures is None else figures[i]
            tokens = added(tokens, self.prices[i] * price)
            if self.roles[i] == SYSTEM:
                self.system_tokens = added(self.system_tokens, tokens)
            else:
                self.turn_tokens[self.turns[i]] = added(self.turn_tokens[self.turns[i]], tokens)
        self.current_tokens = self.turn_tokens[self.current]
        self.turn_tokens[self.current] = 0  # counted apart: it is in every candidate

    def trim(self, uint64_t constraint, uint64_t template_tokens, uint64_t reserved, uint64_t window, uint64_t max_counts):
        """Run the kernel.  Returns its status, how many turns went, and the message tokens of each attempt."""
        cdef ul_trim_task task
        task.turns = <size_t>self.turn_count
        task.turn_tokens = self.turn_tokens
        task.turn_protected = self.turn_stays
        task.system = self.system_tokens
        task.current = self.current_tokens
        task.constraint = constraint
        task.template_tokens = template_tokens
        task.reserved = reserved
        task.window = window
        task.max_counts = max_counts
        return trim_turns(&task)

    # -- results -----------------------------------------------------------------------

    def arrays(self):
        """What was found of each message, as bytes: its role, its length, and its turn (-1 for none)."""
        cdef Py_ssize_t n = len(self.messages)
        return ChatArrays(
            (<char *>self.roles)[:n],
            (<char *>self.bytes)[: n * <Py_ssize_t>sizeof(uint64_t)],
            (<char *>self.turns)[: n * <Py_ssize_t>sizeof(int64_t)],
        )

    def removable(self):
        """How many turns may go."""
        cdef Py_ssize_t turn
        cdef Py_ssize_t count = 0
        for turn in range(self.turn_count):
            count += not self.turn_stays[turn]
        return count

    def kept(self, Py_ssize_t removed):
        """The indexes of the messages that stay without the first `removed` turns that may go."""
        cdef bytearray gone = self._gone(removed)
        cdef Py_ssize_t i
        return [i for i in range(len(self.messages)) if self.turns[i] == PREFIX or not gone[self.turns[i]]]

    def without_history(self):
        """The indexes of the system messages and of the current turn."""
        cdef Py_ssize_t i
        return [i for i in range(len(self.messages)) if self.roles[i] == SYSTEM or self.turns[i] == self.current]

    def kept_messages(self, Py_ssize_t removed):
        """Those messages themselves."""
        cdef bytearray gone
        cdef const char *is_gone
        cdef list chosen
        cdef Py_ssize_t i
        cdef Py_ssize_t count = 0
        if removed == 0:
            return list(self.messages)
        gone = self._gone(removed)
        is_gone = gone
        for i in range(len(self.messages)):
            count += self.turns[i] == PREFIX or not is_gone[self.turns[i]]
        chosen = PyList_New(count)
        count = 0
        for i in range(len(self.messages)):
            if self.turns[i] == PREFIX or not is_gone[self.turns[i]]:
                message = self.messages[i]
                Py_INCREF(message)  # which the list takes
                PyList_SET_ITEM(chosen, count, message)
                count += 1
        return chosen

    def selections(self, Py_ssize_t removed):
        """What became of each turn but the current one; its events are the indexes of its messages."""
        cdef bytearray gone = self._gone(removed)
        cdef list events = [[] for _ in range(self.turn_count)]
        cdef Py_ssize_t i
        for i in range(len(self.messages)):
            if self.turns[i] != PREFIX:
                (<list>events[self.turns[i]]).append(str(i))
        return tuple(
            [
                ContextTurnSelection(f"turn-{i}", tuple(events[i]), not gone[i], self.turn_stays[i] != 0)
                for i in range(self.turn_count)
                if i != self.current
            ]
        )

    def current_messages(self):
        """How many messages the current turn has."""
        cdef Py_ssize_t i
        cdef Py_ssize_t count = 0
        for i in range(len(self.messages)):
            count += self.turns[i] == self.current
        return count

    cdef bytearray _gone(self, Py_ssize_t removed):
        cdef bytearray gone = bytearray(self.turn_count)
        cdef char *is_gone = gone
        cdef Py_ssize_t turn = 0
        while removed:
            if not self.turn_stays[turn]:
                is_gone[turn] = 1
                removed -= 1
            turn += 1
        return gone


cdef uint64_t content_length(object content) except? 0:
    """Bytes of content that is text, or text parts joined, as one JSON string; BAD for anything else."""
    cdef uint64_t length = EMPTY_TEXT
    cdef uint64_t more
    cdef Py_ssize_t i
    if PyUnicode_Check(<PyObject *>content):
        return value_length(<PyObject *>content, 0)
    if not PyList_CheckExact(<PyObject *>content):
        return BAD
    for i in range(len(<list>content)):
        if i >= len(<list>content):  # another thread shortened it
            return BAD
        more = text_part_length((<list>content)[i])
        if more == BAD:
            return BAD
        length += more
    return length


cdef uint64_t text_part_length(object part) except? 0:
    """Escaped bytes of a part that holds text and nothing else; BAD for any other."""
    cdef object kind, text
    if not PyDict_CheckExact(<PyObject *>part) or len(<dict>part) != 2:
        return BAD
    kind = (<dict>part).get("type")
    text = (<dict>part).get("text")
    if not PyUnicode_CheckExact(<PyObject *>kind) or not is_key(<PyObject *>kind, b"text", 4):
        return BAD
    return text_length(<PyObject *>text) if PyUnicode_CheckExact(<PyObject *>text) else BAD


cdef inline uint64_t added(uint64_t a, uint64_t b) except? 0:
    cdef uint64_t total = a + b
    if total < a:
        raise CounterOverflow
    return total
