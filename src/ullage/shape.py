"""The shape of a request: which messages may follow which, and what a constraint may hold."""

from __future__ import annotations

from collections.abc import Sequence

from .blank import is_blank
from .errors import InvalidShape
from .messages import (
    AssistantMessage,
    Constraint,
    JsonSchema,
    Message,
    NamedChoice,
    NativeTools,
    SystemMessage,
    TextConstraint,
    ToolCall,
    ToolMessage,
    UserMessage,
)

_BLANK_NAME = "tool or schema name must not be blank"
_BAD_SCHEMA = "JSON Schema root must be an object or boolean"


def check_messages(messages: Sequence[Message], where: str = "messages") -> None:
    """Raise InvalidShape at the first message at fault; ``where`` is what its path calls the list.

    Raises TypeError for what is no message at all.
    """
    if not messages:
        raise InvalidShape("model request has no messages", path=where)
    pending: set[str] = set()
    for i, message in enumerate(messages):
        path = f"{where}[{i}]"
        if isinstance(message, ToolMessage):
            if message.call_id not in pending:
                raise InvalidShape(f"tool result at message {i} has no pending matching call", path=path)
            pending.remove(message.call_id)
            continue
        if pending:
            raise InvalidShape(f"message {i} interrupts a pending tool-call group", path=path)
        if isinstance(message, AssistantMessage):
            if message.content is None and not message.tool_calls:
                raise InvalidShape("assistant message has neither content nor tool calls", path=path)
            for k, call in enumerate(message.tool_calls):
                _check_call(call, pending, f"{path}.tool_calls[{k}]")
        elif not isinstance(message, (UserMessage, SystemMessage)):
            raise TypeError(f"{path} must be a message, not {type(message).__name__}")
    if pending:
        raise InvalidShape(
            "model context is missing one or more tool results", path=f"{where}[{len(messages) - 1}]"
        )


def _check_call(call: ToolCall, pending: set[str], path: str) -> None:
    if is_blank(call.name):
        raise InvalidShape(_BLANK_NAME, path=f"{path}.name")
    if not isinstance(call.arguments, dict):
        raise InvalidShape("tool-call arguments must be a parsed JSON object", path=f"{path}.arguments")
    if call.id in pending:
        raise InvalidShape("duplicate tool-call ID within one assistant group", path=f"{path}.id")
    pending.add(call.id)


def check_constraint(constraint: Constraint) -> None:
    """Raise InvalidShape at the first part of the constraint at fault."""
    if isinstance(constraint, JsonSchema):
        _check_schema(constraint.name, constraint.schema, "constraint", "schema")
    elif isinstance(constraint, NativeTools):
        if not constraint.tools:
            raise InvalidShape(
                "native-tool constraint requires at least one candidate", path="constraint.tools"
            )
        names: set[str] = set()
        for i, tool in enumerate(constraint.tools):
            path = f"constraint.tools[{i}]"
            _check_schema(tool.name, tool.parameters, path, "parameters")
            if tool.name in names:
                raise InvalidShape("duplicate candidate tool name", path=f"{path}.name")
            names.add(tool.name)
        if isinstance(constraint.choice, NamedChoice) and constraint.choice.name not in names:
            raise InvalidShape(
                "requested or generated tool is not in the visible candidate set",
                path="constraint.choice.name",
            )
    elif not isinstance(constraint, TextConstraint):
        raise TypeError(f"constraint must be a constraint, not {type(constraint).__name__}")


def _check_schema(name: str, schema: object, path: str, member: str) -> None:
    if is_blank(name):
        raise InvalidShape(_BLANK_NAME, path=f"{path}.name")
    if not isinstance(schema, (dict, bool)):
        raise InvalidShape(_BAD_SCHEMA, path=f"{path}.{member}")
