"""The classifier seam: answers lower budgets or change nothing, and the record says which and why."""

from __future__ import annotations

import asyncio
import gc
import math
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage import threshold as module
from ullage.errors import DecodeError, UllageError
from ullage.scope import (
    SCOPE_QUESTION,
    ScopeAnswer,
    ScopeOutcome,
    ScopeQuestion,
    ScopeRecord,
    decide_threshold,
    decide_threshold_async,
)
from ullage.threshold import DEFAULT_COMPACTION_THRESHOLD, ContextScope, resolve_history_budget

REQUEST = [{"role": "user", "content": "And in French?"}]
CHECK = {"available_input_tokens": 83_200}


class Raises(Mapping[str, Any]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("broken mapping")

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def answering(answer: Any) -> Any:
    return lambda question, request: answer


def answering_later(answer: Any) -> Any:
    async def classify(question: ScopeQuestion, request: Any) -> Any:
        await asyncio.sleep(0)
        return answer

    return classify


def decide_both(answer: Any, **settings: Any) -> ScopeRecord:
    """The record of one answer, which must be the same given at once and awaited."""
    record = decide_threshold(answering(answer), REQUEST, **settings)
    assert asyncio.run(decide_threshold_async(answering_later(answer), REQUEST, **settings)) == record
    assert ScopeRecord.from_json(record.to_json()) == record
    return record


def raising(error: Exception) -> Any:
    def classify(question: ScopeQuestion, request: Any) -> ScopeAnswer:
        raise error

    return classify


# --- the question ------------------------------------------------------------


def test_rubric_has_one_level_for_each_scope_in_order() -> None:
    assert [level.scope for level in SCOPE_QUESTION.levels] == list(ContextScope)
    assert [level.score for level in SCOPE_QUESTION.levels] == [0, 1, 2, 3]
    assert SCOPE_QUESTION.name == "context"
    assert ScopeQuestion.from_json(SCOPE_QUESTION.to_json()) == SCOPE_QUESTION


def test_classifier_is_given_the_question_and_the_very_request() -> None:
    seen: list[Any] = []

    def classify(question: ScopeQuestion, request: list[dict[str, str]]) -> ScopeAnswer:
        seen.extend([question, request])
        return ScopeAnswer(0, 1)

    decide_threshold(classify, REQUEST)
    assert seen[0] is SCOPE_QUESTION
    assert seen[1] is REQUEST


# --- answers -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "scope", "threshold"),
    [
        (0, ContextScope.CURRENT_MESSAGE, 0.45),
        (0.5, ContextScope.RECENT_TURNS, 0.6),
        (2.4, ContextScope.FULL_CONVERSATION, 0.75),
        (3, ContextScope.EVERYTHING, None),
        (17, ContextScope.EVERYTHING, None),
    ],
)
def test_answer_becomes_the_threshold_of_its_scope(
    score: float, scope: ContextScope, threshold: float
) -> None:
    record = decide_both(ScopeAnswer(score, 0.9))
    assert (record.scope, record.threshold) == (scope, threshold)
    assert record.outcome == (ScopeOutcome.WIDEST if threshold is None else ScopeOutcome.LOWERED)
    assert record.answer == ScopeAnswer(score, 0.9)
    assert record.question == SCOPE_QUESTION
    assert decide_both({"score": score, "confidence": 0.9}) == record
    assert decide_both({"type": "score", "score": score, "confidence": 0.9, "why": "short"}) == record


@pytest.mark.parametrize("answer", [None, ScopeAnswer(0, 0.49), {"type": "choice", "choice": "recent-turns"}])
def test_answer_without_a_scope_changes_nothing(answer: Any) -> None:
    record = decide_both(answer)
    assert (record.outcome, record.threshold, record.scope) == (ScopeOutcome.NO_SCOPE, None, None)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("recent-turns", "str is no answer"),
        (0.45, "float is no answer"),
        ({}, "no score"),
        ({"score": 1}, "no confidence"),
        ({"score": math.nan, "confidence": 0.9}, "ScopeAnswer.score"),
        ({"score": 1, "confidence": math.inf}, "ScopeAnswer.confidence"),
        ({"score": "1", "confidence": 0.9}, "ScopeAnswer.score"),
        ({"score": 1, "confidence": True}, "ScopeAnswer.confidence"),
        ({"score": 10**400, "confidence": 0.9}, "ScopeAnswer.score"),
        (Raises(), "broken mapping"),
    ],
)
def test_nonsense_changes_nothing_and_is_on_record(answer: Any, problem: str) -> None:
    record = decide_both(answer)
    assert (record.outcome, record.threshold, record.answer) == (ScopeOutcome.NONSENSE, None, None)
    assert problem in (record.problem or "")


