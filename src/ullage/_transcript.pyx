# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A growing conversation as arrays: role, bytes and tokens of each message; start, tokens and pin of each turn.

Beside them stand the sums that a build asks for, so that its limits are checked
without a look at the messages.

Every change is one step for other threads: what is read, measured or allocated
for it comes first; from the first look at the transcript's state to the last
store no Python code runs and nothing is made that the garbage collector tracks,
so that the interpreter's lock keeps everyone else out.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_Append, PyList_GET_ITEM, PyList_SetSlice
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from ullage._core cimport (
    ASSISTANT,
    NO_MESSAGE,
    SYSTEM,
    TOOL,
    USER,
    Role,
    message_bytes,
    slot,
    slot_offset,
    value_length,
)
from ullage._trim cimport trim_turns
from ullage.native cimport UL_NOT_TEXT, ul_trim_task, ul_u64_length

from ullage._core import json_length, message_length
from ullage.blank import is_blank
from ullage.canonical import located
from ullage.counting import token_figure
from ullage.errors import CounterFailed, CounterOverflow, InvalidShape, JsonValueError, TranscriptError
from ullage.history import GroupKind, ProjectedTurn, ProjectionGroup, TurnState
from ullage.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from ullage.report import ContextTurnSelection
from ullage.shape import check_messages

cdef extern from "Python.h":
    bint PyDict_Check(PyObject *o)
    PyObject *Py_None
    Py_ssize_t PySet_GET_SIZE(object anyset)
    int PySet_Discard(object anyset, object key) except -1
    object PyUnicode_FromObject(PyObject *o)

cdef uint64_t BAD = UL_NOT_TEXT

cdef Py_ssize_t ASSISTANT_CONTENT = slot_offset(AssistantMessage, "content")
cdef Py_ssize_t ASSISTANT_CALLS = slot_offset(AssistantMessage, "tool_calls")
cdef Py_ssize_t TOOL_CALL_ID = slot_offset(ToolMessage, "call_id")
cdef Py_ssize_t CALL_ID = slot_offset(ToolCall, "id")
cdef Py_ssize_t CALL_NAME = slot_offset(ToolCall, "name")
cdef Py_ssize_t CALL_ARGUMENTS = slot_offset(ToolCall, "arguments")

# Turns and groups of the history that a transcript stands for, as JSON, but for numbers, ids and messages.
cdef uint64_t TURN_FRAME = json_length(ProjectedTurn("turn-", TurnState.COMPLETED, None, False))
cdef uint64_t USER_FRAME = json_length(ProjectionGroup("turn-", GroupKind.USER, (), ()))
cdef uint64_t ASSISTANT_FRAME = json_length(ProjectionGroup("turn-", GroupKind.ASSISTANT, (), ()))
cdef uint64_t EXCHANGE_FRAME = json_length(ProjectionGroup("turn-", GroupKind.TOOL_EXCHANGE, (), ()))
cdef uint64_t PIN_FRAME = json_length("turn-")

cdef str MISSING_RESULTS = "model context is missing one or more tool results"

cdef struct Row:
    uint64_t bytes
    uint64_t tokens
    uint8_t role
    bint asks  # it holds tool calls

# In the array of roles: the message holds tool calls.
cdef uint8_t ASKS = 0x80


cdef inline uint64_t commas(Py_ssize_t items) noexcept:
    return <uint64_t>(items - 1) if items else 0


# --- messages before they stand anywhere --------------------------------------------


