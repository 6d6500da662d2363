"""A conversation that is measured as it grows, and fitted without another look at its text."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, overload

from ._transcript import Measured, Store
from .counters import ByteHeuristicCounter
from .counting import AdditiveTokenCounter, is_additive
from .errors import ContextBuildError, InvalidContext, TranscriptError
from .fitted import FittedContext, Fitting, Frame
from .history import (
    ConversationProjection,
    GroupKind,
    ProjectedTurn,
    ProjectionGroup,
    TurnState,
)
from .messages import AssistantMessage, Constraint, Message, TextConstraint, UserMessage
from .scope import ScopeRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .budget import ContextBudget, ContextBuildLimits, ContextTarget

__all__ = ["MessageRole", "Transcript", "TranscriptArrays"]

T = TypeVar("T", bound="Transcript")

UNSPECIFIED = "unspecified"
_TEXT = TextConstraint()


class MessageRole(IntEnum):
    """The kinds of message, as numbers."""

    SYSTEM = 1
    USER = 2
    ASSISTANT = 3
    TOOL = 4


class TranscriptArrays(NamedTuple):
    """A transcript as numpy arrays, read-only; entry i of the first four is message i.

    ``roles``: uint8, one a message; a MessageRole.
    ``bytes``: uint64, one a message; of its compact JSON.
    ``tokens``: uint64, one a message; by the transcript's counter.
    ``turns``: int64, one a message; the turn that it belongs to, from 0.
    ``turn_starts``: int64, one a turn; the index of its first message.
    ``turn_tokens``: uint64, one a turn; the sum over its messages.
    ``pins``: bool, one a turn; whether it is pinned.
    """

    roles: NDArray[np.uint8]
    bytes: NDArray[np.uint64]
    tokens: NDArray[np.uint64]
    turns: NDArray[np.int64]
    turn_starts: NDArray[np.int64]
    turn_tokens: NDArray[np.uint64]
    pins: NDArray[np.bool_]


class Transcript:
    """The ended turns of a conversation, encoded once and fitted as often as need be.

    A message is measured when it comes; ``fit`` takes time for the turns and
    for the counts it reports, whatever the length of the text, and gives what
    CanonicalContextBuilder gives for the same history.  Beside the caller's own
    message objects a message takes at most 64 bytes.

        transcript = ullage.Transcript(system=("You keep the cellar book.",))
        fitted = transcript.fit(current=[question], budget=budget, target=target)
        transcript.extend([question, answer])

    A turn starts at a user message and takes the assistant and tool messages
    that follow; consecutive user messages each open one, and so does an
    assistant message at the very start.  Turns are numbered from 0 and named
    ``turn-0``, ``turn-1``, …

    Messages are the contract's own types.  What they hold must not change
    afterwards: the arguments of a tool call are not measured again.

    Threads may share a transcript: each change is made whole or not at all, and
    a fit sees what the transcript was at one moment.
    """

    __slots__ = ("__weakref__", "_frame", "_store")

    def __init__(
        self,
        counter: AdditiveTokenCounter | None = None,
        system: Sequence[str] = (),
        constraint: Constraint = _TEXT,
        *,
        session_id: str = UNSPECIFIED,
    ) -> None:
        """Begin an empty transcript.

        counter: how tokens are counted, message by message; a token for four
            bytes of JSON by default.  Its ``method``, ``evidence`` and
            ``template_tokens`` are read now, once.
        system: texts that stand in front of every request.
        constraint: what the answer may be; tools go here.
        session_id: names the session in reports.

        Raises TypeError for a counter that counts complete requests only,
        InvalidShape for a malformed constraint, JsonValueError for a value that
        has no JSON form, and CounterFailed for what the counter raises.
        """
        counter = ByteHeuristicCounter() if counter is None else counter
        if not is_additive(counter):
            raise TypeError(
                f"a Transcript needs an AdditiveTokenCounter, and {type(counter).__name__} counts complete "
                "requests only: use it with CanonicalContextBuilder"
            )
        self._frame = Frame.of(counter, system, constraint, session_id)
        self._store = Store()

    # -- growing and shrinking

    def append(self, message: Message) -> None:
        """Add a message at the end.

        Raises TranscriptError naming the message where it may not follow those
        before it, with the contract's text where there is one; TypeError for what
        is no message; JsonValueError naming the value that has no JSON form; and
        CounterFailed for what the counter raises, or a turn of more than 2**64 - 1
        tokens.  The transcript then stays as it was.
        """
        self._put((message,))

    def extend(self, messages: Iterable[Message]) -> None:
        """Add messages at the end: all of them, or none where one raises as in ``append``."""
        self._put(tuple(messages))

    def remove_last_turn(self) -> list[Message]:
        """Take the last turn away, with its pin; returns its messages.

        Time grows with the number of messages that stay, at a few nanoseconds each.
        Raises IndexError where there is no turn.
        """
        return self._store.put(Measured(()), replace=True)

    def replace_last_turn(self, messages: Iterable[Message]) -> list[Message]:
        """Put messages in the place of the last turn; returns those that gave way.

        They begin a turn and may begin others.  A pin stays on the first of them.

        Raises as ``extend`` does, ValueError for no messages at all, and IndexError
        where there is no turn; the transcript then stays as it was.
        """
        taken = tuple(messages)
        if not taken:
            raise ValueError("nothing to put in the place of the last turn: use remove_last_turn")
        return self._put(taken, replace=True)

    def _put(self, messages: tuple[Message, ...], replace: bool = False) -> list[Message]:
        added = Measured(messages)
        if added.sound:
            self._frame.price(added)
        return self._store.put(added, replace)

    def pin(self, turn: int | str) -> None:
        """Keep a turn, 3 or ``"turn-3"``, in every request.  Raises InvalidContext where there is none."""
        self._set_pin(turn, True)

    def unpin(self, turn: int | str) -> None:
        """Let a turn go again.  Raises InvalidContext where there is none."""
        self._set_pin(turn, False)

    def _set_pin(self, turn: int | str, pinned: bool) -> None:
        number = turn
        if isinstance(turn, str):
            digits = turn.removeprefix("turn-")
            number = int(digits) if digits.isdecimal() and len(digits) < 19 else -1
            number = number if turn == f"turn-{number}" else -1
        try:
            if type(number) is not int:
                raise IndexError
            self._store.pin(number, pinned)
        except (IndexError, OverflowError):
            raise InvalidContext("duplicate or unknown pinned turn", path="turn") from None

    # -- fitting

    def fit(
        self,
        current: Iterable[Message],
        *,
        budget: ContextBudget,
        target: ContextTarget,
        state_version: str | None = None,
        compaction_threshold: float | ScopeRecord | None = None,
        limits: ContextBuildLimits | None = None,
    ) -> FittedContext:
        """Drop the oldest whole turns that are not pinned until the request fits.

        current: the messages of the turn being answered; always kept, and no part
            of the transcript.
        budget, target: the window, in tokens, and the model the count is for.
        state_version: goes into the report.
        compaction_threshold: how much of the window the request may carry as
            history, as a share of which 0.8 is the default and the most; lower it
            to narrow the window.
        limits: the largest input accepted; by default as large as the input is.

        Raises ContextBuildError as CanonicalContextBuilder does for ``projection()``
        (DoesNotFit and CountLimit with the report), InvalidShape also while a tool
        call waits for its result, and ThresholdError for a threshold that is none.
        """
        return Fitting(
            self._frame, self._store.snapshot(), current, target, state_version, compaction_threshold, limits
        ).run(budget)

    @overload
    def fit_many(
        self,
        budgets: Iterable[ContextBudget],
        *,
        current: Iterable[Message],
        target: ContextTarget,
        state_version: str | None = None,
        compaction_threshold: float | ScopeRecord | None = None,
        limits: ContextBuildLimits | None = None,
        return_errors: Literal[False] = False,
    ) -> list[FittedContext]: ...

    @overload
    def fit_many(
        self,
        budgets: Iterable[ContextBudget],
        *,
        current: Iterable[Message],
        target: ContextTarget,
        state_version: str | None = None,
        compaction_threshold: float | ScopeRecord | None = None,
        limits: ContextBuildLimits | None = None,
        return_errors: bool,
    ) -> list[FittedContext | ContextBuildError]: ...

    def fit_many(
        self,
        budgets: Iterable[ContextBudget],
        *,
        current: Iterable[Message],
        target: ContextTarget,
        state_version: str | None = None,
        compaction_threshold: float | ScopeRecord | None = None,
        limits: ContextBuildLimits | None = None,
        return_errors: bool = False,
    ) -> Sequence[FittedContext | ContextBuildError]:
        """``fit`` for several windows over the transcript as it is at one moment; results in their order.

        The current messages are measured once.  Raises for the first budget that
        ``fit`` would raise for; with ``return_errors`` its ContextBuildError stands
        in its place instead.
        """
        fitting = Fitting(
            self._frame, self._store.snapshot(), current, target, state_version, compaction_threshold, limits
        )
        if not return_errors:
            return [fitting.run(budget) for budget in budgets]
        results: list[FittedContext | ContextBuildError] = []
        for budget in budgets:
            try:
                results.append(fitting.run(budget))
            except ContextBuildError as error:
                results.append(error)
        return results

    # -- what is in it

    def __len__(self) -> int:
        """The number of messages."""
        return len(self._store)

    @property
    def turn_count(self) -> int:
        """The number of turns."""
        return self._store.turn_count

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, the caller's own objects."""
        return tuple(self._store.snapshot().kept())

    @property
    def pinned_turns(self) -> tuple[str, ...]:
        """The names of the pinned turns, in their order."""
        return self._store.snapshot().pinned_turns()

    @property
    def counter(self) -> AdditiveTokenCounter:
        """How tokens are counted."""
        return self._frame.counter

    @property
    def system(self) -> tuple[str, ...]:
        """The texts in front of every request."""
        return self._frame.system

    @property
    def constraint(self) -> Constraint:
        """What the answer may be."""
        return self._frame.constraint

    @property
    def session_id(self) -> str:
        """The session's name in reports."""
        return self._frame.session_id

    @property
    def nbytes(self) -> int:
        """Bytes held beside the caller's own objects.

        At most 64 a message, system texts among them, and 1,024 for the transcript itself.
        """
        return self._store.nbytes + self.__sizeof__() + self._frame.nbytes

    def arrays(self) -> TranscriptArrays:
        """The transcript as numpy arrays: read-only copies, which stay as they are when it changes."""
        import numpy as np

        _, roles, lengths, tokens, pins, starts, turn_tokens = self._store.columns()
        turn_starts = np.frombuffer(starts, np.int64)
        ends = np.append(turn_starts[1:], len(roles))[: len(turn_starts)]
        turns = np.repeat(np.arange(len(turn_starts)), ends - turn_starts)
        turns.flags.writeable = False
        return TranscriptArrays(
            np.frombuffer(roles, np.uint8),
            np.frombuffer(lengths, np.uint64),
            np.frombuffer(tokens, np.uint64),
            turns,
            turn_starts,
            np.frombuffer(turn_tokens, np.uint64),
            np.frombuffer(pins, np.bool_),
        )

    def projection(self) -> ConversationProjection:
        """The history that the transcript stands for, as CanonicalContextBuilder takes it.

        The source events of a group are the indexes of its messages, as text; every
        turn is completed.

        Raises TranscriptError for an assistant message with several tool calls,
        since a group of the contract holds one, and for a call without its result.
        """
        past = self._store.snapshot()
        messages, bounds = past.kept(), past.bounds()
        groups: list[ProjectionGroup] = []
        for number, (start, end) in enumerate(pairwise(bounds)):
            i = start
            while i < end:
                kind, taken = _group(messages[i : min(i + 2, end)], f"messages[{i}]")
                events = tuple(map(str, range(i, i + len(taken))))
                groups.append(ProjectionGroup(f"turn-{number}", kind, events, taken))
                i += len(taken)
        return ConversationProjection(
            **self._frame.history(past.count),
            groups=tuple(groups),
            turns=tuple(
                ProjectedTurn(f"turn-{number}", TurnState.COMPLETED, None, False)
                for number in range(past.turns)
            ),
        )

    # -- copies

    def copy(self) -> Self:
        """Another transcript of the same messages, not measured again; each then grows on its own."""
        return copy.copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        messages, _, lengths, tokens, pins, _, _ = self._store.columns()
        figures = (array("Q", lengths), array("Q", tokens))
        return _restored, (type(self), self._frame, messages, *figures, pins), getattr(self, "__dict__", None)

    def __repr__(self) -> str:
        return f"<Transcript: {len(self):,} messages in {self.turn_count:,} turns>"


def _restored(
    cls: type[T],
    frame: Frame,
    messages: tuple[Message, ...],
    lengths: array[int],
    tokens: array[int],
    pins: bytes,
) -> T:
    """A transcript from its figures."""
    transcript = cls.__new__(cls)
    transcript._frame = frame
    transcript._store = Store()
    transcript._store.put(Measured(messages, lengths.tobytes(), tokens.tobytes()))
    for turn, pinned in enumerate(pins):
        transcript._store.pin(turn, bool(pinned))
    return transcript


def _group(ahead: list[Message], path: str) -> tuple[GroupKind, tuple[Message, ...]]:
    """The kind and the messages of the group that the next messages begin with."""
    first = ahead[0]
    if isinstance(first, UserMessage):
        return GroupKind.USER, (first,)
    calls = first.tool_calls if isinstance(first, AssistantMessage) else ()
    if not calls:
        return GroupKind.ASSISTANT, (first,)
    if len(calls) > 1:
        raise TranscriptError(
            "a group of the contract holds one tool call, not several", f"{path}.tool_calls"
        )
    if len(ahead) == 1:
        raise TranscriptError("model context is missing one or more tool results", path)
    return GroupKind.TOOL_EXCHANGE, tuple(ahead)
