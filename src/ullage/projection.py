"""A session's journal as the history that a builder takes.  Pure: nothing is read, asked or repaired."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import msgspec

from ._core import json_length
from .blank import is_blank
from .canonical import join_path, located
from .errors import DecodeError, JsonValueError, ProjectionError, TranscriptError
from .events import (
    AssistantDeltaKind,
    AssistantMessageKind,
    DoneKind,
    DoneStatus,
    ErrorKind,
    ModelRequestKind,
    ModelResultKind,
    RecordedCall,
    RecordedResult,
    SessionEvent,
    ToolCallKind,
    ToolResultKind,
    UserMessageKind,
)
from .history import (
    ConversationProjection,
    GroupKind,
    LegacyReplies,
    OmissionReason,
    OmittedEvent,
    ProjectedTurn,
    ProjectionConfig,
    ProjectionGroup,
    TurnState,
)
from .messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

__all__ = ["CanonicalConversationProjector", "history_and_current"]

ALGORITHM_VERSION = 1

EventLike: TypeAlias = SessionEvent | Mapping[str, Any]

_DEFAULTS = ProjectionConfig()


class CanonicalConversationProjector:
    """Turns the complete log of one session into groups of messages, in time linear in the log.

    Stateless: threads may share it.
    """

    def project(
        self, session_id: str, events: Sequence[EventLike], config: ProjectionConfig = _DEFAULTS
    ) -> ConversationProjection:
        """The history of a session from all its events, in order from sequence 0.

        The events are SessionEvent or the same as plain dicts.  An open turn
        may stand at the end, if it holds only its user message.

        Raises ProjectionError (``kind`` says why, its note what to do),
        DecodeError for a dict that is no event, and JsonValueError for a value
        in an event that has no JSON form; the last two name the path.
        """
        return _history(session_id, _checked_log(session_id, events, config), config)


def _history(session_id: str, log: list[SessionEvent], config: ProjectionConfig) -> ConversationProjection:
    groups: list[ProjectionGroup] = []
    turns: list[ProjectedTurn] = []
    omitted: list[OmittedEvent] = []
    messages = 0
    for turn in _turns(log):
        missing = turn.confirm(config)
        of_turn = turn.groups()
        messages += sum(len(group.messages) for group in of_turn)
        if messages > config.max_messages:
            turn.refuse("Limit", *_limit("messages", config))
        if turn.state is TurnState.OPEN and turn.end < len(log):
            turn.refuse_unconfirmed()
        groups += of_turn
        omitted += turn.omitted
        terminal = None if turn.terminal is None else turn.terminal.event_id
        turns.append(ProjectedTurn(turn.turn_id, turn.state, terminal, missing))
    omitted.sort(key=lambda event: event.seq)
    return ConversationProjection(
        algorithm_version=ALGORITHM_VERSION,
        session_id=session_id,
        source_tail=log[-1].event_id if log else None,
        source_event_count=len(log),
        config=config,
        groups=tuple(groups),
        turns=tuple(turns),
        omitted=tuple(omitted),
    )


# --- the log as a whole -------------------------------------------------------


def _checked_log(
    session_id: str, events: Sequence[EventLike], config: ProjectionConfig
) -> list[SessionEvent]:
    """The events as structs, if they keep to the limits and are one session's in its order."""
    if is_blank(session_id) or 0 in (config.max_events, config.max_input_bytes, config.max_messages):
        _refuse(
            "InvalidConfig",
            "invalid projection limits or empty Session identity",
            "give a session id that is not blank, and limits of 1 or more",
        )
    if len(events) > config.max_events:
        _refuse("Limit", *_limit("events", config))
    log: list[SessionEvent] = []
    length = 0
    for index, item in enumerate(events):
        event = _event(item, index)
        try:
            length += json_length(event)
        except JsonValueError as error:
            raise located(error, f"events[{index}]") from None
        if length > config.max_input_bytes:
            _refuse("Limit", *_limit("input bytes", config))
        log.append(event)
    _check_physical(session_id, log)
    return log


