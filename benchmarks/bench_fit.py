"""fit on 1,000 messages of about 400 characters, against serialising, measuring and trimming elsewhere."""

from __future__ import annotations

import json
import warnings
from typing import Any

import orjson
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import ullage

from .baselines import plain_fit
from .transcripts import chat

RESERVE = 4_096
GENERATED = chat(1000)
TRANSCRIPTS = {"generated": GENERATED, "json.loads": json.loads(json.dumps(GENERATED))}
WINDOW = (
    RESERVE
    + ullage.fit(GENERATED, window_tokens=10**9, output_reserve=1).report.attempts[0].total_reserved // 4
)


@pytest.fixture(params=list(TRANSCRIPTS))
def messages(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return TRANSCRIPTS[request.param]


def fit(messages: list[dict[str, Any]]) -> Any:
    return ullage.fit(messages, window_tokens=WINDOW, output_reserve=RESERVE)


@pytest.mark.benchmark(group="fit: 1,000 messages to a quarter")
class TestFit:
    def test_ullage(self, benchmark: BenchmarkFixture, messages: list[dict[str, Any]]) -> None:
        result = benchmark(fit, messages)
        assert result.messages[1:] == messages[-len(result.messages) + 1 :]

    def test_ullage_with_report(self, benchmark: BenchmarkFixture, messages: list[dict[str, Any]]) -> None:
        benchmark(lambda: fit(messages).report.to_json())

    def test_json_length_of_the_list(
        self, benchmark: BenchmarkFixture, messages: list[dict[str, Any]]
    ) -> None:
        assert benchmark(ullage.json_length, messages) == len(orjson.dumps(messages))

    def test_orjson_of_each_message(
        self, benchmark: BenchmarkFixture, messages: list[dict[str, Any]]
    ) -> None:
        benchmark(lambda: [orjson.dumps(message) for message in messages])

    def test_plain_python(self, benchmark: BenchmarkFixture, messages: list[dict[str, Any]]) -> None:
        benchmark(plain_fit, messages, WINDOW - RESERVE)

    def test_langchain_core(self, benchmark: BenchmarkFixture, messages: list[dict[str, Any]]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trim = pytest.importorskip("langchain_core.messages").trim_messages
            count = pytest.importorskip("langchain_core.messages.utils").count_tokens_approximately
        benchmark.pedantic(
            lambda: trim(
                messages,
                max_tokens=WINDOW - RESERVE,
                token_counter=count,
                strategy="last",
                start_on="human",
                include_system=True,
            ),
            rounds=5,
        )
