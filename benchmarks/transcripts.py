"""Seeded transcripts: text of several scripts, a third of the turns with parallel tool calls."""

from __future__ import annotations

import json
import random
from typing import Any

import ullage

TEXT = """the barrel stands half full in a cool cellar while someone writes down how much room is left above
the wine and asks again tomorrow whether another bucket would fit without spilling over the rim of oak"""
WORDS = TEXT.split()
SCRIPTS = (
    "湖面平静秋叶红了晨雾渐散",
    "樽の中にはまだ余地がある",
    "술통에는아직자리가있다",
    "вбочкеещёестьместо",
    "فيالبرميلمتسع",
)


def text(rng: random.Random, characters: int) -> str:
    """About so many characters: mostly English, some of other scripts, some with quotes and line ends."""
    kind = rng.random()
    if kind < 0.15:
        script = rng.choice(SCRIPTS)
        return "".join(rng.choices(script, k=characters))
    words: list[str] = []
    length = 0
    while length < characters:
        word = rng.choice(WORDS)
        if kind > 0.8 and rng.random() < 0.2:
            word = rng.choice(('"' + word + '"', word + "\n", word.replace("e", "é"), word + " 🍷"))
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:characters]


def _length(rng: random.Random, mean: int) -> int:
    return max(4, int(rng.gammavariate(2.0, mean / 2)))


def chat(messages: int, characters: int = 400, seed: int = 1) -> list[dict[str, Any]]:
    """An OpenAI chat transcript of at least so many messages of so many characters on average."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = [{"role": "system", "content": "You keep the cellar book."}]
    while len(rows) < messages - 1:
        rows.append({"role": "user", "content": text(rng, _length(rng, characters))})
        if rng.random() < 1 / 3:
            rows.extend(_exchange(rng, characters, len(rows)))
        rows.append({"role": "assistant", "content": text(rng, _length(rng, characters))})
    rows.append({"role": "user", "content": "And what is left today?"})
    return rows


def _exchange(rng: random.Random, characters: int, number: int) -> list[dict[str, Any]]:
    ids = [f"call_{number}_{i}" for i in range(rng.randint(1, 3))]
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {
                "name": "measure_cask",
                "arguments": json.dumps({"note": text(rng, 40), "cask": rng.randint(1, 99), "litres": 1.5}),
            },
        }
        for call_id in ids
    ]
    results = [
        {"role": "tool", "tool_call_id": call_id, "content": text(rng, _length(rng, characters))}
        for call_id in ids
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def history(turns: int, characters: int = 550, seed: int = 1) -> ullage.ConversationProjection:
    """A projected history; each turn has four messages: user, tool call, result, reply."""
    rng = random.Random(seed)
    groups: list[ullage.ProjectionGroup] = []
    ended: list[ullage.ProjectedTurn] = []
    for number in range(turns):
        turn, call = f"turn{number}", f"jw_tool_{number}"
        events = [f"evt_{number}_{i}" for i in range(5)]
        asked = ullage.ToolCall(call, "measure_cask", {"note": text(rng, 40), "cask": number})
        exchange = (
            ullage.AssistantMessage(None, (asked,)),
            ullage.ToolMessage(call, text(rng, _length(rng, characters))),
        )
        user = ullage.UserMessage(text(rng, _length(rng, characters)))
        reply = ullage.AssistantMessage(text(rng, _length(rng, characters)))
        groups += [
            ullage.ProjectionGroup(turn, ullage.GroupKind.USER, (events[0],), (user,)),
            ullage.ProjectionGroup(turn, ullage.GroupKind.TOOL_EXCHANGE, (events[1], events[2]), exchange),
            ullage.ProjectionGroup(turn, ullage.GroupKind.ASSISTANT, (events[3],), (reply,)),
        ]
        ended.append(ullage.ProjectedTurn(turn, ullage.TurnState.COMPLETED, events[4], False))
    return ullage.ConversationProjection(
        algorithm_version=1,
        session_id="cellar",
        source_tail=f"evt_{turns - 1}_4",
        source_event_count=5 * turns,
        groups=tuple(groups),
        turns=tuple(ended),
    )


def build_input(past: ullage.ConversationProjection, removals: int) -> ullage.ContextBuildInput:
    """An input whose window makes the builder remove exactly so many turns."""
    builder, counter = ullage.CanonicalContextBuilder(), ullage.ByteHeuristicCounter()
    report = None
    try:
        builder.build(_input(past, 1), counter)
    except ullage.DoesNotFit as error:
        report = error.report
    if report is None:
        raise AssertionError("one token is enough for anything?")
    return _input(past, report.attempts[removals].total_reserved)


def _input(past: ullage.ConversationProjection, window: int) -> ullage.ContextBuildInput:
    return ullage.ContextBuildInput(
        history=past,
        current=(ullage.UserMessage("And what is left today?"),),
        target=ullage.ContextTarget("any", "1"),
        budget=ullage.ContextBudget(window, 256),
        system=("You keep the cellar book.",),
        limits=ullage.ContextBuildLimits(max_count_calls=len(past.turns) + 1),
    )
