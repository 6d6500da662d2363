# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A build input as arrays: one figure a turn, ready for the trimming kernel.

Encoding accepts what is plainly right and says nothing of the rest: where any
rule of the contract might be broken it gives None, and the ordered checks in
ullage.contract decide which fault it is.
"""

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from ullage._core cimport (
    ASSISTANT,
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
from ullage.native cimport (
    UL_NOT_TEXT,
    ul_trim_task,
)

from ullage._core import json_length
from ullage.blank import is_blank
from ullage.budget import TokenBoundEvidence, TokenBudgetMode
from ullage.canonical import U64_MAX
from ullage.contract import PROJECTION_VERSION
from ullage.counting import token_figure
from ullage.errors import CounterOverflow, InvalidShape, JsonValueError
from ullage.history import GroupKind, OmissionReason, OmittedEvent, ProjectedTurn, ProjectionGroup, TurnState
from ullage.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage
from ullage.report import ContextTurnSelection
from ullage.shape import check_constraint

cdef extern from "Python.h":
    bint PyUnicode_Check(PyObject *o)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject *s)
    uint32_t PyUnicode_READ_CHAR(PyObject *s, Py_ssize_t i)
    bint PyDict_Check(PyObject *o)
    PyTypeObject *Py_TYPE(PyObject *o)
    PyObject *Py_None

cdef uint64_t BAD = UL_NOT_TEXT

cdef Py_ssize_t GROUP_TURN = slot_offset(ProjectionGroup, "turn_id")
cdef Py_ssize_t GROUP_KIND = slot_offset(ProjectionGroup, "kind")
cdef Py_ssize_t GROUP_EVENTS = slot_offset(ProjectionGroup, "source_events")
cdef Py_ssize_t GROUP_MESSAGES = slot_offset(ProjectionGroup, "messages")
cdef Py_ssize_t TURN_ID = slot_offset(ProjectedTurn, "turn_id")
cdef Py_ssize_t TURN_STATE = slot_offset(ProjectedTurn, "state")
cdef Py_ssize_t TURN_TERMINAL = slot_offset(ProjectedTurn, "terminal_event")
cdef Py_ssize_t TURN_MISSING = slot_offset(ProjectedTurn, "missing_complete_reply")
cdef Py_ssize_t OMITTED_ID = slot_offset(OmittedEvent, "event_id")
cdef Py_ssize_t OMITTED_SEQ = slot_offset(OmittedEvent, "seq")
cdef Py_ssize_t OMITTED_REASON = slot_offset(OmittedEvent, "reason")
cdef Py_ssize_t ASSISTANT_CONTENT = slot_offset(AssistantMessage, "content")
cdef Py_ssize_t ASSISTANT_CALLS = slot_offset(AssistantMessage, "tool_calls")
cdef Py_ssize_t TOOL_CALL_ID = slot_offset(ToolMessage, "call_id")
cdef Py_ssize_t CALL_ID = slot_offset(ToolCall, "id")
cdef Py_ssize_t CALL_NAME = slot_offset(ToolCall, "name")
cdef Py_ssize_t CALL_ARGUMENTS = slot_offset(ToolCall, "arguments")

cdef uint64_t SYSTEM_FRAME = len('{"role":"system","content":}')
cdef uint64_t GROUP_FRAME = len('{"turn_id":,"kind":"","source_events":,"messages":[]}')
cdef uint64_t TURN_FRAME = len('{"turn_id":,"state":"","terminal_event":,"missing_complete_reply":}')
cdef uint64_t OMITTED_FRAME = len('{"event_id":,"seq":,"reason":""}')
cdef uint64_t HISTORY_FRAME = len(
    '{"algorithm_version":,"session_id":,"source_tail":,"source_event_count":,"config":,'
    '"groups":[],"turns":[],"omitted":[]}'
)

cdef class Labels:
    """The members of an enum, and how many bytes each takes in JSON, without quotes."""

    cdef tuple members
    cdef uint64_t lengths[8]

    def __cinit__(self, enum):
        self.members = tuple(enum)
        for i, member in enumerate(self.members):
            self.lengths[i] = len(member.value)

    cdef uint64_t length(self, PyObject *member) noexcept:
        """BAD for what is not a member."""
        cdef Py_ssize_t i
        for i in range(len(self.members)):
            if <PyObject *>self.members[i] == member:
                return self.lengths[i]
        return BAD


cdef Labels KINDS = Labels(GroupKind)
cdef Labels STATES = Labels(TurnState)
cdef Labels REASONS = Labels(OmissionReason)
cdef object OPEN = TurnState.OPEN
cdef object USER_GROUP = GroupKind.USER
cdef object ASSISTANT_GROUP = GroupKind.ASSISTANT
cdef object EXCHANGE = GroupKind.TOOL_EXCHANGE


cdef bint is_text(PyObject *value):
    """A str that is not blank.  Most begin with a visible ASCII character."""
    if not PyUnicode_Check(value) or PyUnicode_GET_LENGTH(value) == 0:
        return False
    if 0x21 <= PyUnicode_READ_CHAR(value, 0) <= 0x7E:
        return True
    return not is_blank(<object>value)


cdef class EncodedBuild:
    """One build input.  Figures are tokens; turns and groups keep the order of the history."""

    cdef tuple system, groups, turns, current
    cdef uint64_t input_bytes
    cdef uint64_t *turn_tokens
    cdef uint8_t *turn_pinned
    cdef Py_ssize_t *group_turn
    cdef readonly uint64_t system_tokens, current_tokens

    def __dealloc__(self):
        free(self.turn_tokens)
        free(self.turn_pinned)
        free(self.group_turn)

    # -- encoding: each step returns False where the ordered checks must look ----

    cdef bint _encode(self, object input) except -1:
        cdef object history = input.history
        cdef object limits = input.limits
        cdef dict order = {}
        self.system = tuple(input.system)
        self.current = tuple(input.current)
        self.groups = tuple(history.groups)
        self.turns = tuple(history.turns)
        self.turn_tokens = <uint64_t *>calloc(len(self.turns) + 1, sizeof(uint64_t))
        self.turn_pinned = <uint8_t *>calloc(len(self.turns) + 1, sizeof(uint8_t))
        self.group_turn = <Py_ssize_t *>malloc((len(self.groups) + 1) * sizeof(Py_ssize_t))
        if self.turn_tokens == NULL or self.turn_pinned == NULL or self.group_turn == NULL:
            raise MemoryError
        if max(len(self.groups), len(self.turns)) > limits.max_groups:
            return False
        self.input_bytes = 8  # the brackets and commas of the array of seven parts
        return (
            history.algorithm_version == PROJECTION_VERSION
            and self._add_system()
            and self._add_turns(order)
            and self._add_groups(order)
            and self._add_omitted(tuple(history.omitted))
            and self._add_current()
            and self._add_pins(order, tuple(input.pinned_turns))
            and self._add_rest(input, history)
            and self.input_bytes <= limits.max_input_bytes
        )

    cdef bint _add(self, uint64_t length) noexcept:
        self.input_bytes += length
        return length != BAD

    cdef bint _add_system(self) except -1:
        cdef uint64_t length
        self.input_bytes += 2 + <uint64_t>max(len(self.system) - 1, 0)
        for text in self.system:
            length = value_length(<PyObject *>text, 0)
            if not PyUnicode_Check(<PyObject *>text) or not self._add(length):
                return False
            self.system_tokens += (length + SYSTEM_FRAME + 3) >> 2
        return True

    cdef bint _add_turns(self, dict order) except -1:
        cdef PyObject *turn
        cdef Py_ssize_t i
        self.input_bytes += <uint64_t>max(len(self.turns) - 1, 0)
        for i in range(len(self.turns)):
            turn = <PyObject *>self.turns[i]
            if Py_TYPE(turn) != <PyTypeObject *>ProjectedTurn or not is_text(slot(turn, TURN_ID)):
                return False
            if slot(turn, TURN_STATE) == <PyObject *>OPEN:
                return False
            if not (
                self._add(value_length(slot(turn, TURN_ID), 0))
                and self._add(STATES.length(slot(turn, TURN_STATE)))
                and self._add(value_length(slot(turn, TURN_TERMINAL), 0))
                and self._add(value_length(slot(turn, TURN_MISSING), 0))
            ):
                return False
            order[<object>slot(turn, TURN_ID)] = i
        self.input_bytes += TURN_FRAME * <uint64_t>len(self.turns)
        return len(order) == len(self.turns)

    cdef bint _add_groups(self, dict order) except -1:
        cdef PyObject *group
        cdef PyObject *index
        cdef Py_ssize_t i, turn
        cdef Py_ssize_t last = 0
        cdef object previous = None
        self.input_bytes += <uint64_t>max(len(self.groups) - 1, 0)
        for i in range(len(self.groups)):
            group = <PyObject *>self.groups[i]
            if Py_TYPE(group) != <PyTypeObject *>ProjectionGroup:
                return False
            if not PyUnicode_Check(slot(group, GROUP_TURN)):
                return False
            index = PyDict_GetItem(order, <object>slot(group, GROUP_TURN))
            if index == NULL:
                return False
            turn = <object>index
            if turn < last or not self._add_group(group, turn):
                return False
            self.group_turn[i] = turn
            last = turn
        self.input_bytes += GROUP_FRAME * <uint64_t>len(self.groups)
        return True

    cdef bint _add_group(self, PyObject *group, Py_ssize_t turn) except -1:
        cdef object events = <object>slot(group, GROUP_EVENTS)
        cdef tuple messages = tuple(<object>slot(group, GROUP_MESSAGES))
        cdef PyObject *kind = slot(group, GROUP_KIND)
        cdef Role role
        cdef uint64_t length
        if not isinstance(events, (tuple, list)) or not events:
            return False
        if kind == <PyObject *>EXCHANGE:
            if not _is_exchange(messages):
                return False
        elif len(messages) != 1:
            return False
        if not (
            self._add(value_length(slot(group, GROUP_TURN), 0))
            and self._add(KINDS.length(kind))
            and self._add(value_length(<PyObject *>events, 0))
        ):
            return False
        for message in messages:
            length = message_bytes(<PyObject *>message, &role)
            if not self._add(length):
                return False
            self.turn_tokens[turn] += (length + 3) >> 2
        self.input_bytes += <uint64_t>(len(messages) - 1)
        if kind == <PyObject *>USER_GROUP:
            return role == USER
        if kind == <PyObject *>ASSISTANT_GROUP:
            message = messages[0]
            return (
                role == ASSISTANT
                and slot(<PyObject *>message, ASSISTANT_CONTENT) != Py_None
                and not <object>slot(<PyObject *>message, ASSISTANT_CALLS)
            )
        return True

    cdef bint _add_omitted(self, tuple omitted) except -1:
        cdef PyObject *event
        self.input_bytes += <uint64_t>max(len(omitted) - 1, 0) + OMITTED_FRAME * <uint64_t>len(omitted)
        for item in omitted:
            event = <PyObject *>item
            if Py_TYPE(event) != <PyTypeObject *>OmittedEvent:
                return False
            if not (
                self._add(value_length(slot(event, OMITTED_ID), 0))
                and self._add(value_length(slot(event, OMITTED_SEQ), 0))
                and self._add(REASONS.length(slot(event, OMITTED_REASON)))
            ):
                return False
        return True

    cdef bint _add_current(self) except -1:
        cdef Role role
        cdef uint64_t length
        cdef PyObject *message
        cdef set pending = set()
        cdef Py_ssize_t i
        self.input_bytes += 2 + <uint64_t>max(len(self.current) - 1, 0)
        for i in range(len(self.current)):
            message = <PyObject *>self.current[i]
            length = message_bytes(message, &role)
            if not self._add(length) or role == SYSTEM or (i == 0 and role != USER):
                return False
            self.current_tokens += (length + 3) >> 2
            if role == TOOL:
                if <object>slot(message, TOOL_CALL_ID) not in pending:
                    return False
                pending.remove(<object>slot(message, TOOL_CALL_ID))
            elif pending:
                return False
            elif role == ASSISTANT and not _ask(message, pending):
                return False
        return len(self.current) > 0 and not pending

    cdef bint _add_pins(self, dict order, tuple pins) except -1:
        cdef Py_ssize_t turn
        self.input_bytes += value_length(<PyObject *>pins, 0)
        for pin in pins:
            if not isinstance(pin, str) or pin not in order:
                return False
            turn = order[pin]
            if self.turn_pinned[turn]:
                return False
            self.turn_pinned[turn] = 1
        return True

    cdef bint _add_rest(self, object input, object history) except -1:
        cdef object budget = input.budget
        cdef object limits = input.limits
        cdef object target = input.target
        cdef Py_ssize_t messages = len(self.system) + len(self.current)
        for group in self.groups:
            messages += len(<object>slot(<PyObject *>group, GROUP_MESSAGES))
        if messages > limits.max_messages or 0 in (
            limits.max_input_bytes,
            limits.max_groups,
            limits.max_messages,
            limits.max_count_calls,
            budget.window_tokens,
            budget.output_reserve,
        ):
            return False
        if budget.mode is TokenBudgetMode.HARD and (
            budget.output_evidence is not TokenBoundEvidence.VERIFIED_UPPER_BOUND
        ):
            return False
        if budget.output_reserve + budget.safety_margin > U64_MAX:
            return False
        if not is_text(<PyObject *>target.model) or not is_text(<PyObject *>target.template_revision):
            return False
        try:
            check_constraint(input.constraint)
        except (InvalidShape, TypeError):
            return False
        self.input_bytes += HISTORY_FRAME
        for part in (
            history.algorithm_version,
            history.session_id,
            history.source_tail,
            history.source_event_count,
            input.state_version,
        ):
            if not self._add(value_length(<PyObject *>part, 0)):
                return False
        try:
            self.input_bytes += <uint64_t>(
                json_length(history.config) + json_length(target) + json_length(input.constraint)
            )
        except JsonValueError:  # named from within its part, not from the input
            return False
        return True

    # -- counting ----------------------------------------------------------------

    def price(self, counter):
        """Take the figures of another additive counter, asked once about each message.

        Raises what the counter raises, ValueError for a figure that is not
        unsigned 64-bit, CounterOverflow where a sum passes that.
        """
        cdef Py_ssize_t i
        cdef object ask = counter.message_tokens
        cdef object system = 0
        cdef object total = 0
        cdef object tokens
        for text in self.system:
            system += token_figure(ask(SystemMessage(text)), "message_tokens")
            if system > U64_MAX:
                raise CounterOverflow
        for i in range(len(self.turns)):
            self.turn_tokens[i] = 0
        for i in range(len(self.groups)):
            for message in tuple(<object>slot(<PyObject *>self.groups[i], GROUP_MESSAGES)):
                tokens = token_figure(ask(message), "message_tokens")
                total += tokens
                if total > U64_MAX:
                    raise CounterOverflow
                self.turn_tokens[self.group_turn[i]] += <uint64_t>tokens
        self.system_tokens = system
        self.current_tokens = 0
        for message in self.current:
            tokens = token_figure(ask(message), "message_tokens")
            total += tokens
            if total > U64_MAX:
                raise CounterOverflow
            self.current_tokens += <uint64_t>tokens

    def trim(self, uint64_t constraint, uint64_t template_tokens, uint64_t reserved, uint64_t window, uint64_t max_counts):
        """Run the kernel.  Returns its status, how many turns went, and the message tokens of each attempt."""
        cdef ul_trim_task task
        task.turns = <size_t>len(self.turns)
        task.turn_tokens = self.turn_tokens
        task.turn_protected = self.turn_pinned
        task.system = self.system_tokens
        task.current = self.current_tokens
        task.constraint = constraint
        task.template_tokens = template_tokens
        task.reserved = reserved
        task.window = window
        task.max_counts = max_counts
        return trim_turns(&task)

    # -- results -------------------------------------------------------------------

    def messages(self, Py_ssize_t removed):
        """The messages of the request without its first `removed` turns that are not pinned."""
        cdef bytearray gone = self._gone(removed)
        cdef list kept = [SystemMessage(text) for text in self.system]
        cdef Py_ssize_t i
        for i in range(len(self.groups)):
            if not gone[self.group_turn[i]]:
                kept.extend(<object>slot(<PyObject *>self.groups[i], GROUP_MESSAGES))
        kept.extend(self.current)
        return tuple(kept)

    def selections(self, Py_ssize_t removed):
        """What became of each turn."""
        cdef bytearray gone = self._gone(removed)
        cdef list events
        cdef list chosen = []
        cdef Py_ssize_t turn
        cdef Py_ssize_t i = 0
        for turn in range(len(self.turns)):
            events = []
            while i < len(self.groups) and self.group_turn[i] == turn:
                events.extend(<object>slot(<PyObject *>self.groups[i], GROUP_EVENTS))
                i += 1
            chosen.append(
                ContextTurnSelection(
                    <object>slot(<PyObject *>self.turns[turn], TURN_ID),
                    tuple(events),
                    not gone[turn],
                    self.turn_pinned[turn] != 0,
                )
            )
        return tuple(chosen)

    cdef bytearray _gone(self, Py_ssize_t removed):
        cdef bytearray gone = bytearray(len(self.turns))
        cdef Py_ssize_t turn = 0
        while removed:
            if not self.turn_pinned[turn]:
                gone[turn] = 1
                removed -= 1
            turn += 1
        return gone


cdef bint _is_exchange(tuple messages) except -1:
    """An assistant message with one call, and the tool message that answers it."""
    cdef PyObject *asked
    cdef PyObject *answer
    cdef tuple calls
    if len(messages) != 2:
        return False
    asked = <PyObject *>messages[0]
    answer = <PyObject *>messages[1]
    if Py_TYPE(asked) != <PyTypeObject *>AssistantMessage or Py_TYPE(answer) != <PyTypeObject *>ToolMessage:
        return False
    calls = <tuple?>slot(asked, ASSISTANT_CALLS)
    return (
        len(calls) == 1
        and _is_call(<PyObject *>calls[0])
        and <object>slot(<PyObject *>calls[0], CALL_ID) == <object>slot(answer, TOOL_CALL_ID)
    )


cdef bint _is_call(PyObject *call) except -1:
    return is_text(slot(call, CALL_NAME)) and PyDict_Check(slot(call, CALL_ARGUMENTS))


cdef bint _ask(PyObject *message, set pending) except -1:
    """Whether an assistant message is well formed; the ids of its calls go into `pending`."""
    cdef object calls = <object>slot(message, ASSISTANT_CALLS)
    cdef PyObject *call
    if not calls:
        return slot(message, ASSISTANT_CONTENT) != Py_None
    for item in calls:
        call = <PyObject *>item
        if not _is_call(call):
            return False
        pending.add(<object>slot(call, CALL_ID))
    return len(pending) == len(calls)


def encode(input):
    """The input as arrays, costed at one token for four bytes, or None where a rule may be broken."""
    cdef EncodedBuild encoded = EncodedBuild.__new__(EncodedBuild)
    return encoded if encoded._encode(input) else None
