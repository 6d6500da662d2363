"""Transcripts in a few words, and what every result of ``fit`` must keep.

The promises are written down without the library's own turns and figures.
"""

from __future__ import annotations

import copy
from typing import Any

import ullage
from ullage.formats.openai_chat import read_message
from ullage.messages import AssistantMessage, SystemMessage, UserMessage

ROOMY: dict[str, Any] = {"window_tokens": 1_000_000, "output_reserve": 100}


def user(text: Any = "u") -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any = "a", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def system(text: Any = "s", role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": text}


def asks(*ids: str, arguments: Any = '{"k": 1}') -> dict[str, Any]:
    calls = [
        {"id": i, "type": "function", "function": {"name": "lookup", "arguments": arguments}} for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, text: Any = "r") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


TOOL = {
    "type": "function",
    "function": {
        "name": "t",
        "description": "d",
        "parameters": {"b": {"default": None, "anyOf": []}, "a": 1},
    },
}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}


def role_of(message: Any) -> str:
    read = read_message(message, "m").message
    if isinstance(read, SystemMessage):
        return "system"
    if isinstance(read, UserMessage):
        return "user"
    return "assistant" if isinstance(read, AssistantMessage) else "tool"


def turns_of(chat: list[Any], merge_users: bool = False) -> tuple[list[int], list[list[int]]]:
    """The indexes of the leading system messages, and of each turn."""
    prefix: list[int] = []
    turns: list[list[int]] = []
    opened: list[int] | None = None
    before = ""
    for i, message in enumerate(chat):
        role = role_of(message)
        if role == "system":
            if turns:
                turns.append([i])
            else:
                prefix.append(i)
        else:
            if opened is None or (role == "user" and not (merge_users and before == "user")):
                opened = []
                turns.append(opened)
            opened.append(i)
        before = role
    return prefix, turns


def fit_and_check(chat: list[Any], *, pins: tuple[Any, ...] = (), **settings: Any) -> ullage.FitResult[Any]:
    """``fit``, and all its promises about a result."""
    before = copy.deepcopy(chat)
    result = ullage.fit(chat, pins=pins, **settings)
    check_fit(chat, result, pins=pins, **settings)
    assert chat == before  # nothing changed in the input
    return result


def check_fit(
    chat: list[Any],
    result: ullage.FitResult[Any],
    *,
    window_tokens: int,
    output_reserve: int,
    safety_margin: int = 0,
    pins: tuple[Any, ...] = (),
    merge_users: bool = False,
    **_: Any,
) -> None:
    prefix, turns = turns_of(chat, merge_users)
    kept, report = result.kept, result.report

    # The caller's own objects, in their order.
    assert kept == sorted(set(kept))
    assert len(result.messages) == len(kept)
    assert all(message is chat[i] for message, i in zip(result.messages, kept, strict=True))

    # System messages, the last turn and pinned turns stay; of the others the oldest went.
    current = max(turns, key=lambda turn: (role_of(chat[turn[0]]) != "system", turn[0]))
    pinned = {int(str(pin).removeprefix("turn-")) for pin in pins}
    removable = [
        number
        for number, turn in enumerate(turns)
        if turn is not current and role_of(chat[turn[0]]) != "system" and number not in pinned
    ]
    removed = len(report.attempts) - 1
    gone = {i for number in removable[:removed] for i in turns[number]}
    assert kept == [i for i in range(len(chat)) if i not in gone]

    # No result without its call, no call without its result.
    waiting: set[str] = set()
    for message in result.messages:
        read = read_message(message, "m")
        assert set(read.answers) <= waiting
        waiting = waiting - set(read.answers) | set(read.asks)
    assert not waiting

    # Never over the window, and every count is told.
    totals = [attempt.total_reserved for attempt in report.attempts]
    assert totals[-1] <= report.budget.window_tokens <= window_tokens
    assert all(total > report.budget.window_tokens for total in totals[:-1])
    for number, attempt in enumerate(report.attempts):
        assert attempt.removed_turns == number
        assert attempt.total_reserved == attempt.count.tokens.total() + output_reserve + safety_margin

    # The report tells what became of each turn.
    others = [number for number, turn in enumerate(turns) if turn is not current]
    assert [turn.turn_id for turn in report.turns] == [f"turn-{number}" for number in others]
    for turn, number in zip(report.turns, others, strict=True):
        assert turn.source_events == tuple(map(str, turns[number]))
        assert turn.retained == (number not in removable[:removed])
        assert turn.protected == (number not in removable)
    assert report.system_messages == len(prefix)
    assert report.current_messages == len(current)
    assert report.source_event_count == len(chat)
    assert ullage.ContextBuildReport.from_json(report.to_json()) == report


def needed(chat: list[Any], **settings: Any) -> int:
    """The tokens of the whole transcript, reserve included."""
    return ullage.fit(chat, **{**ROOMY, **settings}).report.attempts[0].total_reserved


def down_to(chat: list[Any], kept: list[int], **settings: Any) -> ullage.FitResult[Any]:
    """Fit into the very window that the kept messages need, and see that they are what is kept."""
    pins = settings.pop("pins", ())
    window = needed([chat[i] for i in kept], **settings)
    fitted = fit_and_check(chat, pins=pins, **{**ROOMY, **settings, "window_tokens": window})
    assert fitted.kept == kept
    assert fitted.report.attempts[-1].total_reserved == window
    return fitted


def tokens(chat: list[Any], **settings: Any) -> ullage.ContextTokenBreakdown:
    return ullage.fit(chat, **{**ROOMY, **settings}).report.attempts[0].count.tokens
