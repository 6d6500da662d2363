"""Messages, tools and requests: the contract's wire types.

Lengths of these types are the bytes of their ``to_json``.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import msgspec

from . import canonical
from .blank import is_blank
from .wire import Wire

__all__ = [
    "AssistantMessage",
    "AutoChoice",
    "Constraint",
    "GenerationRequest",
    "JsonSchema",
    "Message",
    "NamedChoice",
    "NativeTools",
    "RequiredChoice",
    "SystemMessage",
    "TextConstraint",
    "ToolCall",
    "ToolChoice",
    "ToolDefinition",
    "ToolMessage",
    "UserMessage",
]


def _check_text(owner: object, name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{type(owner).__name__}.{name} must be a str, not {canonical.shown(value)}")


class ToolCall(Wire, frozen=True, forbid_unknown_fields=True):
    """A call that the model asks for.  ``arguments`` is any JSON value; a blank ``id`` is a ValueError."""

    json_values: ClassVar[tuple[str, ...]] = ("arguments",)

    id: str
    name: str
    arguments: Any

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or is_blank(self.id):
            raise ValueError(f"ToolCall.id must be a text that is not blank, not {canonical.shown(self.id)}")
        _check_text(self, "name", self.name)


class SystemMessage(Wire, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="system"):
    """Text from the host that stays in every request."""

    content: str

    def __post_init__(self) -> None:
        _check_text(self, "content", self.content)


class UserMessage(Wire, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="user"):
    """Text from the user; the first message of a turn."""

    content: str

    def __post_init__(self) -> None:
        _check_text(self, "content", self.content)


class AssistantMessage(Wire, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="assistant"):
    """An answer, calls of tools, or both.  The tool messages that answer the calls must follow it."""

    omit_when_empty: ClassVar[tuple[str, ...]] = ("tool_calls",)

    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    def __post_init__(self) -> None:
        if self.content is not None:
            _check_text(self, "content", self.content)
        if self.tool_calls != ():
            for call in self.tool_calls:
                if not isinstance(call, ToolCall):
                    raise TypeError(
                        f"AssistantMessage.tool_calls must hold ToolCall, not {canonical.shown(call)}"
                    )
            msgspec.structs.force_setattr(self, "tool_calls", tuple(self.tool_calls))


class ToolMessage(Wire, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="tool"):
    """The result of the call whose id is ``call_id``."""

    call_id: str
    content: str

    def __post_init__(self) -> None:
        _check_text(self, "call_id", self.call_id)
        _check_text(self, "content", self.content)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


class ToolDefinition(Wire, frozen=True, forbid_unknown_fields=True):
    """A tool that the model may call; ``parameters`` is its JSON Schema."""

    json_values: ClassVar[tuple[str, ...]] = ("parameters",)

    name: str
    description: str
    parameters: Any


class AutoChoice(Wire, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="auto"):
    """The model decides whether to call a tool."""


class RequiredChoice(Wire, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="required"):
    """The model must call some tool."""


class NamedChoice(Wire, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="named"):
    """The model must call this tool."""

    name: str


ToolChoice: TypeAlias = AutoChoice | RequiredChoice | NamedChoice


class TextConstraint(Wire, frozen=True, forbid_unknown_fields=True, tag_field="mode", tag="text"):
    """The answer is free text."""


class NativeTools(Wire, frozen=True, forbid_unknown_fields=True, tag_field="mode", tag="native_tools"):
    """The answer may call these tools."""

    tools: tuple[ToolDefinition, ...]
    choice: ToolChoice = AutoChoice()


class JsonSchema(Wire, frozen=True, forbid_unknown_fields=True, tag_field="mode", tag="json_schema"):
    """The answer is a JSON value of this schema."""

    json_values: ClassVar[tuple[str, ...]] = ("schema",)

    name: str
    schema: Any


Constraint: TypeAlias = TextConstraint | NativeTools | JsonSchema


class GenerationRequest(Wire, frozen=True, forbid_unknown_fields=True):
    """What a model is asked: all messages in order, and the constraint on its answer."""

    messages: tuple[Message, ...]
    constraint: Constraint = TextConstraint()

    def validate_shape(self) -> None:
        """Raise InvalidShape at the first message, then the first part of the constraint, at fault."""
        from .shape import check_constraint, check_messages

        check_messages(self.messages)
        check_constraint(self.constraint)
