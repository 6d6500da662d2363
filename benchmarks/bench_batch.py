"""200,000 transcripts of 6 messages and 1 KB in Arrow memory, against only reading their bytes.

Reading is the sum of the text as 64-bit words, by numpy, which is as fast as one
thread reads memory.  ``python -m benchmarks.bench_batch`` prints what follows
from the times: gigabytes of text a second, and the share of reading.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import ullage
from ullage import _batch

from .transcripts import text

ROWS = 200_000
MESSAGES = 6
BUDGET = ullage.ContextBudget(240, 20)
TEXTS = ("English", "mixed")


@cache
def column(texts: str) -> Any:
    """The transcripts: a system message, then questions and answers; English with quotes and line ends, or a
    mixture of scripts as in ``transcripts``."""
    rng = random.Random(1)
    pool: list[str] = []
    while len(pool) < 5000:
        made = text(rng, max(4, int(rng.gammavariate(2.0, 98))))
        if texts == "mixed" or made.isascii():
            pool.append(made)
    places = np.random.default_rng(1).integers(1, len(pool) + 1, (ROWS, MESSAGES))
    places[:, 0] = 0
    content = pa.array(["You keep the cellar book.", *pool]).take(pa.array(places.ravel()))
    roles = pa.array(["system", "user", "assistant"]).take(pa.array(np.tile([0, 1, 2, 1, 2, 1], ROWS)))
    messages = pa.StructArray.from_arrays([roles, content], ["role", "content"])
    offsets = np.arange(0, MESSAGES * ROWS + 1, MESSAGES, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), messages)


def words(texts: str) -> Any:
    """The bytes of all content, in place."""
    content = np.frombuffer(column(texts).values.field("content").buffers()[2], np.uint8)
    return content[: len(content) // 8 * 8].view(np.uint64)


def read(texts: str, threads: int) -> Callable[[], Any]:
    """Only read the bytes."""
    if threads == 1:
        return lambda: np.add.reduce(words(texts))
    pieces = np.array_split(words(texts), 8 * threads)
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(np.add.reduce, pieces))


def measure(texts: str, threads: int) -> Callable[[], Any]:
    """Bind the column, check offsets and UTF-8, measure every message, divide into turns."""
    source = column(texts)
    return lambda: ullage.TranscriptBatch.from_arrow(source, threads=threads)


def trim(threads: int) -> Callable[[], Any]:
    """Re-budget what has been measured, as a caller does: with all columns that come out."""
    batch = ullage.TranscriptBatch.from_arrow(column("English"))
    return lambda: batch.rebudget(BUDGET, threads=threads)


def trim_alone() -> Callable[[], Any]:
    """The kernel alone, into arrays that are there."""
    measures = ullage.TranscriptBatch.from_arrow(column("English"))._measures
    outcome = _batch.Outcome(measures)
    reserved = BUDGET.output_reserve
    return lambda: _batch.trim(measures, outcome, BUDGET.window_tokens, None, reserved, 4, 32, 0, ROWS)


@pytest.mark.benchmark(group="batch: 200,000 transcripts from text")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("texts", TEXTS)
class TestMeasure:
    def test_only_reading(self, benchmark: BenchmarkFixture, texts: str, threads: int) -> None:
        benchmark(read(texts, threads))

    def test_ullage(self, benchmark: BenchmarkFixture, texts: str, threads: int) -> None:
        assert not benchmark(measure(texts, threads)).faults.any()


@pytest.mark.benchmark(group="batch: 200,000 transcripts trimmed")
class TestTrim:
    @pytest.mark.parametrize("threads", [1, 2])
    def test_ullage(self, benchmark: BenchmarkFixture, threads: int) -> None:
        assert (benchmark(trim(threads)).status == ullage.BatchStatus.TRIMMED).mean() > 0.5

    def test_kernel(self, benchmark: BenchmarkFixture) -> None:
        benchmark(trim_alone())


@pytest.mark.benchmark(group="batch: 1,000 transcripts measured and trimmed")
class TestRows:
    ROWS = 1_000

    def test_ullage(self, benchmark: BenchmarkFixture) -> None:
        source = column("mixed").slice(0, self.ROWS)
        benchmark(lambda: ullage.TranscriptBatch.from_arrow(source).rebudget(BUDGET))

    def test_fit_of_dicts(self, benchmark: BenchmarkFixture) -> None:
        source = column("mixed").slice(0, self.ROWS)

        def each() -> list[Any]:
            return [ullage.fit(row, window_tokens=10**6, output_reserve=20) for row in source.to_pylist()]

        benchmark(each)


def _best(work: Callable[[], Any], seconds: float = 2.0) -> float:
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print gigabytes and transcripts a second, each against what reading reaches in the same run."""
    print(f"load {os.getloadavg()[0]:.2f}, best of many")
    for texts in TEXTS:
        size = words(texts).nbytes
        for threads in (1, 2):
            reading = size / _best(read(texts, threads)) / 1e9
            measured = size / _best(measure(texts, threads)) / 1e9
            print(
                f"{texts}, {size / ROWS:.0f} bytes a row, threads: {threads}; "
                f"reading {reading:.1f} GB/s, measuring {measured:.1f} GB/s, {measured / reading:.0%}"
            )
    for name, work in (
        ("rebudget", trim(1)),
        ("rebudget, 2 threads", trim(2)),
        ("kernel alone", trim_alone()),
    ):
        print(f"{name}: {ROWS / _best(work) / 1e6:.1f} million transcripts/s")


if __name__ == "__main__":
    main()
