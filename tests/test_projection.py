"""Projecting a journal: the recorded outcomes, what holds for every log, and what a log at fault gives."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage import canonical
from ullage.budget import ContextBudget, ContextBuildLimits, ContextTarget
from ullage.errors import (
    DecodeError,
    DoesNotFit,
    InvalidShape,
    JsonValueError,
    ProjectionError,
    TranscriptError,
)
from ullage.events import DoneKind, DoneStatus, SessionEvent, StageProgressKind, UserMessageKind
from ullage.history import (
    ConversationProjection,
    GroupKind,
    LegacyReplies,
    ProjectionConfig,
    TurnState,
)
from ullage.messages import AssistantMessage, ToolMessage, UserMessage
from ullage.projection import CanonicalConversationProjector, history_and_current
from ullage.reference import ByteHeuristicCounter, CanonicalContextBuilder
from ullage.report import BuiltContext, ContextBuildInput

project = CanonicalConversationProjector().project

LENIENT = ProjectionConfig(legacy_replies=LegacyReplies.OMIT)
LIMITS = ("max_events", "max_input_bytes", "max_messages")


# --- recorded outcomes --------------------------------------------------------


def read_vectors() -> list[tuple[dict[str, Any], bytes]]:
    """Each vector, and the line that it stands on: output is compared as bytes."""
    lines = (Path(__file__).parent / "golden" / "project.jsonl").read_bytes().split(b"\n")
    return [(canonical.parse(line), line) for line in lines if line]


VECTORS = [pytest.param(vector["input"], line, id=vector["id"]) for vector, line in read_vectors()]
VALID = [
    pytest.param(vector["input"], vector["output"]["ok"], id=vector["id"])
    for vector, _ in read_vectors()
    if "ok" in vector["output"]
]


def config_of(vector: dict[str, Any]) -> ProjectionConfig:
    return ProjectionConfig.from_dict(vector.get("config") or {})


def outcome(session_id: str, events: Any, config: ProjectionConfig) -> bytes:
    try:
        return b'{"ok":%b}' % project(session_id, events, config).to_json()
    except ProjectionError as error:
        return canonical.write({"error": {"kind": error.kind, "message": str(error)}})


@pytest.mark.parametrize(("vector", "line"), VECTORS)
def test_recorded_outcomes(vector: dict[str, Any], line: bytes) -> None:
    output = outcome(vector["session"], vector["events"], config_of(vector))
    assert line.endswith(b',"output":%b}' % output)


@pytest.mark.parametrize(("vector", "line"), VECTORS)
def test_structs_and_dicts_give_the_same(vector: dict[str, Any], line: bytes) -> None:
    structs = [SessionEvent.from_dict(event) for event in vector["events"]]
    assert line.endswith(b',"output":%b}' % outcome(vector["session"], structs, config_of(vector)))
    assert [SessionEvent.from_json(event.to_json()) for event in structs] == structs


# --- what the builder makes of it ----------------------------------------------


def build(history: ConversationProjection, current: Any, window: int) -> BuiltContext:
    budget = ContextBudget(window_tokens=window, output_reserve=1)
    return CanonicalContextBuilder().build(
        ContextBuildInput(
            history=history,
            current=current,
            target=ContextTarget("m", "1"),
            budget=budget,
            limits=ContextBuildLimits(max_count_calls=1000),
        ),
        ByteHeuristicCounter(),
    )


@pytest.mark.parametrize(("vector", "ok"), VALID)
def test_history_gives_valid_requests_at_every_window(vector: dict[str, Any], ok: dict[str, Any]) -> None:
    whole = ConversationProjection.from_dict(ok)
    is_open = bool(whole.turns) and whole.turns[-1].state is TurnState.OPEN
    history, current = history_and_current(
        vector["session"], vector["events"], config_of(vector), current=None if is_open else "go on"
    )
    if not all(isinstance(call.arguments, dict) for call in calls_of(history)):
        with pytest.raises(InvalidShape, match="arguments must be a parsed JSON object"):
            build(history, current, 2**40)
        return
    with pytest.raises(DoesNotFit) as refused:
        build(history, current, 1)
    assert refused.value.report is not None
    windows = [attempt.total_reserved for attempt in refused.value.report.attempts]
    assert len(windows) == len(history.turns) + 1
    for window in windows:
        built = build(history, current, window)
        built.request.validate_shape()
        assert built.request.messages[-len(current) :] == current
        kept = [turn.turn_id for turn in built.report.turns if turn.retained]
        assert kept == [turn.turn_id for turn in history.turns][len(history.turns) - len(kept) :]
        assert len(kept) >= len(history.turns) - windows.index(window)


def calls_of(history: ConversationProjection) -> Any:
    for group in history.groups:
        for message in group.messages:
            if isinstance(message, AssistantMessage):
                yield from message.tool_calls


# --- logs made at random --------------------------------------------------------

Kind: TypeAlias = dict[str, Any]

AUDITS: list[Kind] = [
    {"type": "stage_progress", "stage": "s", "status": "started"},
    {"type": "mode", "mode": "m", "decided_by": "host", "reason": ""},
    {"type": "plan_ready", "plan": [None, {}]},
    {"type": "task_run_report", "report": {"version": 1}},
    {"type": "custom", "plugin": "p", "kind": "k", "payload": 0.5},
]
FAILED: Kind = {"status": "failed", "category": "timeout", "code": "c", "message": "m", "retryable": True}
OUTCOMES: list[Kind] = [{"status": "succeeded", "output": "r\u2028"}, FAILED]
ENDS: list[Kind] = [
    *({"type": "done", "status": status.value} for status in DoneStatus),
    {"type": "error", "code": "E", "message": "m", "retryable": False},
]


def tool_call(call_id: str) -> dict[str, Any]:
    return {"type": "tool_call", "call": {"id": call_id, "name": "look", "arguments": {"q": 1}}}


def tool_result(call_id: str, outcome: Kind = OUTCOMES[0]) -> dict[str, Any]:
    return {"type": "tool_result", "result": {"call_id": call_id, "outcome": outcome}}


def model_request(call_id: str) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": "q"}], "constraint": {"mode": "text"}}
    record = {"version": 1, "call_id": call_id, "mode": "complete", "input": asked, "options": {}}
    return {"type": "model_request", "request": record}


def model_result(call_id: str) -> dict[str, Any]:
    record = {"version": 1, "call_id": call_id, "outcome": {"status": "succeeded"}}
    return {"type": "model_result", "result": record}


@st.composite
def turn_kinds(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The kinds of an ended turn's events, without a fault."""
    audits = st.lists(st.sampled_from(AUDITS), max_size=2)
    if draw(st.integers(0, 9)) == 0:  # a turn may end before the user has said anything
        return [*draw(audits), draw(st.sampled_from(ENDS))]
    calls = [f"c{i}" for i in range(draw(st.integers(0, 3)))]
    models = [f"m{i}" for i in range(draw(st.integers(0, 2)))]
    work = draw(
        st.permutations(
            [("call", c) for c in calls] * 2
            + [("model", m) for m in models] * 2
            + [("delta", "")] * draw(st.integers(0, 2))
        )
    )
    kinds = [*draw(audits), {"type": "user_message", "text": draw(st.text(max_size=5))}]
    begun: set[str] = set()
    for what, name in work:
        if what == "delta":
            kinds.append({"type": "assistant_delta", "text": "d"})
        elif name not in begun:  # the first of the two is the call, the second its result
            begun.add(name)
            kinds.append(tool_call(name) if what == "call" else model_request(name))
        elif what == "call":
            kinds.append(tool_result(name, draw(st.sampled_from(OUTCOMES))))
        else:
            kinds.append(model_result(name))
        kinds += draw(audits)
    if draw(st.integers(0, 4)):
        kinds.append({"type": "assistant_message", "version": 1, "text": draw(st.text(max_size=5))})
        kinds += draw(audits)
    return [*kinds, draw(st.sampled_from(ENDS))]


