"""A batch gives for every row what fit gives for that row alone: figures, messages, report and error."""

from __future__ import annotations

import gc
import json
import pickle
import subprocess
import sys
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from chat_strategies import broken_chats
from hypothesis import given
from hypothesis import strategies as st
from support import outcome, told

import ullage
from ullage import (
    BatchError,
    BatchStatus,
    ByteHeuristicCounter,
    ContextBudget,
    DoesNotFit,
    InvalidContext,
    RebudgetedBatch,
    TokenBudgetMode,
    TranscriptBatch,
    UnverifiedCount,
    fit,
)
from ullage._batch import Outcome, measure, trim

pa = pytest.importorskip("pyarrow")

from arrow_strategies import as_dicts, columns  # noqa: E402  (it needs pyarrow)

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]


# --- every row as fit has it --------------------------------------------------------


def check_row(result: RebudgetedBatch, i: int, messages: Any, **named: Any) -> None:
    """Row i of a result is what fit makes of the messages."""
    fitted, error = None, None
    try:
        fitted = fit(messages, **named)
    except Exception as raised:
        error = raised
    if fitted is not None:
        check_sent(result, i, messages, fitted)
    elif isinstance(error, DoesNotFit) and error.report is not None:
        assert BatchStatus(result.status[i]) is BatchStatus.DOES_NOT_FIT
        assert result.report(i).to_json() == error.report.to_json()
        assert outcome(result.messages, i) == ("error", *told(error))
        assert result.tokens_after[i] == error.report.attempts[-1].count.tokens.total()
    elif error is not None:
        first, last = result.message_offsets[i : i + 2]
        assert BatchStatus(result.status[i]).error_kind not in (None, "DoesNotFit")
        assert outcome(result.report, i) == outcome(result.messages, i) == ("error", *told(error))
        assert not result.retained[first:last].any()
        assert result.tokens_before[i] == result.messages_kept[i] == result.turns_kept[i] == 0


def check_sent(result: RebudgetedBatch, i: int, messages: Any, fitted: ullage.FitResult[Any]) -> None:
    first, last = result.message_offsets[i : i + 2]
    report, dropped = fitted.report, len(messages) - len(fitted.messages)
    assert BatchStatus(result.status[i]) is (BatchStatus.TRIMMED if dropped else BatchStatus.FITS)
    assert result.report(i).to_json() == report.to_json()
    assert result.error(i) is None
    assert repr(result.messages(i)) == repr(fitted.messages)
    assert np.flatnonzero(result.retained[first:last]).tolist() == fitted.kept
    assert result.tokens_before[i] == report.attempts[0].count.tokens.total()
    assert result.tokens_after[i] == report.attempts[-1].count.tokens.total()
    assert result.turns_dropped[i] == report.attempts[-1].removed_turns
    assert result.turns_kept[i] + result.turns_dropped[i] == len(report.turns) + 1
    assert result.messages_kept[i] == len(fitted.messages)
    assert result.messages_dropped[i] == dropped


@given(columns(), st.integers(40, 1000), st.booleans(), st.booleans(), st.sampled_from([1, 3]))
def test_columns_of_any_layout_are_read_as_fit_reads_their_rows(
    column: Any, window: int, merge_users: bool, with_tools: bool, threads: int
) -> None:
    tools = TOOLS if with_tools else []
    batch = TranscriptBatch.from_arrow(column, merge_users=merge_users, threads=threads)
    result = batch.rebudget(ContextBudget(window, 5), tools=tools, threads=threads, model="m")
    named = {"window_tokens": window, "output_reserve": 5, "tools": tools, "model": "m"}
    rows = as_dicts(column)
    assert len(rows) == len(batch) == len(result)
    for i, row in enumerate(rows):
        if row is None:
            assert result.status[i] == BatchStatus.NULL_ROW
        else:
            check_row(result, i, row, merge_users=merge_users, **named)

    kept = as_dicts(result.filtered())
    for i, status in enumerate(result.status):
        want = result.messages(i) if status <= BatchStatus.TRIMMED else None
        assert repr(kept[i]) == repr(want)  # NaN is not equal to itself


