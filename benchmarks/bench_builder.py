"""The builder on 500 turns of 4 messages (1.1 MB), by removals, against the reference and plain Python."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import ullage
from ullage import reference

from .baselines import plain_build
from .transcripts import build_input, history


@cache
def given(removals: int) -> ullage.ContextBuildInput:
    return build_input(history(500), removals)


def unread(removals: int) -> Any:
    return ullage.CanonicalContextBuilder().build(given(removals), ullage.ByteHeuristicCounter())


def read(removals: int) -> bytes:
    return unread(removals).report.to_json()  # type: ignore[no-any-return]


@pytest.mark.benchmark(group="build: removals")
@pytest.mark.parametrize("removals", [0, 1, 10, 100])
@pytest.mark.parametrize("call", [unread, read], ids=["report unread", "report as JSON"])
def test_removals(benchmark: BenchmarkFixture, call: Any, removals: int) -> None:
    given(removals)
    benchmark(call, removals)


@pytest.mark.benchmark(group="build: 100 removals")
class TestPeers:
    def test_ullage(self, benchmark: BenchmarkFixture) -> None:
        built = benchmark(unread, 100) if given(100) else None
        assert built is not None
        assert list(built.request.messages) == plain_build(given(100))

    def test_plain_python(self, benchmark: BenchmarkFixture) -> None:
        benchmark(plain_build, given(100))

    def test_reference(self, benchmark: BenchmarkFixture) -> None:
        builder, counter = reference.CanonicalContextBuilder(), reference.ByteHeuristicCounter()
        built = benchmark.pedantic(builder.build, (given(100), counter), rounds=3)
        assert built.to_json() == unread(100).to_json()