def log_of(turns: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Turns as a log of session ``s``; complete replies get a message id."""
    log: list[dict[str, Any]] = []
    for number, kinds in enumerate(turns):
        for kind in kinds:
            event = {"event_id": f"e{len(log)}", "session_id": "s", "turn_id": f"t{number}"}
            if kind["type"] == "assistant_message":
                event["message_id"] = f"m{len(log)}"
            log.append({**event, "seq": len(log), "kind": kind})
    return log


@st.composite
def valid_logs(draw: st.DrawFn) -> list[dict[str, Any]]:
    turns = draw(st.lists(turn_kinds(), max_size=4))
    if draw(st.booleans()):
        turns.append([{"type": "user_message", "text": "open"}])
    return log_of(turns)


@st.composite
def logs_with_one_fault(draw: st.DrawFn) -> list[dict[str, Any]]:
    log = draw(valid_logs().filter(bool))
    at = draw(st.integers(0, len(log) - 1))
    event = dict(log[at])
    fault = draw(st.sampled_from(["drop", "repeat", "swap", "field", "kind", "cut"]))
    if fault == "drop":
        del log[at]
    elif fault == "repeat":
        log.insert(at, event)
    elif fault == "swap":
        other = draw(st.integers(0, len(log) - 1))
        log[at], log[other] = log[other], log[at]
    elif fault == "cut":
        del log[at:]
    elif fault == "kind":
        log[at] = {**event, "kind": draw(st.sampled_from(log))["kind"]}
    else:
        text = st.sampled_from(["", "\u3000", "s", "t0", "t1", "e0", "other"])
        name = draw(st.sampled_from(["event_id", "session_id", "turn_id", "message_id", "seq"]))
        log[at] = {**event, name: draw(text if name != "seq" else st.sampled_from([0, 1, 2**64 - 1]))}
    if draw(st.booleans()):  # a fault that the sequence does not show
        log = [{**event, "seq": i, "event_id": event["event_id"] and f"e{i}"} for i, event in enumerate(log)]
    return log


def check_invariants(log: list[dict[str, Any]], projection: ConversationProjection) -> None:
    place = {event["event_id"]: event["seq"] for event in log}
    turn_order = {turn.turn_id: i for i, turn in enumerate(projection.turns)}
    order = {GroupKind.USER: 0, GroupKind.TOOL_EXCHANGE: 1, GroupKind.ASSISTANT: 2}
    keys = [(turn_order[g.turn_id], order[g.kind], place[g.source_events[0]]) for g in projection.groups]
    assert keys == sorted(keys)
    for group in projection.groups:
        if group.kind is GroupKind.TOOL_EXCHANGE:
            call, result = group.messages
            assert isinstance(call, AssistantMessage)
            assert isinstance(result, ToolMessage)
            assert call.tool_calls[0].id == result.call_id == f"jw_tool_{place[group.source_events[0]]}"
            assert place[group.source_events[0]] < place[group.source_events[1]]
    used = [event for group in projection.groups for event in group.source_events]
    left_out = [event.event_id for event in projection.omitted]
    assert sorted(used + left_out, key=place.__getitem__) == [event["event_id"] for event in log]
    assert left_out == sorted(left_out, key=place.__getitem__)
    assert projection.source_tail == (log[-1]["event_id"] if log else None)
    assert projection.source_event_count == len(log)


@given(valid_logs())
def test_every_event_is_in_one_group_or_omitted_and_groups_follow_the_log(log: list[dict[str, Any]]) -> None:
    check_invariants(log, project("s", log, LENIENT))


@given(valid_logs())
def test_a_prefix_that_ends_with_a_turn_projects_to_a_prefix(log: list[dict[str, Any]]) -> None:
    whole = project("s", log, LENIENT)
    ends = [i for i in range(1, len(log)) if log[i]["turn_id"] != log[i - 1]["turn_id"]]
    for end in [0, *ends]:
        part = project("s", log[:end], LENIENT)
        assert part.groups == whole.groups[: len(part.groups)]
        assert part.turns == whole.turns[: len(part.turns)]
        assert part.omitted == whole.omitted[: len(part.omitted)]
        kept = {event["turn_id"] for event in log[:end]}
        assert {group.turn_id for group in whole.groups[len(part.groups) :]}.isdisjoint(kept)


@given(logs_with_one_fault(), st.sampled_from([LENIENT, ProjectionConfig()]))
def test_a_log_with_a_fault_is_refused_or_keeps_every_promise(
    log: list[dict[str, Any]], config: ProjectionConfig
) -> None:
    try:
        projection = project("s", log, config)
    except ProjectionError as error:
        refused = error
    else:
        check_invariants(log, projection)
        return
    assert refused.__notes__
    assert (refused.index is None) == (refused.event_id is None)
    if refused.index is not None:
        assert log[refused.index]["event_id"] == refused.event_id


@given(valid_logs())
def test_the_input_is_not_changed(log: list[dict[str, Any]]) -> None:
    before = canonical.write(log)
    project("s", log, LENIENT)
    assert canonical.write(log) == before


# --- faults, one by one ---------------------------------------------------------

USER: Kind = {"type": "user_message", "text": "hi"}
REPLY: Kind = {"type": "assistant_message", "version": 1, "text": "ok"}
DONE: Kind = {"type": "done", "status": "completed"}


@pytest.mark.parametrize(
    ("kinds", "kind", "index"),
    [
        ([USER, tool_call("a"), REPLY, DONE], "Unconfirmed", 0),
        ([USER, model_request("a"), REPLY, DONE], "Unconfirmed", 0),
        ([USER, REPLY, DONE, DONE], "Malformed", 3),
        ([USER, tool_call("a"), tool_call("a")], "Malformed", 2),
        ([USER, DONE], "MissingReply", 0),
    ],
)
def test_an_error_names_the_event_or_the_first_of_its_turn(
    kinds: list[dict[str, Any]], kind: str, index: int
) -> None:
    whole_turn = [USER, REPLY, DONE]
    with pytest.raises(ProjectionError) as refused:
        project("s", log_of([whole_turn, kinds]))
    assert refused.value.kind == kind
    assert refused.value.index == len(whole_turn) + index
    assert refused.value.event_id == f"e{len(whole_turn) + index}"


def test_the_note_names_what_can_be_projected() -> None:
    log = log_of([[USER, REPLY, DONE], [USER, tool_call("a")]])
    with pytest.raises(ProjectionError) as refused:
        project("s", log)
    assert "events[:3]" in refused.value.__notes__[0]
    assert len(project("s", log[:3]).turns) == 1


def test_an_error_survives_pickling() -> None:
    with pytest.raises(ProjectionError) as refused:
        project("s", log_of([[USER, DONE]]))
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (str(copy), vars(copy)) == (str(refused.value), vars(refused.value))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"kind": {"type": "nonsense"}}, "events[1].kind.type"),
        ({"kind": {**REPLY, "version": 2}}, "events[1].kind.version"),
        ({"kind": {"type": "done"}}, "events[1].kind"),
        ({"seq": "1"}, "events[1].seq"),
        ({"seq": -1}, "events[1]"),
        ({"turn_id": None}, "events[1].turn_id"),
        ({"kind": model_request("a") | {"request": {}}}, "events[1].kind.request"),
    ],
)
def test_a_dict_that_is_no_event_is_refused_with_its_path(change: dict[str, Any], path: str) -> None:
    log = log_of([[USER, REPLY, DONE]])
    log[1] |= change
    with pytest.raises(DecodeError) as refused:
        project("s", log)
    assert refused.value.path == path


def test_a_value_without_a_json_form_is_refused_with_its_path() -> None:
    log = log_of([[USER, {"type": "custom", "plugin": "p", "kind": "k", "payload": [float("nan")]}]])
    with pytest.raises(JsonValueError) as refused:
        project("s", log)
    assert refused.value.path == "events[1].kind.payload[0]"


# --- limits ---------------------------------------------------------------------


def event_json(kind: bytes, seq: int) -> bytes:
    return b'{"event_id":"e%d","session_id":"s","turn_id":"t0","seq":%d,"kind":%b}' % (seq, seq, kind)


TOOLS = b'{"mode":"native_tools","tools":[{"name":"f","description":"","parameters":{}}]%b}'
REQUEST = (
    b'{"type":"model_request","request":{"version":1,"call_id":"a","mode":"complete","input":{"messages":'
    b'[{"role":"user","content":"q"}],"constraint":%b},"options":{"max_tokens":null,"timeout":null}}}'
)


@pytest.mark.parametrize(
    ("given_kind", "counted_kind"),
    [
        (REQUEST % (TOOLS % b""), REQUEST % (TOOLS % b',"choice":{"kind":"auto"}')),
        (b'{"type":"done","status":"completed","artifact":null}', b'{"type":"done","status":"completed"}'),
        (b'{"type":"done","status":"completed","artifact":[]}', None),
        (b'{"type":"done","status":"completed","artifact":0}', None),
        (b'{"type":"done","status":"completed","artifact":""}', None),
        (b'{"type":"custom","plugin":"p","kind":"k","payload":null}', None),
        (b'{"type":"plan_ready","plan":null}', None),
        (b'{"type":"stage_progress","stage":"s","status":"started","message":""}', None),
        (
            b'{"type":"model_result","result":{"version":1,"call_id":"a","outcome":{"calls":[],"content":null}}}',
            None,
        ),
        (
            b'{"type":"tool_call","call":{"operation":{"retry":null},"action":{"id":null},"id":"a","name":"f",'
            b'"arguments":{}}}',
            None,
        ),
    ],
)
def test_bytes_are_counted_as_the_event_is_written(given_kind: bytes, counted_kind: bytes | None) -> None:
    events = [
        SessionEvent.from_json(event_json(kind, 0)) for kind in (given_kind, counted_kind or given_kind)
    ]
    counted = event_json(counted_kind or given_kind, 0)
    assert events[0].to_json() == events[1].to_json() == counted
    for limit, fits in ((len(counted), True), (len(counted) - 1, False)):
        with pytest.raises(ProjectionError) as refused:  # the turn never ends, which is looked at later
            project("other", events[:1], ProjectionConfig(max_input_bytes=limit))
        assert refused.value.kind == ("Physical" if fits else "Limit")


def test_a_limit_names_its_setting() -> None:
    log = log_of([[USER, REPLY, DONE]])
    for name in LIMITS:
        with pytest.raises(ProjectionError) as refused:
            project("s", log, ProjectionConfig(**{name: 1}))  # type: ignore[arg-type]
        assert refused.value.kind == "Limit"
        assert f"ProjectionConfig.{name} is 1" in refused.value.__notes__[0]


def test_the_number_of_events_is_looked_at_before_any_event() -> None:
    with pytest.raises(ProjectionError, match="projection limit exceeded: events"):
        project("s", [{}, {}], ProjectionConfig(max_events=1))


# --- events ---------------------------------------------------------------------


def test_events_are_made_in_python_as_they_are_read() -> None:
    assert SessionEvent("e", "s", "t", 0, UserMessageKind("hi")).to_json() == (
        b'{"event_id":"e","session_id":"s","turn_id":"t","seq":0,"kind":{"type":"user_message","text":"hi"}}'
    )
    event = SessionEvent("e", "s", "t", 1, DoneKind(DoneStatus.CANCELLED, ()), "g", "m")
    assert event.to_json() == (
        b'{"event_id":"e","session_id":"s","turn_id":"t","generation_id":"g","message_id":"m","seq":1,'
        b'"kind":{"type":"done","status":"cancelled","artifact":[]}}'
    )
    assert StageProgressKind("s", "failed").to_json() == (
        b'{"type":"stage_progress","stage":"s","status":"failed"}'
    )


@pytest.mark.parametrize("seq", [-1, 2**64, 1.0, True])
def test_a_sequence_outside_u64_is_refused(seq: Any) -> None:
    with pytest.raises(ValueError, match=r"SessionEvent\.seq"):
        SessionEvent("e", "s", "t", seq, UserMessageKind("hi"))


@pytest.mark.parametrize(
    "change", [{"event_id": 1}, {"session_id": None}, {"turn_id": b"t"}, {"kind": USER}, {"kind": None}]
)
def test_an_event_of_the_wrong_types_is_refused_where_it_is_made(change: dict[str, Any]) -> None:
    fields = {"event_id": "e", "session_id": "s", "turn_id": "t", "seq": 0, "kind": UserMessageKind("hi")}
    with pytest.raises(TypeError, match=rf"SessionEvent\.{next(iter(change))} must be"):
        SessionEvent(**{**fields, **change})


def test_repeated_fields_are_refused_and_repeated_keys_of_values_resolved() -> None:
    event = event_json(b'{"type":"done","status":"completed","artifact":{"a":1,"a":2}}', 0)
    kind = SessionEvent.from_json(event).kind
    assert isinstance(kind, DoneKind)
    assert kind.artifact == {"a": 2}
    with pytest.raises(DecodeError, match="given twice"):
        SessionEvent.from_json(event_json(b'{"type":"done","status":"completed","status":"cancelled"}', 0))


# --- history and current conversation --------------------------------------------


@given(valid_logs())
def test_history_is_the_projection_of_the_events_before_the_current_turn(log: list[dict[str, Any]]) -> None:
    whole = project("s", log, LENIENT)
    try:
        history, current = history_and_current("s", log, LENIENT, last_turn=True)
    except TranscriptError:
        assert not whole.turns or whole.turns[-1].turn_id not in {group.turn_id for group in whole.groups}
        return
    last = whole.turns[-1].turn_id
    assert history == project("s", [event for event in log if event["turn_id"] != last], LENIENT)
    assert current == tuple(m for group in whole.groups if group.turn_id == last for m in group.messages)
    assert isinstance(current[0], UserMessage)


def test_an_open_turn_is_current() -> None:
    log = log_of([[USER, REPLY, DONE], [{"type": "user_message", "text": "next"}]])
    for last_turn in (False, True):
        history, current = history_and_current("s", log, last_turn=last_turn)
        assert current == (UserMessage("next"),)
        assert history == project("s", log[:3])


def test_a_session_that_has_just_begun_has_an_empty_history() -> None:
    history, current = history_and_current("s", log_of([[USER]]))
    assert history == project("s", [])
    assert current == (UserMessage("hi"),)


def test_a_current_message_follows_a_log_of_ended_turns() -> None:
    log = log_of([[USER, REPLY, DONE]])
    assert history_and_current("s", log, current="last") == (project("s", log), (UserMessage("last"),))
    assert history_and_current("s", [], current="") == (project("s", []), (UserMessage(""),))


def test_the_current_conversation_is_never_guessed() -> None:
    ended = log_of([[USER, REPLY, DONE]])
    with pytest.raises(TranscriptError, match="give a current message, or choose the last turn"):
        history_and_current("s", ended)
    with pytest.raises(TranscriptError, match="the last turn is open"):
        history_and_current("s", log_of([[USER]]), current="another")
    with pytest.raises(TranscriptError, match="no turn that could be current"):
        history_and_current("s", [], last_turn=True)
    with pytest.raises(TranscriptError, match="has no user message"):
        history_and_current("s", log_of([[ENDS[-1]]]), last_turn=True)
    with pytest.raises(ValueError, match="not both"):
        history_and_current("s", ended, current="x", last_turn=True)
