"""Serialised lengths: every kernel, every value, every spelling of JSON text."""

from __future__ import annotations

import enum
import json
import math
import struct
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import (
    BAD_INTEGERS,
    EDGE_FLOATS,
    EDGE_INTEGERS,
    EDGES,
    FILLERS,
    SURROGATES,
    Foreign,
    Text,
    any_values,
    floats,
    integers,
    json_texts,
    json_values,
    long_texts,
    mutated_texts,
    nested,
    texts,
)
from support import PY, C, Engine, outcome

from ullage import _core, canonical
from ullage.errors import DecodeError, JsonTypeError, JsonValueError

MAX_DEPTH = 127


def has_kernel(name: str) -> bool:
    try:
        _core.text_length_with(name, "")
    except LookupError:
        return False
    return True


KERNELS = [name for name in ("scalar", "sse2", "avx2", "neon") if has_kernel(name)]


def escaped_length(text: str) -> int:
    """The bytes between the quotes of a JSON string, one character at a time."""
    short = {'"', "\\", "\b", "\t", "\n", "\f", "\r"}
    return sum(2 if c in short else 6 if c < " " else len(c.encode()) for c in text)


# --- text -------------------------------------------------------------------------


def test_the_kernels_in_use_are_tested() -> None:
    assert "scalar" in KERNELS
    assert _core.kernel_name() in KERNELS
    with pytest.raises(LookupError, match="no abacus kernels"):
        _core.text_length_with("abacus", "")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("filler", FILLERS, ids=["ascii", "latin1", "ucs2", "ucs4"])
def test_every_kernel_at_every_length_and_offset(kernel: str, filler: str) -> None:
    for size in range(301):
        text = filler * size
        assert _core.text_length_with(kernel, text) == escaped_length(text)
    for special in EDGES:
        for size in (1, 15, 16, 17, 31, 32, 33, 64, 100, 130):
            for at in range(size):
                text = filler * at + special + filler * (size - at - 1)
                assert _core.text_length_with(kernel, text) == escaped_length(text), (text, special)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("filler", ["字", "\U0001f98a"], ids=["ucs2", "ucs4"])
def test_every_kernel_refuses_a_surrogate_at_every_offset(kernel: str, filler: str) -> None:
    for special in [*SURROGATES, "\ud83d\ude00"]:
        for at in range(130):
            with pytest.raises(JsonValueError):
                _core.text_length_with(kernel, filler * at + special + filler * (129 - at))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("character", ["\x01", '"', "字", "\uffff", "\U0010ffff"])
def test_sums_of_a_long_text_do_not_wrap(kernel: str, character: str) -> None:
    for size in (255, 256, 4096, 65536, 300_001):
        assert _core.text_length_with(kernel, character * size) == size * escaped_length(character)


@given(st.one_of(texts(), long_texts()))
def test_every_kernel_gives_the_plain_length(text: str) -> None:
    plain = len(json.dumps(text, ensure_ascii=False).encode()) - 2
    assert escaped_length(text) == plain
    for kernel in KERNELS:
        assert _core.text_length_with(kernel, text) == plain


@given(long_texts(), st.integers(0, 300), st.integers(0, 300))
def test_a_slice_is_measured_as_itself(text: str, start: int, size: int) -> None:
    part = text[start : start + size]
    assert C.json_length(part) == len(json.dumps(part, ensure_ascii=False).encode())


def test_nothing_but_what_json_demands_is_escaped(engine: Engine) -> None:
    for text in ("/", "\x7f", "\u2028", "\u2029", "<", "é", "\ue000", "\uffff", "\U00010000"):
        assert engine.json_length(text) == 2 + len(text.encode())


# --- numbers ------------------------------------------------------------------------


@pytest.mark.parametrize("value", EDGE_INTEGERS)
def test_integers_take_their_digits(engine: Engine, value: int) -> None:
    assert engine.json_length(value) == engine.json_text_length(str(value)) == len(str(value))


@pytest.mark.parametrize("value", BAD_INTEGERS, ids=lambda value: f"{value:.3e}" if value < 1e300 else "huge")
def test_integers_past_64_bits_have_no_json_form(engine: Engine, value: int) -> None:
    with pytest.raises(JsonValueError, match="an integer outside") as caught:
        engine.json_length({"q": [0, value]})
    assert caught.value.path == "q[1]"


def expected_float(x: float) -> str:
    """The contract's decimal of a double: repr, with its two differences."""
    text = repr(x)
    if text.endswith("e-05"):
        digits = text[: -len("e-05")].lstrip("-").replace(".", "")
        return f"{'-' if text[0] == '-' else ''}0.0000{digits}"
    return text.replace("e-0", "e-").replace("e+0", "e+")