@given(columns())
def test_columns_measure_like_messages_and_name_the_message_at_fault_that_fit_names(column: Any) -> None:
    batch = TranscriptBatch.from_arrow(column)
    rows = as_dicts(column)
    made = TranscriptBatch.from_messages(rows)
    assert batch.message_offsets.tolist() == made.message_offsets.tolist()
    for name in ("roles", "bytes", "turns"):  # zeros, and no turn, where there is a fault
        assert getattr(batch, name).dtype == getattr(made, name).dtype
        assert getattr(batch, name).tolist() == getattr(made, name).tolist()
    for i, row in enumerate(rows):
        if row is None:
            continue
        kind, *what = outcome(fit, row, window_tokens=10**9, output_reserve=1)
        assert (kind == "error") == (batch.faults[i] != 0)
        path = what[2]["path"] if kind == "error" else ""
        if path.startswith("messages["):
            assert path.startswith(f"messages[{batch.fault_messages[i]}]")


@given(st.lists(st.one_of(st.none(), broken_chats()), max_size=3), st.integers(20, 400), st.booleans())
def test_messages_of_any_kind_are_read_as_fit_reads_them(
    rows: list[Any], window: int, merge_users: bool
) -> None:
    batch = TranscriptBatch.from_messages(rows, merge_users=merge_users, image_tokens=7)
    result = batch.rebudget(ContextBudget(window, 5))
    named = {"window_tokens": window, "output_reserve": 5, "merge_users": merge_users, "image_tokens": 7}
    for i, row in enumerate(rows):
        if row is None:
            assert result.status[i] == BatchStatus.NULL_ROW
        else:
            check_row(result, i, row, **named)


# --- single rules -------------------------------------------------------------------


def read(*rows: Any) -> TranscriptBatch:
    return TranscriptBatch.from_arrow(pa.array(rows))


def call(call_id: str | None = "a", name: str | None = "f", arguments: str | None = "{}", **more: Any) -> Any:
    return {"id": call_id, "function": {"name": name, "arguments": arguments}, **more}


def asks(*calls: Any, content: str | None = None) -> Any:
    return {"role": "assistant", "content": content, "tool_calls": list(calls), "tool_call_id": None}


def answers(call_id: str | None) -> Any:
    return {"role": "tool", "content": "42", "tool_calls": None, "tool_call_id": call_id}


USER = {"role": "user", "content": "x", "tool_calls": None, "tool_call_id": None}

FAULTS = {
    "no role": ([{**USER, "role": None}], BatchStatus.ROLE),
    "an unknown role": ([{**USER, "role": "User"}], BatchStatus.ROLE),
    "a null message": ([USER, None], BatchStatus.NULL_MESSAGE),
    "no content": ([{**USER, "content": None}], BatchStatus.CONTENT),
    "an assistant with nothing to say": ([USER, asks()], BatchStatus.CONTENT),
    "a null call": ([USER, asks(None)], BatchStatus.CALL),
    "a call without id": ([USER, asks(call(None))], BatchStatus.CALL),
    "a call with a blank id": ([USER, asks(call(" \u2003\u3000\x85"))], BatchStatus.CALL),
    "a call without name": ([USER, asks(call(name=None))], BatchStatus.CALL),
    "a call of another type": ([USER, asks(call(type="custom"))], BatchStatus.CALL),
    "a call without function": ([USER, asks({**call(), "function": None})], BatchStatus.CALL),
    "an id used twice": ([USER, asks(call(), call())], BatchStatus.CALL_TWICE),
    "a result for nothing": ([USER, answers("a")], BatchStatus.RESULT),
    "a result without id": ([USER, asks(call()), answers(None)], BatchStatus.RESULT),
    "two results for one call": ([USER, asks(call()), answers("a"), answers("a")], BatchStatus.RESULT),
    "a result of another call": ([USER, asks(call()), answers("b")], BatchStatus.RESULT),
    "a message before the result": ([USER, asks(call()), USER], BatchStatus.INTERRUPTED),
    "no result": ([USER, asks(call(), call("b")), answers("b")], BatchStatus.UNANSWERED),
    "no messages": ([], BatchStatus.NO_TURN),
    "system messages only": ([{**USER, "role": "system"}], BatchStatus.NO_TURN),
}
SOUND = {
    "results in another order": [asks(call(), call("b")), answers("b"), answers("a"), USER],
    "an id used again": [asks(call()), answers("a"), asks(call()), answers("a"), USER],
    "a greeting": [{**USER, "role": "assistant"}, USER],
    "a type that is empty": [asks(call(type="")), answers("a"), USER],
    "a blank control": [asks(call("\x1c", "\u200b")), answers("\x1c"), USER],
    "calls and content": [asks(call(), content=""), answers("a"), USER],
}


