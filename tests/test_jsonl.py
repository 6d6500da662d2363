"""Rows of JSON Lines: what stays keeps its bytes, what cannot be fitted says why, no row is lost."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from ullage import canonical
from ullage._core import json_children
from ullage.archive import jsonl
from ullage.archive.jsonl import rebudget_lines, rebudget_row
from ullage.archive.plan import Plan
from ullage.archive.row import Row, RowStatus, Size, Summary

WIDE = Plan(window_tokens=100_000, output_reserve=10)
NARROW = Plan(window_tokens=110, output_reserve=10)

USER = {"role": "user", "content": "A question that takes some room in the window, as questions do."}
ANSWER = {"role": "assistant", "content": "An answer of about the same length, so that a turn has its price."}
LONG = [*[USER, ANSWER] * 5, USER]


def line(value: Any, **how: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, **how).encode()


def chat(*messages: Any, **more: Any) -> bytes:
    return line({"messages": messages, **more})


def elements(text: bytes, array: int) -> list[bytes]:
    return [text[start:end] for _, _, start, end in json_children(text, array)]


def messages_of(row: bytes) -> list[bytes]:
    """The bytes of each message of a row."""
    start = len(row) - len(row.lstrip())
    if row[start] == ord("["):
        return elements(row, start)
    places = {row[a:b]: c for a, b, c, _ in json_children(row, start)}
    return elements(row, places[b"messages"])


# --- what stays ------------------------------------------------------------------


def test_a_row_that_fits_comes_back_to_the_byte() -> None:
    odd = rb""" { "x":1.50 , "y":-0,"n":123456789012345678901234567890, "e":1E+2,"d":1,"d":[2 ],
 "messages" : [ {"content":"\u0041\/", "role":"user","note":-0.0}	] ,"z":"\ud83d\ude00" } """
    row = rebudget_row(odd.replace(b"\n", b"\r"), WIDE)
    assert (row.status, row.output) == (RowStatus.KEPT, odd.replace(b"\n", b"\r"))
    assert row.before == row.after == Size(1, 1, row.after.tokens)


def test_a_trimmed_row_keeps_all_bytes_outside_the_messages_and_of_every_kept_message() -> None:
    head = rb'{"a":1.50, "a":-0, "big":123456789012345678901234567890, "messages" :[ '
    kept = rb'{"content":"last \u0041 \/ ' + b"x" * 40 + rb'", "role":"user", "n":1.0e0}'
    tail = rb' ] ,"esc":"\u00e9\ud83d\ude00", "f":[1E400e]}'.replace(b"1E400e", b"1E40")
    dropped = b" ,  ".join(line(message) for message in LONG)
    row = rebudget_row(head + dropped + b" ,\t" + kept + tail, Plan(window_tokens=80, output_reserve=10))
    assert row.output == head + kept + tail
    assert row.before == Size(7, 12, row.before.tokens)
    assert row.after == Size(1, 1, row.after.tokens)


def test_the_separator_before_a_kept_message_stays_with_it() -> None:
    system = b'{"role":"system","content":"Be brief."}'
    middle = b'{"role":"developer","content":"Be briefer."}'
    old, last = line(LONG[0]), line(USER)
    row = rebudget_row(b"[\n%s,\n  %s,\n    %s , %s\n]" % (system, old, middle, last), Plan(90, 10))
    assert row.output == b"[\n%s,\n    %s , %s\n]" % (system, middle, last)


def test_a_bare_array_of_messages_is_a_row() -> None:
    row = rebudget_row(line(LONG, indent=2), NARROW)
    assert row.status is RowStatus.TRIMMED
    assert json.loads(row.output) == [USER]


def test_the_key_messages_may_be_written_with_escapes() -> None:
    text = rb'{"mess\u0061ges":[{"role":"user","content":"hi"}]}'
    assert rebudget_row(text, WIDE).output == text


def test_tools_are_counted() -> None:
    tool = {
        "type": "function",
        "function": {"name": "clock", "description": "Tells the time.", "parameters": {}},
    }
    none = rebudget_row(chat(USER), WIDE)
    assert rebudget_row(chat(USER, tools=None), WIDE).before == none.before
    assert rebudget_row(chat(USER, tools=[]), WIDE).before == none.before
    with_tool = rebudget_row(chat(USER, tools=[tool]), WIDE).before.tokens
    fitted = ullage.fit([USER], window_tokens=100_000, output_reserve=10, tools=[tool])
    assert with_tool == fitted.report.attempts[0].count.tokens.total() > none.before.tokens


def test_a_plan_and_a_row_can_be_sent_to_another_process() -> None:
    row = rebudget_row(chat(*LONG), NARROW)
    assert pickle.loads(pickle.dumps(row)) == row
    assert pickle.loads(pickle.dumps(NARROW)) == NARROW


def test_a_row_has_its_report_where_the_plan_asks_for_it() -> None:
    plan = Plan(110, 10, model="some-model", reports=True)
    fitted = ullage.fit(LONG, window_tokens=110, output_reserve=10, model="some-model")
    assert rebudget_row(chat(*LONG), plan).report == fitted.report.to_json()
    assert rebudget_row(chat(*LONG), NARROW).report == b""


def test_margin_and_image_price_are_those_of_the_plan() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    cheap = rebudget_row(chat(image), Plan(1000, 10, image_tokens=7))
    assert rebudget_row(chat(image), Plan(1000, 10, image_tokens=8)).before.tokens == cheap.before.tokens + 1
    assert rebudget_row(chat(image), Plan(200, 10, 150, image_tokens=7)).kind == "DoesNotFit"


TURNS = st.lists(
    st.tuples(st.text(max_size=30), st.lists(st.text(max_size=60), max_size=3), st.booleans()), max_size=6
)


@given(TURNS, st.integers(60, 400), st.sampled_from([None, 1, "\t"]), st.booleans(), st.randoms())
def test_a_row_keeps_what_fit_keeps(
    turns: list[Any], window: int, indent: Any, ascii_only: bool, chance: random.Random
) -> None:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}]
    for question, answers, call in turns:
        messages.append({"role": "user", "content": question})
        if call:
            function = {"name": "f", "arguments": json.dumps({"q": question})}
            calls = [{"id": f"c{i}", "type": "function", "function": function} for i in range(2)]
            results = [{"role": "tool", "tool_call_id": f"c{i}", "content": question} for i in range(2)]
            chance.shuffle(results)
            messages += [{"role": "assistant", "content": None, "tool_calls": calls}, *results]
        messages += [{"role": "assistant", "content": answer} for answer in answers]
    messages.append({"role": "user", "content": "last"})
    text = json.dumps({"id": 1.0, "messages": messages, "z": [-0.0]}, indent=indent, ensure_ascii=ascii_only)
    row = rebudget_row(text.encode(), Plan(window, 20))
    try:
        fitted = ullage.fit(messages, window_tokens=window, output_reserve=20)
    except ullage.DoesNotFit:
        assert row.kind == "DoesNotFit"
        return
    assert json.loads(row.output) == {"id": 1.0, "messages": fitted.messages, "z": [-0.0]}
    given_bytes = messages_of(text.encode())
    assert messages_of(row.output) == [given_bytes[i] for i in fitted.kept]


NUMBERS = st.one_of(
    st.sampled_from(
        ["-0", "-0.0", "0", "-0e5", "1E2", "18446744073709551616", "-9223372036854775809", "1e-5"]
    ),
    st.integers(-(10**25), 10**25).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
)
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["-0 ", "2024-01-05", "-0]"])).map(json.dumps)
VALUES = st.recursive(
    NUMBERS | TEXTS | st.sampled_from(["true", "false", "null"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{' , '.join(items)}]"),
        st.lists(st.tuples(TEXTS, inner), max_size=4).map(
            lambda members: "{" + ",".join(f"{key}: {value}" for key, value in members) + "}"
        ),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_values_are_read_as_the_plain_reader_reads_them(text: str) -> None:
    array = f"[{text}]".encode()
    ullage.json_text_length(array)
    assert repr(jsonl._value(array)) == repr(canonical.parse(array))


# --- what is rejected ------------------------------------------------------------


DEEP = b"[" * 1500 + b"]" * 1500
REJECTS = {
    "not UTF-8": (b'{"messages":[{"role":"user","content":"\xff"}]}', "Encoding", "not UTF-8 at byte 39"),
    "bytes of a surrogate": (b'["\xed\xa0\xbd"]', "Encoding", "not UTF-8 at byte 2"),
    "cut off": (b'{"messages":[{"role":"us', "Json", "malformed JSON at byte 24"),
    "two values": (b"[] []", "Json", "malformed JSON at byte 3"),
    "NaN": (b'{"x":NaN,"messages":[]}', "Json", "malformed JSON at byte 5"),
    "a raw control character": (b'{"messages":[{"role":"user","content":"a\x01"}]}', "Json", "byte 40"),
    "a lone surrogate": (rb'{"messages":[{"role":"user","content":"\ud83d"}]}', "Json", "surrogate"),
    "a number past a double": (b'{"x":1e999,"messages":[]}', "Json", "malformed JSON at byte 5"),
    "nested 1,500 deep": (b'{"x":%s,"messages":[]}' % DEEP, "Json", "127"),
    "an inner byte order mark": (b"\xef\xbb\xbf[]", "Json", "malformed JSON at byte 0"),
    "a number": (b"17", "Row", "an object with messages, or an array"),
    "a text": (b'"messages"', "Row", "an object with messages, or an array"),
    "no messages": (b'{"input":{},"output":1}', "Row", "no messages in this object, but input, output"),
    "an empty object": (b"{}", "Row", "no messages in this object, but nothing"),
    "messages of another type": (b'{"messages":{}}', "Row", "messages is not an array"),
    "messages twice": (b'{"messages":[],"messages":[]}', "Row", "messages stands there twice"),
    "messages twice, once escaped": (
        rb'{"messages":[],"m\u0065ssages":1}',
        "Row",
        "messages stands there twice",
    ),
    "tools twice": (b'{"tools":[],"messages":[],"tools":[]}', "Row", "tools stands there twice"),
    "tools of another type": (b'{"messages":[],"tools":{}}', "Row", "tools is not an array"),
    "no message": (b'{"messages":[]}', "Transcript", "messages"),
    "a message of another type": (b"[7]", "Transcript", "messages[0]"),
    "an unknown role": (chat(USER, {"role": "robot"}), "Transcript", "messages[1].role"),
    "a result without its call": (
        chat(USER, {"role": "tool", "tool_call_id": "c", "content": ""}),
        "Transcript",
        "messages[1]: the result 'c' answers no call",
    ),
    "a tool without a name": (
        chat(USER, tools=[{"type": "function", "function": {}}]),
        "Transcript",
        "tools[0]",
    ),
    "what must stay is too large": (chat({"role": "user", "content": "x" * 800}), "DoesNotFit", "window 110"),
}


@pytest.mark.parametrize(("text", "kind", "message"), REJECTS.values(), ids=REJECTS)
def test_a_row_that_cannot_be_fitted_says_why(text: bytes, kind: str, message: str) -> None:
    row = rebudget_row(text, NARROW)
    assert (row.status, row.kind, row.output) == (RowStatus.REJECTED, kind, b"")
    assert message in row.message


def test_sums_past_64_bits_are_a_reason_of_their_own() -> None:
    assert rebudget_row(chat(USER), Plan(2**64 - 1, 2**64 - 2)).kind == "Overflow"


@pytest.mark.parametrize(
    "figures",
    [
        (100, 0),
        (100, 100),
        (100, 60, 40),
        (-1, 5),
        (2**64, 5),
        (100, 10, 0, -1),
        (100, 10, 0, 2**32),
        ("9", 5),
    ],
)
def test_a_plan_that_no_row_can_meet_is_refused(figures: tuple[Any, ...]) -> None:
    with pytest.raises((ullage.InvalidContext, ValueError)):
        Plan(*figures)


# --- all rows --------------------------------------------------------------------


def run(data: bytes, plan: Plan = WIDE) -> tuple[Summary, bytes, list[dict[str, Any]], list[dict[str, Any]]]:
    rows, rejects, reports = io.BytesIO(), io.BytesIO(), io.BytesIO()
    summary = rebudget_lines(io.BytesIO(data), plan, rows, rejects, reports)
    told = [[json.loads(one) for one in sink.getvalue().splitlines()] for sink in (rejects, reports)]
    return summary, rows.getvalue(), told[0], told[1]


def test_rows_keep_their_order_and_rejects_name_line_and_offset() -> None:
    good, bad, long = chat(USER, n=1), b'{"a" 1}', chat(*LONG)
    summary, out, rejects, reports = run(b"\n".join([good, bad, long, b"\xff\xfe", good, b""]), NARROW)
    assert out == b"".join(rebudget_row(row, NARROW).output + b"\n" for row in (good, long, good))
    assert [(r["line"], r["offset"], r["kind"]) for r in rejects] == [
        (2, len(good) + 1, "Json"),
        (4, len(good + bad + long) + 3, "Encoding"),
    ]
    assert rejects[0]["row"].encode() == bad
    assert base64.b64decode(rejects[1]["row_base64"]) == b"\xff\xfe"
    assert [report["line"] for report in reports] == [1, 3, 5]
    assert (summary.rows_in, summary.rows_out, summary.rejected, summary.trimmed) == (5, 3, 2, 1)


def test_reports_are_those_of_the_contract() -> None:
    rows, reports = io.BytesIO(), io.BytesIO()
    rebudget_lines([chat(*LONG)], NARROW, rows, rows, reports)
    fitted = ullage.fit(LONG, window_tokens=110, output_reserve=10)
    assert reports.getvalue() == b'{"line":1,"report":%s}\n' % fitted.report.to_json()


@given(st.lists(st.sampled_from([chat(*LONG), chat(USER), b"", b" \t\r", b"{}", chat(ANSWER)]), max_size=8))
def test_the_figures_of_a_summary_add_up(lines: list[bytes]) -> None:
    summary, out, rejects, reports = run(b"\n".join(lines), NARROW)
    written = [row for row in (rebudget_row(one, NARROW) for one in lines) if row.output]
    assert summary.rows_in == sum(1 for one in lines if one.strip())
    assert summary.rows_in == summary.rows_out + summary.rejected
    assert summary.rows_out == len(written) == len(reports) == out.count(b"\n")
    assert summary.rejected == len(rejects) == sum(tally.rows for tally in summary.reasons.values())
    assert summary.trimmed == sum(row.status is RowStatus.TRIMMED for row in written)
    for total, sizes in (
        (summary.before, [r.before for r in written]),
        (summary.after, [r.after for r in written]),
    ):
        assert total == Size(*map(sum, zip(*sizes, strict=True))) if sizes else Size()


def test_a_lost_row_is_an_error() -> None:
    summary = Summary(rows_in=2)
    summary.add(1, Row(RowStatus.KEPT, b"[]"))
    with pytest.raises(RuntimeError, match="2 rows came in, 1 were written and 0 rejected"):
        summary.check()


def test_a_run_checks_that_no_row_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Summary, "add", lambda *_: None)
    with pytest.raises(RuntimeError, match="1 rows came in"):
        run(chat(USER))


def test_blank_lines_are_left_out_and_a_last_newline_may_be_missing() -> None:
    row = chat(USER)
    summary, out, rejects, _ = run(b"\n  \n%s\n\r\n\t\n%s" % (row, row))
    assert (out, rejects) == (row + b"\n" + row + b"\n", [])
    assert summary.rows_in == 2


def test_no_input_gives_no_output() -> None:
    assert run(b"")[:3] == (Summary(), b"", [])


def test_a_carriage_return_stays_with_its_row() -> None:
    row = chat(USER)
    _, out, rejects, _ = run(b"%s\r\n{}\r\n" % row)
    assert out == row + b"\r\n"
    assert rejects[0]["row"] == "{}\r"


def test_a_byte_order_mark_at_the_start_is_kept_and_no_fault() -> None:
    row = chat(USER)
    _, out, rejects, _ = run(b"\xef\xbb\xbf%s\n\xef\xbb\xbf%s\n" % (row, row))
    assert out == b"\xef\xbb\xbf%s\n" % row
    assert (rejects[0]["line"], rejects[0]["offset"]) == (2, len(row) + 4)
    assert rejects[0]["row"].encode() == b"\xef\xbb\xbf" + row


def test_a_first_row_behind_a_byte_order_mark_is_rejected_without_it() -> None:
    _, out, rejects, _ = run(b"\xef\xbb\xbf{}\n")
    assert (out, rejects[0]["offset"], rejects[0]["row"]) == (b"\xef\xbb\xbf", 3, "{}")


def test_only_the_newline_byte_ends_a_line() -> None:
    row = chat({"role": "user", "content": "a\u2028b\u2029c\x85d"}) + b"\x20"
    summary, out, _, _ = run(row + b"\n" + row)
    assert (summary.rows_out, out) == (2, (row + b"\n") * 2)


def test_a_line_of_20_megabytes_is_a_row_like_any_other() -> None:
    row = chat({"role": "user", "content": "x" * 20_000_000}, USER)
    assert rebudget_row(row, NARROW).output == chat(USER)
    assert rebudget_row(row, Plan(10_000_000, 10)).output == row


def test_one_row_at_a_time_is_read() -> None:
    rows = io.BytesIO()

    def lines() -> Iterator[bytes]:
        for number in range(5):
            assert rows.getvalue().count(b"\n") == number
            yield chat(USER) + b"\n"

    assert rebudget_lines(lines(), WIDE, rows, rows).rows_out == 5


# --- spans -----------------------------------------------------------------------


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=5), st.sampled_from([None, 1]))
def test_spans_are_those_of_the_members(members: dict[str, str], indent: int | None) -> None:
    value = {key: json.loads(text) for key, text in members.items()}
    text = b" " + json.dumps(value, indent=indent).encode() + b" "
    spans = json_children(text, 1)
    keys = [json.loads(b'"%s"' % text[a:b]) for a, b, _, _ in spans]
    assert dict(zip(keys, [json.loads(text[c:d]) for _, _, c, d in spans], strict=True)) == value


def test_spans_of_many_elements_are_all_there() -> None:
    text = json.dumps(list(range(1000))).encode()
    assert elements(text, 0) == [b"%d" % i for i in range(1000)]
    assert all(a == b for a, b, _, _ in json_children(text))


@pytest.mark.parametrize(("text", "start"), [(b"", 0), (b"[]", -1), (b"[]", 2)])
def test_spans_begin_inside_the_text(text: bytes, start: int) -> None:
    with pytest.raises(IndexError):
        json_children(text, start)


# --- real transcripts --------------------------------------------------------------

REAL = os.environ.get("ULLAGE_REAL_TRANSCRIPTS")


@pytest.mark.skipif(REAL is None, reason="ULLAGE_REAL_TRANSCRIPTS names no folder")
@pytest.mark.parametrize("window", [128_000, 8_192, 4_000])
def test_real_conversations_keep_their_bytes_their_calls_and_their_last_turn(window: int) -> None:
    conversations = json.loads(Path(str(REAL), "taubench_gpt-4o-airline.json").read_bytes())
    rows = [line({"messages": one["traj"], "reward": one["reward"]}) for one in conversations]
    summary, out, rejects, _ = run(b"\n".join(rows), Plan(window, 512))
    assert summary.rows_in == len(rows) == summary.rows_out + len(rejects)
    assert {reject["kind"] for reject in rejects} <= {"DoesNotFit"}
    lost = {reject["line"] for reject in rejects}
    left = [row for number, row in enumerate(rows, 1) if number not in lost]
    for before, after in zip(left, out.splitlines(), strict=True):
        check_trimmed(before, after)


def check_trimmed(before: bytes, after: bytes) -> None:
    """Kept messages are the input's own bytes in order, with all that must be among them."""
    given_messages, kept = messages_of(before), messages_of(after)
    remaining = iter(given_messages)
    assert all(message in remaining for message in kept)
    values = [json.loads(message) for message in given_messages]
    last_turn = max(i for i, value in enumerate(values) if value["role"] == "user")
    must = [m for m, v in zip(given_messages, values, strict=True) if v["role"] == "system"]
    assert kept[: len(must)] == must
    assert kept[-(len(values) - last_turn) :] == given_messages[last_turn:]
    waiting: set[str] = set()
    for message in map(json.loads, kept):
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting
        waiting.update(call["id"] for call in message.get("tool_calls") or ())
    assert not waiting
