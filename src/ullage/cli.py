"""The command line: parses, calls, prints."""

from __future__ import annotations

import argparse
import codecs
import errno
import io
import math
import os
import stat
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib import resources
from itertools import chain
from typing import IO

from . import __version__
from .archive.jsonl import rebudget_lines, rebudget_row
from .archive.outputs import Stream, WholeFile, publish
from .archive.plan import Plan
from .archive.row import RowStatus
from .archive.sessions import is_journal, rebudget_session, rebudget_sessions
from .archive.text import fitted_text, summary_text
from .canonical import U64_MAX, shown
from .errors import InvalidContext, JournalError
from .journal import read_sessions

__all__ = ["main"]

DONE, DONE_WITH_REJECTS, USAGE, FAILED, INTERRUPTED = 0, 1, 2, 3, 130

_CODES = "exit codes: 0 done, 1 done with rejects, 2 usage, 3 failed, 130 interrupted"


class _UsageError(Exception):
    """What was asked for cannot be begun."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code.  ``arguments`` are those of the process by default."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return DONE
    try:
        return _run(options)
    except _UsageError as error:
        return _fail(USAGE, str(error))
    except JournalError as error:
        return _fail(FAILED, f"the journal cannot be read: {error}")
    except BrokenPipeError:  # whoever reads has seen enough
        _settle_output()
        return DONE
    except OSError as error:
        code = _fail(FAILED, _told(error))
        _settle_output()
        return code
    except KeyboardInterrupt:
        return _fail(INTERRUPTED, "interrupted")
    except Exception:
        traceback.print_exc()  # our own fault; its exit code would else say "done with rejects"
        return FAILED


def _run(options: argparse.Namespace) -> int:
    try:
        plan = Plan(
            window_tokens=options.window,
            output_reserve=options.reserve,
            safety_margin=options.margin,
            image_tokens=options.image_tokens,
            model=options.model,
            compaction_threshold=options.compaction_threshold,
            current=options.current,
            last_turn=options.last_turn,
            reports=options.command == "fit",
        )
    except (InvalidContext, ValueError) as error:
        raise _UsageError(getattr(error, "reason", str(error))) from None
    return _fit(options, plan) if options.command == "fit" else _rebudget(options, plan)


def _fail(code: int, message: str) -> int:
    with suppress(OSError):  # the code tells it too
        print(f"ullage: {message}", file=sys.stderr)
    return code


# --- arguments --------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ullage",
        description="Fit conversations into a model's context window: the oldest whole turns go, "
        "what stays keeps its bytes.",
        epilog=_CODES,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ullage {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    fit = commands.add_parser(
        "fit",
        help="one transcript in, the request that fits out",
        description="Read one transcript, a JSON object with messages (and maybe tools) or an array of "
        "messages, and write the same JSON with the messages that fit to standard output; of the journal of "
        "one session, write the request.",
        epilog=_CODES,
        allow_abbrev=False,
    )
    fit.add_argument("input", metavar="FILE", help="the transcript; - for standard input")
    _add_budget(fit)
    fit.add_argument("--model", metavar="NAME", help="named as the target in the report")
    fit.add_argument("--report", metavar="FILE", help="write the report there as JSON, and no summary")

    rebudget = commands.add_parser(
        "rebudget",
        help="JSON Lines in, each fitted, out",
        usage="ullage rebudget [-h] (IN | --sample) [-o OUT] --window N --reserve N [--margin N]\n"
        "                       [--image-tokens N] [--compaction-threshold X]\n"
        "                       [--current TEXT | --last-turn] [--report FILE]",
        description="Read one transcript a line and write each as it fits, in order; of a session journal, "
        "write one request for each session. Rows that cannot be "
        "fitted go to OUT.rejects.jsonl with line, offset and reason, or to standard error where the output "
        "is not a file. OUT appears when it is whole.",
        epilog=_CODES,
        allow_abbrev=False,
    )
    source = rebudget.add_mutually_exclusive_group(required=True)
    source.add_argument("input", metavar="IN", nargs="?", help="the archive; - for standard input")
    source.add_argument("--sample", action="store_true", help="the small archive that comes with ullage")
    rebudget.add_argument(
        "-o", dest="output", metavar="OUT", default="-", help="the output; - (default) for standard output"
    )
    _add_budget(rebudget)
    rebudget.add_argument("--report", metavar="FILE", help="write a report for each row there, as JSON Lines")
    rebudget.set_defaults(model=None)
    return parser


def _add_budget(parser: argparse.ArgumentParser) -> None:
    for name, default, text in (
        ("--window", None, "tokens of the context window"),
        ("--reserve", None, "tokens kept free for the answer"),
        ("--margin", 0, "tokens kept free for what the count misses (default: 0)"),
        ("--image-tokens", 1024, "the price of an image, audio or file part (default: 1024)"),
    ):
        parser.add_argument(
            name, metavar="N", type=_tokens, required=default is None, default=default, help=text
        )
    parser.add_argument(
        "--compaction-threshold",
        metavar="X",
        type=_threshold,
        help="carry less history: a share of the window below 0.8, the default and the most",
    )
    current = parser.add_mutually_exclusive_group()
    current.add_argument("--current", metavar="TEXT", help="the user message to fit a session journal with")
    current.add_argument(
        "--last-turn",
        action="store_true",
        help="take the last ended turn of a session journal as its current one",
    )


def _threshold(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise argparse.ArgumentTypeError(f"a share of the window such as 0.6 is expected, not {text!r}")
    return value


def _tokens(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 20 or int(text) > U64_MAX:
        raise argparse.ArgumentTypeError(
            f"a number of tokens is expected, in digits alone as in 128000, not {shown(text)}"
        )
    return int(text)


# --- files ------------------------------------------------------------------------

_FIXES = {
    errno.ENOENT: "no such file",
    errno.EISDIR: "a folder; name a file",
    errno.EACCES: "no permission",
}
_OUTPUT_FIXES = _FIXES | {
    errno.ENOENT: "its folder does not exist; make it first",
    errno.EACCES: "no permission to write in its folder",
}


def _told(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)


def _open_input(path: str, stack: ExitStack) -> IO[bytes]:
    if path == "-":
        return sys.stdin.buffer
    try:
        return stack.enter_context(open(path, "rb", buffering=1 << 18))
    except OSError as error:
        raise _UsageError(f"cannot read {path}: {_FIXES.get(error.errno or 0, error.strerror)}") from None


def _open_output(path: str, stack: ExitStack, *, unless_empty: bool = False) -> Stream | WholeFile:
    try:
        if _is_device(path):
            stream = Stream(open(path, "wb"), path)  # noqa: SIM115 - closed by the stack
            stack.callback(stream.close)
            return stream
        return stack.enter_context(WholeFile(path, unless_empty=unless_empty))
    except OSError as error:
        raise _UsageError(
            f"cannot write {path}: {_OUTPUT_FIXES.get(error.errno or 0, error.strerror)}"
        ) from None


def _is_device(path: str) -> bool:
    """Whether that is a device or a pipe, whose name is not ours to replace."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _check_names(source: IO[bytes], paths: Sequence[str]) -> None:
    """Refuse to write over the input, twice to one file, or to a file called ``-``."""
    given = os.fstat(source.fileno())
    seen: set[str] = set()
    for path in paths:
        if path == "-":
            raise _UsageError("the report goes to a file: standard output carries the data")
        target = os.path.realpath(path)
        if os.path.isfile(target) and os.path.samestat(given, os.stat(target)):
            raise _UsageError(f"{path} is the input, and what is dropped would be lost; name another output")
        if target in seen:
            raise _UsageError(f"{path} would be written twice; give each output a name of its own")
        seen.add(target)


