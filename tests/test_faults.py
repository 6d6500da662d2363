"""Bad input of every kind: a clear error that names the place, or the right answer, and never a crash."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from promises import ROOMY, asks, result, user
from strategies import Foreign, nested
from support import Engine, outcome, raised, sound

import ullage
from ullage.budget import ContextTarget
from ullage.errors import (
    CounterOverflow,
    DecodeError,
    InvalidContext,
    JsonTypeError,
    JsonValueError,
    ResourceLimit,
    TranscriptError,
)
from ullage.messages import (
    AssistantMessage,
    GenerationRequest,
    JsonSchema,
    NativeTools,
    SystemMessage,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)

U64_MAX = 2**64 - 1


def cycle() -> list[Any]:
    array: list[Any] = []
    array.append(array)
    return array


def cyclic_object() -> dict[str, Any]:
    members: dict[str, Any] = {}
    members["again"] = members
    return members


DEEP = "more than 127 nested arrays and objects"
BAD: dict[str, tuple[Callable[[], Any], str, type[JsonValueError], str]] = {
    "nan": (lambda: float("nan"), "", JsonValueError, "nan has no JSON form"),
    "inf": (lambda: math.inf, "", JsonValueError, "inf has no JSON form"),
    "-inf": (lambda: [-math.inf], "[0]", JsonValueError, "-inf has no JSON form"),
    "2^64": (lambda: 2**64, "", JsonValueError, "an integer outside"),
    "-2^63-1": (lambda: {"n": -(2**63) - 1}, ".n", JsonValueError, "an integer outside"),
    "10^5000": (lambda: 10**5000, "", JsonValueError, "an integer outside"),
    "surrogate": (lambda: ["ok", "x\udc00"], "[1]", JsonValueError, "a lone surrogate at character 1"),
    "key": (lambda: {1: 2}, "", JsonTypeError, "the key 1 is not a string"),
    "bytes": (lambda: b"x", "", JsonTypeError, "bytes is not a JSON type"),
    "set": (lambda: [{1}], "[0]", JsonTypeError, "set is not a JSON type"),
    "object": (Foreign, "", JsonTypeError, "Foreign is not a JSON type"),
    "cycle": (cycle, "[0]" * 126, JsonValueError, DEEP),
    "cyclic object": (cyclic_object, ".again" * 126, JsonValueError, DEEP),
    "10,000 levels": (lambda: nested(1, 10_000, "array"), "[0]" * 126, JsonValueError, DEEP),
}
every_bad_value = pytest.mark.parametrize("bad", BAD)

CALL = ToolCall("c", "f", {})
PLACES: dict[str, Callable[[Any], GenerationRequest]] = {
    "messages[3].tool_calls[0].arguments.q": lambda value: GenerationRequest(
        (
            SystemMessage("s"),
            UserMessage("u"),
            AssistantMessage("a"),
            AssistantMessage(None, (ToolCall("c", "f", {"q": value}),)),
            ToolMessage("c", ""),
        )
    ),
    "messages[0].tool_calls[1].arguments.a.b": lambda value: GenerationRequest(
        (AssistantMessage(None, (CALL, ToolCall("d", "f", {"a": {"b": value}}))),)
    ),
    "constraint.schema.x": lambda value: GenerationRequest((), JsonSchema("s", {"x": value})),
    "constraint.tools[1].parameters.x": lambda value: GenerationRequest(
        (), NativeTools((ToolDefinition("f", "", {}), ToolDefinition("g", "", {"x": value})))
    ),
}


def is_at(found: str, place: str, deeper: str) -> bool:
    """Whether a path leads to a bad value at a place: where depth is the fault, to some level inside it."""
    return found == place + deeper or (deeper.count(deeper[:3]) > 20 and found.startswith(place + deeper[:3]))


@every_bad_value
@pytest.mark.parametrize("place", PLACES)
def test_a_bad_value_in_a_request_is_named(engine: Engine, bad: str, place: str) -> None:
    make, deeper, kind, reason = BAD[bad]
    request = PLACES[place](make())
    for measure in (engine.json_length, lambda r: engine.byte_heuristic().count(ContextTarget("m", "r"), r)):
        with pytest.raises(kind, match=reason) as caught:
            measure(request)
        assert is_at(caught.value.path, place, deeper)
    with pytest.raises(kind) as written:
        request.to_json()
    assert written.value.path == caught.value.path


@every_bad_value
def test_a_bad_value_in_a_build_is_named(engine: Engine, bad: str) -> None:
    make, deeper, kind, _ = BAD[bad]
    call = ToolCall("c", "f", {"q": make()})
    exchange = (AssistantMessage(None, (call,)), ToolMessage("c", ""))
    inputs = {
        "current[1].tool_calls[0].arguments.q": sound(current=(UserMessage("u"), *exchange)),
        "constraint.schema.q": sound(constraint=JsonSchema("s", call.arguments)),
    }
    for place, input in inputs.items():
        with pytest.raises(kind) as caught:
            engine.build(input, engine.byte_heuristic())
        assert is_at(caught.value.path, place, deeper)


@every_bad_value
def test_a_bad_value_in_a_transcript_is_named(bad: str) -> None:
    make, deeper, kind, _ = BAD[bad]
    call = asks("a")
    call["tool_calls"][0]["x"] = make()
    chats: dict[str, tuple[list[Any], Any]] = {
        "messages[1].x": ([user(), {**user(), "x": make()}], ()),
        "messages[1].tool_calls[0].x": ([user(), call, result("a")], ()),
        "messages[1].tool_calls[0].function.arguments.q": (
            [user(), asks("a", arguments={"q": make()}), result("a")],
            (),
        ),
        "messages[0].content[0].x": ([user([{"type": "reasoning", "x": make()}])], ()),
        "tools[0].function.parameters.q": (
            [user()],
            [{"type": "function", "function": {"name": "f", "parameters": {"q": make()}}}],
        ),
        "tools[1].parameters.q": (
            [user()],
            [{"type": "web_search"}, ToolDefinition("f", "", {"q": make()})],
        ),
    }
    for place, (chat, tools) in chats.items():
        with pytest.raises(kind) as caught:
            ullage.fit(chat, tools=tools, **ROOMY)
        assert is_at(caught.value.path, place, deeper)


def test_a_bad_text_is_named_wherever_it_stands(engine: Engine) -> None:
    bad = "x\ud83d"
    inputs = {
        "system[0]": sound(system=(bad,)),
        "current[0].content": sound(current=(UserMessage(bad),)),
        "pinned_turns[0]": sound(pinned_turns=(bad,)),
        "state_version": sound(state_version=bad),
        "target.model": sound(target=ContextTarget(bad, "r")),
        "constraint.name": sound(constraint=JsonSchema(bad, {})),
    }
    for path, input in inputs.items():
        with pytest.raises(JsonValueError, match="a lone surrogate at character 1") as caught:
            engine.build(input, engine.byte_heuristic())
        assert caught.value.path == path
    parts = [{"type": "text", "text": text} for text in ("ok", bad)]
    chats = {
        "messages[0].content": [user(bad)],
        "messages[0].content[1].text": [user(parts)],
        "messages[0].name": [{**user(), "name": bad}],
        'messages[0]["x\\ud83d"]': [{**user(), bad: 1}],
    }
    for path, chat in chats.items():
        with pytest.raises(JsonValueError, match="a lone surrogate at character 1") as caught:
            ullage.fit(chat, **ROOMY)
        assert caught.value.path == path
    for message in (UserMessage(bad), SystemMessage(bad)):
        with pytest.raises(JsonValueError, match=r"messages\[1\].content: a lone surrogate"):
            ullage.fit([user(), message], **ROOMY)


def test_what_is_priced_is_not_looked_into() -> None:
    part = {"type": "image_url", "image_url": {"url": "\ud800", "x": cycle(), "y": {1, 2}, "z": math.nan}}
    attempt = ullage.fit([user([part])], **ROOMY).report.attempts[0]
    assert attempt.count.tokens.messages == 7 + 1024


# --- structs filled with what does not belong there ----------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: UserMessage(1),  # type: ignore[arg-type]
        lambda: SystemMessage(None),  # type: ignore[arg-type]
        lambda: AssistantMessage(b""),  # type: ignore[arg-type]
        lambda: AssistantMessage(None, ("c",)),  # type: ignore[arg-type]
        lambda: AssistantMessage(None, 5),  # type: ignore[arg-type]
        lambda: ToolMessage(1, ""),  # type: ignore[arg-type]
        lambda: ToolMessage("c", None),  # type: ignore[arg-type]
        lambda: ToolCall("c", None, {}),  # type: ignore[arg-type]
        lambda: ToolCall(None, "f", {}),  # type: ignore[arg-type]
        lambda: ToolCall("\u3000", "f", {}),
        lambda: UserMessage(),  # type: ignore[call-arg]
        lambda: UserMessage("a", "b"),  # type: ignore[call-arg]
    ],
)
def test_a_message_of_the_wrong_type_cannot_be_made(make: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()


@pytest.mark.parametrize("odd", [None, 1, "x", b"x", Foreign(), [], {}, UserMessage, CALL])
def test_odd_things_in_the_place_of_messages_crash_nothing(engine: Engine, odd: Any) -> None:
    """Whatever is said of them, it is said by an exception, on both engines alike."""
    user = UserMessage("u")
    for request in (GenerationRequest((user, odd)), GenerationRequest(odd), GenerationRequest((), odd)):
        told = outcome(engine.json_length, request)
        assert told[0] == "value" or issubclass(told[1], ullage.JsonValueError)
        if odd != []:
            with pytest.raises((TypeError, ullage.InvalidShape)):
                request.validate_shape()
    for name in ("current", "constraint", "history", "target", "budget", "limits", "system", "pinned_turns"):
        for value in (odd, (user, odd)):
            told = outcome(lambda given: engine.build(sound(**given), engine.byte_heuristic()), {name: value})
            assert told[0] == "error" or name in ("system", "pinned_turns")


# --- figures at the edges of 64 bits ----------------------------------------------------------------------

FIGURES: list[Callable[[Any], Any]] = [
    lambda n: ullage.ContextBudget(n, 1),
    lambda n: ullage.ContextBudget(1, n),
    lambda n: ullage.ContextBudget(1, 1, safety_margin=n),
    lambda n: ullage.ContextBuildLimits(n),
    lambda n: ullage.ContextBuildLimits(max_count_calls=n),
    lambda n: ullage.ContextTokenBreakdown(n, 0, 0, 0),
    lambda n: ullage.ContextTokenBreakdown(0, 0, 0, n),
    lambda n: ullage.ProjectionConfig(max_events=n),
    lambda n: ullage.OmittedEvent("e", n, ullage.OmissionReason.AUDIT),
    lambda n: ullage.ConversationProjection(n, "s", None, 0),
    lambda n: ullage.ConversationProjection(1, "s", None, n),
    lambda n: ullage.ByteHeuristicCounter(n),
]


@pytest.mark.parametrize("make", FIGURES)
def test_figures_are_unsigned_64_bit(make: Callable[[Any], Any]) -> None:
    for figure in (0, 1, 2**63, U64_MAX):
        make(figure)
    for bad in (-1, 2**64, 1.0, "1", None, True):
        with pytest.raises(ValueError, match=r"must be an integer from 0 to 2\*\*64 - 1"):
            make(bad)


def test_a_count_past_64_bits_is_told(engine: Engine) -> None:
    class Huge(type(engine.byte_heuristic())):  # type: ignore[misc]
        def message_tokens(self, message: Any) -> int:
            return 2**63

    request = GenerationRequest((UserMessage("a"), UserMessage("b")))
    with pytest.raises(CounterOverflow, match="token overflow"):
        Huge().count(ContextTarget("m", "r"), request)
    mixed = GenerationRequest((UserMessage("a"), SystemMessage("b")))
    tokens = Huge().count(ContextTarget("m", "r"), mixed).tokens
    assert (tokens.system, tokens.messages) == (2**63, 2**63)


def test_a_template_of_64_bits_overflows_the_total(engine: Engine) -> None:
    assert raised(engine, sound(), engine.byte_heuristic(U64_MAX)).kind == "Overflow"


# --- large -----------------------------------------------------------------------------


def test_a_message_of_50_megabytes() -> None:
    text = "é" * 25_000_000
    message = UserMessage(text)
    size = 50_000_000 + len('{"role":"user","content":""}')
    assert ullage.json_length(message) == size
    result = ullage.fit([user(text), user()], window_tokens=1000, output_reserve=1)
    assert result.kept == [1]
    assert result.report.attempts[0].count.tokens.messages == (size + 3) // 4 + 8
    with pytest.raises(ResourceLimit, match="input bytes"):
        ullage.CanonicalContextBuilder().build(sound(current=(message,)), ullage.ByteHeuristicCounter())


def test_arguments_of_100000_keys() -> None:
    keys = ",".join(f'"key{n % 50_000}":{n}' for n in range(100_000))
    chat = [user(), asks("a", arguments=f"{{{keys}}}"), result("a"), user()]
    last = {f"key{n % 50_000}": n for n in range(100_000)}
    same = [user(), asks("a", arguments=last), result("a"), user()]
    figures = [ullage.fit(c, **ROOMY).report.attempts[0].count.tokens for c in (chat, same)]
    assert figures[0] == figures[1]


def test_arguments_too_deep_to_be_an_object_count_as_text() -> None:
    for depth in (126, 127, 128, 10_000):
        text = '{"k":' * depth + "1" + "}" * depth
        report = ullage.fit([user(), asks("a", arguments=text), result("a")], **ROOMY).report
        raw = report.attempts[0].count.method.endswith("+raw-arguments")
        assert raw == (depth > 127)


def test_100000_messages() -> None:
    chat = [user("x")] * 100_000
    fitted = ullage.fit(chat, window_tokens=1000, output_reserve=1)
    assert len(fitted.messages) == (1000 - 1 - 32 - 4) // 8
    assert len(fitted.report.turns) == 99_999


def test_a_transcript_that_is_none_is_a_type_error() -> None:
    for bad in (None, 1, object()):
        with pytest.raises(TypeError):
            ullage.fit(bad, **ROOMY)  # type: ignore[call-overload]
    with pytest.raises(TranscriptError, match=r"messages\[0\]: a message is a dict"):
        ullage.fit("user", **ROOMY)
    with pytest.raises(TranscriptError, match=r"messages\[0\]: a message is a dict"):
        ullage.fit(user(), **ROOMY)  # a dict in the place of a list of dicts


def test_a_generator_that_raises_is_not_swallowed() -> None:
    def broken() -> Any:
        yield user()
        raise RuntimeError("connection lost")

    with pytest.raises(RuntimeError, match="connection lost"):
        ullage.fit(broken(), **ROOMY)


def test_blank_names_and_ids_are_told_apart_from_odd_ones() -> None:
    for odd in ("\x1c", "\u200b", "\ufeff"):
        chat = [user(), asks(odd), result(odd), user()]
        assert ullage.fit(chat, **ROOMY).messages == chat
        assert ToolCall(odd, odd, {}).id == odd
    for blank in ("", "\u2028", " \x85"):
        with pytest.raises(TranscriptError):
            ullage.fit([user(), asks(blank), result(blank)], **ROOMY)
        with pytest.raises(DecodeError, match=r"ToolCall\.id"):
            ToolCall.from_dict({"id": blank, "name": "f", "arguments": {}})
    with pytest.raises(InvalidContext):
        ullage.fit([user()], model="\u3000", **ROOMY)