@pytest.mark.parametrize(("row", "status"), FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_has_a_status_of_its_own(row: Any, status: BatchStatus) -> None:
    template = [asks(call(type=None), content="x"), answers("a"), USER]
    batch = read(template, row)
    assert batch.faults.tolist() == [0, status]
    check_row(
        batch.rebudget(ContextBudget(400, 5)),
        1,
        as_dicts(pa.array([template, row]))[1],
        window_tokens=400,
        output_reserve=5,
    )


@pytest.mark.parametrize("row", SOUND.values(), ids=SOUND.keys())
def test_what_is_unusual_but_sound_is_read(row: Any) -> None:
    assert read([asks(call(type=None)), answers("a"), USER], row).faults.tolist() == [0, 0]


@pytest.mark.parametrize("calls", [1, 2, 63, 64, 65, 66, 1000])
def test_any_number_of_parallel_calls_finds_its_results(calls: int) -> None:
    ids = [f"call {i}" for i in range(calls)]
    block = [asks(*map(call, ids)), *map(answers, reversed(ids))]
    missing = [asks(*map(call, ids)), *map(answers, ids[1:])]
    twice = [asks(*map(call, [*ids, ids[-1]]))]
    again = [*block, answers(ids[0])]
    stray = [asks(*map(call, ids)), answers("another")]
    batch = read([*block, *block, USER], missing, twice, again, stray)
    assert batch.faults.tolist() == [
        0,
        BatchStatus.UNANSWERED,
        BatchStatus.CALL_TWICE,
        BatchStatus.RESULT,
        BatchStatus.RESULT,
    ]


def test_arguments_of_many_keys_are_measured_as_the_object_they_are() -> None:
    arguments = json.dumps({f"key {i}": i for i in range(5000)} | {"last": 1e300}, indent=2)
    rows = [[asks(call(arguments=arguments)), answers("a"), USER]]
    assert (
        read(*rows).bytes.tolist() == TranscriptBatch.from_messages(as_dicts(pa.array(rows))).bytes.tolist()
    )


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 500, 511, 512, 513, 16_383, 16_384, 16_385, 70_000])
@pytest.mark.parametrize("character", ["x", "\n", "\x01", "é", "字", "🍷"])
def test_texts_of_every_size_are_measured(size: int, character: str) -> None:
    rows = [[{"role": "user", "content": "a" * i + character * size}] for i in range(40 if size < 600 else 4)]
    assert read(*rows).bytes.tolist() == [ullage.json_length(rows[i][0]) for i in range(len(rows))]


def test_other_members_count_with_their_keys_and_ignored_ones_do_not() -> None:
    message = {
        "role": "user",
        "content": "x",
        "weight": 3,
        "note": 'a "b"',
        "flag": True,
        "deep": {"a": [1.5, None]},
    }
    rows = pa.array([[message, {"role": "user", "content": "x"}]])
    plain = ullage.json_length({"role": "user", "content": "x"})
    assert TranscriptBatch.from_arrow(rows).bytes.tolist() == [ullage.json_length(message), plain]
    without = TranscriptBatch.from_arrow(rows, ignore=["weight", "deep", "note", "flag"])
    assert without.bytes.tolist() == [plain, plain]
    assert without.messages(0)[0] == {"role": "user", "content": "x"}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_lacks_is_a_fault(number: float) -> None:
    batch = read(
        [{"role": "user", "content": "x", "score": 1.0}], [{"role": "user", "content": "x", "score": number}]
    )
    assert batch.faults.tolist() == [0, BatchStatus.NUMBER]
    assert "JSON" in str(batch.rebudget(ContextBudget(100, 5)).error(1))


# --- budgets ------------------------------------------------------------------------


CHAT = [{"role": "user" if i % 2 == 0 else "assistant", "content": "x" * 40} for i in range(21)]


def test_each_row_may_have_a_window_of_its_own() -> None:
    windows = [1000, 200, 100, 60, 20, 5, 0]
    result = read(*[CHAT] * len(windows)).rebudget(ContextBudget(1, 10), windows=windows)
    for i, window in enumerate(windows):
        check_row(result, i, CHAT, window_tokens=window, output_reserve=10)
    names = [BatchStatus(status).name for status in result.status]
    assert names == ["FITS", "TRIMMED", "TRIMMED", "DOES_NOT_FIT", "DOES_NOT_FIT", "NO_ROOM", "NO_ROOM"]
    assert BatchStatus.NO_ROOM.error_kind == "Invalid"


@pytest.mark.parametrize(
    "windows", [[1], [[1, 2]], [1.5, 2.0], [-1, 2], ["a", "b"], [True, False], [2**64, 1]], ids=str
)
def test_windows_are_one_unsigned_integer_a_row(windows: Any) -> None:
    with pytest.raises(ValueError, match="window"):
        read(CHAT, CHAT).rebudget(ContextBudget(100, 5), windows=windows)