# --- commands ---------------------------------------------------------------------


def _fit(options: argparse.Namespace, plan: Plan) -> int:
    with ExitStack() as stack:
        source = _open_input(options.input, stack)
        request = Stream(sys.stdout.buffer, "standard output")
        report = None
        if options.report is not None:
            _check_names(source, [options.report])
            report = _open_output(options.report, stack)
        text = source.read()
        if is_journal(text.partition(b"\n")[0]):
            return _fit_journal(text, options, plan, request, report)
        mark = codecs.BOM_UTF8 if text.startswith(codecs.BOM_UTF8) else b""
        row = rebudget_row(text.removeprefix(mark), plan)
        if row.status is RowStatus.REJECTED:
            name = "standard input" if options.input == "-" else options.input
            return _fail(FAILED, f"{name}: {row.message}")
        request.write(mark + row.output)
        if report is None:
            publish([request])
            print(fitted_text(row, plan), file=sys.stderr)
        else:
            report.write(row.report + b"\n")
            publish([request, report])
    return DONE


def _fit_journal(
    text: bytes, options: argparse.Namespace, plan: Plan, request: Stream, report: Stream | WholeFile | None
) -> int:
    name = "standard input" if options.input == "-" else options.input
    sessions = read_sessions(io.BytesIO(text))
    if len(sessions) > 1:
        return _fail(
            FAILED, f"{name}: {len(sessions)} sessions; use rebudget, which gives one request for each"
        )
    [(session_id, events)] = sessions.items()
    row, body = rebudget_session(session_id, events, plan)
    if row.status is RowStatus.REJECTED:
        return _fail(FAILED, f"{name}: {row.message}")
    request.write(body + b"\n")
    if report is None:
        publish([request])
        print(fitted_text(row, plan), file=sys.stderr)
    else:
        report.write(row.report + b"\n")
        publish([request, report])
    return DONE


def _rebudget(options: argparse.Namespace, plan: Plan) -> int:
    with ExitStack() as stack:
        if options.sample:
            sample = resources.files(__package__).joinpath("data", "sample.jsonl")
            source = stack.enter_context(sample.open("rb"))
        else:
            source = _open_input(options.input, stack)
        to_file = options.output != "-" and not _is_device(options.output)
        rejects_path = _rejects_path(options.output) if to_file else None
        named = (options.output if to_file else None, rejects_path, options.report)
        _check_names(source, [path for path in named if path is not None])

        rows = (
            Stream(sys.stdout.buffer, "standard output")
            if options.output == "-"
            else _open_output(options.output, stack)
        )
        rejects = (
            Stream(sys.stderr.buffer, "standard error")
            if rejects_path is None
            else _open_output(rejects_path, stack, unless_empty=True)
        )
        reports = None if options.report is None else _open_output(options.report, stack)
        first = source.readline()
        run = rebudget_sessions if is_journal(first) else rebudget_lines
        summary = run(chain([first] if first else [], source), plan, rows, rejects, reports)
        publish([output for output in (rejects, reports, rows) if output is not None])
    print(summary_text(summary, rejects_path), file=sys.stderr)
    return DONE_WITH_REJECTS if summary.rejected else DONE


def _rejects_path(output: str) -> str:
    return f"{output.removesuffix('.jsonl')}.rejects.jsonl"


def _settle_output() -> None:
    """Flush, and where that fails send the rest nowhere: else the interpreter's last flush fails again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
