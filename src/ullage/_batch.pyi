from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ._arrow import TranscriptColumn
from .contract import Outcome as TrimOutcome

class Measures:
    message_offsets: NDArray[np.int64]
    roles: NDArray[np.uint8]
    bytes: NDArray[np.uint64]
    turns: NDArray[np.uint32]
    turn_counts: NDArray[np.uint32]
    faults: NDArray[np.uint8]
    fault_messages: NDArray[np.uint32]
    raw_arguments: NDArray[np.uint8]
    prices: NDArray[np.uint64] | None
    def __init__(
        self, message_offsets: NDArray[np.int64], prices: NDArray[np.uint64] | None = None
    ) -> None: ...

def count_messages(columns: list[TranscriptColumn], message_offsets: NDArray[np.int64]) -> None: ...
def measure(column: TranscriptColumn, measures: Measures, first: int, last: int) -> None: ...

class Outcome:
    statuses: NDArray[np.uint8]
    turns_dropped: NDArray[np.uint32]
    messages_dropped: NDArray[np.uint32]
    tokens_before: NDArray[np.uint64]
    tokens_after: NDArray[np.uint64]
    retained: NDArray[np.bool_]
    def __init__(self, measures: Measures) -> None: ...

def trim(
    measures: Measures,
    outcome: Outcome,
    window: int,
    windows: NDArray[np.uint64] | None,
    reserved: int,
    constraint: int,
    template_tokens: int,
    first: int,
    last: int,
) -> None: ...
def turns_of(measures: Measures, row: int) -> tuple[list[int], list[bool], int]: ...
def attempts(
    measures: Measures,
    row: int,
    constraint: int,
    template_tokens: int,
    reserved: int,
    window: int,
    max_counts: int,
) -> tuple[TrimOutcome, int, Sequence[int]]: ...