cdef class Measured:
    """Messages with what is known of each by itself.

    A token for four bytes until ``price`` puts a counter's figures in.
    """

    cdef readonly tuple messages
    cdef readonly bint sound  # each of them may stand in a transcript
    cdef Py_ssize_t count
    cdef Row *rows
    cdef list ids  # the set of ids that an assistant message asks for, the one id that a result answers

    def __cinit__(self, tuple messages not None, bytes lengths=None, bytes tokens=None):
        """Measure the messages, or take figures that were found before: unsigned 64-bit, one a message."""
        self.messages = messages
        self.count = len(messages)
        self.rows = <Row *>PyMem_Malloc((self.count + 1) * sizeof(Row))
        if self.rows == NULL:
            raise MemoryError
        self.ids = [None] * self.count
        if lengths is None:
            self.sound = self._read(NULL, NULL)
        elif len(lengths) == len(tokens) == self.count * <Py_ssize_t>sizeof(uint64_t):
            self.sound = self._read(<const char *>lengths, <const char *>tokens)
        else:
            raise ValueError("one length and one token figure for each message")

    def __dealloc__(self):
        PyMem_Free(self.rows)

    cdef bint _read(self, const char *lengths, const char *tokens) except -1:
        cdef PyObject *message
        cdef Row *row
        cdef Role role
        cdef Py_ssize_t i
        for i in range(self.count):
            message = <PyObject *>self.messages[i]
            row = &self.rows[i]
            if lengths == NULL:
                row.bytes = message_bytes(message, &role)
                row.tokens = (row.bytes + 3) >> 2
            else:
                role = role_of(self.messages[i])
                memcpy(&row.bytes, lengths + i * <Py_ssize_t>sizeof(uint64_t), sizeof(uint64_t))
                memcpy(&row.tokens, tokens + i * <Py_ssize_t>sizeof(uint64_t), sizeof(uint64_t))
            if row.bytes == BAD or role == NO_MESSAGE or role == SYSTEM:
                return False
            row.role = role
            row.asks = False
            if role == TOOL:
                self.ids[i] = exact_text(slot(message, TOOL_CALL_ID))
            elif role == ASSISTANT and not self._read_calls(i, message):
                return False
        return True

    cdef bint _read_calls(self, Py_ssize_t i, PyObject *message) except -1:
        cdef tuple calls = <tuple?>slot(message, ASSISTANT_CALLS)
        cdef PyObject *call
        cdef set ids
        if not calls:
            return slot(message, ASSISTANT_CONTENT) != Py_None
        ids = set()
        for item in calls:
            call = <PyObject *>item
            if is_blank(<object>slot(call, CALL_NAME)) or not PyDict_Check(slot(call, CALL_ARGUMENTS)):
                return False
            ids.add(exact_text(slot(call, CALL_ID)))
        self.ids[i] = ids
        self.rows[i].asks = True
        return len(ids) == len(calls)

    def price(self, message_tokens):
        """Take a counter's figure for each message.  Raises ValueError for one that is not unsigned 64-bit."""
        cdef Py_ssize_t i
        for i in range(self.count):
            self.rows[i].tokens = token_figure(message_tokens(self.messages[i]), "message_tokens")

    cdef bint in_order(self, set waiting) except -1:
        """Whether the messages may follow calls that wait for results.

        ``waiting`` then holds the ids that wait after them.  Runs no Python code.
        """
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.rows[i].role == TOOL:
                if not PySet_Discard(waiting, self.ids[i]):
                    return False
            elif PySet_GET_SIZE(waiting):
                return False
            elif self.rows[i].asks:
                waiting |= <set>self.ids[i]
        return True

    def is_current(self):
        """Whether the messages may be the current ones of a build."""
        cdef set waiting = set()
        return (
            self.sound
            and self.count > 0
            and self.rows[0].role == USER
            and self.in_order(waiting)
            and PySet_GET_SIZE(waiting) == 0
        )

    def total_tokens(self):
        """The sum over the messages.  Raises CounterOverflow."""
        cdef uint64_t total = 0
        cdef Py_ssize_t i
        for i in range(self.count):
            if total + self.rows[i].tokens < total:
                raise CounterOverflow
            total += self.rows[i].tokens
        return total


cdef Role role_of(object message) except *:
    cdef object cls = type(message)
    if cls is UserMessage:
        return USER
    if cls is AssistantMessage:
        return ASSISTANT
    return TOOL if cls is ToolMessage else NO_MESSAGE


cdef object exact_text(PyObject *text):
    """A str of no subclass, so that comparing it runs no code of the caller's."""
    return PyUnicode_FromObject(text)