def test_a_budget_that_no_row_could_have_is_refused_at_once() -> None:
    batch = read(CHAT)
    for budget in (ContextBudget(0, 1), ContextBudget(10, 0), ContextBudget(10, 5, safety_margin=5)):
        with pytest.raises(InvalidContext):
            batch.rebudget(budget)
    with pytest.raises(InvalidContext, match="output_reserve is zero"):
        batch.rebudget(ContextBudget(10, 0), windows=[10])
    with pytest.raises(UnverifiedCount):
        batch.rebudget(ContextBudget(100, 5, mode=TokenBudgetMode.HARD))
    with pytest.raises(ValueError, match="threads"):
        batch.rebudget(ContextBudget(100, 5), threads=0)
    with pytest.raises(TypeError, match="counted by ByteHeuristicCounter"):
        batch.rebudget(ContextBudget(100, 5), counter=object())  # type: ignore[arg-type]
    with pytest.raises(ullage.TranscriptError, match="tools"):
        batch.rebudget(ContextBudget(100, 5), tools=["no tool"])
    with pytest.raises(InvalidContext, match="blank target"):
        batch.rebudget(ContextBudget(100, 5), model=" ")


@pytest.mark.parametrize("template", [0, 1000, 2**64 - 1])
def test_the_template_is_the_counters(template: int) -> None:
    counter = ByteHeuristicCounter(template)
    result = read(CHAT).rebudget(ContextBudget(1500, 5), counter=counter)
    check_row(result, 0, CHAT, window_tokens=1500, output_reserve=5, counter=counter)
    assert BatchStatus(result.status[0]).error_kind == (None if template < 2000 else "Overflow")


# --- the objects ----------------------------------------------------------------------


def test_arrays_can_be_read_and_not_written() -> None:
    batch = read(CHAT, None, CHAT)
    result = batch.rebudget(ContextBudget(100, 5))
    for owner, names in (
        (batch, "message_offsets roles bytes turns faults fault_messages"),
        (
            result,
            "message_offsets status turns_kept turns_dropped messages_kept messages_dropped "
            "tokens_before tokens_after retained",
        ),
    ):
        for name in names.split():
            array = getattr(owner, name)
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                array[:1] = 1
    assert result.retained.dtype == np.bool_
    assert batch.message_offsets.tolist() == [0, 21, 21, 42]


def test_rows_out_of_range_are_index_errors() -> None:
    batch = read(CHAT)
    result = batch.rebudget(ContextBudget(100, 5))
    for row in (-1, 1, 2**70):
        for ask in (batch.messages, result.messages, result.report, result.error):
            with pytest.raises(IndexError):
                ask(row)


def test_a_null_row_says_so() -> None:
    for batch in (read(CHAT, None), TranscriptBatch.from_messages([CHAT, None])):
        result = batch.rebudget(ContextBudget(100, 5))
        assert isinstance(result.error(1), BatchError)
        assert result.error(1).row == 1  # type: ignore[union-attr]
        with pytest.raises(BatchError, match="row 1: there is no transcript, but null"):
            batch.messages(1)


def test_a_batch_is_not_made_by_hand() -> None:
    with pytest.raises(TypeError, match="from_arrow or from_messages"):
        TranscriptBatch()
    with pytest.raises(TypeError, match="ignore is a list"):
        TranscriptBatch.from_arrow(pa.array([CHAT]), ignore="role")
    with pytest.raises(TypeError, match="only a batch that was read from Arrow memory"):
        TranscriptBatch.from_messages([CHAT]).rebudget(ContextBudget(100, 5)).filtered()


