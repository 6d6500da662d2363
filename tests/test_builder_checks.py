"""What the builder refuses before it removes anything, in the contract's order, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from request_strategies import replace
from support import Engine, ExactBytes, raised, sound, turn

from ullage.budget import ContextBudget, ContextBuildLimits, ContextTarget, TokenBudgetMode
from ullage.contract import input_length
from ullage.errors import InvalidContext, InvalidShape, ResourceLimit
from ullage.history import GroupKind, ProjectionGroup, TurnState
from ullage.messages import (
    AssistantMessage,
    GenerationRequest,
    JsonSchema,
    NamedChoice,
    NativeTools,
    SystemMessage,
    TextConstraint,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from ullage.report import ContextBuildInput

U64_MAX = 2**64 - 1

Change = Callable[[ContextBuildInput], ContextBuildInput]
Fault = tuple[str, Change]


def with_history(**changes: Any) -> Change:
    return lambda input: replace(input, history=replace(input.history, **changes))


def with_groups(change: Callable[[list[Any]], list[Any]]) -> Change:
    return lambda input: with_history(groups=tuple(change(list(input.history.groups))))(input)


def with_limits(**changes: Any) -> Change:
    return lambda input: replace(input, limits=replace(input.limits, **changes))


def with_budget(**changes: Any) -> Change:
    return lambda input: replace(input, budget=replace(input.budget, **changes))


def bad_group(turn: str, *messages: Any, events: tuple[str, ...] = ("e",), kind: Any = GroupKind.USER) -> Any:
    return lambda groups: [ProjectionGroup(turn, kind, events, messages), *groups]


INVALID = "invalid context configuration: "
LIMIT = "context resource limit: "
SHAPE = "invalid context message shape: "
UNVERIFIED = "counter evidence is unverified or bound to another target"
OVERFLOW = "context token arithmetic overflow"

# What is checked, in order; the changes are of different fields, so that any two can be made at once.
CHECKS: list[Fault] = [
    (f"{INVALID}zero limit or blank target", lambda i: replace(i, target=ContextTarget("m", " "))),
    (UNVERIFIED, with_budget(mode=TokenBudgetMode.HARD)),
    (f"{LIMIT}groups", with_limits(max_groups=1)),
    (f"{LIMIT}input bytes", with_limits(max_input_bytes=100)),
    (f"{LIMIT}messages", with_limits(max_messages=1)),
    (f"{INVALID}unsupported projection version", with_history(algorithm_version=2)),
    (
        f"{INVALID}current context must start with user and contain no system",
        lambda i: replace(i, current=(*i.current, SystemMessage("s"))),
    ),
    (
        f"{INVALID}duplicate, blank or open historical turn",
        lambda i: with_history(turns=(*i.history.turns, turn("o", state=TurnState.OPEN)[0]))(i),
    ),
    (f"{INVALID}duplicate or unknown pinned turn", lambda i: replace(i, pinned_turns=("t9",))),
    (f"{INVALID}unknown group turn", with_groups(bad_group("t9", UserMessage("u")))),
    (OVERFLOW, with_budget(safety_margin=U64_MAX)),
    (
        f"{SHAPE}native-tool constraint requires at least one candidate",
        lambda i: replace(i, constraint=NativeTools(())),
    ),
]
PAIRS = list(combinations(CHECKS, 2))


@pytest.mark.parametrize(
    ("text", "change"), CHECKS, ids=lambda given: given if isinstance(given, str) else ""
)
def test_each_rule_is_checked(engine: Engine, text: str, change: Any) -> None:
    assert str(raised(engine, change(sound()))) == text


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda fault: fault[0].rsplit(": ")[-1])
def test_the_first_fault_is_the_one_reported(engine: Engine, first: Fault, second: Fault) -> None:
    for input in (second[1](first[1](sound())), first[1](second[1](sound()))):
        assert str(raised(engine, input)) == first[0]


@pytest.mark.parametrize("name", ["max_input_bytes", "max_groups", "max_messages", "max_count_calls"])
def test_a_limit_of_zero_is_refused(engine: Engine, name: str) -> None:
    error = raised(engine, with_limits(**{name: 0})(sound()))
    assert str(error) == "invalid context configuration: zero limit or blank target"
    assert error.path == f"limits.{name}"


@pytest.mark.parametrize(
    ("budget", "path"),
    [(ContextBudget(0, 1), "budget.window_tokens"), (ContextBudget(1, 0), "budget.output_reserve")],
)
def test_a_window_or_reserve_of_zero_is_refused(engine: Engine, budget: ContextBudget, path: str) -> None:
    error = raised(engine, sound(budget=budget))
    assert isinstance(error, InvalidContext)
    assert error.path == path


@pytest.mark.parametrize(
    ("target", "accepted"),
    [("", False), (" \t\n\r\x0b\x0c", False), ("\x85\xa0\u1680\u2000\u200a\u2028\u202f\u205f\u3000", False)]
    + [(text, True) for text in ("\x1c", "\x1d", "\x1e", "\x1f", "\u200b", "\ufeff", " x ", "\u180e")],
)
def test_blank_means_white_space_only(engine: Engine, target: str, accepted: bool) -> None:
    for chosen in (ContextTarget(target, "r"), ContextTarget("m", target)):
        if accepted:
            assert engine.build(sound(target=chosen), engine.byte_heuristic()).report.target == chosen
        else:
            assert raised(engine, sound(target=chosen)).kind == "Invalid"


def test_limits_are_met_when_equal(engine: Engine) -> None:
    input = sound()
    exact = ContextBuildLimits(input_length(input), 9, 14, 1)
    assert engine.build(replace(input, limits=exact), engine.byte_heuristic()).report.limits == exact
    for name, which in {
        "max_input_bytes": "input bytes",
        "max_groups": "groups",
        "max_messages": "messages",
    }.items():
        smaller = replace(exact, **{name: getattr(exact, name) - 1})
        error = raised(engine, replace(input, limits=smaller))
        assert isinstance(error, ResourceLimit)
        assert str(error) == f"context resource limit: {which}"


def test_the_input_is_measured_as_an_array_of_seven(engine: Engine) -> None:
    input = sound(constraint=JsonSchema("s", {"b": 1, "a": [1.0, "é"]}), state_version="v")
    parts = [
        input.history.to_json(),
        b'["rules"]',
        b"[%s]" % input.current[0].to_json(),
        input.constraint.to_json(),
        b'["t1"]',
        b'"v"',
        input.target.to_json(),
    ]
    length = len(b"[%s]" % b",".join(parts))
    assert engine.build(with_limits(max_input_bytes=length)(input), ExactBytes())
    assert raised(engine, with_limits(max_input_bytes=length - 1)(input)).kind == "Limit"


UNSOURCED, MISSHAPEN = "unordered or unsourced group", "invalid projection group shape"
ASSISTANT, EXCHANGE = GroupKind.ASSISTANT, GroupKind.TOOL_EXCHANGE
CALL = ToolCall("c", "f", {})
OTHER = ToolCall("d", "f", {})
GROUPS = [
    (UNSOURCED, bad_group("t2", UserMessage("u"))),
    (UNSOURCED, bad_group("t0", UserMessage("u"), events=())),
    (MISSHAPEN, bad_group("t0")),
    (MISSHAPEN, bad_group("t0", AssistantMessage("a"))),
    (MISSHAPEN, bad_group("t0", UserMessage("u"), UserMessage("u"))),
    (MISSHAPEN, bad_group("t0", UserMessage("u"), kind=ASSISTANT)),
    (MISSHAPEN, bad_group("t0", AssistantMessage(None), kind=ASSISTANT)),
    (MISSHAPEN, bad_group("t0", AssistantMessage("a", (CALL,)), kind=ASSISTANT)),
    (MISSHAPEN, bad_group("t0", AssistantMessage("a"), ToolMessage("c", ""), kind=EXCHANGE)),
    (MISSHAPEN, bad_group("t0", AssistantMessage("a", (CALL,)), ToolMessage("d", ""), kind=EXCHANGE)),
    (MISSHAPEN, bad_group("t0", AssistantMessage("a", (CALL, OTHER)), ToolMessage("d", ""), kind=EXCHANGE)),
    (MISSHAPEN, bad_group("t0", ToolMessage("c", ""), AssistantMessage("a", (CALL,)), kind=EXCHANGE)),
]


@pytest.mark.parametrize(("reason", "change"), GROUPS)
def test_groups_are_in_order_sourced_and_shaped(engine: Engine, reason: str, change: Any) -> None:
    error = raised(engine, with_groups(change)(sound()))
    assert str(error) == f"invalid context configuration: {reason}"
    assert error.path is not None
    assert error.path.startswith("history.groups[")


# --- the shape of a request ---------------------------------------------------------------------

ASKS = AssistantMessage(None, (CALL,))
USER = UserMessage("u")
ANSWER = ToolMessage("c", "")
NO_CALL = "tool result at message {} has no pending matching call"
INTERRUPTS = "message 2 interrupts a pending tool-call group"
BLANK_NAME = "tool or schema name must not be blank"
NOT_OBJECT = "tool-call arguments must be a parsed JSON object"


def calls(*of: ToolCall) -> AssistantMessage:
    return AssistantMessage(None, of)


# The messages that follow a first user message, what is wrong, and where.
SHAPES: list[tuple[list[Any], str, str]] = [
    ([ANSWER], NO_CALL.format(1), "[1]"),
    ([ASKS, ToolMessage("d", "")], NO_CALL.format(2), "[2]"),
    ([ASKS, ANSWER, ANSWER], NO_CALL.format(3), "[3]"),
    ([ASKS, USER], INTERRUPTS, "[2]"),
    ([ASKS, AssistantMessage("a")], INTERRUPTS, "[2]"),
    ([AssistantMessage()], "assistant message has neither content nor tool calls", "[1]"),
    ([calls(ToolCall("c", " ", {}))], BLANK_NAME, "[1].tool_calls[0].name"),
    ([calls(ToolCall("c", "\u3000", 1)), ToolMessage("x", "")], BLANK_NAME, "[1].tool_calls[0].name"),
    ([calls(CALL, ToolCall("d", "f", []))], NOT_OBJECT, "[1].tool_calls[1].arguments"),
    ([calls(ToolCall("d", "f", "{}"))], NOT_OBJECT, "[1].tool_calls[0].arguments"),
    ([calls(CALL, CALL)], "duplicate tool-call ID within one assistant group", "[1].tool_calls[1].id"),
    ([ASKS], "model context is missing one or more tool results", "[1]"),
]


@pytest.mark.parametrize(("messages", "reason", "path"), SHAPES)
def test_the_shape_of_messages(engine: Engine, messages: list[Any], reason: str, path: str) -> None:
    with pytest.raises(InvalidShape) as caught:
        GenerationRequest((USER, *messages)).validate_shape()
    assert (str(caught.value), caught.value.path) == (f"{SHAPE}{reason}", f"messages{path}")
    error = raised(engine, sound(current=(USER, *messages)))
    assert (error.kind, str(error), error.path) == ("Shape", f"{SHAPE}{reason}", f"current{path}")


def test_an_empty_request_has_no_shape() -> None:
    with pytest.raises(InvalidShape, match="model request has no messages"):
        GenerationRequest(()).validate_shape()


def tool(name: str = "f", parameters: Any = True) -> ToolDefinition:
    return ToolDefinition(name, "", parameters)


BAD_SCHEMA = "JSON Schema root must be an object or boolean"
REPEATED = "duplicate candidate tool name"
UNSEEN = "requested or generated tool is not in the visible candidate set"
CONSTRAINTS: list[tuple[Any, str, str]] = [
    (JsonSchema(" ", {}), BLANK_NAME, "name"),
    (JsonSchema("s", []), BAD_SCHEMA, "schema"),
    (JsonSchema("s", None), BAD_SCHEMA, "schema"),
    (NativeTools(()), "native-tool constraint requires at least one candidate", "tools"),
    (NativeTools((tool("\t"),)), BLANK_NAME, "tools[0].name"),
    (NativeTools((tool(), tool("g", 1))), BAD_SCHEMA, "tools[1].parameters"),
    (NativeTools((tool(), tool("f", 1))), BAD_SCHEMA, "tools[1].parameters"),
    (NativeTools((tool(), tool())), REPEATED, "tools[1].name"),
    (NativeTools((tool(), tool()), NamedChoice("g")), REPEATED, "tools[1].name"),
    (NativeTools((tool(),), NamedChoice("g")), UNSEEN, "choice.name"),
]


@pytest.mark.parametrize(("constraint", "reason", "path"), CONSTRAINTS)
def test_the_shape_of_a_constraint(engine: Engine, constraint: Any, reason: str, path: str) -> None:
    with pytest.raises(InvalidShape) as caught:
        GenerationRequest((USER,), constraint).validate_shape()
    assert (str(caught.value), caught.value.path) == (f"{SHAPE}{reason}", f"constraint.{path}")
    error = raised(engine, sound(constraint=constraint))
    assert (str(error), error.path) == (f"{SHAPE}{reason}", f"constraint.{path}")


def test_shapes_that_hold(engine: Engine) -> None:
    again = calls(CALL, ToolCall("d", "g", {"x": [1]}))
    current = (
        USER,
        again,
        ToolMessage("d", ""),
        ToolMessage("c", ""),
        AssistantMessage(""),
        ASKS,
        ToolMessage("c", "once more"),
        USER,
    )
    for constraint in (
        TextConstraint(),
        JsonSchema("s", False),
        NativeTools((tool("f", {}),), NamedChoice("f")),
    ):
        GenerationRequest(current, constraint).validate_shape()
        assert engine.build(sound(current=current, constraint=constraint), ExactBytes())
