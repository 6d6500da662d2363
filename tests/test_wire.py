"""Wire types: they become the contract's JSON and come back; what is not theirs is refused by name."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_strategies import any_constraints, any_messages, build_inputs, constraints, replace, requests
from support import PY, C, raised, sound, told

import ullage
from ullage import canonical, errors
from ullage.errors import DecodeError, JsonValueError

CALL = ullage.ToolCall("c", "f", {"b": [1, 2.5], "a": None})
TARGET = ullage.ContextTarget("m", "r")
TOKENS = ullage.ContextTokenBreakdown(1, 2, 3, 4)
COUNT = ullage.ContextTokenCount(TARGET, "x", ullage.TokenBoundEvidence.ESTIMATE, TOKENS)
REPORT = C.build(sound(), ullage.ByteHeuristicCounter()).report

# One of each wire type, and its JSON as the contract writes it.
EXAMPLES: dict[str, Any] = {
    '{"role":"system","content":"s"}': ullage.SystemMessage("s"),
    '{"role":"user","content":""}': ullage.UserMessage(""),
    '{"role":"assistant","content":null}': ullage.AssistantMessage(),
    '{"role":"assistant","content":"a"}': ullage.AssistantMessage("a", ()),
    '{"role":"assistant","content":null,"tool_calls":'
    '[{"id":"c","name":"f","arguments":{"a":null,"b":[1,2.5]}}]}': ullage.AssistantMessage(None, (CALL,)),
    '{"role":"tool","call_id":"c","content":"r"}': ullage.ToolMessage("c", "r"),
    '{"id":"c","name":"f","arguments":null}': ullage.ToolCall("c", "f", None),
    '{"name":"f","description":"d","parameters":{"x":true}}': ullage.ToolDefinition("f", "d", {"x": True}),
    '{"kind":"auto"}': ullage.AutoChoice(),
    '{"kind":"required"}': ullage.RequiredChoice(),
    '{"kind":"named","name":"f"}': ullage.NamedChoice("f"),
    '{"mode":"text"}': ullage.TextConstraint(),
    '{"mode":"native_tools","tools":[{"name":"f","description":"","parameters":false}],'
    '"choice":{"kind":"auto"}}': ullage.NativeTools((ullage.ToolDefinition("f", "", False),)),
    '{"mode":"json_schema","name":"s","schema":{}}': ullage.JsonSchema("s", {}),
    '{"messages":[{"role":"user","content":"u"}],"constraint":{"mode":"text"}}': ullage.GenerationRequest(
        (ullage.UserMessage("u"),)
    ),
    '{"model":"m","template_revision":"r"}': TARGET,
    '{"window_tokens":10,"output_reserve":2,"output_evidence":"VerifiedUpperBound","safety_margin":1,'
    '"mode":"Hard"}': ullage.ContextBudget(
        10, 2, ullage.TokenBoundEvidence.VERIFIED_UPPER_BOUND, 1, ullage.TokenBudgetMode.HARD
    ),
    '{"max_input_bytes":16777216,"max_groups":4096,"max_messages":8192,"max_count_calls":128}': (
        ullage.ContextBuildLimits()
    ),
    '{"system":1,"messages":2,"constraint":3,"template":4}': TOKENS,
    '{"target":{"model":"m","template_revision":"r"},"method":"x","evidence":"Estimate",'
    '"tokens":{"system":1,"messages":2,"constraint":3,"template":4}}': COUNT,
    '{"turn_id":"t","source_events":["a","b"],"retained":true,"protected":false}': (
        ullage.ContextTurnSelection("t", ("a", "b"), True, False)
    ),
    '{"turn_id":"t","kind":"User","source_events":["e"],"messages":[{"role":"user","content":"u"}]}': (
        ullage.ProjectionGroup("t", ullage.GroupKind.USER, ("e",), (ullage.UserMessage("u"),))
    ),
    '{"turn_id":"t","state":"WaitingForInput","terminal_event":null,"missing_complete_reply":true}': (
        ullage.ProjectedTurn("t", ullage.TurnState.WAITING_FOR_INPUT, None, True)
    ),
    '{"event_id":"e","seq":18446744073709551615,"reason":"StreamDelta"}': (
        ullage.OmittedEvent("e", 2**64 - 1, ullage.OmissionReason.STREAM_DELTA)
    ),
}
every_example = pytest.mark.parametrize(("text", "value"), EXAMPLES.items(), ids=lambda v: type(v).__name__)


# --- to JSON and back --------------------------------------------------------------------


@every_example
def test_each_type_has_its_json(text: str, value: Any) -> None:
    assert value.to_json() == text.encode()
    assert C.json_length(value) == PY.json_length(value) == len(text)
    assert type(value).from_json(text) == type(value).from_json(text.encode()) == value
    assert type(value).from_dict(value.to_dict()) == value
    assert canonical.write(value.to_dict()) == canonical.write(json.loads(text))


def test_a_report_and_a_built_context_come_back() -> None:
    built = C.build(sound(), ullage.ByteHeuristicCounter())
    for value in (built, built.report, built.request, sound(), sound().history, built.report.attempts[0]):
        again = type(value).from_json(value.to_json())
        assert again == value
        assert again.to_json() == value.to_json() == canonical.write(value)
        assert type(value).from_dict(value.to_dict()) == value
    names = json.loads(REPORT.to_json()).keys()
    assert list(names) == [
        *("algorithm_version", "projection_version", "session_id", "source_tail", "source_event_count"),
        *("state_version", "target", "budget", "limits", "system_messages", "current_messages"),
        *("turns", "attempts"),
    ]
    assert list(json.loads(sound().to_json())) == [
        *("history", "system", "current", "constraint", "pinned_turns", "state_version", "target"),
        *("budget", "limits"),
    ]


def test_what_is_left_out_has_its_default() -> None:
    budget = {"window_tokens": 1, "output_reserve": 1}
    assert ullage.ContextBudget.from_dict(budget) == ullage.ContextBudget(1, 1)
    assert ullage.GenerationRequest.from_json('{"messages":[]}').constraint == ullage.TextConstraint()
    assert ullage.NativeTools.from_json('{"mode":"native_tools","tools":[]}').choice == ullage.AutoChoice()
    assert ullage.AssistantMessage.from_json('{"role":"assistant"}') == ullage.AssistantMessage()
    assert ullage.ContextBuildLimits.from_json("{}") == ullage.ContextBuildLimits()


@given(st.one_of(requests, any_messages, any_constraints))
def test_whatever_has_json_comes_back(value: Any) -> None:
    try:
        data = value.to_json()
    except JsonValueError:
        return
    again = type(value).from_json(data)
    assert again.to_json() == data
    assert C.json_length(again) == len(data)
    assert ullage.json_text_length(data) == len(data)


@settings(max_examples=60)
@given(build_inputs())
def test_every_input_and_report_comes_back(input: ullage.ContextBuildInput) -> None:
    data = input.to_json()
    again = ullage.ContextBuildInput.from_json(data)
    assert again.to_json() == data
    roomy = {"budget": ullage.ContextBudget(2**63, 1), "limits": ullage.ContextBuildLimits()}
    found = [PY.build(replace(one, **roomy), PY.byte_heuristic()) for one in (input, again)]
    assert found[0].to_json() == found[1].to_json()
    assert ullage.BuiltContext.from_json(found[0].to_json()).to_json() == found[0].to_json()


@given(constraints)
def test_the_values_inside_keep_what_they_are(constraint: Any) -> None:
    assert type(constraint).from_json(constraint.to_json()).to_json() == constraint.to_json()


def test_numbers_keep_their_kind() -> None:
    text = '{"id":"c","name":"f","arguments":[1,1.0,-0.0,1e+16,18446744073709551615,1e-7]}'
    call = ullage.ToolCall.from_json(text)
    assert [type(item) for item in call.arguments] == [int, float, float, float, int, float]
    assert call.to_json() == text.encode()


# --- what is refused --------------------------------------------------------------------------

REQUEST = '{"messages":[{"role":"user","content":"u"},%s]}'
ASKS = REQUEST % '{"role":"assistant","tool_calls":[%s]}'
BUDGET = '{"window_tokens":%s,"output_reserve":1}'
TURN = '{"turn_id":"t","source_events":%s,"retained":%s,"protected":true}'

# What is read, as which type; where the fault is, and what it is.
REFUSED: list[tuple[type[Any], str, str, str]] = [
    (ullage.UserMessage, '{"role":"user","content":"u","name":"x"}', "", "unknown field `name`"),
    (ullage.UserMessage, '{"role":"user"}', "", "missing required field `content`"),
    (ullage.UserMessage, '{"content":"u"}', "", "missing required field `role`"),
    (ullage.UserMessage, '{"role":"tool","content":"u"}', "role", "Invalid value 'tool'"),
    (ullage.UserMessage, '{"role":"user","content":1}', "content", "Expected `str`, got `int`"),
    (ullage.UserMessage, "[]", "", "Expected `object`, got `array`"),
    (ullage.AutoChoice, "{}", "", "missing required field `kind`"),
    (ullage.TextConstraint, "{}", "", "missing required field `mode`"),
    (ullage.GenerationRequest, REQUEST % '{"role":"robot"}', "messages[1].role", "Invalid value 'robot'"),
    (ullage.GenerationRequest, REQUEST % '{"content":"u"}', "messages[1]", "missing required field `role`"),
    (
        ullage.GenerationRequest,
        REQUEST % '{"role":"user","content":null}',
        "messages[1].content",
        "got `null`",
    ),
    (ullage.GenerationRequest, '{"messages":[],"x":1}', "", "unknown field `x`"),
    (ullage.GenerationRequest, '{"messages":{}}', "messages", "Expected `array`, got `object`"),
    (
        ullage.GenerationRequest,
        ASKS % '{"id":" ","name":"f","arguments":{}}',
        "messages[1].tool_calls[0]",
        "ToolCall.id must be a text that is not blank",
    ),
    (
        ullage.GenerationRequest,
        ASKS % '{"id":"c","name":"f"}',
        "messages[1].tool_calls[0]",
        "missing required field `arguments`",
    ),
    (ullage.ToolCall, '{"id":"c","name":"f","arguments":1,"type":""}', "", "unknown field `type`"),
    (ullage.ToolDefinition, '{"name":"f","description":"","parameters":1,"x":1}', "", "unknown field `x`"),
    (ullage.NativeTools, '{"mode":"native_tools","tools":[],"choice":{"kind":"x"}}', "choice.kind", "'x'"),
    (ullage.ContextBudget, BUDGET % "-1", "", "ContextBudget.window_tokens must be an integer"),
    (ullage.ContextBudget, BUDGET % "1.0", "window_tokens", "Expected `int`, got `float`"),
    (ullage.ContextBudget, BUDGET % '"1"', "window_tokens", "Expected `int`, got `str`"),
    (ullage.ContextBudget, BUDGET % "true", "window_tokens", "Expected `int`, got `bool`"),
    (ullage.ContextBudget, BUDGET % "null", "window_tokens", "Expected `int`, got `null`"),
    (ullage.ContextBudget, BUDGET % '1,"mode":"hard"', "mode", "Invalid enum value 'hard'"),
    (ullage.ContextTurnSelection, TURN % ("[1]", "true"), "source_events[0]", "Expected `str`, got `int`"),
    (ullage.ContextTurnSelection, TURN % ("[]", "1"), "retained", "Expected `bool`, got `int`"),
    (ullage.OmittedEvent, '{"event_id":"e","seq":0,"reason":"x"}', "reason", "Invalid enum value 'x'"),
]


@pytest.mark.parametrize(("cls", "text", "path", "reason"), REFUSED)
def test_what_does_not_belong_is_named(cls: type[Any], text: str, path: str, reason: str) -> None:
    for read, data in (
        (cls.from_json, text),
        (cls.from_json, text.encode()),
        (cls.from_dict, json.loads(text)),
    ):
        with pytest.raises(DecodeError) as caught:
            read(data)
        assert caught.value.path == path
        assert reason in caught.value.reason
        assert caught.value.__cause__ is None


def test_a_figure_past_64_bits_is_read_as_a_float_and_refused() -> None:
    with pytest.raises(DecodeError, match="Expected `int`, got `float`"):
        ullage.ContextBudget.from_json(BUDGET % 2**64)


TOOLS = '{"mode":"native_tools","tools":[%s]}'
REPEATED = [
    (ullage.UserMessage, '{"role":"user","content":"a","content":"b"}', ""),
    (ullage.UserMessage, '{"role":"user","role":"user","content":"b"}', ""),
    (ullage.GenerationRequest, REQUEST % '{"role":"user","content":"a","\\u0063ontent":"b"}', "messages[1]"),
    (ullage.GenerationRequest, '{"messages":[],"messages":[]}', ""),
    (ullage.NativeTools, TOOLS % '{"name":"f","name":"f","description":"","parameters":1}', "tools[0]"),
]


@pytest.mark.parametrize(("cls", "text", "path"), REPEATED)
def test_a_field_given_twice_is_refused(cls: type[Any], text: str, path: str) -> None:
    with pytest.raises(DecodeError, match="a field is given twice") as caught:
        cls.from_json(text)
    assert caught.value.path == path


def test_a_key_given_twice_inside_a_value_keeps_the_last() -> None:
    text = '{"id":"c","name":"f","arguments":{"a":1,"a":{"x":1,"x":2}}}'
    assert ullage.ToolCall.from_json(text).arguments == {"a": {"x": 2}}
    schema = ullage.JsonSchema.from_json(
        '{"mode":"json_schema","name":"s","schema":{"schema":{"k":1,"k":2}}}'
    )
    assert schema.schema == {"schema": {"k": 2}}


@pytest.mark.parametrize(
    "data",
    [
        "",
        "{",
        '{"role":"user","content":"a"}x',
        '{"role":"user","content":"\ud800"}',
        b'{"role":"\xff"}',
        "NaN",
    ],
)
def test_what_is_not_json_is_refused(data: str | bytes) -> None:
    with pytest.raises(DecodeError):
        ullage.UserMessage.from_json(data)


def test_values_without_json_are_refused_on_the_way_out() -> None:
    with pytest.raises(JsonValueError) as caught:
        ullage.GenerationRequest((ullage.UserMessage("u"), ullage.UserMessage("\ud800"))).to_json()
    assert caught.value.path == "messages[1].content"
    report = replace(REPORT, session_id="\ud800")
    with pytest.raises(JsonValueError) as caught:
        report.to_json()
    assert caught.value.path == "session_id"


# --- copies ----------------------------------------------------------------------------------------


def copies(value: Any) -> list[Any]:
    pickled = [pickle.loads(pickle.dumps(value, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    return [*pickled, copy.copy(value), copy.deepcopy(value)]


@every_example
def test_wire_types_are_copied_and_pickled(text: str, value: Any) -> None:
    for again in copies(value):
        assert type(again) is type(value)
        assert again == value
        assert again.to_json() == text.encode()


def test_reports_are_copied_and_pickled() -> None:
    fitted = ullage.fit([{"role": "user", "content": "u"}], window_tokens=100, output_reserve=1)
    for value in (REPORT, fitted.report, sound(), C.build(sound(), ullage.ByteHeuristicCounter())):
        assert all(again == value and again.to_json() == value.to_json() for again in copies(value))


def test_wire_types_are_frozen() -> None:
    for value in EXAMPLES.values():
        for name in value.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(value, name, None)


def test_messages_without_values_are_hashable() -> None:
    assert len({ullage.UserMessage("a"), ullage.UserMessage("a"), ullage.SystemMessage("a")}) == 2
    assert hash(TARGET) == hash(ullage.ContextTarget("m", "r"))


ERRORS: dict[str, Callable[[], BaseException]] = {
    "JsonValueError": lambda: JsonValueError("nan has no JSON form", "a.b[0]"),
    "JsonTypeError": lambda: errors.JsonTypeError("set is not a JSON type"),
    "DecodeError": lambda: DecodeError("malformed", "x"),
    "TranscriptError": lambda: errors.TranscriptError("no role", "messages[0]"),
    "JournalError": lambda: errors.JournalError("torn", 3, 120, "kind"),
    "ProjectionError": lambda: errors.ProjectionError("Limit", "projection limit exceeded: events", "e", 4),
    "CounterOverflow": errors.CounterOverflow,
    "InvalidContext": lambda: errors.InvalidContext("zero input count", path="target.model"),
    "ResourceLimit": lambda: errors.ResourceLimit("groups"),
    "InvalidShape": lambda: errors.InvalidShape("x", path="messages[1]"),
    "CounterFailed": lambda: errors.CounterFailed("no vocabulary"),
    "UnverifiedCount": lambda: errors.UnverifiedCount(path="budget"),
    "TokenOverflow": lambda: errors.TokenOverflow(),
    "DoesNotFit": lambda: raised(C, sound(101)),
    "CountLimit": lambda: raised(C, sound(101, limits=ullage.ContextBuildLimits(max_count_calls=1))),
}


def test_errors_are_copied_and_pickled() -> None:
    for name, make in ERRORS.items():
        error = make()
        assert type(error).__name__ == name
        for again in copies(error):
            assert told(again)[:5] == told(error)[:5]
            assert vars(again) == vars(error)


def test_every_error_of_the_contract_has_its_kind_and_text() -> None:
    kinds = {
        "InvalidContext": ("Invalid", "invalid context configuration: x"),
        "ResourceLimit": ("Limit", "context resource limit: x"),
        "InvalidShape": ("Shape", "invalid context message shape: x"),
        "CounterFailed": ("Counter", "context counter failed: x"),
        "UnverifiedCount": (
            "UnverifiedCount",
            "counter evidence is unverified or bound to another target",
        ),
        "TokenOverflow": ("Overflow", "context token arithmetic overflow"),
        "DoesNotFit": ("DoesNotFit", "minimum necessary context exceeds the budget"),
        "CountLimit": ("CountLimit", "context counting attempt limit reached"),
    }
    for name, (kind, text) in kinds.items():
        cls = getattr(ullage, name)
        assert issubclass(cls, ullage.ContextBuildError)
        assert issubclass(cls, ullage.UllageError)
        error = cls("x") if text.endswith("x") else cls()
        assert (error.kind, str(error), error.report) == (kind, text, None)
    for cls in (JsonValueError, DecodeError, errors.TranscriptError):
        assert issubclass(cls, ullage.UllageError)
        assert issubclass(cls, ValueError)
    assert issubclass(errors.JsonTypeError, TypeError)


# --- what the vectors say -----------------------------------------------------------------------------


def test_every_recorded_report_is_written_as_it_was_read() -> None:
    lines = (Path(__file__).parent / "golden" / "build.jsonl").read_bytes().split(b"\n")
    seen = 0
    for line in filter(None, lines):
        output = msgspec.json.decode(line, type=dict[str, msgspec.Raw])["output"]
        outcome = msgspec.json.decode(output, type=dict[str, msgspec.Raw])
        if "ok" in outcome:
            cls, data = ullage.BuiltContext, bytes(outcome["ok"])
        else:
            error = msgspec.json.decode(outcome["error"], type=dict[str, msgspec.Raw])
            cls, data = ullage.ContextBuildReport, bytes(error["report"])
        if data != b"null":
            seen += 1
            assert cls.from_json(data).to_json() == data
    assert seen > 300


def test_many_repeated_keys_inside_values_are_read_in_one_walk() -> None:
    """Each costs a step, not a search through the whole value: this would take minutes otherwise."""
    calls = b",".join(b'{"id":"c%d","name":"f","arguments":{"a":1,"a":2}}' % i for i in range(20_000))
    text = b'{"messages":[{"role":"assistant","content":null,"tool_calls":[' + calls + b"]}]}"
    request = ullage.GenerationRequest.from_json(text)
    assert request.messages[0].tool_calls[-1].arguments == {"a": 2}


@pytest.mark.parametrize(
    "make",
    [
        lambda: ullage.ContextBudget(1000, 10, mode="Hard"),
        lambda: ullage.ContextBudget(1000, 10, output_evidence="Estimate"),
        lambda: ullage.ProjectedTurn("t", "Open", None, False),
        lambda: ullage.ProjectionGroup("t", "User", ("e",), ()),
        lambda: ullage.fit(
            [{"role": "user", "content": "x"}], window_tokens=99, output_reserve=9, mode="Hard"
        ),
    ],
)
def test_the_name_of_an_enum_member_does_not_stand_for_it(make: Any) -> None:
    with pytest.raises(TypeError, match=r"must be one of|TokenBudgetMode"):
        make()