def test_objects_show_what_they_are() -> None:
    batch = read(CHAT, None)
    assert repr(batch) == "<TranscriptBatch: 2 rows, 21 messages, 1 rows at fault>"
    assert repr(batch.rebudget(ContextBudget(200, 5))) == "<RebudgetedBatch: 2 rows, 0 fit, 1 trimmed>"
    error = BatchError("is odd", "messages.x", 1234)
    assert str(error) == "row 1,234, column messages.x: is odd"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_columns_go_out_as_arrow_data() -> None:
    rows = [CHAT, None, [{"role": "user", "content": "x"}], CHAT[:1], [{"role": "x", "content": "x"}]]
    result = read(*rows).rebudget(ContextBudget(100, 5), windows=[200, 200, 200, 30, 200])
    got = result.to_arrow().to_pydict()
    assert got["status"] == ["TRIMMED", "NULL_ROW", "FITS", "DOES_NOT_FIT", "ROLE"]
    assert got["error_kind"] == [None, "Row", None, "DoesNotFit", "Transcript"]
    assert got["fault_message"] == [None, None, None, None, 0]
    assert got["tokens_after"][1] is None
    assert got["tokens_before"][0] == result.tokens_before[0]
    assert got["messages_kept"] == [int(result.messages_kept[0]), None, 1, 1, None]
    assert [len(row) for row in got["retained"]] == [21, 0, 1, 1, 1]
    assert got["retained"][0] == result.retained[:21].tolist()
    assert pa.record_batch(result).equals(result.to_arrow())
    assert result.to_arrow().validate(full=True) is None


def test_what_stays_keeps_its_other_members_and_its_type() -> None:
    kind = pa.list_(
        pa.struct(
            {
                "role": pa.dictionary(pa.int8(), pa.string()),
                "content": pa.string_view(),
                "at": pa.timestamp("us"),
            }
        )
    )
    rows = pa.array([[{**message, "at": i} for i, message in enumerate(CHAT)], None], kind)
    result = TranscriptBatch.from_arrow(rows, ignore=["at"]).rebudget(ContextBudget(100, 5))
    kept = result.filtered()
    assert kept.type == kind
    assert kept.to_pylist() == [[rows[0].as_py()[i] for i in np.flatnonzero(result.retained)], None]
    kept.validate(full=True)
    table = pa.table({"messages": rows, "id": [1, 2]})
    assert table.set_column(0, "messages", kept).schema == table.schema


# --- threads and memory ----------------------------------------------------------------


def many(rows: int = 20_000) -> Any:
    lengths = np.arange(rows * 4) % 97
    content = pa.array(["x" * length for length in lengths])
    roles = pa.array(["system", "user", "assistant", "user"] * rows)
    messages = pa.StructArray.from_arrays([roles, content], ["role", "content"])
    return pa.ListArray.from_arrays(pa.array(np.arange(0, 4 * rows + 1, 4), pa.int32()), messages)


def test_any_number_of_threads_gives_the_same() -> None:
    column = many()
    alone = TranscriptBatch.from_arrow(column)
    wanted = alone.rebudget(ContextBudget(70, 5)).to_arrow()
    for threads in (2, 7):
        batch = TranscriptBatch.from_arrow(column, threads=threads)
        assert (batch.bytes == alone.bytes).all()
        assert batch.rebudget(ContextBudget(70, 5), threads=threads).to_arrow().equals(wanted)


@pytest.mark.parametrize("work", ["measure", "trim"])
def test_other_threads_run_meanwhile(work: str) -> None:
    batch = TranscriptBatch.from_arrow(many())
    measures, (column,) = batch._measures, batch._columns
    made = Outcome(measures)
    gate = threading.Lock()
    gate.acquire()
    ran: list[bool] = []

    def run() -> None:
        gate.acquire()
        ran.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(
            1000
        )  # nobody is asked to let go: the thread runs if this one does so by itself
        gate.release()
        for _ in range(10_000):
            if work == "measure":
                measure(column, measures, 0, len(batch))
            else:
                trim(measures, made, 100, None, 5, 4, 32, 0, len(batch))
            if ran:
                break
    finally:
        sys.setswitchinterval(before)
        thread.join()
    assert ran


def test_no_object_is_made_for_a_message() -> None:
    column = many()
    budget = ContextBudget(70, 5)
    TranscriptBatch.from_arrow(column).rebudget(budget)  # imports done
    gc.collect()
    tracemalloc.start()
    try:
        blocks = sys.getallocatedblocks()
        batch = TranscriptBatch.from_arrow(column)
        result = batch.rebudget(budget)
        made = sys.getallocatedblocks() - blocks
        traces = len(tracemalloc.take_snapshot().traces)
    finally:
        tracemalloc.stop()
    assert len(result) == 20_000
    assert made < 1000
    assert traces < 1000


def test_importing_ullage_imports_neither_numpy_nor_pyarrow() -> None:
    code = "import sys, ullage; print([name for name in ('numpy', 'pyarrow') if name in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    result = TranscriptBatch.from_messages([CHAT]).rebudget(ContextBudget(100, 5))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "ullage.arrow_out", raising=False)
    for ask in (result.to_arrow, result.filtered):
        with pytest.raises(ImportError, match=r"pip install 'ullage\[arrow\]'"):
            ask()
