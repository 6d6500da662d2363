"""The command line on session journals, and with a compaction threshold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ullage
from ullage.cli import main

BUDGET = ["--window", "400", "--reserve", "100"]


def turn(session: str, number: int, seq: int, *, ended: bool = True) -> list[dict[str, Any]]:
    kinds: list[dict[str, Any]] = [{"type": "user_message", "text": f"Question {number}: " + "why? " * 20}]
    if ended:
        kinds += [
            {"type": "assistant_message", "version": 1, "text": f"Answer {number}: " + "so. " * 20},
            {"type": "done", "status": "completed"},
        ]
    events: list[dict[str, Any]] = []
    for i, kind in enumerate(kinds):
        event = {"event_id": f"{session}-{seq + i}", "session_id": session, "turn_id": f"turn{number}"}
        if kind["type"] == "assistant_message":
            event["message_id"] = f"{session}-m{number}"
        events.append(event | {"seq": seq + i, "kind": kind})
    return events


def session(name: str, turns: int, *, is_open: bool) -> list[dict[str, Any]]:
    events = [event for number in range(turns) for event in turn(name, number, 3 * number)]
    return events + (turn(name, turns, 3 * turns, ended=False) if is_open else [])


def mixed(*sessions: list[dict[str, Any]]) -> bytes:
    """The sessions' lines, taken from one after the other in turn."""
    lines: list[dict[str, Any]] = []
    left = [list(events) for events in sessions]
    while any(left):
        lines += [events.pop(0) for events in left if events]
    return b"".join(json.dumps(event).encode() + b"\n" for event in lines)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def test_each_session_of_a_mixed_journal_gives_its_own_request(folder: Path) -> None:
    sessions = session("a", 1, is_open=True), session("b", 9, is_open=True)
    (folder / "in.jsonl").write_bytes(mixed(*sessions))
    assert main(["rebudget", "in.jsonl", "-o", "out.jsonl", "--report", "reports.jsonl", *BUDGET]) == 0
    for row, told, events in zip(
        rows(folder / "out.jsonl"), rows(folder / "reports.jsonl"), sessions, strict=True
    ):
        request = ullage.GenerationRequest.from_dict(row["request"])
        report = ullage.ContextBuildReport.from_dict(told["report"])
        request.validate_shape()
        assert row["session_id"] == told["session_id"] == report.session_id == events[0]["session_id"]
        assert request.messages[-1] == ullage.UserMessage(events[-1]["kind"]["text"])
        assert report.attempts[-1].total_reserved <= 400
    assert any(not turn.retained for turn in report.turns)


def test_a_session_of_ended_turns_needs_an_explicit_choice(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "in.jsonl").write_bytes(mixed(session("a", 2, is_open=False)))
    assert main(["fit", "in.jsonl", *BUDGET]) == 3
    assert "give a current message, or choose the last turn" in capsys.readouterr().err
    assert main(["fit", "in.jsonl", "--current", "And now?", *BUDGET]) == 0
    request = ullage.GenerationRequest.from_json(capsys.readouterr().out)
    assert request.messages[-1] == ullage.UserMessage("And now?")
    assert len(request.messages) == 5
    assert main(["fit", "in.jsonl", "--last-turn", *BUDGET]) == 0
    request = ullage.GenerationRequest.from_json(capsys.readouterr().out)
    assert isinstance(request.messages[-1], ullage.AssistantMessage)
    assert len(request.messages) == 4


def test_a_session_that_cannot_be_fitted_is_rejected_and_the_others_are_not(folder: Path) -> None:
    broken = session("b", 2, is_open=False)
    broken[1]["seq"] = 7
    (folder / "in.jsonl").write_bytes(
        mixed(session("a", 1, is_open=True), broken, session("c", 1, is_open=False))
    )
    assert main(["rebudget", "in.jsonl", "-o", "out.jsonl", *BUDGET]) == 1
    assert [row["session_id"] for row in rows(folder / "out.jsonl")] == ["a"]
    first, second = rows(folder / "out.rejects.jsonl")
    assert (first["session"], first["session_id"], first["kind"]) == (2, "b", "Projection.Physical")
    assert first["message"] == "event at physical index 1 has sequence 7, expected 1"
    assert (second["session"], second["session_id"], second["kind"]) == (3, "c", "Transcript")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda text: text[:-1], "no newline ends the line"),
        (lambda text: text + b"\n", "a blank line"),
        (lambda text: text + text[: text.index(b"\n") + 1], "is that of line 1 already"),
        (lambda text: text + b'{"event_id":"\xff"}\n', "not UTF-8"),
    ],
    ids=["torn", "blank", "repeated id", "not UTF-8"],
)
def test_a_journal_that_cannot_be_read_leaves_no_output(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: Any, told: str
) -> None:
    (folder / "in.jsonl").write_bytes(damage(mixed(session("a", 1, is_open=True))))
    assert main(["rebudget", "in.jsonl", "-o", "out.jsonl", *BUDGET]) == 3
    message = capsys.readouterr().err
    assert told in message
    assert "line " in message
    assert sorted(path.name for path in folder.iterdir()) == ["in.jsonl"]


def test_fit_refuses_a_journal_of_many_sessions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "in.jsonl").write_bytes(mixed(session("a", 1, is_open=True), session("b", 1, is_open=True)))
    assert main(["fit", "in.jsonl", *BUDGET]) == 3
    assert "2 sessions; use rebudget" in capsys.readouterr().err


# --- compaction threshold --------------------------------------------------------------


def chat(turns: int) -> list[dict[str, str]]:
    return [
        {"role": role, "content": f"{role} {number} " + "words " * 12}
        for number in range(turns)
        for role in ("user", "assistant")
    ]


@pytest.mark.parametrize("threshold", [0.0, 0.45, 0.6, 0.75, 0.8, 2.0])
def test_the_command_carries_as_much_history_as_fit_does(
    folder: Path, capsys: pytest.CaptureFixture[str], threshold: float
) -> None:
    messages = chat(20)
    (folder / "in.json").write_text(json.dumps(messages))
    assert main(["fit", "in.json", "--compaction-threshold", str(threshold), *BUDGET]) == 0
    fitted = ullage.fit(messages, window_tokens=400, output_reserve=100, compaction_threshold=threshold)
    assert json.loads(capsys.readouterr().out) == fitted.messages


def test_a_threshold_narrows_a_session_too_and_none_changes_nothing(folder: Path) -> None:
    (folder / "in.jsonl").write_bytes(mixed(session("a", 9, is_open=True)))
    kept = []
    for threshold in ("0.2", "0.6", "0.8"):
        options = ["--compaction-threshold", threshold, *BUDGET]
        assert main(["rebudget", "in.jsonl", "-o", f"{threshold}.jsonl", *options]) == 0
        [row] = rows(folder / f"{threshold}.jsonl")
        kept.append(len(row["request"]["messages"]))
    assert kept == sorted(kept)
    assert kept[0] < kept[-1]
    assert main(["rebudget", "in.jsonl", "-o", "none.jsonl", *BUDGET]) == 0
    assert (folder / "none.jsonl").read_bytes() == (folder / "0.8.jsonl").read_bytes()


@pytest.mark.parametrize("threshold", ["nan", "much", ""])
def test_a_threshold_that_is_no_number_is_a_usage_error(
    folder: Path, capsys: pytest.CaptureFixture[str], threshold: str
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["fit", "in.json", "--compaction-threshold", threshold, *BUDGET])
    assert exit.value.code == 2
    assert "--compaction-threshold" in capsys.readouterr().err
