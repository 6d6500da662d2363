"""What the compiled engine is measured against, besides its own reference."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import ullage


def plain_build(given: ullage.ContextBuildInput) -> list[ullage.Message]:
    """A careful plain-Python trimmer: each message serialised once, sums kept, no checks and no report."""

    def cost(message: ullage.Message) -> int:
        return (
            len(json.dumps(message.to_dict(), ensure_ascii=False, separators=(",", ":")).encode()) + 3
        ) // 4

    sums = dict.fromkeys((turn.turn_id for turn in given.history.turns), 0)
    for group in given.history.groups:
        sums[group.turn_id] += sum(map(cost, group.messages))
    system = [ullage.SystemMessage(text) for text in given.system]
    total = sum(map(cost, (*system, *given.current))) + sum(sums.values()) + 4 + 32
    room = given.budget.window_tokens - given.budget.output_reserve - given.budget.safety_margin
    gone = set()
    for turn, tokens in sums.items():
        if total <= room:
            break
        gone.add(turn)
        total -= tokens
    kept = [m for group in given.history.groups if group.turn_id not in gone for m in group.messages]
    return [*system, *kept, *given.current]


def plain_fit(messages: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """The same over chat dicts: whole turns from the oldest on, each message serialised once."""
    costs = [
        (len(json.dumps(m, ensure_ascii=False, separators=(",", ":")).encode()) + 3) // 4 for m in messages
    ]
    starts = [i for i, m in enumerate(messages) if m["role"] == "user"]
    total, first = sum(costs) + 36, 0
    for start, end in pairwise(starts):
        if total <= room:
            break
        total -= sum(costs[start:end])
        first = end
    return messages if not first else messages[: starts[0]] + messages[first:]