@given(
    st.one_of(
        floats, st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
    )
)
def test_floats_take_the_shortest_decimal(x: float) -> None:
    if not math.isfinite(x):
        assert outcome(C.json_length, x) == outcome(PY.json_length, x)
        return
    text = expected_float(x)
    assert canonical.write(x).decode() == text
    assert struct.pack("<d", float(text)) == struct.pack("<d", x)
    for engine in (C, PY):
        assert engine.json_length(x) == engine.json_text_length(text) == len(text)


@given(st.integers(0, 10**17), st.integers(0, 25), st.booleans())
def test_decimals_of_few_digits(digits: int, places: int, negative: bool) -> None:
    x = float(f"{'-' if negative else ''}{digits}e-{places}")
    for engine in (C, PY):
        assert engine.json_length(x) == len(expected_float(x))


@pytest.mark.parametrize("x", EDGE_FLOATS)
def test_floats_at_the_edges(engine: Engine, x: float) -> None:
    assert engine.json_length(x) == len(expected_float(x))


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
@example("9007199254740993")
@example("-0")
@example("1" * 309)
@example("0." + "0" * 400 + "1")
@example("1" + "0" * 400 + "e-400")
@example("2.2250738585072011e-308")
@example("179769313486231580793728971405301e276")
def test_number_texts_are_read_correctly_rounded(text: str) -> None:
    value: int | float = float(text)
    if text.lstrip("-").isdigit() and text != "-0" and -(2**63) <= int(text) < 2**64:
        value = int(text)
    for engine in (C, PY):
        if math.isfinite(value):
            assert engine.json_text_length(text) == engine.json_length(value)
        else:
            with pytest.raises(DecodeError):
                engine.json_text_length(text)


# --- values -----------------------------------------------------------------------------


@given(json_values)
def test_the_length_is_that_of_the_compact_text(value: Any) -> None:
    text = canonical.write(value)
    assert C.json_length(value) == PY.json_length(value) == len(text)
    assert C.json_text_length(text) == C.json_text_length(text.decode()) == len(text)
    assert canonical.write(canonical.parse(text)) == text


@given(any_values)
@example([float("nan")])
@example({"a": {"b": [{"": "\ud800"}]}})
def test_both_engines_agree_on_any_value(value: Any) -> None:
    assert outcome(C.json_length, value) == outcome(PY.json_length, value)


FAULTS: list[tuple[Any, str, type[JsonValueError], str]] = [
    (float("nan"), "", JsonValueError, "nan has no JSON form"),
    ({"q": float("inf")}, "q", JsonValueError, "inf has no JSON form"),
    ([[-math.inf]], "[0][0]", JsonValueError, "-inf has no JSON form"),
    ({"a": ["ok", "b\ud83d"]}, "a[1]", JsonValueError, "a lone surrogate at character 1"),
    ({"a": {"\udfff": 1}}, 'a["\\udfff"]', JsonValueError, "a lone surrogate at character 0"),
    ({"a": {1: 2}}, "a", JsonTypeError, "the key 1 is not a string"),
    ({"a b": [{2}]}, '["a b"][0]', JsonTypeError, "set is not a JSON type"),
    ([b""], "[0]", JsonTypeError, "bytes is not a JSON type"),
    ([1, Foreign()], "[1]", JsonTypeError, "Foreign is not a JSON type"),
    ((1j,), "[0]", JsonTypeError, "complex is not a JSON type"),
    ({"x": {"y": 2**64}}, "x.y", JsonValueError, "an integer outside"),
    ({"x": -(2**63) - 1}, "x", JsonValueError, "an integer outside"),
    ({"b": float("nan"), "a": {1}}, "a", JsonTypeError, "set is not a JSON type"),
]


@pytest.mark.parametrize(("value", "path", "kind", "reason"), FAULTS)
def test_a_value_without_json_form_is_named(
    engine: Engine, value: Any, path: str, kind: type[JsonValueError], reason: str
) -> None:
    with pytest.raises(kind, match=reason) as caught:
        engine.json_length(value)
    assert type(caught.value) is kind
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: " if path else reason)


