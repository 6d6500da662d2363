from collections.abc import Sequence

from .report import ContextCountAttempt, ContextTokenCount

def derive_attempts(
    count: ContextTokenCount, reserved: int, messages: Sequence[int]
) -> tuple[ContextCountAttempt, ...]: ...
