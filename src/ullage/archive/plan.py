"""What is asked of every row of an archive."""

from __future__ import annotations

import msgspec

from ..errors import InvalidContext
from ..wire import check_u64

__all__ = ["Plan"]


class Plan(msgspec.Struct, frozen=True):
    """How rows are fitted; figures in tokens, with the meaning that ``ullage.fit`` gives them.

    ``reports`` asks each row for its report.  ``current`` and ``last_turn`` say
    what a session journal of ended turns is fitted with: a new user message, or
    its own last turn.

    Raises InvalidContext for a window with no room beside reserve and margin, and ValueError for a figure
    out of range.
    """

    window_tokens: int
    output_reserve: int
    safety_margin: int = 0
    image_tokens: int = 1024
    model: str | None = None
    compaction_threshold: float | None = None
    current: str | None = None
    last_turn: bool = False
    reports: bool = False

    def __post_init__(self) -> None:
        window, reserve, margin = self.window_tokens, self.output_reserve, self.safety_margin
        check_u64("Plan", window_tokens=window, output_reserve=reserve, safety_margin=margin)
        if type(self.image_tokens) is not int or not 0 <= self.image_tokens < 2**32:
            raise ValueError(f"an image costs from 0 to 2**32 - 1 tokens, not {self.image_tokens!r}")
        if reserve == 0:
            raise InvalidContext("the reserve for the answer is zero", path="output_reserve")
        if reserve + margin >= window:
            beside = f"a reserve of {reserve:,}" + (f" and a margin of {margin:,}" if margin else "")
            raise InvalidContext(
                f"a window of {window:,} tokens has no room for messages beside {beside}; "
                "take a larger window or keep less free",
                path="window_tokens",
            )
