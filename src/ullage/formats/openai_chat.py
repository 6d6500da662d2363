"""OpenAI chat messages: dicts as the API takes them, objects of its SDK, and the contract's own types.

A message is measured as the contract message it maps to, plus the serialised
bytes of every key that has no place there.  Text parts map to the content;
image, audio and file parts cost a price and their bytes are not counted; any
other part counts its bytes.  Arguments that are not a JSON object count as the
text they are.

This is the readable statement.  The compiled walk (``ullage._chat``) measures
ordinary dicts to the same figures and sends everything else here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from .. import canonical
from ..blank import is_blank
from ..errors import DecodeError, InvalidShape, JsonValueError, TranscriptError
from ..messages import (
    AssistantMessage,
    Constraint,
    Message,
    NativeTools,
    SystemMessage,
    TextConstraint,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from ..shape import check_constraint

PRICED_PARTS = frozenset(
    {"image_url", "image", "input_image", "input_audio", "audio", "file", "input_file", "document"}
)
"""Content parts that cost a price each: what they hold is not text to the model."""

_LINKED_PARTS = {"tool-call": "assistant", "tool-result": "tool", "tool-approval-response": "tool"}
"""Parts that make or answer a call, or approve of one, and the role whose messages hold them."""

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class Sent(NamedTuple):
    """What a chat message says in other words than the contract message it maps to.

    For counters that count what the provider is sent (``chat_tokens`` in
    ullage.counting); null and empty members are not in it.
    """

    role: str | None = None  # as it is written, where that is another one
    name: str | None = None
    arguments: tuple[str, ...] = ()  # of each call, as they are written
    others: tuple[str, ...] = ()  # the text, or else the JSON, of each member or part with no place elsewhere


class ChatMessage(NamedTuple):
    """A chat message as the contract sees it."""

    message: Message
    extra: str  # JSON of what has no place in `message`, each member or part with a comma before it
    parts: int  # how many parts cost a price
    priced_path: str  # the first of them, or empty
    raw: bool  # whether arguments count as raw text
    asks: tuple[str, ...]  # ids of the calls it makes
    answers: tuple[str, ...]  # ids of the calls it answers
    sent: Sent | None = None  # None where the message says it all


def read_message(item: Any, path: str) -> ChatMessage:
    """Read one message; ``path`` is what errors call it.  Raises TranscriptError or JsonValueError."""
    if isinstance(item, (SystemMessage, UserMessage, AssistantMessage, ToolMessage)):
        return _contract_message(item, path)
    fields = plain(item, path)
    if not isinstance(fields, dict):
        raise TranscriptError(f"a message is a dict or has model_dump, not {type(item).__name__}", path)
    return _Reader(fields, path).read()


def _contract_message(message: Message, path: str) -> ChatMessage:
    asks: tuple[str, ...] = ()
    if isinstance(message, AssistantMessage):
        if message.content is None and not message.tool_calls:
            raise TranscriptError("an assistant message needs content or tool calls", path)
        for i, call in enumerate(message.tool_calls):
            if is_blank(call.name):
                raise TranscriptError("a tool call needs a name", f"{path}.tool_calls[{i}].name")
        asks = tuple(call.id for call in message.tool_calls)
    answers = (message.call_id,) if isinstance(message, ToolMessage) else ()
    return ChatMessage(message, "", 0, "", False, asks, answers)


def plain(value: Any, path: str, depth: int = 0) -> Any:
    """A copy of the value in which the dumps of a vendor's objects stand for them.

    Whatever lies too deep to have a JSON form (a cycle, for one) is left for
    the writer to refuse, should it be counted at all.
    """
    if value is None or isinstance(value, (str, int, float)) or depth > 2 * canonical.MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        members = list(value.items())  # at once, since another thread may change a dict
        return {k: plain(item, canonical.join_path(path, str(k)), depth + 1) for k, item in members}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    try:
        dump = getattr(value, "model_dump", None)
        if dump is None:
            return value
        dumped = dump()
    except Exception as error:
        raise TranscriptError(f"model_dump raised {type(error).__name__}: {error}", path) from error
    if not isinstance(dumped, dict):
        raise TranscriptError(f"model_dump gave a {type(dumped).__name__}, not a dict", path)
    return plain(dumped, path, depth + 1)


class _Reader:
    """Takes the members of one message apart."""

    def __init__(self, fields: dict[Any, Any], path: str) -> None:
        self.fields = fields
        self.path = path
        self.extra: list[str] = []
        self.parts = 0
        self.priced_path = ""
        self.raw = False
        self.asks: list[str] = []
        self.answers: list[str] = []
        self.role = ""
        self.linked = False  # whether parts tell which calls the message belongs to
        self.name: str | None = None
        self.arguments: list[str] = []
        self.others: list[str] = []

    def read(self) -> ChatMessage:
        role = self.fields.pop("role", None)
        if role not in ROLES:
            raise TranscriptError(
                f"the role is one of {', '.join(ROLES)}, not {canonical.shown(role)}", f"{self.path}.role"
            )
        self.role = role
        content = self._content(self.fields.pop("content", None))
        message: Message
        if role == "assistant":
            message = self._assistant(content)
        elif role in ("tool", "function"):
            message = self._tool(role, content)
        else:
            text = self._required(content)
            message = UserMessage(text) if role == "user" else SystemMessage(text)
        for key, item in self.fields.items():
            if key == "name" and isinstance(item, str):
                self.name = item
                self._add_extra(key, item, self.path)
            else:
                self._add_member(key, item, self.path)
        return ChatMessage(
            message,
            "".join(self.extra),
            self.parts,
            self.priced_path,
            self.raw,
            tuple(self.asks),
            tuple(self.answers),
            Sent(
                role if role in ("developer", "function") else None,
                self.name,
                tuple(self.arguments),
                tuple(self.others),
            ),
        )

    def _required(self, content: str | None) -> str:
        if content is None:
            raise TranscriptError("a message of this role needs content", f"{self.path}.content")
        return content

    def _add_extra(self, key: Any, item: Any, path: str) -> None:
        self.extra.append(f",{_json({key: item}, path)[1:-1]}")

    def _add_member(self, key: Any, item: Any, path: str) -> None:
        self._add_extra(key, item, path)
        if item is not None and item not in ("", [], {}):
            self.others.append(item if isinstance(item, str) else _json(item, path))

    # -- content

    def _content(self, content: Any) -> str | None:
        path = f"{self.path}.content"
        if content is None or isinstance(content, str):
            if content is not None:
                _json(content, path)  # refuses a lone surrogate
            return content
        if not isinstance(content, list):
            raise TranscriptError(
                f"content is text, null or a list of parts, not {type(content).__name__}", path
            )
        return "".join(self._part(part, f"{path}[{i}]") for i, part in enumerate(content))

    def _part(self, part: Any, path: str) -> str:
        """The text of a part; anything else it holds goes to the extra bytes or the priced parts."""
        if not isinstance(part, dict):
            raise TranscriptError(f"a content part is a dict, not {type(part).__name__}", path)
        kind, text = part.get("type"), part.get("text")
        if kind == "text" and isinstance(text, str):
            _json(text, f"{path}.text")
            for key, item in part.items():
                if key not in ("type", "text"):
                    self._add_member(key, item, path)
            return text
        if isinstance(kind, str) and kind in PRICED_PARTS:
            self.parts += 1
            self.priced_path = self.priced_path or path
            return ""
        if isinstance(kind, str) and kind in ("tool_use", "tool_result"):
            raise TranscriptError(
                f"a {kind} block is of another format: OpenAI messages have tool_calls and tool messages",
                path,
            )
        if isinstance(kind, str) and kind in _LINKED_PARTS and self.role == _LINKED_PARTS[kind]:
            self.linked = True
            call_id = part.get("toolCallId")
            if isinstance(call_id, str) and kind != "tool-approval-response":
                (self.asks if kind == "tool-call" else self.answers).append(
                    self._id(call_id, f"{path}.toolCallId")
                )
        self.extra.append(f",{_json(part, path)}")
        self.others.append(self.extra[-1][1:])
        return ""

    # -- calls and results

    def _id(self, value: Any, path: str) -> str:
        if not isinstance(value, str) or is_blank(value):
            raise TranscriptError(f"an id is a text that is not blank, not {canonical.shown(value)}", path)
        _json(value, path)
        return value

    def _assistant(self, content: str | None) -> AssistantMessage:
        path = f"{self.path}.tool_calls"
        calls = self.fields.pop("tool_calls", None)
        if calls is not None and not isinstance(calls, list):
            raise TranscriptError(f"tool_calls is a list, not {type(calls).__name__}", path)
        read = tuple(self._call(call, f"{path}[{i}]") for i, call in enumerate(calls or ()))
        others = any(self.fields.get(key) is not None for key in ("refusal", "audio", "function_call"))
        if content is None and not read and not others:
            raise TranscriptError("an assistant message needs content or tool calls", self.path)
        legacy = self.fields.get("function_call")
        if isinstance(legacy, dict):
            self.asks.append(self._id(legacy.get("name"), f"{self.path}.function_call.name"))
        return AssistantMessage(content, read)

    def _call(self, call: Any, path: str) -> ToolCall:
        if not isinstance(call, dict):
            raise TranscriptError(f"a tool call is a dict, not {type(call).__name__}", path)
        kind = call.get("type") or "function"
        inner = call.get(kind) if isinstance(kind, str) else None
        if not isinstance(inner, dict):
            raise TranscriptError(f"a tool call of type {kind!r:.80} needs its member of that name", path)
        call_id = self._id(call.get("id"), f"{path}.id")
        name = inner.get("name")
        if not isinstance(name, str) or is_blank(name):
            raise TranscriptError("a tool call needs a name", f"{path}.{kind}.name")
        _json(name, f"{path}.{kind}.name")
        text_key = "arguments" if kind == "function" else "input"
        arguments = self._arguments(inner.get(text_key), f"{path}.{kind}.{text_key}")
        for key, item in call.items():
            if key not in ("id", "type", kind):
                self._add_member(key, item, path)
        for key, item in inner.items():
            if key not in ("name", text_key):
                self._add_member(key, item, f"{path}.{kind}")
        self.asks.append(call_id)
        return ToolCall(call_id, name, arguments)

    def _arguments(self, arguments: Any, path: str) -> Any:
        if arguments is None:
            arguments = ""
        text = _json(arguments, path)
        self.arguments.append(arguments if isinstance(arguments, str) else text)
        if isinstance(arguments, str):
            try:
                parsed = canonical.parse(arguments)
            except DecodeError:
                parsed = None
            if isinstance(parsed, dict):
                return parsed
            self.raw = True
        return arguments

    def _tool(self, role: str, content: str | None) -> ToolMessage:
        key = "tool_call_id" if role == "tool" else "name"
        text = self._required(content)
        call_id = self.fields.pop(key, None)
        if call_id is not None:
            self.answers = [self._id(call_id, f"{self.path}.{key}")]
        elif not self.linked:
            raise TranscriptError(f"a {role} message needs {key}", self.path)
        return ToolMessage(call_id or "", text)


def _json(value: Any, path: str) -> str:
    try:
        return canonical.write(value).decode()
    except JsonValueError as error:
        raise canonical.located(error, path) from None


def read_tools(tools: Sequence[Any]) -> tuple[Constraint, str]:
    """The constraint that tool definitions map to, and the JSON of what has no place in it.

    Raises TranscriptError naming the tool at fault.
    """
    if not tools:
        return TextConstraint(), ""
    definitions: dict[str, ToolDefinition] = {}
    extra: list[str] = []
    for i, tool in enumerate(tools):
        path = f"tools[{i}]"
        definition: ToolDefinition | None = tool if isinstance(tool, ToolDefinition) else None
        where = path
        if definition is None:
            definition, rest, where = _read_tool(tool, path)
            if rest:
                text = _json(rest, path)
                extra.append(f",{text}" if definition is None else f",{text[1:-1]}")
            if definition is None:  # a tool that the provider runs
                continue
        try:
            check_constraint(NativeTools((definition,)))
        except InvalidShape as error:
            _, _, member = (error.path or "").rpartition(".")
            raise TranscriptError(error.reason, f"{where}.{member}") from None
        if definition.name in definitions:
            raise TranscriptError("duplicate candidate tool name", f"{where}.name")
        definitions[definition.name] = definition
    constraint = NativeTools(tuple(definitions.values())) if definitions else TextConstraint()
    return constraint, "".join(extra)


def _read_tool(tool: Any, path: str) -> tuple[ToolDefinition | None, dict[str, Any], str]:
    """What a tool defines (nothing for one that the provider runs), its other members, and where it does."""
    fields = plain(tool, path)
    if not isinstance(fields, dict):
        raise TranscriptError(f"a tool is a dict or has model_dump, not {type(tool).__name__}", path)
    around: dict[str, Any] = {}
    function = fields.get("function")
    if function is not None:
        around = {key: item for key, item in fields.items() if key not in ("type", "function")}
        path += ".function"
    elif fields.get("type", "function") == "function":
        function = fields
    if not isinstance(function, dict):
        return None, fields, path
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str):
        raise TranscriptError("a tool needs a name", f"{path}.name")
    if description is not None and not isinstance(description, str):
        raise TranscriptError("a description is text", f"{path}.description")
    known = ("type", "name", "description", "parameters")
    rest = around | {key: item for key, item in function.items() if key not in known}
    return ToolDefinition(name, description or "", function.get("parameters", {})), rest, path


def with_extra(read: ChatMessage) -> Message:
    """The contract message, what has no place in it appended to its text."""
    if not read.extra:
        return read.message
    return replace(read.message, content=(read.message.content or "") + read.extra)


def constraint_with_extra(constraint: Constraint, extra: str) -> Constraint:
    """The constraint, what has no place in it appended to the description of its last tool."""
    if not extra:
        return constraint
    if not isinstance(constraint, NativeTools):  # only tools that the provider runs
        return NativeTools((ToolDefinition("provider", extra, {}),))
    *others, last = constraint.tools
    return NativeTools((*others, replace(last, description=last.description + extra)))


def check_tools(tools: Sequence[Any]) -> None:
    """Raise JsonValueError naming the first value of the tools that has no JSON form."""
    for i, tool in enumerate(tools):
        path = f"tools[{i}]"
        _json(tool if isinstance(tool, ToolDefinition) else plain(tool, path), path)
