"""Reading session journals: JSON Lines, one event a line.

Lines end at the newline byte and nowhere else.  Nothing is skipped and nothing
repaired: a line that is blank, cut off or not strict JSON is an error, and so
are a byte order mark and an event id that is given twice.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import msgspec

from ._core import json_length
from .errors import DecodeError, JournalError, JsonValueError
from .events import SessionEvent

__all__ = ["JournalSource", "read_journal", "read_sessions"]

JournalSource: TypeAlias = str | os.PathLike[str] | Iterable[bytes]
"""The path of a journal, or its lines with their newlines, as a file opened in binary mode gives them."""


def read_journal(source: JournalSource) -> list[SessionEvent]:
    """The events of one session's journal, in the order of its lines.

    Compact JSON without needless escapes, as journals are commonly written, is
    read about three times faster than other JSON.

    Raises JournalError with the line at fault and its byte offset, and OSError.
    """
    events: list[SessionEvent] = []
    lines: dict[str, int] = {}
    for line, offset, event in _read(source):
        _note_id(event, lines, line, offset)
        events.append(event)
    return events


def read_sessions(source: JournalSource) -> dict[str, list[SessionEvent]]:
    """The events of a journal in which many sessions are mixed: session id to events.

    Sessions stand in the order in which they begin, the events of each in the
    order of the lines.  An event id may be used once in each session.

    Raises JournalError with the line at fault and its byte offset, and OSError.
    """
    sessions: dict[str, list[SessionEvent]] = {}
    lines: dict[str, dict[str, int]] = {}
    for line, offset, event in _read(source):
        _note_id(event, lines.setdefault(event.session_id, {}), line, offset)
        sessions.setdefault(event.session_id, []).append(event)
    return sessions


def _note_id(event: SessionEvent, lines: dict[str, int], line: int, offset: int) -> None:
    first = lines.setdefault(event.event_id, line)
    if first != line:
        raise JournalError(
            f"event ID {event.event_id} is that of line {first} already", line, offset, "event_id"
        )


def _read(source: JournalSource) -> Iterator[tuple[int, int, SessionEvent]]:
    """Each event with its line, from 1, and the byte at which the line starts."""
    offset = 0
    with _opened(source) as lines:
        for number, line in enumerate(lines, 1):
            try:
                event = _decode(line)
            except DecodeError as error:
                raise JournalError(error.reason, number, offset, error.path) from None
            yield number, offset, event
            offset += len(line)


def _opened(source: JournalSource) -> AbstractContextManager[Iterable[bytes]]:
    if isinstance(source, (str, os.PathLike)):
        return open(source, "rb")
    return nullcontext(source)


def _decode(line: bytes) -> SessionEvent:
    if not isinstance(line, bytes):
        raise TypeError(f"a line of a journal is bytes, not {type(line).__name__}")
    end = len(line) - 1
    if line.find(b"\n") != end or end < 0:
        raise DecodeError("no newline ends the line; the journal was cut off here")
    if line.startswith(codecs.BOM_UTF8):
        raise DecodeError("a byte order mark")
    if not line.strip(b" \t\r\n"):
        raise DecodeError("a blank line")
    text = line[:end]
    value = _quickly(text)
    return SessionEvent.from_json(text) if value is None else SessionEvent.from_dict(value)


_parse = msgspec.json.Decoder().decode
_write = msgspec.json.Encoder().encode


def _quickly(text: bytes) -> Any:
    """The value of JSON text, or None where msgspec may read it otherwise than the strict reader does.

    Text that comes back to the byte holds no repeated key, no ``-0`` and no
    float but in its shortest form; what has a length is not nested too deep and
    has no integer past 64 bits.
    """
    try:
        value = _parse(text)
        json_length(value)
    except (msgspec.MsgspecError, JsonValueError, RecursionError):
        return None
    return value if _write(value) == text else None
