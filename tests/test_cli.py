"""The command line: what it writes and where, its exit codes, and that nothing partial is ever left."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

import pytest

import ullage
from ullage.archive import outputs
from ullage.cli import main

USER = {"role": "user", "content": "A question that takes some room in the window, as questions do."}
ANSWER = {"role": "assistant", "content": "An answer of about the same length, so that a turn has its price."}
LONG = [*[USER, ANSWER] * 5, USER]
BUDGET = ["--window", "110", "--reserve", "10"]
COMMAND = [sys.executable, "-c", "import sys; from ullage.cli import main; sys.exit(main())"]
SAMPLE = resources.files("ullage").joinpath("data", "sample.jsonl").read_bytes()
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals, devices and links of POSIX")


def line(*messages: Any) -> bytes:
    return json.dumps({"messages": messages}).encode()


GOOD, TRIMMED, BAD = line(USER), line(*LONG), b'{"a":1}'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, *lines: bytes) -> None:
    Path(name).write_bytes(b"".join(one + b"\n" for one in lines))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def piped(arguments: Iterable[str], data: bytes) -> tuple[int, bytes, str]:
    done = subprocess.run([*COMMAND, *arguments], input=data, capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr.decode()


# --- help and usage ------------------------------------------------------------------


def test_alone_it_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "rebudget" in out
    assert "exit codes" in out


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["--version"])
    assert (exit.value.code, capsys.readouterr().out) == (0, f"ullage {ullage.__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["count"],
        ["fit", "x.json", "--window", "100"],
        ["fit", "x.json", "--reserve", "100"],
        ["fit", *BUDGET],
        ["fit", "x.json", "--window", "-1", "--reserve", "10"],
        ["fit", "x.json", "--window", "8k", "--reserve", "10"],
        ["fit", "x.json", "--window", "99999999999999999999", "--reserve", "10"],
        ["rebudget", *BUDGET],
        ["rebudget", "x.jsonl", "--sample", *BUDGET],
        ["rebudget", "x.jsonl", "--win", "100", "--reserve", "10"],
    ],
)
def test_arguments_that_make_no_sense_are_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    assert "usage: ullage" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "rebudget"])
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["in.jsonl", "--window", "100", "--reserve", "100"],
            "100 tokens has no room for messages beside a reserve of 100",
        ),
        (
            ["in.jsonl", "--window", "100", "--reserve", "90", "--margin", "10"],
            "a reserve of 90 and a margin of 10",
        ),
        (["in.jsonl", "--window", "100", "--reserve", "0"], "the reserve for the answer is zero"),
        (["in.jsonl", *BUDGET, "--image-tokens", "4294967296"], "4294967296"),
        (["none.jsonl", *BUDGET], "cannot read none.jsonl: no such file"),
        ([".", *BUDGET], "cannot read .: a folder; name a file"),
        (
            ["in.jsonl", *BUDGET, "--report", "none/r"],
            "cannot write none/r: its folder does not exist; make it first",
        ),
        (["in.jsonl", *BUDGET, "--report", "in.jsonl/r"], "cannot write in.jsonl/r: Not a directory"),
        (["in.jsonl", *BUDGET, "--report", "."], "cannot write .: a folder; name a file"),
        (["in.jsonl", *BUDGET, "--report", "in.jsonl"], "in.jsonl is the input"),
        (["in.jsonl", *BUDGET, "--report", "-"], "the report goes to a file"),
    ],
)
def test_what_cannot_be_begun_is_code_2_and_says_why(
    command: str, arguments: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("in.jsonl", GOOD)
    assert main([command, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert len(err.splitlines()) == 1
    assert names(folder) == ["in.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-o", "none/out.jsonl"], "cannot write none/out.jsonl: its folder does not exist; make it first"),
        (["-o", "."], "cannot write .: a folder"),
        (["-o", "in.jsonl"], "in.jsonl is the input, and what is dropped would be lost"),
        (["-o", "../{folder}/in.jsonl"], "is the input"),
        (["-o", "out.jsonl", "--report", "./out.jsonl"], "./out.jsonl would be written twice"),
        (["-o", "out.jsonl", "--report", "out.rejects.jsonl"], "out.rejects.jsonl would be written twice"),
    ],
)
def test_outputs_that_would_be_lost_are_refused(
    arguments: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("in.jsonl", GOOD)
    given = [argument.format(folder=folder.name) for argument in arguments]
    assert main(["rebudget", "in.jsonl", *given, *BUDGET]) == 2
    assert told in capsys.readouterr().err
    assert names(folder) == ["in.jsonl"]


def test_standard_input_may_not_be_written_over_either(folder: Path) -> None:
    write("in.jsonl", GOOD)
    with Path("in.jsonl").open("rb") as source:
        done = subprocess.run(
            [*COMMAND, "rebudget", "-", "-o", "in.jsonl", *BUDGET], stdin=source, capture_output=True
        )
    assert done.returncode == 2
    assert Path("in.jsonl").read_bytes() == GOOD + b"\n"


# --- fit ------------------------------------------------------------------------------


def test_fit_writes_the_request_that_fits(folder: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    Path("chat.json").write_text(json.dumps({"model": "m", "messages": LONG, "t": 1.50}, indent=2))
    assert main(["fit", "chat.json", *BUDGET]) == 0
    out, err = capsysbinary.readouterr()
    assert out == json.dumps({"model": "m", "messages": [USER], "t": 1.50}, indent=2).encode()
    assert err.decode().splitlines() == [
        "fits       59 tokens and 10 kept free, of 110",
        "",
        "             before     after",
        "turns             6         1",
        "messages         11         1",
        "tokens          299        59",
    ]
    assert names(folder) == ["chat.json"]


def test_fit_writes_its_report_and_then_no_summary(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("chat.json").write_text(json.dumps(LONG))
    assert main(["fit", "chat.json", *BUDGET, "--margin", "5", "--model", "m-1", "--report", "r.json"]) == 0
    fitted = ullage.fit(LONG, window_tokens=110, output_reserve=10, safety_margin=5, model="m-1")
    assert Path("r.json").read_bytes() == fitted.report.to_json() + b"\n"
    assert capsys.readouterr().err == ""
    assert names(folder) == ["chat.json", "r.json"]


def test_fit_reads_standard_input_and_keeps_a_byte_order_mark() -> None:
    code, out, _ = piped(["fit", "-", *BUDGET], b"\xef\xbb\xbf" + TRIMMED + b"\r\n")
    assert (code, out) == (0, b"\xef\xbb\xbf" + GOOD + b"\r\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"{", "x.json: malformed JSON at byte 1"),
        (b"\xff", "x.json: not UTF-8 at byte 0"),
        (b"", "x.json: malformed JSON at byte 0"),
        (b"{}", "x.json: no messages"),
        (b'[{"role":"robot"}]', "x.json: messages[0].role"),
        (line({"role": "user", "content": "x" * 800}), "needed 253 tokens, window 110"),
    ],
)
def test_fit_fails_with_code_3_where_nothing_can_be_fitted(
    text: bytes, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x.json").write_bytes(text)
    assert main(["fit", "x.json", *BUDGET, "--report", "r.json"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert names(folder) == ["x.json"]


# --- rebudget -------------------------------------------------------------------------


def test_rebudget_writes_rows_rejects_and_reports(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("in.jsonl", GOOD, BAD, TRIMMED)
    assert main(["rebudget", "in.jsonl", "-o", "out.jsonl", *BUDGET, "--report", "r.jsonl"]) == 1
    assert Path("out.jsonl").read_bytes() == (GOOD + b"\n") * 2
    rejects = [json.loads(one) for one in Path("out.rejects.jsonl").read_bytes().splitlines()]
    assert [(r["line"], r["offset"], r["kind"], r["row"]) for r in rejects] == [
        (2, len(GOOD) + 1, "Row", '{"a":1}')
    ]
    reports = [json.loads(one) for one in Path("r.jsonl").read_bytes().splitlines()]
    assert [report["line"] for report in reports] == [1, 3]
    assert [len(report["report"]["attempts"]) for report in reports] == [1, 6]
    assert names(folder) == ["in.jsonl", "out.jsonl", "out.rejects.jsonl", "r.jsonl"]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "rows       3 in, 2 out, 1 rejected",
        "trimmed    1 of 2 rows out",
        "",
        "                 before     after",
        "rows that fit         1         2",
        "turns                 7         2",
        "messages             12         2",
        "tokens              358       118",
        "",
        "rejected   out.rejects.jsonl",
        "  1  Row  line 2: no messages in this object, but a",
    ]


def test_without_rejects_there_is_no_file_of_them_and_an_old_one_goes(folder: Path) -> None:
    write("in.jsonl", GOOD)
    write("out.rejects.jsonl", b"old")
    write("out.jsonl", b"old")
    assert main(["rebudget", "in.jsonl", "-o", "out.jsonl", *BUDGET]) == 0
    assert names(folder) == ["in.jsonl", "out.jsonl"]
    assert Path("out.jsonl").read_bytes() == GOOD + b"\n"


def test_an_output_of_another_ending_keeps_it_before_that_of_the_rejects(folder: Path) -> None:
    write("in.jsonl", BAD)
    assert main(["rebudget", "in.jsonl", "-o", "out.json", *BUDGET]) == 1
    assert names(folder) == ["in.jsonl", "out.json", "out.json.rejects.jsonl"]
    assert Path("out.json").read_bytes() == b""


@pytest.mark.parametrize("output", [[], ["-o", "-"]])
def test_data_goes_to_standard_output_and_rejects_to_standard_error(output: list[str]) -> None:
    code, out, err = piped(["rebudget", "-", *output, *BUDGET], b"\n".join([GOOD, BAD, TRIMMED]))
    assert (code, out) == (1, (GOOD + b"\n") * 2)
    first, *rest = err.splitlines()
    assert json.loads(first)["line"] == 2
    assert rest[0] == "rows       3 in, 2 out, 1 rejected"


@POSIX
def test_a_device_is_written_to_and_never_replaced(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    write("in.jsonl", GOOD, BAD)
    assert main(["rebudget", "in.jsonl", "-o", os.devnull, *BUDGET, "--report", os.devnull]) == 1
    assert not Path(os.devnull).is_file()
    assert names(folder) == ["in.jsonl"]
    assert b'"line":2' in capfdbinary.readouterr().err


@POSIX
def test_a_link_stays_a_link(folder: Path) -> None:
    write("in.jsonl", GOOD)
    (folder / "data").mkdir()
    Path("out.jsonl").symlink_to("data/real.jsonl")
    assert main(["rebudget", "in.jsonl", "-o", "out.jsonl", *BUDGET]) == 0
    assert Path("out.jsonl").is_symlink()
    assert Path("data/real.jsonl").read_bytes() == GOOD + b"\n"


@POSIX
def test_files_get_the_permissions_that_new_files_get(folder: Path) -> None:
    write("in.jsonl", GOOD)
    main(["rebudget", "in.jsonl", "-o", "out.jsonl", *BUDGET])
    assert Path("out.jsonl").stat().st_mode == Path("in.jsonl").stat().st_mode


def test_the_commonest_reason_comes_first_and_is_shown_in_short(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = line({"role": "user", "content": "x" * 800})
    write("in.jsonl", BAD, large, b"{", large)
    assert main(["rebudget", "in.jsonl", "-o", "out.jsonl", *BUDGET]) == 1
    reasons = capsys.readouterr().err.splitlines()[-3:]
    assert [one.split()[:4] for one in reasons] == [
        ["2", "DoesNotFit", "line", "2:"],
        ["1", "Row", "line", "1:"],
        ["1", "Json", "line", "3:"],
    ]
    assert reasons[0].endswith("…")
    assert len(reasons[0]) == 100


# --- the sample -------------------------------------------------------------------------


def test_the_sample_shows_rows_of_every_fate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rebudget", "--sample", "-o", "out.jsonl", "--window", "400", "--reserve", "100"]) == 1
    assert "rows       11 in, 10 out, 1 rejected\ntrimmed    5 of 10 rows out\n" in capsys.readouterr().err
    rejects = [json.loads(one) for one in Path("out.rejects.jsonl").read_bytes().splitlines()]
    assert [reject["kind"] for reject in rejects] == ["DoesNotFit"]
    ids = [json.loads(row)["id"] for row in Path("out.jsonl").read_bytes().splitlines()]
    assert ids == [json.loads(row)["id"] for row in SAMPLE.splitlines()][:10]


def test_the_sample_fits_whole_into_a_large_window(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["rebudget", "--sample", "--window", "100000", "--reserve", "100"]) == 0
    assert capsysbinary.readouterr().out == SAMPLE


# --- nothing partial ----------------------------------------------------------------------

ALL = ["rebudget", "in.jsonl", "-o", "out.jsonl", *BUDGET, "--report", "r.jsonl"]


def full_disk(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_fills_up_leaves_what_was_there(
    step: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write("in.jsonl", GOOD, BAD, TRIMMED)
    for name in ("out.jsonl", "out.rejects.jsonl", "r.jsonl"):
        write(name, b"before")
    monkeypatch.setattr(outputs.os, step, full_disk)
    assert main(ALL) == 3
    assert re.fullmatch(r"ullage: out\.rejects\.jsonl: No space left.*\n", capsys.readouterr().err)
    assert names(folder) == ["in.jsonl", "out.jsonl", "out.rejects.jsonl", "r.jsonl"]
    assert Path("out.jsonl").read_bytes() == Path("r.jsonl").read_bytes() == b"before\n"


@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [
        (OSError(errno.EIO, "Input/output error"), 3, "ullage: Input/output error"),
        (KeyboardInterrupt(), 130, "ullage: interrupted"),
        (RuntimeError("a bug"), 3, "RuntimeError: a bug"),
    ],
)
def test_a_run_that_ends_midway_leaves_nothing(
    fault: BaseException,
    code: int,
    told: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing(line: bytes, plan: object) -> NoReturn:
        assert len(names(folder)) == 4  # the input and three files aside
        raise fault

    write("in.jsonl", GOOD)
    monkeypatch.setattr("ullage.archive.jsonl.rebudget_row", failing)
    assert main(ALL) == code
    assert told in capsys.readouterr().err
    assert names(folder) == ["in.jsonl"]


@POSIX
def test_an_interrupt_ends_with_code_130_and_nothing_left(folder: Path) -> None:
    python, option, code = COMMAND
    heeding = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {code}"
    process = subprocess.Popen(  # background jobs are started with interrupts ignored
        [python, option, heeding, "rebudget", "-", "-o", "out.jsonl", *BUDGET],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(GOOD + b"\n")
    process.stdin.flush()
    while len(names(folder)) < 2 and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.2)  # into the reading
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"ullage: interrupted\n")
    assert names(folder) == []


@POSIX
def test_a_reader_that_has_seen_enough_ends_it_quietly(folder: Path) -> None:
    write("in.jsonl", *[GOOD] * 20_000)
    process = subprocess.Popen(
        [*COMMAND, "rebudget", "in.jsonl", *BUDGET, "--report", "r.jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == GOOD + b"\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 0
    assert names(folder) == ["in.jsonl"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("rows", [1, 5_000])
def test_standard_output_that_is_full_is_code_3(rows: int, folder: Path) -> None:
    write("in.jsonl", *[GOOD] * rows)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "rebudget", "in.jsonl", *BUDGET], stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert (done.returncode, done.stderr) == (3, b"ullage: standard output: No space left on device\n")
