"""Threads may share transcripts: every change is whole, and every fit is of one moment.

ULLAGE_SOAK_SECONDS says how long the threads are at it; from 20 on memory must stay flat too.
"""

from __future__ import annotations

import gc
import os
import pickle
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import ExactBytes
from transcript_strategies import NOW, ROOMY, TARGET, asks, exchange, state_of

import ullage
from ullage.budget import ContextBudget
from ullage.errors import ContextBuildError, InvalidContext, TranscriptError
from ullage.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ullage.report import ContextBuildInput

SECONDS = float(os.environ.get("ULLAGE_SOAK_SECONDS", "3"))
THREADS = 8
LONG = "é" * 300_000  # of this size text is measured while other threads run
FLAT = 16 * 2**20  # bytes that the process may grow by once all threads are at work


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def change(transcript: ullage.Transcript, rng: random.Random) -> None:
    """One change after which no call waits; what another thread did before may make it impossible."""
    text = LONG if rng.random() < 0.02 else rng.choice(["", "a", 'quote "', "字" * 50])
    turn = rng.randrange(max(1, transcript.turn_count))
    whole: list[Message] = [UserMessage(text), *exchange(text[:1] or "c"), AssistantMessage(text)]
    kind = rng.randrange(8)
    try:
        if kind <= 1:
            transcript.extend(whole)
        elif kind == 2:
            transcript.append(UserMessage(text))
        elif kind == 3:
            transcript.append(AssistantMessage(text))
        elif kind == 4:
            transcript.pin(turn)
        elif kind == 5:
            transcript.unpin(turn)
        elif kind == 6:
            transcript.replace_last_turn(whole)
        else:
            for _ in range(1 if len(transcript) < 100 else 20):
                transcript.remove_last_turn()
    except IndexError:
        assert kind >= 6
    except InvalidContext:
        assert kind in (4, 5)


def again(transcript: ullage.Transcript, results: list[Any], oracle: bool) -> None:
    """Results of one moment are those of a transcript grown anew to that moment."""
    whole, *others = results
    fresh = ullage.Transcript(transcript.counter, transcript.system)
    fresh.extend(whole.request.messages[len(transcript.system) : -len(NOW)])
    for turn in whole.report.turns:
        if turn.protected:
            fresh.pin(turn.turn_id)
    budgets = [ROOMY, *[result.report.budget for result in others]]
    expected = fresh.fit_many(budgets, current=NOW, target=TARGET, return_errors=True)
    for result, same, budget in zip(results, expected, budgets, strict=True):
        assert result.report.to_json() == same.report.to_json()
        assert type(result) is type(same)
        if oracle and not isinstance(result, ContextBuildError):
            input = ContextBuildInput(
                history=fresh.projection(),
                current=NOW,
                target=TARGET,
                budget=budget,
                system=fresh.system,
                pinned_turns=fresh.pinned_turns,
                limits=result.report.limits,
            )
            assert result.to_json() == ullage.CanonicalContextBuilder().build(input, fresh.counter).to_json()


def look(transcript: ullage.Transcript, rng: random.Random) -> None:
    """Everything about a transcript that can be seen is of one moment."""
    kind = rng.randrange(8)
    if kind < 6:
        small = [ContextBudget(rng.choice([110, 150, 300, 1_000]), 100) for _ in range(3)]
        results = transcript.fit_many([ROOMY, *small], current=NOW, target=TARGET, return_errors=True)
        if rng.random() < 0.3:
            time.sleep(0)  # so that the transcript has changed when the results are made
        again(transcript, results, oracle=rng.random() < 0.1)
    elif kind == 6:
        arrays = transcript.arrays()
        sums = np.zeros(len(arrays.pins), np.uint64)
        np.add.at(sums, arrays.turns, arrays.tokens)
        assert sums.tolist() == arrays.turn_tokens.tolist()
        assert len({len(array) for array in arrays[:4]}) == len({len(array) for array in arrays[4:]}) == 1
        users = arrays.roles[arrays.turn_starts[1:]]
        assert np.all(users == ullage.MessageRole.USER)
    else:
        other = pickle.loads(pickle.dumps(transcript)) if rng.random() < 0.5 else transcript.copy()
        assert other.fit(NOW, budget=ROOMY, target=TARGET).request.messages[-1] is not None
        other.append(UserMessage("on its own"))


