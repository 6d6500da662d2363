"""Every error that ullage raises, with what its text cannot hold beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from .report import ContextBuildReport

__all__ = [
    "BatchError",
    "ContextBuildError",
    "CountLimit",
    "CounterFailed",
    "CounterOverflow",
    "DecodeError",
    "DoesNotFit",
    "InvalidContext",
    "InvalidShape",
    "JournalError",
    "JsonTypeError",
    "JsonValueError",
    "ProjectionError",
    "ResourceLimit",
    "ThresholdError",
    "ThresholdTypeError",
    "TokenOverflow",
    "TranscriptError",
    "UllageError",
    "UnverifiedCount",
]


class UllageError(Exception):
    """The root of all errors that ullage raises on purpose."""


class _Located(UllageError):
    """An error at a place inside the caller's data.

    ``path`` names the value at fault as Python would reach it
    (``messages[3].tool_calls[0].arguments.q``; empty for the whole value) and
    ``reason`` says what is wrong with it.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.path), self.__dict__


class JsonValueError(_Located, ValueError):
    """A value that has no JSON form: NaN, a lone surrogate, an integer past 64 bits, nesting too deep."""


class JsonTypeError(JsonValueError, TypeError):
    """A value or key of a type that JSON does not have."""


class DecodeError(_Located, ValueError):
    """JSON that is malformed, or is not of the wire type it was read as."""


class TranscriptError(_Located, ValueError):
    """A transcript that cannot be sent: ``path`` is the message (or part of it) at fault."""


class JournalError(DecodeError):
    """A journal that cannot be read.

    ``line`` is the line at fault, from 1, and ``offset`` the byte of the journal
    at which it starts: everything before it can be read.  ``path`` is the value
    at fault inside the line's event, where there is one.
    """

    def __init__(self, reason: str, line: int, offset: int, path: str = "") -> None:
        super().__init__(reason, path)
        self.args = (f"line {line} (byte {offset}): {self}",)
        self.line = line
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.line, self.offset, self.path), self.__dict__


class BatchError(UllageError, ValueError):
    """A column that cannot be read as transcripts.

    ``column`` names it, members of structs after dots, and ``row`` is the row at
    fault; empty and None where the fault is no column's or no row's.
    """

    def __init__(self, reason: str, column: str = "", row: int | None = None) -> None:
        place = [] if row is None else [f"row {row:,}"]
        if column:
            place.append(f"column {column}")
        super().__init__(f"{', '.join(place)}: {reason}" if place else reason)
        self.reason = reason
        self.column = column
        self.row = row

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.column, self.row)


class ProjectionError(UllageError):
    """A log that gives no history.  ``str(error)`` is the contract's text, ``error.kind`` its kind.

    The kinds are InvalidConfig, Limit, Physical, Malformed, Unconfirmed and
    MissingReply.  ``event_id`` and ``index`` name the event at fault, or the
    first event of the turn at fault, and its place in the log from 0; None
    where the fault is no event's.
    """

    def __init__(self, kind: str, text: str, event_id: str | None = None, index: int | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.event_id = event_id
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, str(self), self.event_id, self.index), self.__dict__


class ThresholdError(UllageError, ValueError):
    """A value that no threshold, size or estimate can be made of; the text names the argument and the fix."""


class ThresholdTypeError(ThresholdError, TypeError):
    """A value of a type that the argument does not take."""


class CounterOverflow(UllageError, OverflowError):
    """A counter's sum passes 2**64 - 1."""

    def __init__(self) -> None:
        super().__init__("token overflow")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (), self.__dict__


class ContextBuildError(UllageError):
    """A build that gave no request.  ``str(error)`` is the contract's text, ``error.kind`` its kind.

    ``report`` is the report so far (DoesNotFit and CountLimit only), ``path``
    the value at fault where one is known, ``needed`` and ``window`` the tokens
    asked for and there (DoesNotFit only), ``parts`` how ``needed`` is made up.
    """

    kind: ClassVar[str]
    _prefix: ClassVar[str] = ""

    def __init__(
        self,
        reason: str = "",
        *,
        path: str | None = None,
        report: ContextBuildReport | None = None,
        needed: int | None = None,
        window: int | None = None,
        parts: dict[str, int] | None = None,
    ) -> None:
        super().__init__(f"{self._prefix}{reason}")
        self.reason = reason
        self.path = path
        self.report = report
        self.needed = needed
        self.window = window
        self.parts = parts

    def __reduce__(self) -> tuple[object, ...]:
        # Exception's own way would call the class with the whole text as its reason.
        return _rebuild, (type(self), self.reason), self.__dict__


def _rebuild(cls: type[ContextBuildError], reason: str) -> ContextBuildError:
    return cls(reason)


class InvalidContext(ContextBuildError):
    """The input breaks a rule that holds before anything is counted, or a count is zero."""

    kind = "Invalid"
    _prefix = "invalid context configuration: "


class ResourceLimit(ContextBuildError):
    """The input is larger than the caller's limits allow."""

    kind = "Limit"
    _prefix = "context resource limit: "


class InvalidShape(ContextBuildError):
    """The messages or the constraint do not form a request that a provider would accept."""

    kind = "Shape"
    _prefix = "invalid context message shape: "


class CounterFailed(ContextBuildError):
    """The counter raised; its own exception is the cause."""

    kind = "Counter"
    _prefix = "context counter failed: "


class UnverifiedCount(ContextBuildError):
    """The count is for another target, or Hard mode met an estimate."""

    kind = "UnverifiedCount"
    _prefix = "counter evidence is unverified or bound to another target"


class TokenOverflow(ContextBuildError):
    """A sum of tokens passes 2**64 - 1."""

    kind = "Overflow"
    _prefix = "context token arithmetic overflow"


class DoesNotFit(ContextBuildError):
    """What must stay is larger than the window leaves room for."""

    kind = "DoesNotFit"
    _prefix = "minimum necessary context exceeds the budget"


class CountLimit(ContextBuildError):
    """More removals are needed than ``max_count_calls`` allows to count."""

    kind = "CountLimit"
    _prefix = "context counting attempt limit reached"