def _event(item: EventLike, index: int) -> SessionEvent:
    if isinstance(item, SessionEvent):
        return item
    try:
        return SessionEvent.from_dict(item)
    except DecodeError as error:
        raise DecodeError(error.reason, join_path(f"events[{index}]", error.path)) from None


def _check_physical(session_id: str, log: list[SessionEvent]) -> None:
    seen: set[str] = set()
    for i, event in enumerate(log):
        if event.session_id != session_id:
            text = f"event at physical index {i} belongs to Session {event.session_id}, expected {session_id}"
        elif event.seq != i:
            text = f"event at physical index {i} has sequence {event.seq}, expected {i}"
        elif event.event_id in seen:
            text = f"event ID {event.event_id} is duplicated at physical index {i}"
        else:
            seen.add(event.event_id)
            continue
        _refuse(
            "Physical",
            text,
            "give the complete log of one session in its order, from sequence 0; "
            "ullage.journal.read_sessions takes a journal of many sessions apart",
            event.event_id,
            i,
        )


def _turns(log: list[SessionEvent]) -> Iterator[_Turn]:
    """Each run of events with one turn id, once all its events are taken."""
    turn_ids: set[str] = set()
    message_ids: set[str] = set()
    turn: _Turn | None = None
    for event in log:
        if turn is None or event.turn_id != turn.turn_id:
            if turn is not None:
                yield turn
            turn = _Turn(event)
            if is_blank(event.turn_id) or event.turn_id in turn_ids:
                turn.malformed(event, "empty or noncontiguous Turn identity")
            turn_ids.add(event.turn_id)
        turn.take(event, message_ids)
    if turn is not None:
        yield turn


# --- one turn -----------------------------------------------------------------

_BEFORE_REPLY = (
    UserMessageKind,
    AssistantDeltaKind,
    ModelRequestKind,
    ModelResultKind,
    ToolCallKind,
    ToolResultKind,
)
_AFTER_USER = (AssistantMessageKind, AssistantDeltaKind, ToolCallKind, ModelRequestKind)

_STATES = {
    DoneStatus.COMPLETED: TurnState.COMPLETED,
    DoneStatus.WAITING_FOR_INPUT: TurnState.WAITING_FOR_INPUT,
    DoneStatus.CHECKPOINTED: TurnState.CHECKPOINTED,
    DoneStatus.CANCELLED: TurnState.CANCELLED,
}
_SUCCESSFUL = (TurnState.COMPLETED, TurnState.WAITING_FOR_INPUT, TurnState.CHECKPOINTED)