cdef object fault(list before, tuple added):
    """The error for the first message that may not follow those before it."""
    cdef object found = None
    cdef list sound = list(before)
    for message in added:
        path = f"messages[{len(sound)}]"
        if type(message) is SystemMessage:
            found = TranscriptError("a transcript holds no system message: give its text as system=(...)", path)
        elif role_of(message) == NO_MESSAGE:
            found = TypeError(f"{path} must be a message, not {type(message).__name__}")
        else:
            try:
                message_length(message)
            except JsonValueError as error:
                found = located(error, path)
        if found is not None:
            break
        sound.append(message)
    try:
        check_messages(sound or [UserMessage("")])
    except InvalidShape as error:
        if error.reason != MISSING_RESULTS:  # which may still come
            return TranscriptError(error.reason, error.path)
    return found or TranscriptError("changed while it was measured", f"messages[{len(before)}]")


# --- the transcript -------------------------------------------------------------------


cdef class Store:
    """The arrays of one transcript."""

    # Only ever added to: a snapshot shares it.  Where turns go, another list takes its place.
    cdef list messages
    cdef set waiting  # ids of calls without result
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef uint64_t *lengths  # bytes of JSON
    cdef uint64_t *tokens
    cdef uint8_t *roles
    cdef Py_ssize_t turns
    cdef Py_ssize_t turn_capacity
    cdef int64_t *starts  # of each turn, the index of its first message
    cdef uint64_t *turn_tokens
    cdef uint8_t *pins  # zero past the last turn
    cdef Py_ssize_t groups
    cdef uint64_t history_bytes  # of groups and turns without the commas between them
    cdef Py_ssize_t pinned
    cdef uint64_t pinned_bytes  # of the ids of pinned turns, likewise

    def __cinit__(self):
        self.messages = []
        self.waiting = set()

    def __dealloc__(self):
        PyMem_Free(self.lengths)
        PyMem_Free(self.tokens)
        PyMem_Free(self.roles)
        PyMem_Free(self.starts)
        PyMem_Free(self.turn_tokens)
        PyMem_Free(self.pins)

    def __len__(self):
        return self.count

    @property
    def turn_count(self):
        return self.turns

    @property
    def nbytes(self):
        """Bytes of the arrays as allocated, of the list of messages, and of the ids that wait."""
        return (
            self.capacity * <Py_ssize_t>(2 * sizeof(uint64_t) + 1)
            + self.turn_capacity * <Py_ssize_t>(2 * sizeof(uint64_t) + 1)
            + self.messages.__sizeof__()
            + self.waiting.__sizeof__()
            + self.__sizeof__()
        )

    # -- changes ----------------------------------------------------------------------

    def put(self, Measured added not None, bint replace=False):
        """Put messages after the last one, or in the place of the last turn; all of them or none.

        Returns the messages that gave way.  No messages in the place of a turn remove it.

        Raises IndexError where there is no turn to replace, TranscriptError, TypeError or JsonValueError for
        the first message that may not stand there, and CounterFailed where a turn's tokens pass 2**64 - 1.
        """
        cdef set waiting = set()
        cdef list others = [] if replace else None
        cdef list known
        cdef Py_ssize_t count, turns, before
        # From here to the last store: see the top of this file.
        known = self.messages
        before = count = self.count
        turns = self.turns
        if replace:
            if turns == 0:
                raise IndexError("the transcript has no turn")
            turns -= 1
            count = self.starts[turns]
        else:
            others = known
            waiting |= self.waiting
        if replace and turns and added.count and added.sound and added.rows[0].role != USER:
            raise TranscriptError("a turn begins with a user message", f"messages[{count}]")
        if not (added.sound and added.in_order(waiting)):
            raise fault(known[:count], added.messages)
        self._check_sums(added, turns, replace)
        self._reserve(count + added.count, turns + added.count)
        if replace:
            for i in range(count):
                PyList_Append(others, <object>PyList_GET_ITEM(known, i))
        PyList_SetSlice(others, count, count, added.messages)
        if replace:
            self._forget(turns, count, added.count > 0)
        self._enter(added)
        self._give_back()
        self.messages = others
        self.waiting = waiting
        return known[count:before] if replace else []

    cdef int _check_sums(self, Measured added, Py_ssize_t turns, bint replace) except -1:
        """Raise where the tokens of a turn would overflow."""
        cdef uint64_t total = 0
        cdef Py_ssize_t i
        if turns and not replace:
            total = self.turn_tokens[turns - 1]
        for i in range(added.count):
            if added.rows[i].role == USER:
                total = 0
            if total + added.rows[i].tokens < total:
                raise CounterFailed(str(CounterOverflow())) from CounterOverflow()
            total += added.rows[i].tokens
        return 0

    cdef int _reserve(self, Py_ssize_t count, Py_ssize_t turns) except -1:
        cdef Py_ssize_t capacity
        if count > self.capacity:
            capacity = roomier(self.capacity, count)
            self.lengths = <uint64_t *>resized(self.lengths, capacity, sizeof(uint64_t))
            self.tokens = <uint64_t *>resized(self.tokens, capacity, sizeof(uint64_t))
            self.roles = <uint8_t *>resized(self.roles, capacity, sizeof(uint8_t))
            self.capacity = capacity
        if turns > self.turn_capacity:
            capacity = roomier(self.turn_capacity, turns)
            self.starts = <int64_t *>resized(self.starts, capacity, sizeof(int64_t))
            self.turn_tokens = <uint64_t *>resized(self.turn_tokens, capacity, sizeof(uint64_t))
            self.pins = <uint8_t *>resized(self.pins, capacity, sizeof(uint8_t))
            memset(self.pins + self.turn_capacity, 0, capacity - self.turn_capacity)
            self.turn_capacity = capacity
        return 0

    cdef void _give_back(self) noexcept:
        """Shrink arrays that removals have left too large."""
        cdef Py_ssize_t capacity
        if self.capacity > roomier(self.count, 0):
            capacity = roomier(self.count, 0)
            self.lengths = <uint64_t *>shrunk(self.lengths, capacity, sizeof(uint64_t))
            self.tokens = <uint64_t *>shrunk(self.tokens, capacity, sizeof(uint64_t))
            self.roles = <uint8_t *>shrunk(self.roles, capacity, sizeof(uint8_t))
            self.capacity = capacity
        if self.turn_capacity > roomier(self.turns, 0):
            capacity = roomier(self.turns, 0)
            self.starts = <int64_t *>shrunk(self.starts, capacity, sizeof(int64_t))
            self.turn_tokens = <uint64_t *>shrunk(self.turn_tokens, capacity, sizeof(uint64_t))
            self.pins = <uint8_t *>shrunk(self.pins, capacity, sizeof(uint8_t))
            self.turn_capacity = capacity

    cdef void _forget(self, Py_ssize_t turn, Py_ssize_t start, bint keep_pin) noexcept:
        """Take the last turn out of all figures; its pin may stay for the one that follows."""
        cdef Py_ssize_t i
        for i in range(start, self.count):
            self.history_bytes -= self._group_share(i, turn)
            self.groups -= (self.roles[i] & ~ASKS) != TOOL
        self.history_bytes -= TURN_FRAME + ul_u64_length(turn)
        if not keep_pin:
            self.set_pin(turn, False)
        self.count = start
        self.turns = turn

    cdef void _enter(self, Measured added) noexcept:
        cdef Py_ssize_t i
        cdef Py_ssize_t turn = self.turns - 1
        cdef Row *row
        for i in range(added.count):
            row = &added.rows[i]
            if row.role == USER or turn < 0:
                turn += 1
                self.starts[turn] = self.count
                self.turn_tokens[turn] = 0
                self.history_bytes += TURN_FRAME + ul_u64_length(turn)
            self.lengths[self.count] = row.bytes
            self.tokens[self.count] = row.tokens
            self.roles[self.count] = row.role | (ASKS if row.asks else 0)
            self.turn_tokens[turn] += row.tokens
            self.history_bytes += self._group_share(self.count, turn)
            self.groups += row.role != TOOL
            self.count += 1
        self.turns = turn + 1

    cdef uint64_t _group_share(self, Py_ssize_t i, Py_ssize_t turn) noexcept:
        """Bytes that a message brings to the groups: it opens one, or is a result in the one that is open."""
        cdef uint64_t index = ul_u64_length(i) + 2
        cdef uint8_t role = self.roles[i]
        cdef uint64_t frame
        if role == TOOL:
            return self.lengths[i] + index + 2  # a comma before the message, one before the event
        if role == USER:
            frame = USER_FRAME
        else:
            frame = EXCHANGE_FRAME if role & ASKS else ASSISTANT_FRAME
        return frame + ul_u64_length(turn) + index + self.lengths[i]

    def pin(self, Py_ssize_t turn, bint pinned):
        """Mark a turn to stay, or not.  Raises IndexError."""
        if not 0 <= turn < self.turns:
            raise IndexError(turn)
        self.set_pin(turn, pinned)

    cdef void set_pin(self, Py_ssize_t turn, bint pinned) noexcept:
        cdef uint64_t length = PIN_FRAME + ul_u64_length(turn)
        if pinned and not self.pins[turn]:
            self.pinned += 1
            self.pinned_bytes += length
        elif self.pins[turn] and not pinned:
            self.pinned -= 1
            self.pinned_bytes -= length
        self.pins[turn] = pinned

    # -- looks ------------------------------------------------------------------------

    def snapshot(self):
        """The transcript as it is now."""
        cdef Snapshot past = Snapshot.__new__(Snapshot)
        cdef size_t turns = self.turns
        past.tokens = <uint64_t *>PyMem_Malloc(turns * (2 * sizeof(uint64_t) + 1) + 1)
        if past.tokens == NULL:
            raise MemoryError
        past.starts = <int64_t *>(past.tokens + turns)
        past.pins = <uint8_t *>(past.starts + turns)
        if turns:
            memcpy(past.tokens, self.turn_tokens, turns * sizeof(uint64_t))
            memcpy(past.starts, self.starts, turns * sizeof(int64_t))
            memcpy(past.pins, self.pins, turns)
        past.known = self.messages
        past.count = self.count
        past.turns = turns
        past.groups = self.groups
        past.complete = PySet_GET_SIZE(self.waiting) == 0
        past.history_bytes = self.history_bytes + commas(self.groups) + commas(self.turns)
        past.pins_bytes = self.pinned_bytes + commas(self.pinned)
        return past

    def columns(self):
        """Messages, and copies of the arrays: roles, lengths, tokens, pins, starts, tokens of turns."""
        cdef bytes roles = copied(self.roles, self.count)
        cdef bytes lengths = copied(self.lengths, self.count * sizeof(uint64_t))
        cdef bytes tokens = copied(self.tokens, self.count * sizeof(uint64_t))
        cdef bytes pins = copied(self.pins, self.turns)
        cdef bytes starts = copied(self.starts, self.turns * sizeof(int64_t))
        cdef bytes turn_tokens = copied(self.turn_tokens, self.turns * sizeof(uint64_t))
        cdef list known = self.messages
        cdef char *role = PyBytes_AS_STRING(roles)
        cdef Py_ssize_t i
        for i in range(len(roles)):
            role[i] = role[i] & 0x7F
        return tuple(known[: len(roles)]), roles, lengths, tokens, pins, starts, turn_tokens


