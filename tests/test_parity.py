"""The compiled engine and the reference give the same, in value and in error, on whatever they are given.

Values and JSON texts are compared in test_lengths.py.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from request_strategies import (
    any_build_inputs,
    any_constraints,
    any_messages,
    build_inputs,
    counters,
    requests,
    targets,
)
from support import PY, C, build_outcome, outcome

from ullage import _build, _core
from ullage.errors import ContextBuildError
from ullage.messages import GenerationRequest
from ullage.report import ContextBuildInput


@given(any_messages)
def test_length_of_a_message(message: Any) -> None:
    expected = outcome(PY.json_length, message)
    assert outcome(C.json_length, message) == expected
    assert outcome(_core.message_length, message) == expected


@given(any_constraints)
def test_length_of_a_constraint(constraint: Any) -> None:
    assert outcome(C.json_length, constraint) == outcome(PY.json_length, constraint)


@given(requests)
def test_length_of_a_request(request: GenerationRequest) -> None:
    expected = outcome(PY.json_length, request)
    assert outcome(C.json_length, request) == expected
    assert expected[0] == "error" or expected[1] == len(request.to_json())


@given(requests, targets, st.sampled_from([0, 32, 2**64 - 1]))
def test_count_of_a_request(request: GenerationRequest, target: Any, template: int) -> None:
    found = [outcome(e.byte_heuristic(template).count, target, request) for e in (C, PY)]
    assert found[0] == found[1]
    if found[0][0] == "value":
        assert found[0][1].to_json() == found[1][1].to_json()


@given(st.data(), build_inputs())
def test_builds_of_sound_inputs(data: st.DataObject, input: ContextBuildInput) -> None:
    compare_builds(input, data.draw(counters(input)))


@given(st.data(), any_build_inputs())
def test_builds_of_any_inputs(data: st.DataObject, input: ContextBuildInput) -> None:
    compare_builds(input, data.draw(counters(input)))


def compare_builds(input: ContextBuildInput, counter: Any) -> None:
    found, expected = (outcome(engine.build, input, counter(engine)) for engine in (C, PY))
    assert found == expected
    if expected[0] == "value" or issubclass(expected[1], ContextBuildError):
        assert build_outcome(C, input, counter(C)) == build_outcome(PY, input, counter(PY))


@given(build_inputs())
def test_a_sound_input_needs_no_second_look(input: ContextBuildInput) -> None:
    """Where the reference counts at least once, the compiled engine has encoded the input by itself."""
    expected = outcome(PY.build, input, PY.byte_heuristic(1))
    reported = expected[0] == "value" or expected[4] is not None
    if reported:
        assert _build.encode(input) is not None
