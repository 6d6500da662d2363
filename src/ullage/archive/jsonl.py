"""JSON Lines: one transcript a row, trimmed in place.

A row is a JSON object with ``messages`` and maybe ``tools``, or a bare array of
messages, as the OpenAI chat API takes them.  Messages that stay keep their
bytes, and so does all else in the row.  Nothing is repaired; of a key repeated
inside a message or a tool the last one counts, as everywhere.

Lines end at the newline byte and nowhere else.  Lines of white space are left
out; a carriage return is part of its row; a byte order mark may stand before
the first row and is kept.  Every row is written with a newline behind it.
"""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import msgspec

from .. import canonical
from .._core import json_children, json_length, json_text_length
from ..errors import ContextBuildError, DecodeError, JsonValueError, TranscriptError
from ..fit import FitResult, fit
from .plan import Plan
from .row import RejectKind, Row, RowStatus, Size, Summary, noted, rejected

__all__ = ["Sink", "rebudget_lines", "rebudget_row"]

_WHITE = b" \t\r\n"


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes, /) -> object: ...


# --- one row ----------------------------------------------------------------------


class _RowError(Exception):
    """JSON that does not hold one transcript."""


def rebudget_row(line: bytes, plan: Plan) -> Row:
    """Fit one row into the window of the plan.

    ``line`` is one JSON value as UTF-8, with or without white space around it.
    Pure: the same line and plan give the same row, in any process.  Whatever is
    wrong with the row is told by the row.
    """
    try:
        return _fitted(line, plan)
    except _RowError as error:
        return rejected(RejectKind.ROW, error)
    except DecodeError as error:
        try:
            line.decode()
        except UnicodeDecodeError as fault:
            return rejected(RejectKind.ENCODING, f"not UTF-8 at byte {fault.start}")
        return rejected(RejectKind.JSON, error)
    except (TranscriptError, JsonValueError) as error:
        return rejected(RejectKind.TRANSCRIPT, error)
    except ContextBuildError as error:
        return rejected(error.kind, noted(error))


def _fitted(line: bytes, plan: Plan) -> Row:
    json_text_length(line)
    place = _find(line)
    result = fit(
        _value(line[place.messages : place.end]),
        window_tokens=plan.window_tokens,
        output_reserve=plan.output_reserve,
        safety_margin=plan.safety_margin,
        tools=_tools(line, place),
        model=plan.model,
        image_tokens=plan.image_tokens,
        compaction_threshold=plan.compaction_threshold,
    )
    before, after = _sizes(result)
    report = result.report.to_json() if plan.reports else b""
    if after.messages == before.messages:
        return Row(RowStatus.KEPT, line, before, after, report)
    return Row(RowStatus.TRIMMED, _without_dropped(line, place.messages, result.kept), before, after, report)


def _sizes(result: FitResult[Any]) -> tuple[Size, Size]:
    report = result.report
    first, last = report.attempts[0].count.tokens, report.attempts[-1].count.tokens
    turns = len(report.turns) + 1  # the current turn is not listed
    return (
        Size(turns, report.source_event_count, first.total()),
        Size(turns - report.attempts[-1].removed_turns, len(result.messages), last.total()),
    )


class _Place(NamedTuple):
    """Where in a row the array of messages and the tools lie; no tools have an empty span."""

    messages: int
    end: int
    tools: int
    tools_end: int


def _find(line: bytes) -> _Place:
    """Find the transcript in accepted JSON text.  Raises _RowError."""
    start = len(line) - len(line.lstrip(_WHITE))
    if line[start] == ord("["):
        return _Place(start, len(line.rstrip(_WHITE)), 0, 0)
    if line[start] != ord("{"):
        raise _RowError("a row is an object with messages, or an array of messages")
    spans: dict[bytes, tuple[int, int]] = {}
    keys: list[bytes] = []
    for key_start, key_end, value_start, value_end in json_children(line, start):
        key = _key(line[key_start:key_end])
        if key in spans:
            raise _RowError(f"{key.decode()} stands there twice, and readers differ in which they take")
        if key in (b"messages", b"tools"):
            spans[key] = value_start, value_end
        keys.append(key)
    if b"messages" not in spans:
        some = ", ".join(key.decode() for key in keys[:8]) or "nothing"
        raise _RowError(f"no messages in this object, but {some:.200}")
    begin, end = spans[b"messages"]
    if line[begin] != ord("["):
        raise _RowError("messages is not an array")
    return _Place(begin, end, *spans.get(b"tools", (0, 0)))