class _Turn:
    """A turn as far as its events have been taken."""

    def __init__(self, first: SessionEvent) -> None:
        self.turn_id = first.turn_id
        self.first = first
        self.end = first.seq  # the place in the log after its last event
        self.state = TurnState.OPEN
        self.user: tuple[SessionEvent, str] | None = None
        self.calls: dict[str, tuple[SessionEvent, RecordedCall]] = {}
        self.results: dict[str, tuple[SessionEvent, RecordedResult]] = {}
        self.model_calls: set[str] = set()
        self.model_results: set[str] = set()
        self.reply: tuple[SessionEvent, str] | None = None
        self.terminal: SessionEvent | None = None
        self.omitted: list[OmittedEvent] = []

    def take(self, event: SessionEvent, message_ids: set[str]) -> None:
        """Add the next event; ``message_ids`` are those of the session's complete replies so far."""
        kind = event.kind
        if is_blank(event.event_id):
            self.malformed(event, "empty event ID")
        if self.terminal is not None:
            self.malformed(event, "event follows terminal")
        if self.reply is not None and isinstance(kind, _BEFORE_REPLY):
            self.malformed(event, "conversation work follows complete reply")

        match kind:
            case UserMessageKind(text=text):
                if self.user is not None:
                    self.malformed(event, "multiple user messages in a Turn")
                self.user = (event, text)
            case AssistantMessageKind(text=text):
                self._take_reply(event, text, message_ids)
            case ToolCallKind(call=call):
                if is_blank(call.id) or is_blank(call.name) or call.id in self.calls:
                    self.malformed(event, "empty or duplicate tool call identity")
                self.calls[call.id] = (event, call)
            case ToolResultKind(result=result):
                if result.call_id not in self.calls:
                    self.malformed(event, "orphan or cross-Turn tool result")
                if result.call_id in self.results:
                    self.malformed(event, "duplicate tool result")
                self.results[result.call_id] = (event, result)
            case ModelRequestKind(request=request):
                if is_blank(request.call_id) or request.call_id in self.model_calls:
                    self.malformed(event, "empty or duplicate model call")
                self.model_calls.add(request.call_id)
                self._omit(event, OmissionReason.MODEL_AUDIT)
            case ModelResultKind(result=model_result):
                if model_result.call_id not in self.model_calls:
                    self.malformed(event, "orphan or cross-Turn model result")
                if model_result.call_id in self.model_results:
                    self.malformed(event, "duplicate model result")
                self.model_results.add(model_result.call_id)
                self._omit(event, OmissionReason.MODEL_AUDIT)
            case AssistantDeltaKind():
                self._omit(event, OmissionReason.STREAM_DELTA)
            case DoneKind(status=status):
                self._end(event, _STATES[status])
            case ErrorKind():
                self._end(event, TurnState.FAILED)
            case _:
                self._omit(event, OmissionReason.AUDIT)

        if self.user is None and isinstance(kind, _AFTER_USER):
            self.malformed(event, "conversation work precedes user message")
        self.end += 1

    def _take_reply(self, event: SessionEvent, text: str, message_ids: set[str]) -> None:
        message_id = event.message_id
        if message_id is None:
            self.malformed(event, "complete reply lacks MessageId")
        if is_blank(message_id) or message_id in message_ids or self.reply is not None:
            self.malformed(event, "duplicate complete reply or MessageId")
        message_ids.add(message_id)
        self.reply = (event, text)

    def _end(self, event: SessionEvent, state: TurnState) -> None:
        self.state = state
        self.terminal = event
        self._omit(event, OmissionReason.AUDIT)
        if self.reply is not None and state not in _SUCCESSFUL:
            self._omit(self.reply[0], OmissionReason.UNSUCCESSFUL_REPLY)

    def _omit(self, event: SessionEvent, reason: OmissionReason) -> None:
        self.omitted.append(OmittedEvent(event.event_id, event.seq, reason))

    def confirm(self, config: ProjectionConfig) -> bool:
        """Refuse a turn whose work has not ended; tell whether it lacks the reply it should have."""
        only_user = self.user is not None and self.end == self.first.seq + 1
        unanswered = len(self.results) < len(self.calls) or len(self.model_results) < len(self.model_calls)
        if unanswered or (self.terminal is None and not only_user):
            self.refuse_unconfirmed()
        missing = self.state in _SUCCESSFUL and self.reply is None
        if missing and config.legacy_replies is LegacyReplies.REJECT:
            self.refuse(
                "MissingReply",
                f"turn {self.turn_id} has no canonical complete reply; select an explicit legacy policy",
                "ProjectionConfig(legacy_replies=LegacyReplies.OMIT) takes such turns without a reply",
            )
        return missing

    def groups(self) -> list[ProjectionGroup]:
        """The user's message, each call with its result, and the reply of a successful turn."""
        groups: list[ProjectionGroup] = []
        if self.user is not None:
            event, text = self.user
            groups.append(self._group(GroupKind.USER, (event,), UserMessage(text)))
        for call_id, (asked, call) in self.calls.items():
            answered, result = self.results[call_id]
            name = f"jw_tool_{asked.seq}"
            groups.append(
                self._group(
                    GroupKind.TOOL_EXCHANGE,
                    (asked, answered),
                    AssistantMessage(tool_calls=(ToolCall(name, call.name, call.arguments),)),
                    ToolMessage(name, result.outcome.to_json().decode()),
                )
            )
        if self.reply is not None and self.state in _SUCCESSFUL:
            event, text = self.reply
            groups.append(self._group(GroupKind.ASSISTANT, (event,), AssistantMessage(text)))
        return groups

    def _group(
        self, kind: GroupKind, events: tuple[SessionEvent, ...], *messages: Message
    ) -> ProjectionGroup:
        return ProjectionGroup(self.turn_id, kind, tuple(event.event_id for event in events), messages)

    def malformed(self, event: SessionEvent, reason: str) -> NoReturn:
        """Refuse an event of this turn."""
        text = f"event {event.event_id}: {reason}"
        hint = f"nothing is repaired; events[:{self.first.seq}], the turns before, can be projected"
        _refuse("Malformed", text, hint, event.event_id, event.seq)

    def refuse_unconfirmed(self) -> NoReturn:
        """Refuse the turn for work in it that has not ended."""
        self.refuse(
            "Unconfirmed",
            f"turn {self.turn_id} has unconfirmed work; projection cannot discard it",
            f"wait until the turn has ended; events[:{self.first.seq}], the turns before, can be projected",
        )

    def refuse(self, kind: str, text: str, hint: str) -> NoReturn:
        """Refuse the turn as a whole."""
        _refuse(kind, text, hint, self.first.event_id, self.first.seq)


