"""json_length against the speed of memory, an empty call, and serialising."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import ullage

ASCII = "The cask is nearly full; leave some room at the top. " * 1237
KILOBYTES_64 = ASCII[: 64 * 1024]


@pytest.mark.benchmark(group="64 KB of ASCII")
class TestLongText:
    def test_json_length(self, benchmark: BenchmarkFixture) -> None:
        assert benchmark(ullage.json_length, KILOBYTES_64) == len(KILOBYTES_64) + 2

    def test_memcpy(self, benchmark: BenchmarkFixture) -> None:
        source = np.frombuffer(KILOBYTES_64.encode(), np.uint8)
        benchmark(np.copyto, np.empty_like(source), source)

    def test_orjson(self, benchmark: BenchmarkFixture) -> None:
        assert len(benchmark(orjson.dumps, KILOBYTES_64)) == len(KILOBYTES_64) + 2

    def test_reference(self, benchmark: BenchmarkFixture) -> None:
        from ullage import reference

        benchmark(reference.json_length, KILOBYTES_64)


@pytest.mark.benchmark(group="20 characters")
@pytest.mark.parametrize(
    "call", [ullage.json_length, len, orjson.dumps], ids=["json_length", "empty call", "orjson"]
)
def test_short_text(benchmark: BenchmarkFixture, call: Any) -> None:
    benchmark(call, "a cask of twenty cha")