@pytest.mark.parametrize("kind", ["array", "object", "both"])
def test_at_most_127_levels(engine: Engine, kind: str) -> None:
    deepest = nested(1, MAX_DEPTH, kind)
    text = json.dumps(deepest)
    assert engine.json_length(deepest) == engine.json_text_length(text) == len(canonical.write(deepest))
    for depth in (MAX_DEPTH + 1, MAX_DEPTH + 50):
        with pytest.raises(JsonValueError, match="more than 127 nested"):
            engine.json_length(nested(1, depth, kind))
        with pytest.raises(DecodeError):
            engine.json_text_length(json.dumps(nested(1, depth, kind)))


@pytest.mark.parametrize("opening", ["[", '{"k":', '[{"k":'])
def test_text_10000_levels_deep_is_refused(engine: Engine, opening: str) -> None:
    for text in (opening * 10_000, opening * 10_000 + "1"):
        with pytest.raises(DecodeError):
            engine.json_text_length(text)


def test_a_value_10000_levels_deep_is_refused(engine: Engine) -> None:
    for kind in ("array", "object"):
        with pytest.raises(JsonValueError, match="more than 127 nested"):
            engine.json_length(nested(None, 10_000, kind))


def test_a_cycle_is_refused(engine: Engine) -> None:
    array: list[Any] = []
    array.append({"again": array})
    members: dict[str, Any] = {}
    members["self"] = members
    for value in (array, members, (array,)):
        with pytest.raises(JsonValueError, match="or a cycle"):
            engine.json_length(value)


def test_an_empty_value_at_the_last_level_is_inside(engine: Engine) -> None:
    for empty in ([], {}, ()):
        assert engine.json_length(nested(empty, MAX_DEPTH - 1, "array")) == 2 * MAX_DEPTH


class Level(enum.IntEnum):
    LOW = 1


class Label(enum.StrEnum):
    RED = "red"


class Half(float):
    def __repr__(self) -> str:
        return "half"


def test_subclasses_of_json_types_count_as_what_they_are(engine: Engine) -> None:
    assert engine.json_length([Level.LOW, Label.RED, Half(0.5), True]) == len('[1,"red",0.5,true]')
    assert engine.json_length(OrderedDict(b=1, a=Text("x"))) == len('{"b":1,"a":"x"}')
    assert engine.json_length({Text("é"): Label.RED}) == len('{"é":"red"}'.encode())


def test_a_shared_value_counts_each_time(engine: Engine) -> None:
    shared = {"k": ["v"]}
    assert engine.json_length([shared] * 3) == 4 + 3 * engine.json_length(shared)


def test_a_changed_value_is_measured_anew(engine: Engine) -> None:
    value: dict[str, Any] = {"a": [1]}
    before = engine.json_length(value)
    value["a"].append("é")
    value["b"] = None
    assert engine.json_length(value) == before + len(',"é","b":null'.encode())
    del value["b"]
    value["a"][:] = [1]
    assert engine.json_length(value) == before


def test_the_value_is_left_as_it_was(engine: Engine) -> None:
    value = {"b": [1.5, "x"], "a": ()}
    engine.json_length(value)
    assert list(value) == ["b", "a"]
    assert value == {"b": [1.5, "x"], "a": ()}


# --- JSON text ---------------------------------------------------------------------------


def text_outcome(engine: Engine, text: str | bytes) -> Any:
    try:
        return engine.json_text_length(text)
    except DecodeError:
        return DecodeError


@given(json_texts)
@example('{"a":1,"\\u0061":22}')
@example('{"a":"\\ud83d\\ude00"}')
@example('{"a":"\\ud83d","a":1}')
@example('{"a":' + "[" * 130 + "]" * 130 + ',"a":1}')
def test_both_engines_read_json_text_alike(text: str) -> None:
    assert text_outcome(C, text) == text_outcome(PY, text)
    data = text.encode()
    assert text_outcome(C, data) == text_outcome(PY, data) == text_outcome(C, text)


@given(mutated_texts())
def test_both_engines_refuse_the_same_json_texts(text: str) -> None:
    assert text_outcome(C, text) == text_outcome(PY, text)


@given(
    st.one_of(st.binary(max_size=40), json_texts.map(str.encode)), st.binary(max_size=3), st.integers(0, 40)
)
def test_both_engines_refuse_the_same_bytes(data: bytes, inserted: bytes, at: int) -> None:
    data = data[:at] + inserted + data[at:]
    assert text_outcome(C, data) == text_outcome(PY, data)


