"""Threads may share everything, and may even change a transcript while it is being measured."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from promises import asks, assistant, result, system, user
from support import Engine, ExactBytes, build_outcome, outcome, sound

import ullage
from ullage import canonical
from ullage._chat import EncodedChat

LONG = 300_000  # characters: text of this size is measured while other threads run


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@contextmanager
def meanwhile(change: Callable[[int], None]) -> Iterator[None]:
    """Another thread makes the change over and over, with a number that counts up."""
    stop = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set():
            change(number)
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def again_for(seconds: float, look: Callable[[], Any]) -> list[Any]:
    """What the call gives, as often as there is time for."""
    end = time.monotonic() + seconds
    found = [look()]
    while time.monotonic() < end:
        found.append(look())
    return found


def together(function: Callable[[], Any], threads: int = 8, times: int = 10) -> list[Any]:
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(function) for _ in range(threads * times)]
        return [job.result() for job in jobs]


# --- sharing ---------------------------------------------------------------------------------


def test_threads_may_share_a_builder_a_counter_and_an_input(engine: Engine) -> None:
    input = sound(160)
    for counter in (engine.byte_heuristic(), ExactBytes()):
        expected = build_outcome(engine, input, counter)
        assert set(together(lambda counter=counter: build_outcome(engine, input, counter))) == {expected}


def test_threads_may_share_a_transcript() -> None:
    chat = [system("s" * LONG), user("é" * LONG), asks("a"), result("a", "字" * LONG), user("now")]

    def fitted() -> tuple[Any, ...]:
        found = ullage.fit(chat, window_tokens=100_000, output_reserve=100)
        return tuple(found.kept), found.report.to_json()

    expected = fitted()
    assert expected[0] == (0, 4)
    assert set(together(fitted, times=4)) == {expected}


def test_threads_may_share_a_result() -> None:
    chat = [user(str(n)) for n in range(300)]
    found = ullage.fit(chat, window_tokens=300, output_reserve=100)
    assert len({report.to_json() for report in together(lambda: found.report)}) == 1


def test_threads_may_measure_the_same_values(engine: Engine) -> None:
    value = {"long": "\n" * LONG, "k" * 10: [1.5, {"字" * LONG: None}]}
    text = canonical.write(value)
    assert set(together(lambda: engine.json_length(value), times=2)) == {len(text)}
    assert set(together(lambda: engine.json_text_length(text), times=2)) == {len(text)}


def test_other_threads_run_while_long_text_is_measured() -> None:
    text, ticks = "x" * 50_000_000, 0

    def tick(number: int) -> None:
        nonlocal ticks
        ticks = number

    sys.setswitchinterval(0.2)  # longer than the measuring takes: only letting go of the lock lets others in
    with meanwhile(tick):
        for _ in range(100):
            before = ticks
            ullage.json_length(text)
            if ticks > before:
                break
    assert ticks > before


# --- changes while it is measured ---------------------------------------------------------------


def test_a_text_that_is_exchanged_counts_as_one_of_the_two() -> None:
    message = user("a" * LONG)
    texts = ["a" * LONG, "é" * (LONG - 1), "\n" * LONG, "x"]
    sizes = {EncodedChat([user(text)], False).total_bytes for text in texts}

    def exchange(number: int) -> None:
        message["content"] = texts[number % 4] + ""

    with meanwhile(exchange):
        assert set(again_for(0.5, lambda: EncodedChat([message], False).total_bytes)) <= sizes


def test_a_dict_that_changes_is_measured_or_refused() -> None:
    value: dict[str, Any] = {}

    def change(number: int) -> None:
        key = "k" * (LONG if number % 3 == 0 else number % 50)
        if number % 200 < 100:
            value[key] = ["v" * (LONG if number % 5 == 0 else 3), {"n": number}]
        else:
            value.pop(key, None)
        if number % 1000 == 0:
            value.clear()

    for measure in (ullage.json_length, lambda v: len(canonical.write(v))):
        with meanwhile(change):
            check_outcomes(again_for(0.4, lambda measure=measure: outcome(measure, value)))


def test_a_list_that_changes_is_measured_or_refused() -> None:
    value: list[Any] = []

    def change(number: int) -> None:
        if number % 100 == 99:
            value.clear()
        elif number % 7 == 6 and value:
            value.pop()
        else:
            value.append([("x" if number % 3 else "字") * (LONG if number % 11 == 0 else 5), number])

    for measure in (ullage.json_length, lambda v: len(canonical.write(v))):
        with meanwhile(change):
            check_outcomes(again_for(0.4, lambda measure=measure: outcome(measure, value)))


def test_a_transcript_that_changes_is_fitted_or_refused() -> None:
    call = asks("a", "b", arguments='{"q": "' + "x" * LONG + '"}')
    answers = [result("a", "r" * LONG), result("b", [{"type": "text", "text": "é" * LONG}])]
    chat: list[Any] = [system(), user("1"), call, *answers, assistant(), user("2")]
    calls = call["tool_calls"]
    first, second = calls

    def change(number: int) -> None:
        step = number % 8
        if step == 0:
            chat.append(user("y" * (LONG if number % 16 else 1)))
        elif step == 1:
            del chat[7:]
        elif step == 2:
            calls[:] = [first, second] if number % 16 == 2 else [second]
        elif step == 3:
            first["function"]["arguments"] = "{" if number % 16 == 3 else '{"q": 1}' + " " * LONG
        elif step == 4:
            answers[1]["content"] = ["é", {"type": "text", "text": "é" * LONG}][number % 16 == 4 :]
        elif step == 5:
            chat[1]["k" * LONG if number % 16 == 5 else "k"] = {"n": ["v" * LONG]}
        elif step == 6:
            chat[1] = user("z" * LONG)
        else:
            call["role"] = "user" if number % 16 == 7 else "assistant"

    def fitted() -> tuple[Any, ...]:
        return outcome(ullage.fit, chat, window_tokens=200_000, output_reserve=100)

    with meanwhile(change):
        found = again_for(1.5, fitted)
    check_outcomes(found)
    for kind, first_told, *_ in found:
        if kind == "value":
            totals = [attempt.total_reserved for attempt in first_told.report.attempts]
            assert totals[-1] <= 200_000


def test_messages_that_are_appended_while_a_build_runs(engine: Engine) -> None:
    """The lists inside a build's input may change; what was measured is what is built, or it is refused."""
    arguments: dict[str, Any] = {"q": "x" * LONG}
    call = ullage.AssistantMessage(None, (ullage.ToolCall("c", "f", arguments),))
    input = sound(10**6, current=(ullage.UserMessage("u"), call, ullage.ToolMessage("c", "")))

    def change(number: int) -> None:
        arguments["k" * (number % 5)] = ["v" * LONG, number]
        if number % 50 == 0:
            arguments.clear()

    with meanwhile(change):
        check_outcomes(again_for(0.6, lambda: outcome(engine.build, input, engine.byte_heuristic())))


def check_outcomes(found: list[tuple[Any, ...]]) -> None:
    """Nothing but values and the library's own errors."""
    strange = {
        told[1:3] for told in found if told[0] == "error" and not issubclass(told[1], ullage.UllageError)
    }
    assert strange == set()
