"""What a compaction threshold leaves of one seeded transcript, as a Markdown table.

Run it with ``python -m benchmarks.threshold_table``.
"""

from __future__ import annotations

import ullage

from .transcripts import chat

WINDOW = 32_768
RESERVE = 4_096
MARGIN = 512
MESSAGES = chat(600)
THRESHOLDS = (0.45, 0.60, 0.75, 0.80, None)


def row(threshold: float | None) -> str:
    """One line of the table: turns and messages kept, tokens of the request, and the window in force."""
    result = ullage.fit(
        MESSAGES,
        window_tokens=WINDOW,
        output_reserve=RESERVE,
        safety_margin=MARGIN,
        compaction_threshold=threshold,
    )
    report = result.report
    kept = sum(turn.retained for turn in report.turns) + 1  # and the current one
    cells = (
        "none" if threshold is None else f"{threshold:.2f}",
        f"{kept} of {len(report.turns) + 1}",
        f"{len(result.messages)} of {len(MESSAGES)}",
        f"{report.attempts[-1].count.tokens.total():,}",
        f"{report.budget.window_tokens:,}",
    )
    return f"| {' | '.join(cells)} |"


def table() -> str:
    """The whole table, one row for each threshold."""
    head = "| threshold | turns kept | messages kept | tokens | window in force |"
    return "\n".join((head, "| --- | ---: | ---: | ---: | ---: |", *map(row, THRESHOLDS)))


if __name__ == "__main__":
    print(f"A window of {WINDOW:,} tokens, {RESERVE:,} reserved for the answer, a margin of {MARGIN:,}:\n")
    print(table())
