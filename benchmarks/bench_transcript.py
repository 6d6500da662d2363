"""A Transcript of 2,000 messages: one more message and a fit, however long the messages are."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import ullage

from .transcripts import text

MESSAGES = 2_000
TARGET = ullage.ContextTarget("any", "1")
CURRENT = (ullage.UserMessage("And what is left today?"),)
CHARACTERS = pytest.mark.parametrize("characters", [40, 4_000], ids="{:,} characters".format)
ROUNDS: dict[str, Any] = {"rounds": 2_000, "warmup_rounds": 100}


class Cellar:
    """A transcript with a tool call in each turn of four messages, and a window for a quarter of it."""

    def __init__(self, characters: int) -> None:
        rng = random.Random(1)
        turns = [self._turn(rng, number, characters) for number in range(MESSAGES // 4)]
        self.messages: list[ullage.Message] = [message for turn in turns for message in turn]
        self.more = [ullage.UserMessage(text(rng, characters)) for _ in range(500)]
        self.transcript = ullage.Transcript(system=("You keep the cellar book.",))
        self.transcript.extend(self.messages)
        whole = self.fit(ullage.ContextBudget(10**12, 1)).report.attempts[0].total_reserved
        self.budget = ullage.ContextBudget(whole // 4 + 256, 256)
        self.budgets = [ullage.ContextBudget(whole * k // 8 + 256, 256) for k in range(1, 9)]

    @staticmethod
    def _turn(rng: random.Random, number: int, characters: int) -> list[ullage.Message]:
        call = f"call_{number}"
        return [
            ullage.UserMessage(text(rng, characters)),
            ullage.AssistantMessage(None, (ullage.ToolCall(call, "measure_cask", {"cask": number}),)),
            ullage.ToolMessage(call, text(rng, characters)),
            ullage.AssistantMessage(text(rng, characters)),
        ]

    def fit(self, budget: ullage.ContextBudget) -> ullage.FittedContext:
        return self.transcript.fit(CURRENT, budget=budget, target=TARGET)

    def one_more(self) -> Callable[[], tuple[tuple[ullage.Message], dict[str, Any]]]:
        """What is not timed before each round: the turn of the last one goes, another message is found."""
        fresh = iter(self.more * (2 * (ROUNDS["rounds"] + ROUNDS["warmup_rounds"]) // len(self.more)))

        def prepare() -> tuple[tuple[ullage.Message], dict[str, Any]]:
            if len(self.transcript) > MESSAGES:
                self.transcript.remove_last_turn()
            return (next(fresh),), {}

        return prepare

    def input(self) -> ullage.ContextBuildInput:
        """The same for the builder."""
        return ullage.ContextBuildInput(
            history=self.transcript.projection(),
            current=CURRENT,
            target=TARGET,
            budget=self.budget,
            system=self.transcript.system,
            limits=self.fit(self.budget).report.limits,
        )


@pytest.fixture(scope="module")
def cellars() -> dict[int, Cellar]:
    return {characters: Cellar(characters) for characters in (40, 4_000)}


@CHARACTERS
@pytest.mark.benchmark(group="transcript: one message more and a fit at 2,000 messages")
class TestGrowing:
    def test_append_and_fit(
        self, benchmark: BenchmarkFixture, cellars: dict[int, Cellar], characters: int
    ) -> None:
        cellar = cellars[characters]

        def grow(message: ullage.Message) -> ullage.FittedContext:
            cellar.transcript.append(message)
            return cellar.fit(cellar.budget)

        fitted = benchmark.pedantic(grow, setup=cellar.one_more(), **ROUNDS)
        assert 0 < len(fitted.request.messages) < MESSAGES // 2

    def test_append_alone(
        self, benchmark: BenchmarkFixture, cellars: dict[int, Cellar], characters: int
    ) -> None:
        cellar = cellars[characters]
        benchmark.pedantic(cellar.transcript.append, setup=cellar.one_more(), **ROUNDS)

    def test_fit_of_the_list(
        self, benchmark: BenchmarkFixture, cellars: dict[int, Cellar], characters: int
    ) -> None:
        cellar = cellars[characters]
        chat = [ullage.SystemMessage("You keep the cellar book."), *cellar.messages, *CURRENT]
        window = cellar.budget.window_tokens
        benchmark(lambda: ullage.fit(chat, window_tokens=window, output_reserve=256))

    def test_fit_of_a_list_of_dicts(
        self, benchmark: BenchmarkFixture, cellars: dict[int, Cellar], characters: int
    ) -> None:
        cellar = cellars[characters]
        chat = [{"role": "system", "content": "You keep the cellar book."}]
        chat += [as_chat(message) for message in (*cellar.messages, *CURRENT)]
        window = cellar.budget.window_tokens
        benchmark(lambda: ullage.fit(chat, window_tokens=window, output_reserve=256))

    def test_builder(self, benchmark: BenchmarkFixture, cellars: dict[int, Cellar], characters: int) -> None:
        cellar = cellars[characters]
        if len(cellar.transcript) > MESSAGES:
            cellar.transcript.remove_last_turn()
        input, counter = cellar.input(), ullage.ByteHeuristicCounter()
        built = benchmark(ullage.CanonicalContextBuilder().build, input, counter)
        assert built.to_json() == cellar.fit(cellar.budget).to_json()


@CHARACTERS
@pytest.mark.benchmark(group="transcript: eight windows over 2,000 messages")
class TestManyWindows:
    def test_fit_many(self, benchmark: BenchmarkFixture, cellars: dict[int, Cellar], characters: int) -> None:
        cellar = cellars[characters]
        fit_many = cellar.transcript.fit_many
        benchmark(lambda: fit_many(cellar.budgets, current=CURRENT, target=TARGET))

    def test_builder_eight_times(
        self, benchmark: BenchmarkFixture, cellars: dict[int, Cellar], characters: int
    ) -> None:
        cellar = cellars[characters]
        builder, counter = ullage.CanonicalContextBuilder(), ullage.ByteHeuristicCounter()
        input = cellar.input()
        inputs = [replaced(input, budget) for budget in cellar.budgets]
        benchmark(lambda: [builder.build(each, counter) for each in inputs])


@CHARACTERS
@pytest.mark.benchmark(group="transcript: what is made when it is read, at 2,000 messages")
class TestReading:
    def test_request(self, benchmark: BenchmarkFixture, cellars: dict[int, Cellar], characters: int) -> None:
        cellar = cellars[characters]
        benchmark(lambda: cellar.fit(cellar.budget).request)

    def test_report(self, benchmark: BenchmarkFixture, cellars: dict[int, Cellar], characters: int) -> None:
        cellar = cellars[characters]
        benchmark(lambda: cellar.fit(cellar.budget).report)

    def test_report_as_json(
        self, benchmark: BenchmarkFixture, cellars: dict[int, Cellar], characters: int
    ) -> None:
        cellar = cellars[characters]
        benchmark(lambda: cellar.fit(cellar.budget).report.to_json())


def replaced(input: ullage.ContextBuildInput, budget: ullage.ContextBudget) -> ullage.ContextBuildInput:
    names = ("history", "current", "target", "system", "limits")
    return ullage.ContextBuildInput(budget=budget, **{name: getattr(input, name) for name in names})


def as_chat(message: ullage.Message) -> dict[str, Any]:
    """An OpenAI chat message."""
    if isinstance(message, ullage.UserMessage):
        return {"role": "user", "content": message.content}
    if isinstance(message, ullage.ToolMessage):
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.content}
    assert isinstance(message, ullage.AssistantMessage)
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": ullage.canonical.write(call.arguments).decode()},
        }
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
