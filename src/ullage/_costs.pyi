from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

class CacheFigures(NamedTuple):
    nbytes: int
    limit: int
    entries: int
    hits: int
    misses: int
    evictions: int

class TextCosts:
    def __init__(self, limit: int) -> None: ...
    @property
    def figures(self) -> CacheFigures: ...
    def clear(self) -> None: ...
    def count(
        self,
        texts: list[str],
        encode: Callable[[str], Any],
        sized: bool,
        many: Callable[[list[str]], Sequence[int]] | None = None,
        many_from: int = 0,
    ) -> array[int]: ...