NOT_JSON = [
    *["", " ", "[1,]", '{"a":1,}', "[1 2]", '{"a" 1}', "{a:1}", "'a'", "nul", "True", "NaN", "Infinity"],
    *["-Infinity", "01", "-", "+1", "1.", ".5", "1e", "1e+", "0x1", "1_0", "1 2", "[1]]", "[", '"', '"\\'],
    *['"\\x"', '"\\u12"', '"\\u12g4"', '"a\nb"', '"\x00"', '"\x1f"', "1e400", "-1e309", "[1\x0b]"],
    *['"\\ud83d"', '"\\ude00"', '"\\ud83dx"', '"\\ud83d\\u0041"', '"\\ude00\\ud83d"', "\ufeff1", "/**/1"],
    *['{"a":1 "b":2}', '{"a":1,,"b":2}', "[,1]", '{"a"}', "{1:2}", "\ud800", '"\ud800"', "1\x00", "1\xa0"],
]


@pytest.mark.parametrize("text", NOT_JSON)
def test_what_is_not_json_is_refused(engine: Engine, text: str) -> None:
    with pytest.raises(DecodeError):
        engine.json_text_length(text)


@pytest.mark.parametrize(
    "data",
    [
        b'"\xff"',
        b'"\xc0\x80"',
        b'"\xed\xa0\x80"',
        b'"\xf4\x90\x80\x80"',
        b'"\xe2\x82"',
        b"\xef\xbb\xbf1",
        b'"\x80"',
    ],
)
def test_what_is_not_utf8_is_refused(engine: Engine, data: bytes) -> None:
    for text in (b'"%s"' % data, data):
        if text != b'"\xef\xbb\xbf1"':  # U+FEFF may stand in a string
            with pytest.raises(DecodeError):
                engine.json_text_length(text)


@pytest.mark.parametrize("space", [" ", "\t", "\n", "\r", " \t\r\n" * 20])
def test_white_space_between_tokens_does_not_count(engine: Engine, space: str) -> None:
    text = space.join(["", "{", '"a"', ":", "[", "1", ",", '"b c"', "]", "}", ""])
    assert engine.json_text_length(text) == len('{"a":[1,"b c"]}')


@pytest.mark.parametrize("space", "\x0b\x0c\x1c\x85\xa0\u2000\u2028\ufeff\x00")
def test_other_space_is_refused(engine: Engine, space: str) -> None:
    with pytest.raises(DecodeError):
        engine.json_text_length(f"[1,{space}2]")


def test_of_a_repeated_key_the_last_counts(engine: Engine) -> None:
    assert engine.json_text_length('{"a":[1,2,3],"b":0,"a":4}') == len('{"a":4,"b":0}')
    assert engine.json_text_length('{"\\u0061":111,"a":2}') == len('{"a":2}')
    assert engine.json_text_length('{"é":1,"\\u00e9":22}') == len('{"é":22}'.encode())
    assert engine.json_text_length('[{"a":1},{"a":1}]') == len('[{"a":1},{"a":1}]')
    assert engine.json_text_length('{"a":{"a":1,"a":{"a":2}}}') == len('{"a":{"a":{"a":2}}}')


def test_100000_keys_half_of_them_repeated(engine: Engine) -> None:
    keys = [f"key{n}" for n in range(50_000)]
    text = "{" + ",".join(f'"{key}":1' for key in keys) + "," + ",".join(f'"{key}":22' for key in keys) + "}"
    assert engine.json_text_length(text) == len("{" + ",".join(f'"{key}":22' for key in keys) + "}")
    value = dict.fromkeys(keys, 22)
    assert engine.json_length(value) == engine.json_text_length(text)


def test_100000_times_the_same_key(engine: Engine) -> None:
    assert engine.json_text_length("{" + ",".join(['"k":"v"'] * 100_000) + "}") == len('{"k":"v"}')


def test_text_is_str_or_bytes() -> None:
    with pytest.raises(TypeError, match="str or bytes"):
        C.json_text_length(1)  # type: ignore[arg-type]


@pytest.mark.parametrize("character", ["a", "\n", "字"])
def test_a_text_of_50_megabytes(character: str) -> None:
    size = 50_000_000 // len(character.encode())
    text = character * size
    assert C.json_length([text]) == 4 + size * escaped_length(character)
    spelled = '["' + (text if character != "\n" else "\\n" * size) + '"]'
    assert C.json_text_length(spelled) == 4 + size * escaped_length(character)


@given(st.lists(st.one_of(integers, floats, texts()), max_size=5), st.integers(0, 3))
def test_figures_add_up(items: list[Any], spaces: int) -> None:
    length = 2 + sum(map(C.json_length, items)) + max(len(items) - 1, 0)
    assert C.json_length(items) == length
    assert C.json_text_length(json.dumps(items, separators=("," + " " * spaces, ":"))) == length
