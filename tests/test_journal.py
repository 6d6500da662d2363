"""Reading journals: lines, what is refused and where, and that the quick way reads as the strict one does."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage import canonical
from ullage.errors import DecodeError, JournalError
from ullage.events import SessionEvent
from ullage.journal import read_journal, read_sessions

GOLDEN = Path(__file__).parent / "golden"


def event_json(event_id: str = "e0", session_id: str = "s", seq: int = 0, payload: str = "null") -> bytes:
    return (
        f'{{"event_id":"{event_id}","session_id":"{session_id}","turn_id":"t","seq":{seq},'
        f'"kind":{{"type":"custom","plugin":"p","kind":"k","payload":{payload}}}}}'
    ).encode("utf-8", "surrogatepass")


def read_vectors(name: str) -> list[Any]:
    lines = (GOLDEN / f"{name}.jsonl").read_bytes().split(b"\n")
    return [canonical.parse(line) for line in lines if line]


# --- lines ----------------------------------------------------------------------


def test_recorded_sessions_are_read_as_they_are_given() -> None:
    for vector in read_vectors("project"):
        events = vector["input"]["events"]
        if len({event["event_id"] for event in events}) == len(events):
            lines = [canonical.write(event) + b"\n" for event in events]
            assert read_journal(lines) == [SessionEvent.from_dict(event) for event in events]


def test_a_path_an_open_file_and_lines_give_the_same(tmp_path: Path) -> None:
    lines = [event_json(f"e{i}", seq=i, payload='"\u2028\x85"') + b"\n" for i in range(3)]
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"".join(lines))
    expected = [SessionEvent.from_json(line) for line in lines]
    assert read_journal(path) == read_journal(str(path)) == expected
    assert read_journal(lines) == read_journal(io.BytesIO(b"".join(lines))) == expected


def test_a_carriage_return_before_the_newline_is_white_space() -> None:
    assert read_journal([event_json() + b"\r\n"]) == [SessionEvent.from_json(event_json())]


def test_an_empty_journal_has_no_events() -> None:
    assert read_journal([]) == []
    assert read_sessions(io.BytesIO(b"")) == {}


GOOD = event_json("good") + b"\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (event_json(), "no newline ends the line"),
        (event_json()[:-20], "no newline ends the line"),
        (b"\n", "a blank line"),
        (b" \t\r\n", "a blank line"),
        (b"\xef\xbb\xbf" + event_json() + b"\n", "a byte order mark"),
        (event_json(payload='"\xff"').replace(b"\xc3\xbf", b"\xff") + b"\n", "not UTF-8 at byte 115"),
        (event_json()[:-1] + b"\n", "malformed JSON"),
        (event_json() + event_json("e1") + b"\n", "malformed JSON"),
        (event_json("good", seq=1) + b"\n", "event ID good is that of line 1 already"),
        (event_json(payload="NaN") + b"\n", "NaN is not JSON"),
        (event_json(payload='"\x01"') + b"\n", "malformed JSON"),
        (event_json(payload='"\\ud800"') + b"\n", "a lone surrogate"),
        (event_json(payload='"\ud800"') + b"\n", "not UTF-8"),
        (event_json(payload="1e400") + b"\n", "a number that overflows a double"),
        (event_json(payload="[" * 126 + "]" * 126) + b"\n", "more than 127 nested"),
        (event_json(payload="[" * 10**5 + "]" * 10**5) + b"\n", "more than 127 nested"),
        (event_json(payload="[1,]") + b"\n", "malformed JSON"),
        (event_json()[:-1] + b',"seq":1}\n', "a field is given twice"),
        (event_json()[:-2] + b',"kind":"j"}}\n', "a field is given twice"),
        (b"null\n", "Expected `object`"),
        (b"[]\n", "Expected `object`"),
        (b"{}\n", "missing required field"),
    ],
)
def test_a_line_at_fault_is_refused_with_its_number_and_offset(line: bytes, reason: str) -> None:
    with pytest.raises(JournalError, match=reason) as refused:
        read_journal([GOOD, line])
    assert (refused.value.line, refused.value.offset) == (2, len(GOOD))
    assert str(refused.value).startswith(f"line 2 (byte {len(GOOD)}): ")


def test_a_byte_order_mark_on_the_first_line_is_refused() -> None:
    with pytest.raises(JournalError, match="a byte order mark") as refused:
        read_journal([b"\xef\xbb\xbf" + GOOD])
    assert (refused.value.line, refused.value.offset) == (1, 0)


def test_the_part_of_an_event_at_fault_is_named() -> None:
    with pytest.raises(JournalError) as refused:
        read_journal([event_json().replace(b'"plugin":"p"', b'"plugin":1') + b"\n"])
    assert refused.value.path == "kind.plugin"
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (str(copy), vars(copy)) == (str(refused.value), vars(refused.value))


def test_lines_are_bytes_and_one_line_each() -> None:
    with pytest.raises(TypeError, match="bytes, not str"):
        read_journal([GOOD.decode()])  # type: ignore[list-item]
    with pytest.raises(JournalError, match="no newline ends the line"):
        read_journal([GOOD + event_json("e1")])


# --- many sessions ---------------------------------------------------------------


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=12))
def test_sessions_are_taken_apart_and_keep_their_order(owners: list[str]) -> None:
    lines = [
        event_json(f"e{owners[:i].count(o)}", o, owners[:i].count(o)) + b"\n" for i, o in enumerate(owners)
    ]
    sessions = read_sessions(lines)
    assert list(sessions) == list(dict.fromkeys(owners))
    for owner, events in sessions.items():
        assert [event.seq for event in events] == list(range(owners.count(owner)))
        assert {event.session_id for event in events} == {owner}


def test_an_event_id_is_used_once_in_each_session() -> None:
    lines = [event_json("e", "a") + b"\n", event_json("e", "b") + b"\n", event_json("e", "a") + b"\n"]
    assert list(read_sessions(lines[:2])) == ["a", "b"]
    with pytest.raises(JournalError, match="that of line 1 already") as refused:
        read_sessions(lines)
    assert (refused.value.line, refused.value.offset) == (3, 2 * len(lines[0]))
    with pytest.raises(JournalError, match="that of line 1 already"):
        read_journal(lines[:2])


# --- strictly read, however quickly ------------------------------------------------


def strictly(line: bytes) -> Any:
    """What the strict reader makes of a line; values are compared as text, so that 1 is not 1.0."""
    try:
        return repr(SessionEvent.from_json(line))
    except DecodeError as error:
        return error.reason, error.path


def as_read(line: bytes) -> Any:
    try:
        return repr(read_journal([line + b"\n"])[0])
    except JournalError as error:
        return error.reason, error.path


RAW = [vector["input"]["raw"] for vector in read_vectors("parse") if "\n" not in vector["input"]["raw"]]
RAW += [vector["output"]["text"] for vector in read_vectors("float")]


@pytest.mark.parametrize("raw", RAW)
def test_recorded_texts_are_read_as_the_strict_reader_reads_them(raw: str) -> None:
    for payload in (raw, f"[{raw}]", f'{{"k":{raw}}}'):
        line = event_json(payload=payload)
        assert as_read(line) == strictly(line)


@pytest.mark.parametrize("depth", [124, 125, 126])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"k":', "}")])
def test_nesting_is_counted_from_the_whole_line(depth: int, opening: str, closing: str) -> None:
    line = event_json(payload=f"{opening * depth}0{closing * depth}")
    assert as_read(line) == strictly(line)
    assert isinstance(as_read(line), str) == (depth + 2 <= canonical.MAX_DEPTH)


numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
strings = st.lists(
    st.sampled_from([*'a"\\/\u2028\xff\x1f😀', "\\n", "\\u0041", "\\ud83d\\ude00", "\\udead"])
).map(lambda parts: f'"{"".join(parts)}"')
keys = st.sampled_from(['"a"', '"b"', '"\\u0061"'])
spaces = st.sampled_from(["", "", " ", "\t"])
texts = st.recursive(
    st.one_of(numbers, strings, st.sampled_from(["null", "true", "false", "nul", "-", "NaN", ""])),
    lambda inner: st.one_of(
        st.builds(lambda items, s: f"[{f',{s}'.join(items)}]", st.lists(inner, max_size=3), spaces),
        st.builds(
            lambda members, s: f"{{{','.join(f'{key}:{s}{value}' for key, value in members)}}}",
            st.lists(st.tuples(keys, inner), max_size=3),
            spaces,
        ),
    ),
    max_leaves=6,
)


@given(texts)
def test_any_text_is_read_as_the_strict_reader_reads_it(payload: str) -> None:
    line = event_json(payload=payload)
    assert as_read(line) == strictly(line)


@given(st.data())
def test_a_changed_byte_is_judged_as_the_strict_reader_judges_it(data: st.DataObject) -> None:
    line = bytearray(event_json(payload='{"a":[1,2.5,-0.0,"x\\n\u00e9"],"b":12345678901234567890}'))
    line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255).filter(lambda b: b != 10))
    changed = bytes(line)
    if not changed.startswith(b"\xef\xbb\xbf"):
        assert as_read(changed) == strictly(changed)


def test_spaced_and_escaped_json_is_read_too() -> None:
    event = json.loads(event_json(payload='{"é":[1.5,{}]}'))
    line = json.dumps(event, indent=None).encode()
    assert as_read(line) == strictly(line) == strictly(canonical.write(event))
