"""Session journals: one session a file, or many mixed in one stream; each gives one request.

Sessions stay in memory until the journal ends, since their lines may be mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ..budget import ContextBudget, ContextBuildLimits, ContextTarget
from ..builder import CanonicalContextBuilder
from ..contract import input_length
from ..counters import ByteHeuristicCounter
from ..errors import ContextBuildError, JsonValueError, ProjectionError, TranscriptError
from ..events import SessionEvent
from ..fit import UNSPECIFIED
from ..history import ConversationProjection, ProjectionConfig
from ..journal import read_sessions
from ..messages import Message
from ..narrow import narrowed_budget
from ..projection import history_and_current
from ..report import BuiltContext, ContextBuildInput
from .jsonl import Sink
from .plan import Plan
from .row import RejectKind, Row, RowStatus, Size, Summary, noted, rejected

__all__ = ["is_journal", "rebudget_session", "rebudget_sessions"]


class _Envelope(msgspec.Struct):
    """What tells a session event from any other row."""

    event_id: msgspec.Raw
    session_id: msgspec.Raw
    turn_id: msgspec.Raw
    seq: msgspec.Raw
    kind: msgspec.Raw


def is_journal(line: bytes) -> bool:
    """Whether a file that begins with this line is a session journal."""
    try:
        msgspec.json.decode(line, type=_Envelope)
    except msgspec.MsgspecError:
        return False
    return True


def rebudget_session(session_id: str, events: Sequence[SessionEvent], plan: Plan) -> tuple[Row, bytes]:
    """Fit one session into the window of the plan: its row, and the JSON of its request.

    The projection takes what the contract's builder takes; limits are as large
    as the session is.  Whatever is wrong with the session is told by the row.
    """
    try:
        config = ProjectionConfig(max_events=len(events) + 1, max_input_bytes=2**63, max_messages=2**32)
        history, current = history_and_current(
            session_id, events, config, current=plan.current, last_turn=plan.last_turn
        )
        built = _built(history, current, plan)
    except ProjectionError as error:
        return rejected(f"{RejectKind.PROJECTION}.{error.kind}", error), b""
    except (TranscriptError, JsonValueError) as error:
        return rejected(RejectKind.TRANSCRIPT, error), b""
    except ContextBuildError as error:
        return rejected(error.kind, noted(error)), b""
    row = _row(history, built)
    request = built.request.to_json()
    output = b'{"session_id":%s,"request":%s}' % (msgspec.json.encode(session_id), request)
    return row._replace(output=output, report=built.report.to_json() if plan.reports else b""), request


def _built(history: ConversationProjection, current: tuple[Message, ...], plan: Plan) -> BuiltContext:
    given = ContextBuildInput(
        history=history,
        current=current,
        target=ContextTarget(plan.model or UNSPECIFIED, UNSPECIFIED),
        budget=ContextBudget(plan.window_tokens, plan.output_reserve, safety_margin=plan.safety_margin),
    )
    counter = ByteHeuristicCounter()
    budget = narrowed_budget(given, counter, plan.compaction_threshold)
    given = msgspec.structs.replace(given, budget=budget, limits=_limits(given))
    return CanonicalContextBuilder().build(given, counter)


def _limits(given: ContextBuildInput) -> ContextBuildLimits:
    """The default limits, raised where this session passes them."""
    default, history = ContextBuildLimits(), given.history
    messages = sum(len(group.messages) for group in history.groups) + len(given.current)
    return ContextBuildLimits(
        max(default.max_input_bytes, input_length(given)),
        max(default.max_groups, len(history.groups), len(history.turns)),
        max(default.max_messages, messages),
        max(default.max_count_calls, len(history.turns) + 1),
    )


def _row(history: ConversationProjection, built: BuiltContext) -> Row:
    attempts = built.report.attempts
    turns = len(history.turns) + 1
    messages = sum(len(group.messages) for group in history.groups) + built.report.current_messages
    removed = attempts[-1].removed_turns
    return Row(
        RowStatus.TRIMMED if removed else RowStatus.KEPT,
        before=Size(turns, messages, attempts[0].count.tokens.total()),
        after=Size(turns - removed, len(built.request.messages), attempts[-1].count.tokens.total()),
    )


class _Reject(NamedTuple):
    session: int
    session_id: str
    events: int
    kind: str
    message: str


def rebudget_sessions(
    lines: Iterable[bytes], plan: Plan, rows: Sink, rejects: Sink, reports: Sink | None = None
) -> Summary:
    """Fit session after session, in the order in which they begin.

    rows: one line a session, ``{"session_id":…,"request":…}``; rejects: number
    (from 1), id and events of each session that was not fitted, kind and
    message; reports: one line for each session written.

    Raises JournalError for a line that cannot be read, before anything is
    written, and what the sinks raise.
    """
    if reports is not None:
        plan = msgspec.structs.replace(plan, reports=True)
    summary = Summary(unit="session")
    for number, (session_id, events) in enumerate(read_sessions(lines).items(), 1):
        summary.rows_in += 1
        row, _ = rebudget_session(session_id, events, plan)
        if row.status is RowStatus.REJECTED:
            told = _Reject(number, session_id, len(events), row.kind, row.message)
            rejects.write(msgspec.json.encode(told._asdict()) + b"\n")
        else:
            rows.write(row.output + b"\n")
            if reports is not None:
                name = msgspec.json.encode(session_id)
                reports.write(b'{"session_id":%s,"report":%s}\n' % (name, row.report))
        summary.add(number, row)
    summary.check()
    return summary