def _key(written: bytes) -> bytes:
    """A key as it reads, escapes undone."""
    return written if b"\\" not in written else str(canonical.parse(b'"%s"' % written)).encode()


def _tools(line: bytes, place: _Place) -> list[Any]:
    if place.tools == place.tools_end:
        return []
    tools = _value(line[place.tools : place.tools_end])
    if tools is not None and not isinstance(tools, list):
        raise _RowError("tools is not an array")
    return tools or []


_decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
_negative_zero = re.compile(rb"-0[\s\]},]")


def _value(text: bytes) -> Any:
    """The value of an accepted array or object, as ``canonical.parse`` gives it.

    msgspec reads ``-0`` and integers past 64 bits otherwise; where there is
    neither of them it gives the same, and much sooner.
    """
    if _negative_zero.search(text) is None:
        with suppress(msgspec.DecodeError, JsonValueError):
            value = _decode(text)
            json_length(value)  # refuses integers past 64 bits
            return value
    return canonical.parse(text)


def _without_dropped(line: bytes, array: int, kept: list[int]) -> bytes:
    """The row with the kept elements only, each with the comma and white space that stood before it."""
    spans = [(start, end) for _, _, start, end in json_children(line, array)]
    start, end = spans[kept[0]]
    pieces = [line[: spans[0][0]], line[start:end]]
    pieces += [line[spans[i - 1][1] : spans[i][1]] for i in kept[1:]]
    pieces.append(line[spans[-1][1] :])
    return b"".join(pieces)


# --- all rows ---------------------------------------------------------------------


def rebudget_lines(
    lines: Iterable[bytes], plan: Plan, rows: Sink, rejects: Sink, reports: Sink | None = None
) -> Summary:
    """Fit row after row, in order, one in memory at a time.

    lines: each with its newline, as a file opened in binary mode gives them.
    rows, rejects, reports: where rows that fit go, rows that do not go with
        line (from 1), byte offset, kind and message, and, one for each row
        written, the reports.

    Raises what the sinks and the lines raise.
    """
    if reports is not None:
        plan = msgspec.structs.replace(plan, reports=True)
    summary = Summary()
    offset = 0
    for number, line in enumerate(lines, 1):
        text = line.removesuffix(b"\n")
        if number == 1 and text.startswith(codecs.BOM_UTF8):
            text = text.removeprefix(codecs.BOM_UTF8)
            offset = len(codecs.BOM_UTF8)
            rows.write(codecs.BOM_UTF8)
        if text.strip(_WHITE):
            summary.rows_in += 1
            row = rebudget_row(text, plan)
            if row.status is RowStatus.REJECTED:
                rejects.write(_reject_line(number, offset, row, text))
            else:
                rows.write(row.output + b"\n")
                if reports is not None:
                    reports.write(b'{"line":%d,"report":%s}\n' % (number, row.report))
            summary.add(number, row)
        offset += len(text) + 1
    summary.check()
    return summary


def _reject_line(number: int, offset: int, row: Row, text: bytes) -> bytes:
    """A rejected row as one line of JSON, from which its bytes can be had back."""
    told = {"line": number, "offset": offset, "kind": row.kind, "message": row.message}
    try:
        told["row"] = text.decode()
    except UnicodeDecodeError:
        told["row_base64"] = base64.b64encode(text).decode()
    return msgspec.json.encode(told) + b"\n"
