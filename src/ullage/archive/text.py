"""What became of a transcript or an archive, in a few lines for people."""

from __future__ import annotations

from .plan import Plan
from .row import Row, Size, Summary

__all__ = ["fitted_text", "summary_text"]

_WIDTH = 100  # characters at which a reason is cut off: the rejects hold it whole


def fitted_text(row: Row, plan: Plan) -> str:
    """One transcript that fits."""
    free = plan.output_reserve + plan.safety_margin
    used = f"{row.after.tokens:,} tokens and {free:,} kept free, of {plan.window_tokens:,}"
    return "\n".join([f"fits       {used}", "", *_table(_sizes(row.before, row.after))])


def summary_text(summary: Summary, rejects_path: str | None) -> str:
    """A whole archive; ``rejects_path`` names the file of its rejected rows, None where there is none."""
    lines = [
        f"rows       {summary.rows_in:,} in, {summary.rows_out:,} out, {summary.rejected:,} rejected",
        f"trimmed    {summary.trimmed:,} of {summary.rows_out:,} rows out",
        "",
        *_table(
            [
                ("rows that fit", summary.rows_out - summary.trimmed, summary.rows_out),
                *_sizes(summary.before, summary.after),
            ]
        ),
    ]
    if summary.reasons:
        lines += ["", *_reasons(summary, rejects_path)]
    return "\n".join(lines)


def _sizes(before: Size, after: Size) -> list[tuple[str, int, int]]:
    return [(name, getattr(before, name), getattr(after, name)) for name in Size._fields]


def _table(rows: list[tuple[str, int, int]]) -> list[str]:
    name_width = max(9, *(len(name) for name, _, _ in rows))
    width = max(8, *(len(f"{figure:,}") for _, *figures in rows for figure in figures))
    head = f"{'':{name_width}}  {'before':>{width}}  {'after':>{width}}"
    return [head] + [
        f"{name:{name_width}}  {before:{width},}  {after:{width},}" for name, before, after in rows
    ]


def _reasons(summary: Summary, rejects_path: str | None) -> list[str]:
    """Why rows were rejected, the commonest reason first, each with its first row."""
    reasons = sorted(summary.reasons.items(), key=lambda reason: -reason[1].rows)
    width = max(len(f"{tally.rows:,}") for _, tally in reasons)
    name_width = max(len(kind) for kind, _ in reasons)
    lines = [f"rejected   {rejects_path or 'see the lines above'}"]
    for kind, tally in reasons:
        line = (
            f"{tally.rows:{width + 2},}  {kind:{name_width}}  {summary.unit} {tally.line:,}: {tally.message}"
        )
        lines.append(line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…")
    return lines
