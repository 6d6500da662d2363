"""Reading and projecting a session journal: events and bytes a second, from 1,000 to 100,000 events.

    python -m benchmarks.bench_projection

Times are of the processor, the best of three; what ``json.loads`` takes for the
same lines stands beside them.  Time an event that stays the same from row to
row is time linear in the log.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ullage.canonical import write
from ullage.history import ProjectionConfig
from ullage.journal import read_journal
from ullage.projection import CanonicalConversationProjector

from .transcripts import text

SIZES = (1_000, 10_000, 100_000)
UNLIMITED = ProjectionConfig(max_events=2**63, max_input_bytes=2**63, max_messages=2**63)

T = TypeVar("T")


def turn(rng: random.Random, number: int) -> list[dict[str, Any]]:
    """The kinds of one turn's events: two model calls, two tool calls, a streamed reply."""
    asked = text(rng, 200)
    outputs = [text(rng, 600), text(rng, 600)]
    reply = text(rng, 400)
    kinds: list[dict[str, Any]] = [{"type": "user_message", "text": asked}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": asked}]
    for step, output in enumerate(outputs):
        call = {
            "id": f"call_{step}",
            "name": "read_cask",
            "arguments": {"cask": number, "depth": [0.5, 1.25]},
        }
        outcome = {"status": "succeeded", "output": output}
        request = {"messages": list(messages), "constraint": {"mode": "text"}}
        options = {"max_tokens": None, "timeout": None}
        record = {"version": 1, "call_id": f"m{step}", "mode": "stream", "input": request, "options": options}
        answer = {"version": 1, "call_id": f"m{step}", "outcome": {"status": "succeeded", "response": {}}}
        kinds += [
            {"type": "model_request", "request": record},
            {"type": "model_result", "result": answer},
            {"type": "tool_call", "call": call},
            {"type": "tool_result", "result": {"call_id": call["id"], "outcome": outcome}},
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "call_id": call["id"], "content": json.dumps(outcome)})
    kinds += [{"type": "assistant_delta", "text": reply[i : i + 80]} for i in range(0, len(reply), 80)]
    kinds.append({"type": "assistant_message", "version": 1, "text": reply})
    kinds.append({"type": "stage_progress", "stage": "answer", "status": "completed"})
    return [*kinds, {"type": "done", "status": "completed"}]


def journal(size: int) -> list[dict[str, Any]]:
    """So many events, less those of a last turn that would not end."""
    rng = random.Random(1)
    events: list[dict[str, Any]] = []
    number = 0
    while True:
        kinds = turn(rng, number)
        if len(events) + len(kinds) > size:
            return events
        for kind in kinds:
            event = {"event_id": f"event-{len(events)}", "session_id": "cellar", "turn_id": f"turn-{number}"}
            if kind["type"] == "assistant_message":
                event["message_id"] = f"message-{number}"
            events.append({**event, "seq": len(events), "kind": kind})
        number += 1


def best(call: Callable[..., T], *args: Any) -> tuple[float, T]:
    """Processor seconds of the best of three calls, and what the last gave."""
    seconds = []
    for _ in range(3):
        gc.collect()
        start = time.process_time()
        result = call(*args)
        seconds.append(time.process_time() - start)
    return min(seconds), result


def parse_lines(lines: list[bytes]) -> list[Any]:
    return [json.loads(line) for line in lines]


def main() -> None:
    print(f"{'events':>8} {'MB':>6}  {'what':<24} {'events/s':>10} {'MB/s':>7} {'us/event':>9}")
    for size in SIZES:
        events = journal(size)
        lines = [write(event) + b"\n" for event in events]
        spaced = [json.dumps(event).encode() + b"\n" for event in events]
        reading, log = best(read_journal, lines)
        del events
        rows = {
            "json.loads": best(parse_lines, lines)[0],
            "read_journal": reading,
            "read_journal, spaced": best(read_journal, spaced)[0],
            "project": best(CanonicalConversationProjector().project, "cellar", log, UNLIMITED)[0],
        }
        size_of = {"read_journal, spaced": sum(map(len, spaced))}
        for what, seconds in rows.items():
            megabytes = size_of.get(what, sum(map(len, lines))) / 1e6
            rate = len(lines) / seconds
            print(
                f"{len(lines):>8,} {megabytes:>6.1f}  {what:<24} {rate:>10,.0f} "
                f"{megabytes / seconds:>7.0f} {1e6 / rate:>9.2f}"
            )


if __name__ == "__main__":
    main()
