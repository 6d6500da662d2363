"""The events of a session journal, one class per kind.

A journal is the complete, ordered log of a session: everything that was said,
called, answered and noted.  What the projection does not look into (plans,
reports, options, outcomes of model calls) stays plain JSON.

Lengths of these types are the bytes of their ``to_json``: optional members are
left out where they hold None, all other nulls and empty lists are written.
Objects that stay plain are written with their keys in byte order.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar, Literal, TypeAlias

from .messages import GenerationRequest
from .wire import Wire, check_u64

__all__ = [
    "AssistantDeltaKind",
    "AssistantMessageKind",
    "CustomKind",
    "DoneKind",
    "DoneStatus",
    "ErrorKind",
    "EventKind",
    "Failed",
    "ModeKind",
    "ModelRequestKind",
    "ModelResultKind",
    "PlanReadyKind",
    "RecordedCall",
    "RecordedModelRequest",
    "RecordedModelResult",
    "RecordedResult",
    "SessionEvent",
    "StageProgressKind",
    "Succeeded",
    "TaskRunReportKind",
    "ToolCallKind",
    "ToolResultKind",
    "UserMessageKind",
]


class _Record(Wire, frozen=True, gc=False):
    pass  # JSON is no part of a cycle, so the collector need not walk a long log again and again


# --- what calls and answers hold ----------------------------------------------


class RecordedCall(_Record, frozen=True):
    """A tool call as it was made.

    ``arguments`` is any JSON value; ``operation`` and ``action`` say on whose
    behalf it was made, as JSON, and are None where nothing does.
    """

    omit_when_empty: ClassVar[tuple[str, ...]] = ("operation", "action")
    json_values: ClassVar[tuple[str, ...]] = ("operation", "action", "arguments")
    wire_order: ClassVar[tuple[str, ...]] = ("operation", "action", "id", "name", "arguments")

    id: str
    name: str
    arguments: Any
    operation: Any = None
    action: Any = None


class Succeeded(_Record, frozen=True, tag_field="status", tag="succeeded"):
    """What a tool gave back."""

    output: str


class Failed(_Record, frozen=True, tag_field="status", tag="failed"):
    """Why a tool gave nothing back."""

    category: str
    code: str
    message: str
    retryable: bool


class RecordedResult(_Record, frozen=True):
    """How the call whose id is ``call_id`` came out."""

    call_id: str
    outcome: Succeeded | Failed


class RecordedModelRequest(_Record, frozen=True):
    """A request as a model was sent it."""

    json_values: ClassVar[tuple[str, ...]] = ("options",)

    version: int
    call_id: str
    mode: str
    input: GenerationRequest
    options: Any


class RecordedModelResult(_Record, frozen=True):
    """How the model call whose id is ``call_id`` came out."""

    json_values: ClassVar[tuple[str, ...]] = ("outcome",)

    version: int
    call_id: str
    outcome: Any


# --- kinds --------------------------------------------------------------------


class _Kind(_Record, frozen=True, tag_field="type"):
    pass


class UserMessageKind(_Kind, frozen=True, tag="user_message"):
    """The user spoke; a turn has one such event at most."""

    text: str


class AssistantDeltaKind(_Kind, frozen=True, tag="assistant_delta"):
    """A piece of an answer that was streamed."""

    text: str


class AssistantMessageKind(_Kind, frozen=True, tag="assistant_message"):
    """The complete reply of a turn."""

    wire_order: ClassVar[tuple[str, ...]] = ("version", "text")

    text: str
    version: Literal[1] = 1


class ModelRequestKind(_Kind, frozen=True, tag="model_request"):
    """A model was asked."""

    request: RecordedModelRequest


class ModelResultKind(_Kind, frozen=True, tag="model_result"):
    """A model answered, or failed to."""

    result: RecordedModelResult


class ToolCallKind(_Kind, frozen=True, tag="tool_call"):
    """A tool was called."""

    call: RecordedCall


class ToolResultKind(_Kind, frozen=True, tag="tool_result"):
    """A tool answered, or failed to."""

    result: RecordedResult


class StageProgressKind(_Kind, frozen=True, tag="stage_progress"):
    """A stage of the work started, completed or failed."""

    omit_when_empty: ClassVar[tuple[str, ...]] = ("message",)

    stage: str
    status: str
    message: str | None = None


class ModeKind(_Kind, frozen=True, tag="mode"):
    """How the session works was chosen."""

    mode: str
    decided_by: str
    reason: str


class PlanReadyKind(_Kind, frozen=True, tag="plan_ready"):
    """A plan was made; any JSON value."""

    json_values: ClassVar[tuple[str, ...]] = ("plan",)

    plan: Any


class TaskRunReportKind(_Kind, frozen=True, tag="task_run_report"):
    """What a run used of its budget."""

    json_values: ClassVar[tuple[str, ...]] = ("report",)

    report: Any


class DoneStatus(Enum):
    """How a turn ended that did not fail."""

    COMPLETED = "completed"
    WAITING_FOR_INPUT = "waiting_for_input"
    CHECKPOINTED = "checkpointed"
    CANCELLED = "cancelled"


class DoneKind(_Kind, frozen=True, tag="done"):
    """The turn ended; ``artifact`` is any JSON value, None where there is none."""

    omit_when_empty: ClassVar[tuple[str, ...]] = ("artifact",)
    json_values: ClassVar[tuple[str, ...]] = ("artifact",)

    status: DoneStatus
    artifact: Any = None


class ErrorKind(_Kind, frozen=True, tag="error"):
    """The turn failed."""

    code: str
    message: str
    retryable: bool


class CustomKind(_Kind, frozen=True, tag="custom"):
    """Something that only a plugin understands; ``payload`` is any JSON value."""

    json_values: ClassVar[tuple[str, ...]] = ("payload",)

    plugin: str
    kind: str
    payload: Any


EventKind: TypeAlias = (
    UserMessageKind
    | AssistantDeltaKind
    | AssistantMessageKind
    | ModelRequestKind
    | ModelResultKind
    | ToolCallKind
    | ToolResultKind
    | StageProgressKind
    | ModeKind
    | PlanReadyKind
    | TaskRunReportKind
    | DoneKind
    | ErrorKind
    | CustomKind
)


class SessionEvent(_Record, frozen=True):
    """One event of a session.

    ``seq`` is its place in the session's log, from 0; outside u64 it is a
    ValueError.  ``message_id`` names the message that the event is part of;
    that of a complete reply is used once in a session.
    """

    omit_when_empty: ClassVar[tuple[str, ...]] = ("generation_id", "message_id")
    wire_order: ClassVar[tuple[str, ...]] = (
        "event_id",
        "session_id",
        "turn_id",
        "generation_id",
        "message_id",
        "seq",
        "kind",
    )

    event_id: str
    session_id: str
    turn_id: str
    seq: int
    kind: EventKind
    generation_id: str | None = None
    message_id: str | None = None

    def __post_init__(self) -> None:
        check_u64("SessionEvent", seq=self.seq)
        for name in ("event_id", "session_id", "turn_id"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"SessionEvent.{name} must be a str, not {getattr(self, name)!r:.80}")
        if not isinstance(self.kind, _Kind):
            raise TypeError(f"SessionEvent.kind must be an event kind, not {self.kind!r:.80}")