@pytest.mark.parametrize("error", [ValueError("out of \ud800 memory"), UnprintableError(), TimeoutError()])
def test_classifier_that_raises_changes_nothing_and_is_on_record(error: Exception) -> None:
    async def classify(question: ScopeQuestion, request: Any) -> ScopeAnswer:
        raise error

    records = [
        decide_threshold(raising(error), REQUEST),
        asyncio.run(decide_threshold_async(raising(error), REQUEST)),
        asyncio.run(decide_threshold_async(classify, REQUEST)),
    ]
    for record in records:
        assert (record.outcome, record.threshold) == (ScopeOutcome.FAILED, None)
        assert type(error).__name__ in (record.problem or "")
        assert ScopeRecord.from_json(record.to_json()) == record


def test_classifier_of_the_other_kind_changes_nothing_and_is_on_record() -> None:
    record = decide_threshold(answering_later(ScopeAnswer(0, 1)), REQUEST)
    assert record.outcome == ScopeOutcome.NONSENSE
    assert "decide_threshold_async" in (record.problem or "")
    record = asyncio.run(decide_threshold_async(answering(ScopeAnswer(0, 1)), REQUEST))
    assert record.outcome == ScopeOutcome.NONSENSE
    assert "decide_threshold" in (record.problem or "")


def test_record_that_is_not_one_is_refused() -> None:
    with pytest.raises(DecodeError, match="question"):
        ScopeRecord.from_json(b"{}")


# --- time --------------------------------------------------------------------


def test_classifier_that_outlasts_its_limit_changes_nothing_and_is_on_record() -> None:
    async def classify(question: ScopeQuestion, request: Any) -> ScopeAnswer:
        await asyncio.Event().wait()
        return ScopeAnswer(0, 1)

    record = asyncio.run(decide_threshold_async(classify, REQUEST, timeout=0.01))
    assert (record.outcome, record.threshold, record.answer) == (ScopeOutcome.TIMED_OUT, None, None)
    assert ScopeRecord.from_json(record.to_json()) == record


def test_classifier_that_resists_being_cancelled_is_not_waited_for() -> None:
    async def run() -> tuple[ScopeRecord, list[str], list[dict[str, Any]]]:
        log: list[str] = []
        reports: list[dict[str, Any]] = []
        release = asyncio.Event()

        async def classify(question: ScopeQuestion, request: Any) -> ScopeAnswer:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                log.append("cancelled")
                await release.wait()
            log.append("over")
            raise RuntimeError("too late to matter")

        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
        record = await decide_threshold_async(classify, REQUEST, timeout=0.01)
        await asyncio.sleep(0)
        log.append("decided")
        release.set()
        for _ in range(5):  # a few rounds of the loop, for the classifier to end
            await asyncio.sleep(0)
        gc.collect()  # a task's unread exception is reported when the task goes
        return record, log, reports

    record, log, reports = asyncio.run(run())
    assert record.outcome == ScopeOutcome.TIMED_OUT
    assert log == ["cancelled", "decided", "over"]
    assert not reports


def test_cancelling_the_decision_cancels_the_classifier() -> None:
    async def run() -> tuple[str, ...]:
        log: list[str] = []
        started = asyncio.Event()

        async def classify(question: ScopeQuestion, request: Any) -> ScopeAnswer:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                log.append("classifier cancelled")
            return ScopeAnswer(0, 1)

        decision = asyncio.create_task(decide_threshold_async(classify, REQUEST, timeout=None))
        await started.wait()
        decision.cancel()
        with pytest.raises(asyncio.CancelledError):
            await decision
        await asyncio.sleep(0)
        return tuple(log)  # what comes later, at the end of the loop, does not count

    assert asyncio.run(run()) == ("classifier cancelled",)


