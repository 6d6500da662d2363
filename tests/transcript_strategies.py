"""Transcripts with a life behind them, and what their fits must equal."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import strategies as st
from request_strategies import (
    BLANKS,
    U64_MAX,
    Table,
    any_messages,
    blocks,
    budgets,
    constraints,
    limits_for,
    replace,
    targets,
)
from strategies import texts
from support import PY, C, ExactBytes, outcome

import ullage
from ullage.budget import (
    ContextBudget,
    ContextBuildLimits,
    ContextTarget,
    TokenBoundEvidence,
    TokenBudgetMode,
)
from ullage.errors import (
    DoesNotFit,
)
from ullage.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from ullage.report import ContextBuildInput

TARGET = ContextTarget("m", "r")
NOW = (UserMessage("now"),)
ROOMY = ContextBudget(10**9, 100)


def asks(*ids: str, arguments: Any = None) -> AssistantMessage:
    return AssistantMessage(None, tuple(ToolCall(i, "f", arguments or {"q": 1}) for i in ids))


def exchange(call_id: str = "c") -> list[Message]:
    return [asks(call_id), ToolMessage(call_id, "result")]


def three_turns(**settings: Any) -> ullage.Transcript:
    """Of four, one and two messages."""
    transcript = ullage.Transcript(**settings)
    transcript.extend([UserMessage("first"), *exchange(), AssistantMessage("answer")])
    transcript.extend([UserMessage("second"), UserMessage("third"), AssistantMessage("answer")])
    return transcript


def built_from(transcript: ullage.Transcript, **changes: Any) -> ContextBuildInput:
    """The build input that the transcript stands for."""
    given: dict[str, Any] = {"current": NOW, "target": TARGET, "budget": ROOMY, **changes}
    return ContextBuildInput(
        history=transcript.projection(),
        system=transcript.system,
        constraint=transcript.constraint,
        pinned_turns=transcript.pinned_turns,
        **given,
    )


def fit(transcript: ullage.Transcript, input: ContextBuildInput, scaled: bool = False) -> Any:
    """``fit`` of what is not the transcript's in a build input."""
    return transcript.fit(
        input.current,
        budget=input.budget,
        target=input.target,
        state_version=input.state_version,
        limits=None if scaled else input.limits,
    )


def down_to(transcript: ullage.Transcript, removed: int, current: Any = NOW) -> ContextBudget:
    """The budget in which so many turns go."""
    with pytest.raises(DoesNotFit) as caught:
        transcript.fit(current, budget=ContextBudget(101, 100), target=TARGET)
    assert caught.value.report is not None
    return ContextBudget(caught.value.report.attempts[removed].total_reserved, 100)


def state_of(transcript: ullage.Transcript) -> tuple[Any, ...]:
    arrays = transcript.arrays()
    return (
        transcript.messages,
        *(array.tolist() for array in arrays),
        fit(transcript, built_from(transcript, budget=ROOMY)).to_json(),
    )


# --- strategies ---


class Model:
    """What a transcript should hold: its turns, and which are pinned."""

    def __init__(self) -> None:
        self.turns: list[list[Message]] = []
        self.pins: set[int] = set()

    def extend(self, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, UserMessage) or not self.turns:
                self.turns.append([])
            self.turns[-1].append(message)

    @property
    def messages(self) -> list[Message]:
        return [message for turn in self.turns for message in turn]


@st.composite
def pieces(draw: st.DrawFn, parallel: int = 1) -> list[Message]:
    """Messages that may be appended at any time."""
    piece = st.one_of(
        st.builds(UserMessage, texts()).map(lambda message: [message]),
        st.builds(AssistantMessage, texts()).map(lambda message: [message]),
        blocks(parallel=parallel),
    )
    return [message for part in draw(st.lists(piece, min_size=1, max_size=4)) for message in part]