cdef Py_ssize_t roomier(Py_ssize_t items, Py_ssize_t wanted) noexcept:
    # By a half, not to the double: a transcript of one message a turn stays within 64 bytes a message.
    return max(wanted, items + items // 2, 8)


cdef void *resized(void *memory, Py_ssize_t items, size_t size) except NULL:
    cdef void *moved = PyMem_Realloc(memory, items * size)
    if moved == NULL:
        raise MemoryError
    return moved


cdef void *shrunk(void *memory, Py_ssize_t items, size_t size) noexcept:
    cdef void *moved = PyMem_Realloc(memory, items * size)
    return memory if moved == NULL else moved


cdef bytes copied(const void *memory, size_t size):
    return PyBytes_FromStringAndSize(<const char *>memory, size) if size else b""


# --- one moment of it -------------------------------------------------------------------


cdef class Snapshot:
    """A transcript as it was at one moment.  Shares its messages, copies what may change of its turns."""

    cdef list known  # of which the first `count` are meant
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t turns
    cdef readonly Py_ssize_t groups
    cdef readonly bint complete  # no call waits for its result
    cdef readonly uint64_t history_bytes  # of groups and turns, without their brackets
    cdef readonly uint64_t pins_bytes  # of the ids of pinned turns, likewise
    cdef uint64_t *tokens  # owns the memory of the other two
    cdef int64_t *starts
    cdef uint8_t *pins

    def __dealloc__(self):
        PyMem_Free(self.tokens)

    def input_bytes(self, uint64_t fixed, Measured current not None, target, state_version):
        """Bytes of the build input that limits look at, or None where a part has no JSON form.

        ``fixed`` is what there would be without turns, pins, current messages, texts of the target and state
        version.
        """
        cdef uint64_t total = fixed + self.history_bytes + self.pins_bytes
        cdef uint64_t length
        cdef Py_ssize_t i
        if not current.sound:
            return None
        for i in range(current.count):
            total += current.rows[i].bytes
        total += commas(current.count)
        if self.count:
            # The index of the last message, as text, in the place of null; the number of messages in that of 0.
            total += ul_u64_length(self.count - 1) + 2 + ul_u64_length(self.count)
            total -= 4 + 1
        for text in (target.model, target.template_revision, state_version):
            length = value_length(<PyObject *>text, 0)
            if length == BAD:
                return None
            total += length
        return total

    def trim(
        self,
        uint64_t system,
        uint64_t current,
        uint64_t constraint,
        uint64_t template_tokens,
        uint64_t reserved,
        uint64_t window,
        uint64_t max_counts,
    ):
        """Run the kernel.  Returns its status, how many turns went, and the message tokens of each attempt."""
        cdef ul_trim_task task
        task.turns = <size_t>self.turns
        task.turn_tokens = self.tokens
        task.turn_protected = self.pins
        task.system = system
        task.current = current
        task.constraint = constraint
        task.template_tokens = template_tokens
        task.reserved = reserved
        task.window = window
        task.max_counts = max_counts
        return trim_turns(&task)

    def total_tokens(self, uint64_t current):
        """The message tokens of the whole request.  Raises CounterOverflow."""
        cdef uint64_t total = current
        cdef Py_ssize_t turn
        for turn in range(self.turns):
            if total + self.tokens[turn] < total:
                raise CounterOverflow
            total += self.tokens[turn]
        return total

    def kept(self, Py_ssize_t removed=0):
        """The messages of the turns that stay without the first `removed` that are not pinned."""
        cdef list chosen = []
        cdef Py_ssize_t turn, i
        for turn in range(self.turns):
            if removed and not self.pins[turn]:
                removed -= 1
                continue
            for i in range(self.starts[turn], self._end(turn)):
                chosen.append(self.known[i])
        return chosen

    def selections(self, Py_ssize_t removed):
        """What became of each turn; its events are the indexes of its messages."""
        cdef list chosen = []
        cdef Py_ssize_t turn, i
        cdef bint gone
        for turn in range(self.turns):
            gone = removed > 0 and not self.pins[turn]
            removed -= gone
            events = tuple([str(i) for i in range(self.starts[turn], self._end(turn))])
            chosen.append(ContextTurnSelection(f"turn-{turn}", events, not gone, self.pins[turn] != 0))
        return tuple(chosen)

    def bounds(self):
        """The index of the first message of each turn, and the number of messages."""
        cdef Py_ssize_t turn
        return [*[self.starts[turn] for turn in range(self.turns)], self.count]

    def pinned_turns(self):
        """The ids of the pinned turns."""
        cdef Py_ssize_t turn
        return tuple([f"turn-{turn}" for turn in range(self.turns) if self.pins[turn]])

    cdef Py_ssize_t _end(self, Py_ssize_t turn) noexcept:
        return self.starts[turn + 1] if turn + 1 < self.turns else self.count
