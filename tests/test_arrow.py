"""Columns of transcripts as Arrow lays them out: every layout reads the same, and no offset is trusted."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from support import outcome

from ullage import BatchError, BatchStatus, ContextBudget, TranscriptBatch, fit

pa = pytest.importorskip("pyarrow")

from arrow_strategies import as_dicts  # noqa: E402  (it needs pyarrow)

BUDGET = ContextBudget(120, 10)
ROWS: list[Any] = [
    [
        {"role": "system", "content": "Sei kurz."},
        {"role": "user", "content": "Wie viel\tist noch im Fass? " * 8},
        {"role": "assistant", "content": "\u6e56\u9762\u5e73\u9759 " * 9},
        {"role": "user", "content": "Und jetzt?"},
    ],
    None,
    [],
    [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "x"},
    ],
    [{"role": "user", "content": "a text that is too long for a view to hold"}],
    [{"role": "user", "content": "short"}, None, {"role": "user", "content": "x"}],
    [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": "u"},
        {"role": "system", "content": "s"},
    ],
]
MESSAGE = pa.struct({"role": pa.string(), "content": pa.string()})


def column(rows: list[Any] = ROWS, message: Any = MESSAGE, of: Any = pa.list_) -> Any:
    return pa.array(rows, of(message))


def check(source: Any, rows: list[Any], name: str | None = None) -> TranscriptBatch:
    """What is read from the source is what fit finds for each of the rows."""
    batch = TranscriptBatch.from_arrow(source, name)
    result = batch.rebudget(BUDGET)
    assert len(batch) == len(rows)
    for i, row in enumerate(rows):
        if row is None:
            assert result.status[i] == BatchStatus.NULL_ROW
            continue
        assert batch.messages(i) == row
        want = outcome(lambda row: fit(row, window_tokens=120, output_reserve=10).report.to_json(), row)
        assert outcome(lambda i: result.report(i).to_json(), i) == want
        assert (result.status[i] >= BatchStatus.NULL_MESSAGE) == (want[0] == "error")
    return batch


WANT = as_dicts(column())


# --- layouts ----------------------------------------------------------------------


@pytest.mark.parametrize("of", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
def test_lists_and_texts_of_every_kind_read_the_same(of: Any, text: Any) -> None:
    check(column(message=pa.struct({"role": text, "content": text}), of=of), WANT)


@pytest.mark.parametrize(
    "index",
    [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()],
    ids=str,
)
@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
def test_dictionaries_of_every_index_read_the_same(index: Any, text: Any) -> None:
    kind = pa.dictionary(index, text)
    check(column(message=pa.struct({"role": kind, "content": kind})), WANT)


def test_an_unsigned_index_past_the_signed_range_is_an_index() -> None:
    entries = pa.array([f"text {i}" for i in range(200)])
    content = pa.DictionaryArray.from_arrays(pa.array([199, 128], pa.uint8()), entries)
    messages = pa.StructArray.from_arrays([pa.array(["user", "user"]), content], ["role", "content"])
    rows = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), messages)
    batch = TranscriptBatch.from_arrow(rows)
    assert [message["content"] for message in batch.messages(0)] == ["text 199", "text 128"]


def test_a_null_in_a_dictionary_is_a_null() -> None:
    content = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["x", None]))
    messages = pa.StructArray.from_arrays([pa.array(["user"] * 3), content], ["role", "content"])
    batch = TranscriptBatch.from_arrow(pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), messages))
    assert batch.faults.tolist() == [0, BatchStatus.CONTENT, BatchStatus.CONTENT]


@pytest.mark.parametrize("start", range(len(ROWS) + 1))
def test_a_slice_reads_its_own_rows(start: int) -> None:
    check(column().slice(start), WANT[start:])
    check(column().slice(0, start), WANT[:start])
    check(pa.record_batch({"messages": column(), "id": range(len(ROWS))}).slice(start), WANT[start:])


def test_offsets_at_every_level_add_up() -> None:
    inner = pa.array([{"role": "user", "content": str(i)} for i in range(20)], MESSAGE)
    roles = pa.array(["tool"] * 3 + ["user"] * 17).slice(3)
    contents = pa.array([str(i) for i in range(30)]).slice(5, 17)
    messages = pa.StructArray.from_arrays([roles, contents], ["role", "content"]).slice(2)
    rows = pa.ListArray.from_arrays(pa.array([0, 0, 3, 5, 9], pa.int32()).slice(1), messages)
    batch = TranscriptBatch.from_arrow(pa.record_batch({"messages": rows.slice(1)}).slice(1))
    assert [m["content"] for m in batch.messages(0)] == ["12", "13", "14", "15"]
    assert inner.offset == 0  # nothing of the source is moved


def test_a_null_row_has_no_messages_even_where_it_spans_some() -> None:
    messages = pa.array([{"role": "user", "content": "x"}] * 4, MESSAGE)
    rows = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4], pa.int32()), messages, mask=pa.array([False, True, False])
    )
    assert rows.offsets.to_pylist() == [0, 1, 3, 4]
    one = [{"role": "user", "content": "x"}]
    batch = check(rows, [one, None, one])
    assert batch.message_offsets.tolist() == [0, 1, 1, 2]


def test_a_null_message_is_null_whatever_its_members_hold() -> None:
    members = [pa.array(["user", "user"]), pa.array(["x", "y"])]
    messages = pa.StructArray.from_arrays(members, ["role", "content"], mask=pa.array([True, False]))
    assert messages.field(0).null_count == 0
    batch = TranscriptBatch.from_arrow(pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), messages))
    assert batch.faults.tolist() == [BatchStatus.NULL_MESSAGE]
    assert batch.messages(0) == [None, {"role": "user", "content": "y"}]


def test_null_content_is_not_empty_content() -> None:
    batch = TranscriptBatch.from_arrow(
        column([[{"role": "user", "content": ""}], [{"role": "user", "content": None}]])
    )
    assert batch.faults.tolist() == [0, BatchStatus.CONTENT]
    assert batch.messages(1) == [{"role": "user"}]


def test_a_row_of_a_null_record_is_null() -> None:
    table = pa.StructArray.from_arrays(
        [column()], ["messages"], mask=pa.array([i == 0 for i in range(len(ROWS))])
    )
    check(table, [None, *WANT[1:]])


def test_list_views_may_come_in_any_order_and_overlap() -> None:
    messages = pa.array([{"role": "user", "content": str(i)} for i in range(6)], MESSAGE)
    rows = pa.ListViewArray.from_arrays(
        pa.array([4, 0, 1], pa.int32()), pa.array([2, 3, 3], pa.int32()), messages
    )
    batch = check(rows, [as_dicts(rows)[i] for i in range(3)])
    kept = batch.rebudget(ContextBudget(56, 10)).filtered()
    assert [[m["content"] for m in row] for row in kept.to_pylist()] == [["5"], ["2"], ["3"]]


@pytest.mark.parametrize("name", ["item", "element", "l", "", "role"])
def test_what_the_child_of_a_list_is_called_does_not_matter(name: str) -> None:
    check(column(of=lambda message: pa.list_(pa.field(name, message))), WANT)


def test_columns_are_known_by_name_and_not_by_place() -> None:
    members = {"weight": pa.int8(), "content": pa.string(), "role": pa.string()}
    check(column(message=pa.struct(members)), WANT)


def test_chunks_are_read_one_by_one_with_dictionaries_of_their_own() -> None:
    chunks = []
    for words in (["user", "assistant"], ["assistant", "system", "user"]):
        roles = pa.DictionaryArray.from_arrays(pa.array([words.index("user")], pa.int8()), pa.array(words))
        messages = pa.StructArray.from_arrays([roles, pa.array(["x"])], ["role", "content"])
        chunks.append(pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), messages))
    batch = TranscriptBatch.from_arrow(pa.chunked_array(chunks))
    assert batch.roles.tolist() == [2, 2]
    assert batch.rebudget(BUDGET).filtered().num_chunks == 2


def test_tables_streams_and_chunked_arrays_are_read_whole() -> None:
    chunked = pa.chunked_array([column().slice(0, 2), column().slice(2, 0), column().slice(2)])
    table = pa.table({"id": range(len(ROWS)), "messages": chunked})
    for source in (chunked, table, table.to_reader(max_chunksize=1)):
        check(source, WANT)
    reader = table.to_reader()
    batch = TranscriptBatch.from_arrow(reader)
    del reader
    gc.collect()
    assert as_dicts(batch.rebudget(ContextBudget(10**6, 10)).filtered())[0] == WANT[0]


def test_no_rows_are_a_batch() -> None:
    table = pa.table({"messages": pa.chunked_array([], pa.list_(MESSAGE))})
    for source in (column([]), table, table.to_reader()):
        result = TranscriptBatch.from_arrow(source, threads=2).rebudget(BUDGET, windows=[])
        assert len(result) == 0
        assert result.filtered().type == pa.list_(MESSAGE)
        assert result.to_arrow().num_rows == 0


# --- other producers ----------------------------------------------------------------


def test_polars_frames_and_series_are_read() -> None:
    pl = pytest.importorskip("polars")
    series = pl.Series("messages", [row and [m for m in row if m] for row in WANT])
    rows = [row and [m for m in row if m] for row in WANT]
    check(series, rows)
    check(pl.DataFrame({"id": range(len(rows)), "messages": series}), rows)
    frame = pl.DataFrame({"messages": series}).with_columns(
        pl.col("messages").list.eval(
            pl.struct(
                pl.element().struct.field("role").cast(pl.Categorical), pl.element().struct.field("content")
            )
        )
    )
    check(frame.slice(3), rows[3:])
    kept = TranscriptBatch.from_arrow(frame).rebudget(ContextBudget(10**6, 10)).filtered()
    assert as_dicts(kept)[4] == rows[4]


def test_duckdb_relations_are_read() -> None:
    duckdb = pytest.importorskip("duckdb")
    query = """select i, [{'role': 'user'::enum('user', 'assistant'), 'content': 'text ' || i},
                          {'role': case when i = 3 then null else 'user' end, 'content': 'more'}] as messages
               from range(5) as t(i) order by i"""
    rows = [[{"role": "user", "content": f"text {i}"}, {"role": "user", "content": "more"}] for i in range(5)]
    del rows[3][1]["role"]
    with duckdb.connect() as connection:
        check(connection.sql(query), rows)
        check(connection.sql(query).arrow(), rows)


def test_columns_of_a_result_go_to_other_libraries() -> None:
    pl = pytest.importorskip("polars")
    result = TranscriptBatch.from_arrow(column()).rebudget(BUDGET)
    frame = pl.DataFrame(result)
    assert frame["status"].to_list()[1] == "NULL_ROW"
    assert frame["error_kind"].to_list()[:2] == [None, "Row"]
    assert pa.record_batch(result).num_rows == len(ROWS)


class Exporter:
    """Hands out what it is told to."""

    def __init__(self, source: Any) -> None:
        self.capsules = source.__arrow_c_array__()

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.capsules


def test_memory_stays_as_long_as_anything_reads_it() -> None:
    source = column([[{"role": "user", "content": f"text {i} " * 100}] for i in range(100)])
    before = pa.total_allocated_bytes()
    batch = TranscriptBatch.from_arrow(source)
    assert pa.total_allocated_bytes() - before < 10_000  # text, of which there is more, is not copied
    handed_on = pa.array(batch._columns[0])
    del source
    gc.collect()
    assert batch.messages(99) == [{"role": "user", "content": "text 99 " * 100}]
    del batch
    gc.collect()
    assert handed_on[98].as_py() == [{"role": "user", "content": "text 98 " * 100}]
    del handed_on
    gc.collect()
    assert pa.total_allocated_bytes() < before


def test_a_released_array_is_refused() -> None:
    exporter = Exporter(column())
    pa.array(exporter)  # moves it out of its capsule
    with pytest.raises(BatchError, match="has been released"):
        TranscriptBatch.from_arrow(exporter)


def test_a_stream_that_fails_says_why() -> None:
    def batches() -> Any:
        yield pa.record_batch({"messages": column()})
        raise RuntimeError("the disk is gone")

    schema = pa.schema({"messages": pa.list_(MESSAGE)})
    with pytest.raises(BatchError, match="the disk is gone"):
        TranscriptBatch.from_arrow(pa.RecordBatchReader.from_batches(schema, batches()))


# --- which column -----------------------------------------------------------------


def test_the_column_is_found_or_named() -> None:
    other = pa.array([["x"]] * len(ROWS))
    check(pa.table({"id": other, "chat": column()}), WANT)
    check(pa.table({"chosen": column(), "messages": column()}), WANT)
    check(pa.table({"chosen": column(), "rejected": column([[]] * len(ROWS))}), WANT, "chosen")
    with pytest.raises(BatchError, match=r"more than one column holds transcripts.*'chosen', 'rejected'"):
        TranscriptBatch.from_arrow(pa.table({"chosen": column(), "rejected": column()}))
    with pytest.raises(BatchError, match=r"no column holds transcripts.*'id'"):
        TranscriptBatch.from_arrow(pa.table({"id": other}))
    with pytest.raises(BatchError, match="no column 'x' among 'id', 'messages'"):
        TranscriptBatch.from_arrow(pa.table({"id": other, "messages": column()}), "x")
    with pytest.raises(BatchError, match="more than one column 'm'"):
        TranscriptBatch.from_arrow(pa.table([column(), column()], names=["m", "m"]), "m")
    with pytest.raises(BatchError, match="no column 'x': this is an array"):
        TranscriptBatch.from_arrow(column(), "x")
    with pytest.raises(TypeError, match="__arrow_c_array__ or __arrow_c_stream__, which list has not"):
        TranscriptBatch.from_arrow([[{"role": "user"}]])


UNREADABLE = {
    "a map": pa.map_(pa.string(), pa.string()),
    "bytes": pa.binary(),
    "a time": pa.timestamp("us"),
    "a decimal": pa.decimal128(5),
    "a half": pa.float16(),
    "a list of bytes": pa.list_(pa.binary()),
    "a fixed list": pa.list_(pa.int8(), 2),
}


@pytest.mark.parametrize("kind", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_column_that_cannot_count_is_named_and_can_be_ignored(kind: Any) -> None:
    message = pa.struct({"role": pa.string(), "content": pa.string(), "deep": pa.struct({"x": kind})})
    source = pa.table({"messages": column(message=message)})
    with pytest.raises(BatchError, match="ignore=") as caught:
        TranscriptBatch.from_arrow(source)
    assert caught.value.column == "messages.deep.x"
    for path in ("deep", "deep.x"):
        batch = TranscriptBatch.from_arrow(source, ignore=[path])
        assert batch.faults[0] == 0
    with pytest.raises(BatchError, match="not there to be ignored") as caught:
        TranscriptBatch.from_arrow(source, ignore=["deep", "deeper"])
    assert caught.value.column == "deeper"


@pytest.mark.parametrize(
    ("member", "kind", "reason"),
    [
        ("role", pa.int8(), "is not text"),
        ("content", pa.list_(pa.struct({"type": pa.string()})), "is not text"),
        ("tool_calls", pa.string(), "is not a list of structs"),
        ("tool_calls", pa.list_(pa.struct({"id": pa.int8()})), "is not text"),
        ("tool_call_id", pa.int8(), "is not text"),
    ],
)
def test_a_column_of_the_wrong_type_is_named(member: str, kind: Any, reason: str) -> None:
    members = {"role": pa.string(), "content": pa.string()} | {member: kind}
    message = pa.array([{"role": None}], pa.struct(members))
    rows = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), message)
    if member == "tool_calls" and reason == "is not text":
        rows = column([[{"role": "user", "content": "x", "tool_calls": [{"id": 1}]}]], pa.struct(members))
        member = "tool_calls.id"
    with pytest.raises(BatchError, match=reason) as caught:
        TranscriptBatch.from_arrow(rows)
    assert caught.value.column == member


def test_a_struct_without_role_or_content_or_with_either_twice_is_no_message() -> None:
    with pytest.raises(BatchError, match="no columns role and content"):
        TranscriptBatch.from_arrow(column(message=pa.struct({"role": pa.string()})))
    messages = pa.StructArray.from_arrays([pa.array(["user"])] * 3, ["role", "content", "role"])
    with pytest.raises(BatchError, match="the name of another column"):
        TranscriptBatch.from_arrow(pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), messages))
    with pytest.raises(BatchError, match="not a list of structs"):
        TranscriptBatch.from_arrow(pa.array([["x"]]))


def test_a_column_nested_past_all_sense_is_refused() -> None:
    kind = pa.string()
    for _ in range(40):
        kind = pa.list_(kind)
    message = pa.struct({"role": pa.string(), "content": pa.string(), "deep": kind})
    with pytest.raises(BatchError, match="nested too deep"):
        TranscriptBatch.from_arrow(column(message=message))


# --- what is not UTF-8 -------------------------------------------------------------


def text_column(data: bytes, bounds: list[int]) -> Any:
    """Text of these bytes, whatever they are."""
    return pa.StringArray.from_buffers(
        len(bounds) - 1, pa.py_buffer(np.array(bounds, np.int32)), pa.py_buffer(data)
    )


@pytest.mark.parametrize("where", ["role", "content", "name", "tool_calls"])
@pytest.mark.parametrize("bad", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe4\xb8"])
def test_a_row_that_is_not_utf8_is_told_apart_from_one_that_is(where: str, bad: bytes) -> None:
    good = text_column(b"useruseruser", [0, 4, 8, 12])
    spoiled = text_column(b"user" + bad + b"user", [0, 4, 4 + len(bad), 8 + len(bad)])
    columns = {"role": good, "content": good, "name": good, "tool_calls": pa.array([[]] * 3)}
    if where == "tool_calls":
        columns[where] = pa.ListArray.from_arrays(
            pa.array([0, 0, 1, 1], pa.int32()), pa.StructArray.from_arrays([spoiled.slice(1, 1)], ["id"])
        )
    else:
        columns[where] = spoiled
    messages = pa.StructArray.from_arrays(list(columns.values()), list(columns))
    rows = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), messages)
    batch = TranscriptBatch.from_arrow(rows)
    assert batch.faults.tolist()[1] == BatchStatus.NOT_UTF8
    assert BatchStatus.NOT_UTF8 not in batch.faults[[0, 2]]
    result = batch.rebudget(BUDGET)
    assert isinstance(result.error(1), BatchError)
    with pytest.raises(BatchError, match="row 1: text that is not UTF-8"):
        result.report(1)
    assert BatchStatus(result.status[1]).error_kind == "Encoding"


def test_bytes_that_are_utf8_only_together_are_not() -> None:
    content = text_column("é".encode(), [0, 1, 2])
    messages = pa.StructArray.from_arrays([pa.array(["user"] * 2), content], ["role", "content"])
    rows = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), messages)
    assert TranscriptBatch.from_arrow(rows).faults.tolist() == [BatchStatus.NOT_UTF8] * 2


# --- hostile memory ----------------------------------------------------------------
#
# pyarrow looks at the buffers that it makes an array of, and shares them: they turn hostile after that.


class Hostile:
    """Numbers in a buffer, sound until they turn."""

    def __init__(self, sound: list[int], hostile: list[int], kind: Any = np.int32) -> None:
        self.hostile = np.array(hostile, kind)
        self.numbers = np.array(sound, kind)
        self.array: Any = None

    def buffer(self) -> Any:
        return pa.py_buffer(self.numbers)

    def turn(self) -> None:
        self.numbers[:] = self.hostile


def texts(bounds: list[int], kind: Any = np.int32) -> Hostile:
    made = Hostile([0] * len(bounds), bounds, kind)
    text = pa.string() if kind is np.int32 else pa.large_string()
    buffers = [None, made.buffer(), pa.py_buffer(b"x" * 64)]
    made.array = pa.Array.from_buffers(text, len(bounds) - 1, buffers)
    return made


def views(*items: tuple[int, int, int]) -> Hostile:
    """Text views of (length, buffer, offset) into one buffer of 64 bytes."""
    hostile = [number for length, block, offset in items for number in (length, 0x78787878, block, offset)]
    made = Hostile([0] * len(hostile), hostile)
    buffers = [None, made.buffer(), pa.py_buffer(b"x" * 64)]
    made.array = pa.Array.from_buffers(pa.string_view(), len(items), buffers)
    return made


def dictionary(indexes: list[int], kind: Any) -> Hostile:
    made = Hostile([0] * len(indexes), indexes, kind)
    index = pa.Array.from_buffers(pa.from_numpy_dtype(kind), len(indexes), [None, made.buffer()])
    made.array = pa.DictionaryArray.from_arrays(index, pa.array(["x", "y"]))
    return made


def rows_of(members: dict[str, Any]) -> Any:
    """One message a row, of these members and a role."""
    n = len(next(iter(members.values())))
    messages = pa.StructArray.from_arrays([pa.array(["user"] * n), *members.values()], ["role", *members])
    return pa.ListArray.from_arrays(pa.array(range(n + 1), pa.int32()), messages)


def unchecked(source: Any) -> Exporter:
    """The same array, without the way to ask pyarrow about it."""
    return Exporter(source)


HOSTILE_TEXT = {
    "decreasing": texts([0, 10, 5, 20]),
    "negative": texts([-8, 4, 8, 12]),
    "negative in the middle": texts([0, 4, -1, 12]),
    "past the last": texts([0, 1_000_000, 5, 6]),
    "large and decreasing": texts([0, 10, 5, 20], np.int64),
    "large and negative": texts([-(2**63), 4, 8, 12], np.int64),
    "large and past the last": texts([0, 2**62, 5, 6], np.int64),
    "view of another buffer": views((20, 0, 0), (20, 1, 0)),
    "view of a negative buffer": views((20, 0, 0), (20, -1, 0)),
    "view past its buffer": views((20, 0, 0), (20, 0, 45)),
    "view before its buffer": views((20, 0, 0), (20, 0, -1)),
    "view of negative length": views((20, 0, 0), (-1, 0, 0)),
    "view of all there is and more": views((20, 0, 0), (2**31 - 1, 0, 2**31 - 1)),
    "index past the dictionary": dictionary([0, 1, 2], np.int32),
    "negative index": dictionary([0, -1], np.int8),
    "negative wide index": dictionary([0, -(2**63)], np.int64),
    "unsigned index past all": dictionary([0, 2**64 - 1], np.uint64),
}


@pytest.mark.parametrize("content", HOSTILE_TEXT.values(), ids=HOSTILE_TEXT.keys())
def test_text_that_points_elsewhere_is_an_error_that_names_row_and_column(content: Hostile) -> None:
    rows = rows_of({"content": content.array})
    content.turn()
    with pytest.raises(BatchError, match="points outside") as caught:
        TranscriptBatch.from_arrow(unchecked(rows))
    assert caught.value.column == "content"
    assert caught.value.row in (0, 1, 2)


@pytest.mark.parametrize(
    "offsets", [[0, 2, 1, 3], [-1, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2, 2**31 - 1]], ids=str
)
def test_lists_that_point_elsewhere_are_errors_too(offsets: list[int]) -> None:
    hostile = Hostile([0, 1, 2, 3], offsets)
    messages = pa.array([{"role": "user", "content": "x"}] * 3, MESSAGE)
    rows = pa.ListArray.from_buffers(pa.list_(MESSAGE), 3, [None, hostile.buffer()], children=[messages])
    hostile.turn()
    with pytest.raises(BatchError, match="points outside") as caught:
        TranscriptBatch.from_arrow(unchecked(rows))
    assert caught.value.row is not None


@pytest.mark.parametrize(("start", "size"), [(2, 2), (-1, 1), (0, -1), (4, 0), (2**31 - 1, 2**31 - 1)])
def test_list_views_that_point_elsewhere_are_errors_too(start: int, size: int) -> None:
    starts, sizes = Hostile([0, 0], [0, start]), Hostile([1, 1], [1, size])
    messages = pa.array([{"role": "user", "content": "x"}] * 3, MESSAGE)
    buffers = [None, starts.buffer(), sizes.buffer()]
    rows = pa.record_batch(
        {"messages": pa.ListViewArray.from_buffers(pa.list_view(MESSAGE), 2, buffers, children=[messages])}
    )
    starts.turn()
    sizes.turn()
    with pytest.raises(BatchError, match="row 1, column messages"):
        TranscriptBatch.from_arrow(unchecked(rows))


@pytest.mark.parametrize("layout", ["note", "tags", "deep", "tool_calls.id"])
def test_hostile_members_are_found_wherever_they_are(layout: str) -> None:
    bad = texts([0, 10, 5, 20])
    good = pa.array(["user"] * 3)
    members = {
        "note": lambda: bad.array,
        "tags": lambda: pa.ListArray.from_arrays([0, 1, 2, 3], bad.array),
        "deep": lambda: pa.StructArray.from_arrays([bad.array], ["x"]),
        "tool_calls.id": lambda: pa.ListArray.from_arrays(
            [0, 1, 2, 3], pa.StructArray.from_arrays([bad.array], ["id"])
        ),
    }
    rows = pa.record_batch({"messages": rows_of({"content": good, layout.split(".")[0]: members[layout]()})})
    bad.turn()
    with pytest.raises(BatchError, match="points outside") as caught:
        TranscriptBatch.from_arrow(unchecked(rows))
    assert caught.value.row == 1
    assert caught.value.column.startswith(f"messages.{layout}")


def test_the_first_bad_row_is_named_however_many_threads_there_are() -> None:
    bounds = [min(i, 60) for i in range(50_001)]
    bounds[20_000] = bounds[40_000] = 61
    content = texts(bounds)
    rows = rows_of({"content": content.array})
    content.turn()
    for threads in (1, 4):
        with pytest.raises(BatchError) as caught:
            TranscriptBatch.from_arrow(unchecked(rows), threads=threads)
        assert caught.value.row == 19_999


def test_text_that_ends_beyond_its_buffer_is_found_by_pyarrow() -> None:
    content = texts([0, 5, 10, 1_000_000])
    rows = rows_of({"content": content.array})
    content.turn()
    with pytest.raises(BatchError, match="pyarrow finds the data unsound"):
        TranscriptBatch.from_arrow(rows)