def _limit(which: str, config: ProjectionConfig) -> tuple[str, str]:
    """The contract's text for a limit, and what to do about it."""
    name = f"max_{which.replace(' ', '_')}"
    hint = f"ProjectionConfig.{name} is {getattr(config, name)}; raise it, or give a shorter log"
    return f"projection limit exceeded: {which}", hint


def _refuse(
    kind: str, text: str, hint: str, event_id: str | None = None, index: int | None = None
) -> NoReturn:
    error = ProjectionError(kind, text, event_id, index)
    error.add_note(hint)
    raise error


# --- history and current conversation ------------------------------------------


def history_and_current(
    session_id: str,
    events: Sequence[EventLike],
    config: ProjectionConfig = _DEFAULTS,
    *,
    current: str | None = None,
    last_turn: bool = False,
) -> tuple[ConversationProjection, tuple[Message, ...]]:
    """The ended turns of a session, and the messages of the turn to be answered: what a build takes.

    A log that ends with an open turn has its current message already.  For a
    log of ended turns the caller says which: ``current`` is the text of a new
    user message, ``last_turn`` takes the last turn out of the history and makes
    it current.  The history is what ``project`` gives for the events before the
    current turn, with the same config.

    Raises what ``project`` raises, TranscriptError where the log has no current
    message and none is chosen (or has one and another is given), and ValueError
    where both are chosen.
    """
    if current is not None and last_turn:
        raise ValueError("give a current message, or take the last turn as current, not both")
    log = _checked_log(session_id, events, config)
    whole = _history(session_id, log, config)
    is_open = bool(whole.turns) and whole.turns[-1].state is TurnState.OPEN
    if current is not None:
        if is_open:
            raise TranscriptError("the last turn is open and has a user message: no other can be current")
        return whole, (UserMessage(current),)
    if not is_open and not last_turn:
        raise TranscriptError("no turn is open: give a current message, or choose the last turn as current")
    if not whole.turns:
        raise TranscriptError("the log has no turn that could be current")
    return _split_last_turn(whole, log)


def _split_last_turn(
    whole: ConversationProjection, log: list[SessionEvent]
) -> tuple[ConversationProjection, tuple[Message, ...]]:
    turn_id = whole.turns[-1].turn_id
    start = len(log)
    while start and log[start - 1].turn_id == turn_id:
        start -= 1
    last = [group for group in whole.groups if group.turn_id == turn_id]
    messages = tuple(message for group in last for message in group.messages)
    if not messages:
        raise TranscriptError(f"the last turn, {turn_id}, has no user message: it cannot be current")
    history = msgspec.structs.replace(
        whole,
        source_tail=log[start - 1].event_id if start else None,
        source_event_count=start,
        groups=whole.groups[: len(whole.groups) - len(last)],
        turns=whole.turns[:-1],
        omitted=tuple(event for event in whole.omitted if event.seq < start),
    )
    return history, messages
