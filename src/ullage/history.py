"""A projected history: the ended turns of a session as groups of messages."""

from __future__ import annotations

from enum import Enum

from .messages import Message
from .wire import Wire, check_member, check_u64

__all__ = [
    "ConversationProjection",
    "GroupKind",
    "LegacyReplies",
    "OmissionReason",
    "OmittedEvent",
    "ProjectedTurn",
    "ProjectionConfig",
    "ProjectionGroup",
    "TurnState",
]


class LegacyReplies(Enum):
    """What to do about a successful turn without a complete reply."""

    REJECT = "Reject"
    OMIT = "Omit"


class GroupKind(Enum):
    """What a group of messages is; a group is never split."""

    USER = "User"
    ASSISTANT = "Assistant"
    TOOL_EXCHANGE = "ToolExchange"


class TurnState(Enum):
    """How a turn ended, or that it has not."""

    COMPLETED = "Completed"
    WAITING_FOR_INPUT = "WaitingForInput"
    CHECKPOINTED = "Checkpointed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    OPEN = "Open"


class OmissionReason(Enum):
    """Why an event of the log is no part of the history."""

    AUDIT = "Audit"
    MODEL_AUDIT = "ModelAudit"
    STREAM_DELTA = "StreamDelta"
    UNSUCCESSFUL_REPLY = "UnsuccessfulReply"


class ProjectionConfig(Wire, frozen=True):
    """The policy and the limits of a projection: events, bytes of their JSON, messages."""

    legacy_replies: LegacyReplies = LegacyReplies.REJECT
    max_events: int = 100_000
    max_input_bytes: int = 16 * 1024 * 1024
    max_messages: int = 50_000

    def __post_init__(self) -> None:
        check_u64(
            "ProjectionConfig",
            max_events=self.max_events,
            max_input_bytes=self.max_input_bytes,
            max_messages=self.max_messages,
        )


class ProjectionGroup(Wire, frozen=True):
    """Messages that stand or fall together, and the events they come from."""

    turn_id: str
    kind: GroupKind
    source_events: tuple[str, ...]
    messages: tuple[Message, ...]

    def __post_init__(self) -> None:
        if type(self.kind) is not GroupKind:
            check_member("ProjectionGroup", "kind", self.kind, GroupKind)


class ProjectedTurn(Wire, frozen=True, gc=False):
    """One turn of the log."""

    turn_id: str
    state: TurnState
    terminal_event: str | None
    missing_complete_reply: bool

    def __post_init__(self) -> None:
        if type(self.state) is not TurnState:
            check_member("ProjectedTurn", "state", self.state, TurnState)


class OmittedEvent(Wire, frozen=True, gc=False):
    """An event that gave no message."""

    event_id: str
    seq: int
    reason: OmissionReason

    def __post_init__(self) -> None:
        check_u64("OmittedEvent", seq=self.seq)


class ConversationProjection(Wire, frozen=True):
    """The history of a session: its groups in the order of the log, its turns, and what was left out."""

    algorithm_version: int
    session_id: str
    source_tail: str | None
    source_event_count: int
    config: ProjectionConfig = ProjectionConfig()
    groups: tuple[ProjectionGroup, ...] = ()
    turns: tuple[ProjectedTurn, ...] = ()
    omitted: tuple[OmittedEvent, ...] = ()

    def __post_init__(self) -> None:
        check_u64(
            "ConversationProjection",
            algorithm_version=self.algorithm_version,
            source_event_count=self.source_event_count,
        )
