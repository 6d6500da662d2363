"""Recorded outcomes of the contract, each of them on both engines, compared as bytes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import Engine, ExactBytes, Scripted, build_outcome

from ullage import canonical
from ullage.budget import ContextTarget, TokenBoundEvidence
from ullage.errors import DecodeError
from ullage.messages import GenerationRequest
from ullage.report import ContextBuildInput

GOLDEN = Path(__file__).parent / "golden"
COUNTS = {"len": 465, "parse": 67, "float": 461, "count": 174, "build": 688}


def read(name: str) -> list[Any]:
    """The vectors of a file as parameters ``source, expected``: raw JSON, so that nothing is lost in reading.

    A line ends at a line feed only: some texts hold U+2028 and U+0085.
    """
    text = (GOLDEN / f"{name}.jsonl").read_bytes().decode()
    vectors = [msgspec.json.decode(line, type=dict[str, msgspec.Raw]) for line in text.split("\n") if line]
    return [
        pytest.param(bytes(v["input"]), bytes(v["output"]), id=msgspec.json.decode(v["id"])) for v in vectors
    ]


def vectors(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("source", "expected"), read(name))


@pytest.mark.parametrize("name", COUNTS)
def test_no_vector_is_left_out(name: str) -> None:
    ids = [vector.id for vector in read(name)]
    assert len(ids) == len(set(ids)) == COUNTS[name]


@vectors("len")
def test_length_of_a_value(engine: Engine, source: bytes, expected: bytes) -> None:
    value = canonical.parse(source)
    found = {"len": engine.json_length(value), "text": canonical.write(value).decode()}
    assert canonical.write(found) == expected
    assert engine.json_text_length(source) == found["len"]
    assert engine.json_text_length(source.decode()) == found["len"]


@vectors("parse")
def test_length_of_json_text(engine: Engine, source: bytes, expected: bytes) -> None:
    raw = canonical.parse(source)["raw"]
    found: dict[str, Any]
    try:
        found = {"len": engine.json_text_length(raw)}
    except DecodeError:
        found = {"error": True}
    assert canonical.write(found) == expected


@vectors("float")
def test_length_of_a_float(engine: Engine, source: bytes, expected: bytes) -> None:
    (x,) = struct.unpack(">d", bytes.fromhex(canonical.parse(source)["bits"]))
    text = canonical.write(x)
    assert canonical.write({"len": engine.json_length(x), "text": text.decode()}) == expected
    assert engine.json_text_length(text) == len(text)


@vectors("count")
def test_count_of_a_request(engine: Engine, source: bytes, expected: bytes) -> None:
    given = canonical.parse(source)
    counter = engine.byte_heuristic(given.get("template_tokens", 32))
    request = GenerationRequest.from_dict(given["request"])
    assert counter.count(ContextTarget.from_dict(given["target"]), request).to_json() == expected


@vectors("build")
def test_build(engine: Engine, source: bytes, expected: bytes) -> None:
    given = canonical.parse(source)
    script = given.pop("counter")
    if given.get("limits") is None:
        given.pop("limits", None)
    if given["history"].get("config") is None:
        given["history"].pop("config", None)
    input = ContextBuildInput.from_dict(given)
    assert build_outcome(engine, input, counter_of(script, engine, input.target)) == expected


def counter_of(script: dict[str, Any], engine: Engine, target: ContextTarget) -> Any:
    """The counter that a vector names."""
    kind = script["kind"]
    if kind == "byte_heuristic":
        return engine.byte_heuristic(script.get("template_tokens", 32))
    if kind == "exact_bytes":
        return ExactBytes()
    assert kind == "scripted"
    return Scripted(
        script["counts"],
        ContextTarget.from_dict(script["target"]) if script.get("target") else target,
        method=script.get("method", "script-1"),
        evidence=TokenBoundEvidence(script.get("evidence", "Estimate")),
        error=script.get("error"),
    )