def test_classifier_that_cancels_itself_changes_nothing() -> None:
    async def classify(question: ScopeQuestion, request: Any) -> ScopeAnswer:
        raise asyncio.CancelledError

    record = asyncio.run(decide_threshold_async(classify, REQUEST))
    assert (record.outcome, record.threshold) == (ScopeOutcome.FAILED, None)


@pytest.mark.parametrize("timeout", [0, -1, math.nan, True, "1"])
def test_time_limit_that_is_none_is_refused_by_name(timeout: Any) -> None:
    with pytest.raises(ValueError, match="timeout") as caught:
        asyncio.run(decide_threshold_async(answering_later(None), REQUEST, timeout=timeout))
    assert isinstance(caught.value, UllageError)


def test_asyncio_is_left_to_those_who_await() -> None:
    # It takes about as long to import as all the rest.
    check = "import sys, ullage; sys.exit('asyncio' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


# --- one direction only ------------------------------------------------------

figures = st.floats() | st.integers() | st.none() | st.booleans() | st.text()
answers = (
    st.builds(ScopeAnswer, st.floats(0, 3), st.floats(0, 1))
    | st.fixed_dictionaries({"score": figures, "confidence": figures})
    | figures
    | st.dictionaries(st.sampled_from(["type", "score", "confidence"]), figures)
)


@given(answers, st.sampled_from([True, False, None]))
def test_no_answer_raises_a_budget(answer: Any, enabled: bool | None) -> None:
    record = decide_threshold(answering(answer), REQUEST, enabled=enabled)
    assert record.threshold is None or record.threshold < DEFAULT_COMPACTION_THRESHOLD
    assert resolve_history_budget(CHECK, record.threshold) <= resolve_history_budget(CHECK)
    assert ScopeRecord.from_json(record.to_json()) == record
    if record.outcome != ScopeOutcome.LOWERED:
        assert record.apply({"model": "m"}) == {"model": "m"}


@given(answers, st.lists(st.floats(allow_nan=False), min_size=4, max_size=4))
def test_no_table_of_thresholds_raises_a_budget(answer: Any, table: list[float]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SCOPE_THRESHOLDS", dict(zip(ContextScope, table, strict=True)))
        record = decide_threshold(answering(answer), REQUEST)
    assert record.threshold is None or record.threshold < DEFAULT_COMPACTION_THRESHOLD


@given(answers, st.floats(allow_nan=False, allow_infinity=False))
def test_explicit_threshold_always_wins_and_nobody_is_asked(answer: Any, threshold: float) -> None:
    record = decide_threshold(raising(AssertionError("asked")), REQUEST, threshold=threshold)
    assert (record.outcome, record.threshold, record.problem) == (ScopeOutcome.GIVEN, threshold, None)
    lowered = decide_threshold(answering(answer), REQUEST)
    assert lowered.apply({"compaction_threshold": threshold}) == {"compaction_threshold": threshold}


def test_nobody_is_asked_where_the_feature_is_off() -> None:
    record = decide_threshold(raising(AssertionError("asked")), REQUEST, enabled=False)
    assert (record.outcome, record.threshold, record.problem) == (ScopeOutcome.DISABLED, None, None)
    assert decide_both(ScopeAnswer(0, 1), enabled=False) == record


def test_record_fills_the_option_that_the_caller_left_open() -> None:
    record = decide_both(ScopeAnswer(1, 0.9))
    assert record.apply({"model": "m"}) == {"model": "m", "compaction_threshold": 0.6}


@pytest.mark.parametrize("threshold", [math.nan, math.inf, True, "0.5"])
def test_explicit_threshold_that_is_no_number_is_refused_by_name(threshold: Any) -> None:
    with pytest.raises(ValueError, match="threshold") as caught:
        decide_threshold(answering(None), REQUEST, threshold=threshold)
    assert isinstance(caught.value, UllageError)
    with pytest.raises(ValueError, match="threshold"):
        asyncio.run(decide_threshold_async(answering_later(None), REQUEST, threshold=threshold))


@pytest.mark.parametrize("figure", [math.nan, math.inf, "1", None, True])
def test_answer_holds_finite_numbers_only(figure: Any) -> None:
    with pytest.raises(ValueError, match=r"ScopeAnswer\.score"):
        ScopeAnswer(figure, 0.5)
    with pytest.raises(ValueError, match=r"ScopeAnswer\.confidence"):
        ScopeAnswer(1, figure)