@st.composite
def changed_transcripts(draw: st.DrawFn, parallel: int = 1, **settings: Any) -> ullage.Transcript:
    """A transcript with a life behind it, checked against a model at its end."""
    transcript, model = ullage.Transcript(**settings), Model()
    results = []
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(
            st.sampled_from(["append", "extend", "extend", "pin", "unpin", "remove", "replace", "fit"])
        )
        last = len(model.turns) - 1
        if kind == "append":
            for message in (added := draw(pieces(parallel))):
                transcript.append(message)
            model.extend(added)
        elif kind == "extend":
            transcript.extend(iter(added := draw(pieces(parallel))))
            model.extend(added)
        elif kind == "fit":
            results.append((taken := fit_all(transcript), copy.copy(transcript)))
            assert taken.request.messages[len(transcript.system) : -1] == transcript.messages
        elif last < 0:
            continue
        elif kind == "pin":
            turn = draw(st.integers(0, last))
            transcript.pin(draw(st.sampled_from([turn, f"turn-{turn}"])))
            model.pins.add(turn)
        elif kind == "unpin":
            turn = draw(st.integers(0, last))
            transcript.unpin(turn)
            model.pins.discard(turn)
        elif kind == "remove":
            assert transcript.remove_last_turn() == model.turns.pop()
            model.pins.discard(last)
        else:
            added = [UserMessage(draw(texts())), *draw(pieces(parallel))]
            assert transcript.replace_last_turn(added) == model.turns.pop()
            model.extend(added)
    assert list(transcript.messages) == model.messages
    assert all(a is b for a, b in zip(transcript.messages, model.messages, strict=True))
    assert transcript.pinned_turns == tuple(f"turn-{turn}" for turn in sorted(model.pins))
    assert (len(transcript), transcript.turn_count) == (len(model.messages), len(model.turns))
    for taken, then in results:  # which does not depend on what came after
        assert taken.to_json() == fit_all(then).to_json()
    return transcript


def fit_all(transcript: ullage.Transcript) -> ullage.FittedContext:
    return transcript.fit(NOW, budget=ROOMY, target=TARGET)


def settings_of_transcripts() -> st.SearchStrategy[dict[str, Any]]:
    evidence = st.sampled_from(TokenBoundEvidence)
    sound_tables = st.builds(
        Table,
        st.lists(st.integers(0, 100), min_size=1, max_size=3),
        st.just("m"),
        evidence,
        st.integers(1, 9),
    )
    return st.fixed_dictionaries(
        {
            "counter": st.one_of(
                st.builds(ullage.ByteHeuristicCounter, st.integers(0, 40)),
                st.builds(ExactBytes),
                sound_tables,
            ),
            "system": st.lists(texts(), max_size=2).map(tuple),
            "constraint": constraints,
            "session_id": st.one_of(st.just("unspecified"), texts()),
        }
    )


@st.composite
def sound_fits(draw: st.DrawFn) -> tuple[ullage.Transcript, ContextBuildInput]:
    transcript = draw(changed_transcripts(**draw(settings_of_transcripts())))
    current: list[Any] = [UserMessage(draw(texts()))]
    for _ in range(draw(st.integers(0, 2))):
        current += draw(st.one_of(blocks(), st.just([UserMessage("more")]), st.just([AssistantMessage("")])))
    input = built_from(
        transcript,
        current=tuple(current),
        target=draw(targets),
        state_version=draw(st.one_of(st.none(), texts())),
    )
    input = replace(input, budget=draw(budgets(input)))
    return transcript, replace(input, limits=draw(limits_for(input)))


def same(transcript: ullage.Transcript, input: ContextBuildInput, counter: Any = None) -> None:
    """The fit gives what both engines' builders give: the same result or the same error."""
    counter = counter or transcript.counter
    kind, result, *rest = outcome(fit, transcript, input)
    for engine in (C, PY):
        expected = outcome(engine.build, input, counter)
        if kind == "error":
            assert ("error", result, *rest) == expected
            continue
        assert expected[0] == "value", expected
        built = expected[1]
        assert result.report.to_json() == built.report.to_json()
        assert (result.report, result.request) == (built.report, built.request)
        assert all(a is b for a, b in zip(*later_messages(result, built, input), strict=True))
        assert result.to_json() == built.to_json()
        assert result.built == built


def later_messages(a: Any, b: Any, input: ContextBuildInput) -> tuple[Any, Any]:
    fixed = len(input.system)
    return a.request.messages[fixed:], b.request.messages[fixed:]


@st.composite
def unsound_fits(draw: st.DrawFn) -> tuple[ullage.Transcript, ContextBuildInput]:
    """Up to three things wrong with what ``fit`` is given."""
    transcript, input = draw(sound_fits())
    edges = st.sampled_from([0, 1, 100, 2**63, U64_MAX - 1, U64_MAX])
    text = st.sampled_from([*BLANKS, "m", "\ud800"])
    evidence, mode = st.sampled_from(TokenBoundEvidence), st.sampled_from(TokenBudgetMode)
    faults = {
        "current": st.lists(any_messages, max_size=3).map(tuple),
        "budget": st.builds(ContextBudget, edges, edges, evidence, edges, mode),
        "target": st.builds(ContextTarget, text, text),
        "state_version": texts(True),
        "limits": st.builds(ContextBuildLimits, *[st.sampled_from([0, 1, 5, 300, 2**63])] * 4),
    }
    for name in draw(st.lists(st.sampled_from(sorted(faults)), min_size=1, max_size=3)):
        input = replace(input, **{name: draw(faults[name])})
    return transcript, input
