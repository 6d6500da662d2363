"""What the everyday call counts, what it reports, and what it refuses to build with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chat_strategies import Dumped
from promises import IMAGE, ROOMY, TOOL, assistant, down_to, fit_and_check, needed, system, tokens, user
from support import ExactBytes, Scripted, Whole

import ullage
from ullage.budget import ContextBuildLimits, ContextTarget, TokenBoundEvidence, TokenBudgetMode
from ullage.errors import (
    CounterFailed,
    CountLimit,
    DoesNotFit,
    InvalidContext,
    JsonValueError,
    ResourceLimit,
    TranscriptError,
    UnverifiedCount,
)


def test_keys_without_a_place_count_their_bytes() -> None:
    plain, named = user("x" * 9), {**user("x" * 9), "name": "ann", "é": [1.0]}
    assert tokens([plain]).messages == (len(json.dumps(plain, separators=(",", ":"))) + 3) // 4
    extra = len(',"name":"ann","é":[1.0]'.encode())
    assert tokens([named]).messages == (len(json.dumps(plain, separators=(",", ":"))) + extra + 3) // 4


def test_tools_are_counted_whole() -> None:
    whole = '{"mode":"native_tools","tools":[%s],"choice":{"kind":"auto"}}'
    one = '{"name":"t","description":"d","parameters":{"a":1,"b":{"anyOf":[],"default":null}}}'
    assert tokens([user()]).constraint == (len('{"mode":"text"}') + 3) // 4
    assert tokens([user()], tools=[TOOL]).constraint == (len(whole % one) + 3) // 4
    definition = ullage.ToolDefinition("t", "d", TOOL["function"]["parameters"])
    for same in (TOOL["function"], {"type": "function", **TOOL["function"]}, definition, Dumped(TOOL)):
        assert tokens([user()], tools=[same]) == tokens([user()], tools=[TOOL])
    strict = {**TOOL, "function": {**TOOL["function"], "strict": True}, "x": 1}
    length = len(whole % one) + len(',"x":1,"strict":true')
    assert tokens([user()], tools=[strict]).constraint == (length + 3) // 4
    provider = {"type": "web_search", "size": "high"}
    length = len('{"mode":"text"}') + len(',{"size":"high","type":"web_search"}')
    assert tokens([user()], tools=[provider]).constraint == (length + 3) // 4
    bare = {"type": "function", "function": {"name": "t"}}
    assert (
        tokens([user()], tools=[bare]).constraint
        == (len(whole % '{"name":"t","description":"","parameters":{}}') + 3) // 4
    )


def test_tools_take_part_in_every_candidate() -> None:
    chat = [user("1"), user("2"), user("3")]
    down_to(chat, [1, 2], tools=[TOOL])


@pytest.mark.parametrize(
    ("tools", "path", "reason"),
    [
        ([TOOL, TOOL], "tools[1].function.name", "duplicate candidate tool name"),
        ([{"type": "web_search"}, TOOL, TOOL["function"]], "tools[2].name", "duplicate candidate tool name"),
        ([{"function": {"name": " "}}], "tools[0].function.name", "tool or schema name must not be blank"),
        ([{"name": "f", "parameters": 1}], "tools[0].parameters", "JSON Schema root must be"),
        ([{"function": {}}], "tools[0].function.name", "a tool needs a name"),
        ([{"name": "f", "description": 1}], "tools[0].description", "a description is text"),
        ([ullage.ToolDefinition("f", "", None)], "tools[0].parameters", "JSON Schema root must be"),
        (["f"], "tools[0]", "a tool is a dict or has model_dump, not str"),
    ],
)
def test_a_malformed_tool_is_named(tools: list[Any], path: str, reason: str) -> None:
    with pytest.raises(TranscriptError) as caught:
        ullage.fit([user()], tools=tools, **ROOMY)
    assert caught.value.path == path
    assert reason in caught.value.reason


def test_an_image_costs_its_price_and_never_its_bytes() -> None:
    text = tokens([user([{"type": "text", "text": "look"}])]).messages
    for price in (0, 1, 85, 1024):
        parts = [
            {"type": "text", "text": "look"},
            IMAGE,
            {"type": "input_audio", "input_audio": {"data": "A"}},
        ]
        fitted = ullage.fit([user(parts)], image_tokens=price, **ROOMY)
        (attempt,) = fitted.report.attempts
        assert attempt.count.tokens.messages == text + 2 * price
        assert attempt.count.method == f"serialized-utf8-ceil-div4-v1+parts-at-{price}"
        assert attempt.count.evidence is TokenBoundEvidence.ESTIMATE
    assert tokens([user([IMAGE])]).messages == tokens([user("")]).messages + 1024
    assert tokens([system([IMAGE]), user()]).system == tokens([system(""), user()]).system + 1024


@pytest.mark.parametrize("price", [-1, 2**32, True, 1.5, None, "1"])
def test_a_price_is_a_number_of_tokens(price: Any) -> None:
    with pytest.raises(ValueError, match="image_tokens must be an integer"):
        ullage.fit([user()], image_tokens=price, **ROOMY)


def test_prices_that_pass_64_bits_are_refused() -> None:
    class Huge(ExactBytes):
        def message_tokens(self, message: Any) -> int:
            return 2**64 - 1

    for counter in (Huge(), Whole(Huge())):
        with pytest.raises(CounterFailed, match="token overflow"):
            ullage.fit([user([IMAGE])], counter=counter, **ROOMY)


def test_a_part_of_an_unknown_type_counts_its_bytes() -> None:
    part = {"type": "reasoning", "text": "hmm"}
    length = len('{"role":"user","content":""}') + 1 + len(json.dumps(part, separators=(",", ":")))
    assert tokens([user([part])]).messages == (length + 3) // 4


# --- what the report says ------------------------------------------------------------------------------


def test_the_report_says_what_was_asked_for() -> None:
    fitted = fit_and_check(
        [system(), user()], window_tokens=500, output_reserve=100, safety_margin=7, model="m-1"
    )
    report = fitted.report
    assert report is fitted.report
    assert report.target == ContextTarget("m-1", "unspecified")
    assert report.budget == ullage.ContextBudget(500, 100, safety_margin=7)
    assert report.limits == ContextBuildLimits()
    assert (report.source_tail, report.session_id) == ("1", "unspecified")
    assert ullage.fit([user()], **ROOMY).report.target == ContextTarget("unspecified", "unspecified")


def test_a_model_has_a_name() -> None:
    with pytest.raises(InvalidContext, match="blank target"):
        ullage.fit([user()], model=" ", **ROOMY)
    with pytest.raises(JsonValueError, match="model: a lone surrogate"):
        ullage.fit([user()], model="m\ud800", **ROOMY)
    with pytest.raises(TypeError, match="model is a str or None"):
        ullage.fit([user()], model=3, **ROOMY)  # type: ignore[arg-type]


def test_the_format_is_one_that_is_known() -> None:
    assert ullage.fit([user()], format="openai", **ROOMY).kept == [0]
    with pytest.raises(ValueError, match="format is one of"):
        ullage.fit([user()], format="morse", **ROOMY)


# --- what cannot be done ---------------------------------------------------------------------------------


def test_what_must_stay_but_does_not_fit_is_refused_with_the_figures() -> None:
    chat = [system("s" * 400), user("p"), assistant(), user("q"), user("x" * 4000)]
    with pytest.raises(DoesNotFit) as caught:
        ullage.fit(chat, window_tokens=600, output_reserve=400, safety_margin=5, pins=[0])
    error = caught.value
    last = error.report.attempts[-1]
    assert [turn.retained for turn in error.report.turns] == [True, False]
    assert error.needed == last.total_reserved == sum(error.parts.values())
    assert error.window == 600
    assert list(error.parts) == [
        *("system", "pinned", "current", "constraint", "template", "output_reserve", "safety_margin")
    ]
    assert error.parts["current"] == (len(json.dumps(user("x" * 4000), separators=(",", ":"))) + 3) // 4
    assert error.parts["pinned"] == last.count.tokens.messages - error.parts["current"]
    assert "shorten the system text or the current turn" in error.__notes__[0]
    assert error.__notes__[1] == "output_reserve alone takes 67% of the window"


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"window_tokens": 0, "output_reserve": 1}, "window_tokens"),
        ({"window_tokens": 1, "output_reserve": 0}, "output_reserve"),
        ({"window_tokens": 100, "output_reserve": 100}, "output_reserve"),
        ({"window_tokens": 100, "output_reserve": 1, "safety_margin": 99}, "safety_margin"),
        ({"window_tokens": 2**64 - 1, "output_reserve": 2**64 - 1, "safety_margin": 1}, "output_reserve"),
    ],
)
def test_a_budget_that_leaves_nothing_is_a_configuration_error(settings: Any, path: str) -> None:
    with pytest.raises(InvalidContext) as caught:
        ullage.fit([user()], **settings)
    assert caught.value.path == path


@pytest.mark.parametrize("name", ["window_tokens", "output_reserve", "safety_margin"])
@pytest.mark.parametrize("value", [-1, 2**64, 1.0, "1", None, True])
def test_figures_are_unsigned_64_bit(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"ContextBudget\.{name} must be an integer"):
        ullage.fit([user()], **{**ROOMY, name: value})


def test_the_largest_window() -> None:
    fit_and_check([user()], window_tokens=2**64 - 1, output_reserve=2**64 - 100)


def test_limits_that_are_given_hold() -> None:
    chat = [user(str(i)) for i in range(10)]
    length = sum(len(json.dumps(message, separators=(",", ":"))) for message in chat) + len('{"mode":"text"}')
    exact = ContextBuildLimits(length, 10, 10, 10)
    assert ullage.fit(chat, limits=exact, **ROOMY).report.limits == exact
    for name, which in (
        ("max_input_bytes", "input bytes"),
        ("max_groups", "groups"),
        ("max_messages", "messages"),
    ):
        limits = ContextBuildLimits(**{**exact.to_dict(), name: getattr(exact, name) - 1})
        with pytest.raises(ResourceLimit, match=f"context resource limit: {which}"):
            ullage.fit(chat, limits=limits, **ROOMY)
    window = needed(chat[-1:])
    assert ullage.fit(chat, limits=exact, window_tokens=window, output_reserve=100).kept == [9]
    with pytest.raises(CountLimit) as caught:
        ullage.fit(
            chat, limits=ContextBuildLimits(max_count_calls=9), window_tokens=window, output_reserve=100
        )
    assert len(caught.value.report.attempts) == 9
    for name in exact.__struct_fields__:
        with pytest.raises(InvalidContext) as zero:
            ullage.fit(chat, limits=ContextBuildLimits(**{name: 0}), **ROOMY)
        assert zero.value.path == f"limits.{name}"


def test_a_thousand_turns_need_no_limits() -> None:
    chat = [user("x" * 40) for _ in range(5000)]
    fitted = fit_and_check(chat, window_tokens=needed(chat[-1:]), output_reserve=100)
    assert fitted.kept == [4999]
    assert fitted.report.limits == ContextBuildLimits(max_groups=5000, max_count_calls=5000)


# --- counters ----------------------------------------------------------------------------------------------


def test_hard_mode_takes_verified_counters_only() -> None:
    hard: dict[str, Any] = {**ROOMY, "mode": TokenBudgetMode.HARD}
    with pytest.raises(UnverifiedCount):
        ullage.fit([user()], **hard)
    for counter in (ExactBytes(), Whole(ExactBytes())):
        report = ullage.fit([user()], counter=counter, **hard).report
        assert report.budget.output_evidence is TokenBoundEvidence.VERIFIED_UPPER_BOUND
        assert report.attempts[0].count.evidence is TokenBoundEvidence.VERIFIED_UPPER_BOUND
        with pytest.raises(UnverifiedCount) as caught:
            ullage.fit([user(), user([{"type": "text", "text": ""}, IMAGE])], counter=counter, **hard)
        assert caught.value.path == "messages[1].content[1]"
        assert "has a price, not a verified count" in caught.value.__notes__[0]


def test_a_counter_of_whole_requests_sees_each_candidate_once() -> None:
    chat = [system(), user("1"), assistant(), user("2"), user("3")]
    counter = Whole(ullage.ByteHeuristicCounter())
    ullage.fit(chat, window_tokens=needed([chat[0], chat[4]]), output_reserve=100, counter=counter)
    assert [len(request.messages) for request in counter.requests] == [5, 3, 2]
    for request in counter.requests:
        request.validate_shape()


def test_counts_need_not_fall() -> None:
    counts = [{"system": 0, "messages": n, "constraint": 0, "template": 0} for n in (500, 900, 300)]
    counter = Scripted(counts, ContextTarget("unspecified", "unspecified"))
    fitted = ullage.fit([user(), user(), user()], window_tokens=400, output_reserve=100, counter=counter)
    assert [attempt.total_reserved for attempt in fitted.report.attempts] == [600, 1000, 400]


def test_what_a_counter_raises_is_the_cause() -> None:
    class Broken(ExactBytes):
        def __init__(self, member: str) -> None:
            self.member = member

        def __getattribute__(self, name: str) -> Any:
            if name == object.__getattribute__(self, "member"):
                raise LookupError(f"no {name}")
            return super().__getattribute__(name)

    for member in ("message_tokens", "constraint_tokens", "template_tokens", "method", "evidence"):
        with pytest.raises(CounterFailed, match=f"no {member}") as caught:
            ullage.fit([user()], counter=Broken(member), **ROOMY)
        assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(CounterFailed, match="no vocabulary"):
        ullage.fit([user()], counter=Scripted([], ContextTarget("m", "r"), error="no vocabulary"), **ROOMY)