def resident() -> int:
    """Bytes of memory that the process has now, or 0 where that cannot be told."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_fits_of_shared_transcripts_are_each_of_one_moment() -> None:
    shared = [
        ullage.Transcript(system=("s",)),
        ullage.Transcript(),
        ullage.Transcript(ExactBytes(), system=("s",)),
    ]
    begun, end = time.monotonic(), time.monotonic() + SECONDS

    def work(seed: int) -> int:
        rng = random.Random(seed)
        own = ullage.Transcript()
        done = 0
        while time.monotonic() < end:
            transcript = own if rng.random() < 0.2 else rng.choice(shared)
            change(transcript, rng)
            look(transcript, rng)
            done += 1
        return done

    sizes: list[int] = []
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = [pool.submit(work, seed) for seed in range(THREADS)]
        while not all(job.done() for job in jobs):
            time.sleep(0.2)
            if time.monotonic() > begun + SECONDS / 2:
                sizes.append(resident())
        assert min(job.result() for job in jobs) > 0
    if SECONDS >= 20 and sizes[0]:
        half = len(sizes) // 2
        assert max(sizes[half:]) <= max(sizes[:half]) + FLAT


def test_an_append_is_lost_or_doubled_by_no_one() -> None:
    transcript = ullage.Transcript()
    turns = 300

    def work(number: int) -> None:
        for i in range(turns):
            name = f"{number}-{i}"
            transcript.extend([UserMessage(name), *exchange(name), AssistantMessage(name)])

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    assert len(transcript) == 4 * turns * THREADS
    names = [message.content for message in transcript.messages[::4] if isinstance(message, UserMessage)]
    assert sorted(names) == sorted(f"{number}-{i}" for number in range(THREADS) for i in range(turns))
    transcript.projection()  # no exchange was torn apart


def test_of_two_results_for_one_call_one_is_refused() -> None:
    def answer(transcript: ullage.Transcript) -> bool:
        try:
            transcript.append(ToolMessage("c", LONG))
        except TranscriptError:
            return False
        return True

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(20):
            transcript = ullage.Transcript()
            transcript.extend([UserMessage("u"), asks("c")])
            assert sum(pool.map(answer, [transcript] * THREADS)) == 1
            assert len(transcript) == 3


def test_a_finalizer_may_change_the_transcript_that_is_just_changing() -> None:
    transcript, rng = ullage.Transcript(), random.Random(1)

    class Trap:
        """Garbage as soon as it is made."""

        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            nonlocal sprung
            sprung += 1
            change(transcript, rng)

    sprung, before = 0, gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(500):
            Trap()
            change(transcript, rng)
            Trap()
            look(transcript, rng)
    finally:
        gc.set_threshold(*before)
    assert sprung > 0
    fresh = ullage.Transcript()
    fresh.extend(transcript.messages)
    for turn in transcript.pinned_turns:
        fresh.pin(turn)
    assert state_of(fresh) == state_of(transcript)


def test_a_counter_may_use_the_transcript_that_asks_it() -> None:
    class Nosy(ExactBytes):
        transcript: ullage.Transcript | None = None

        def message_tokens(self, message: Message) -> int:
            if self.transcript is not None and message == UserMessage("last"):
                self.transcript.extend([UserMessage("meanwhile")])
            return super().message_tokens(message)

    counter = Nosy()
    counter.transcript = transcript = ullage.Transcript(counter)
    transcript.extend([UserMessage("first"), UserMessage("last")])
    texts = [message.content for message in transcript.messages]
    assert texts == ["meanwhile", "first", "last"]
