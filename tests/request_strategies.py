"""Hypothesis strategies for messages, requests, build inputs and counters, right ones and wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from strategies import any_objects, any_values, json_objects, texts
from support import PY, ExactBytes, Scripted, Whole

from ullage.budget import (
    ContextBudget,
    ContextBuildLimits,
    ContextTarget,
    TokenBoundEvidence,
    TokenBudgetMode,
)
from ullage.contract import input_length
from ullage.history import (
    ConversationProjection,
    GroupKind,
    OmissionReason,
    OmittedEvent,
    ProjectedTurn,
    ProjectionConfig,
    ProjectionGroup,
    TurnState,
)
from ullage.messages import (
    AssistantMessage,
    AutoChoice,
    GenerationRequest,
    JsonSchema,
    NamedChoice,
    NativeTools,
    RequiredChoice,
    SystemMessage,
    TextConstraint,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from ullage.report import ContextBuildInput

U64_MAX = 2**64 - 1
BLANKS = ["", " ", "\t\n", "\u3000", "\x85\u2028"]
NOT_BLANKS = ["x", "\x1c", "\u200b", "\ufeff", " x", "é"]  # str.isspace takes the second for space

names = st.sampled_from(["lookup", "f", "字", 'q"', *NOT_BLANKS])
any_names = st.one_of(names, st.sampled_from(BLANKS))
schemas = st.one_of(st.booleans(), json_objects)


@st.composite
def _native_tools(draw: st.DrawFn) -> NativeTools:
    tools = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    choice = draw(st.sampled_from([AutoChoice(), RequiredChoice(), *map(NamedChoice, tools)]))
    return NativeTools(tuple(ToolDefinition(tool, draw(texts()), draw(schemas)) for tool in tools), choice)


constraints = st.one_of(st.just(TextConstraint()), st.builds(JsonSchema, names, schemas), _native_tools())
any_constraints = st.one_of(
    constraints,
    st.builds(JsonSchema, any_names, any_values),
    st.builds(
        NativeTools,
        st.lists(st.builds(ToolDefinition, any_names, texts(True), any_values), max_size=3).map(tuple),
        st.one_of(st.just(AutoChoice()), st.just(RequiredChoice()), st.builds(NamedChoice, any_names)),
    ),
)

_ids = st.sampled_from(["a", "b", "c", "call_1", "é", "\x1c"])


@st.composite
def blocks(draw: st.DrawFn, parallel: int = 3) -> list[Any]:
    """An assistant message with calls and their results, in any order."""
    ids = draw(st.lists(_ids, min_size=1, max_size=parallel, unique=True))
    calls = tuple(ToolCall(call_id, draw(names), draw(json_objects)) for call_id in ids)
    content = draw(st.one_of(st.none(), texts()))
    results = [ToolMessage(call_id, draw(texts())) for call_id in draw(st.permutations(ids))]
    return [AssistantMessage(content, calls), *results]


any_calls = st.builds(ToolCall, _ids, any_names, st.one_of(any_objects, any_values))
any_messages = st.one_of(
    st.builds(SystemMessage, texts(True)),
    st.builds(UserMessage, texts(True)),
    st.builds(AssistantMessage, st.one_of(st.none(), texts(True))),
    st.builds(ToolMessage, st.one_of(_ids, any_names), texts(True)),
    st.builds(AssistantMessage, st.one_of(st.none(), texts()), st.lists(any_calls, max_size=3).map(tuple)),
)

targets = st.builds(ContextTarget, names, names)
requests = st.builds(GenerationRequest, st.lists(any_messages, max_size=6).map(tuple), any_constraints)


# --- build inputs --------------------------------------------------------------------

_omitted = st.builds(OmittedEvent, names, st.integers(0, U64_MAX), st.sampled_from(OmissionReason))


@st.composite
def histories(draw: st.DrawFn) -> ConversationProjection:
    """Ended turns, their groups in order, each with its events."""
    turns, groups, event = [], [], 0
    for i in range(draw(st.integers(0, 6))):
        turn = draw(st.sampled_from([f"t{i}", f"turn {i}", f"回合{i}"]))
        state = draw(st.sampled_from([state for state in TurnState if state is not TurnState.OPEN]))
        turns.append(ProjectedTurn(turn, state, draw(st.sampled_from([None, f"e{i}"])), draw(st.booleans())))
        for kind in draw(st.lists(st.sampled_from(GroupKind), max_size=4)):
            if kind is GroupKind.USER:
                messages: list[Any] = [UserMessage(draw(texts()))]
            elif kind is GroupKind.ASSISTANT:
                messages = [AssistantMessage(draw(texts()))]
            else:
                messages = draw(blocks(parallel=1))
            events = tuple(f"e{event + k}" for k in range(draw(st.integers(1, 2))))
            event += len(events)
            groups.append(ProjectionGroup(turn, kind, events, tuple(messages)))
    omitted = tuple(draw(st.lists(_omitted, max_size=2)))
    tail = draw(st.sampled_from([None, "e9"]))
    return ConversationProjection(
        1, draw(names), tail, event, ProjectionConfig(), tuple(groups), tuple(turns), omitted
    )


@st.composite
def build_inputs(draw: st.DrawFn) -> ContextBuildInput:
    """Inputs that break no rule, in windows that make removals needed, and now and then too small."""
    history = draw(histories())
    current: list[Any] = [UserMessage(draw(texts()))]
    for _ in range(draw(st.integers(0, 2))):
        current += draw(st.one_of(blocks(), st.just([UserMessage("more")]), st.just([AssistantMessage("")])))
    turn_ids = [turn.turn_id for turn in history.turns]
    pins = draw(st.lists(st.sampled_from(turn_ids), unique=True)) if turn_ids and draw(st.booleans()) else []
    input = ContextBuildInput(
        history,
        tuple(current),
        draw(targets),
        ContextBudget(U64_MAX, 1),
        tuple(draw(st.lists(texts(), max_size=2))),
        draw(constraints),
        tuple(pins),
        draw(st.sampled_from([None, "v1"])),
    )
    budget, limits = draw(budgets(input)), draw(limits_for(input))
    return replace(input, budget=budget, limits=limits)


def replace(struct: Any, **changes: Any) -> Any:
    """The struct with other fields, checked by nothing but the constructor."""
    fields = {name: getattr(struct, name) for name in struct.__struct_fields__}
    return type(struct)(**(fields | changes))


@st.composite
def budgets(draw: st.DrawFn, input: ContextBuildInput) -> ContextBudget:
    messages = [m for group in input.history.groups for m in group.messages] + list(input.current)
    length = sum(map(PY.json_length, messages)) + PY.json_length(input.constraint)
    reserve, margin = draw(st.sampled_from([(1, 0), (50, 7), (1000, 0)]))
    share = draw(st.floats(0.2, 1.2))
    tokens = draw(st.sampled_from([length + 17, length // 4]))
    mode = draw(st.sampled_from([*[TokenBudgetMode.SOFT] * 4, TokenBudgetMode.HARD]))
    evidence = TokenBoundEvidence.ESTIMATE
    if mode is TokenBudgetMode.HARD:
        evidence = TokenBoundEvidence.VERIFIED_UPPER_BOUND
    return ContextBudget(int(share * tokens) + reserve + margin, reserve, evidence, margin, mode)


@st.composite
def limits_for(draw: st.DrawFn, input: ContextBuildInput) -> ContextBuildLimits:
    """The defaults, or limits at the very edge of the input."""
    if draw(st.integers(0, 5)):
        return ContextBuildLimits()
    groups, turns = len(input.history.groups), len(input.history.turns)
    messages = len(input.system) + len(input.current) + sum(len(g.messages) for g in input.history.groups)
    step = st.sampled_from([0, 0, 0, 0, 0, 1, -1])
    return ContextBuildLimits(
        max(1, input_length(input) + draw(step)),
        max(1, max(groups, turns) + draw(step)),
        max(1, messages + draw(step)),
        draw(st.integers(1, 4)),
    )


# --- faults ------------------------------------------------------------------------------

_Fault = Callable[[st.DrawFn, ContextBuildInput], ContextBuildInput]


def _history(draw: st.DrawFn, input: ContextBuildInput) -> ContextBuildInput:
    history = input.history
    groups, turns = list(history.groups), list(history.turns)
    kind = draw(st.integers(0, 9))
    if kind == 0:
        turns += turns[:1]
    elif kind == 1:
        turns.insert(0, ProjectedTurn(draw(any_names), TurnState.FAILED, None, False))
    elif kind == 2:
        turns.append(ProjectedTurn("open", TurnState.OPEN, None, False))
    elif kind == 3:
        groups.reverse()
    elif kind == 4:
        groups.append(ProjectionGroup("nowhere", GroupKind.USER, ("e",), (UserMessage("x"),)))
    elif kind == 5:
        turns = turns[1:]
    elif kind == 6 and groups:
        at = draw(st.integers(0, len(groups) - 1))
        groups[at] = replace(groups[at], source_events=draw(st.sampled_from([(), ("\ud800",), ["e"]])))
    elif kind == 7 and groups:
        at = draw(st.integers(0, len(groups) - 1))
        shape = tuple(draw(st.lists(any_messages, max_size=2)))
        groups[at] = replace(groups[at], kind=draw(st.sampled_from(GroupKind)), messages=shape)
    elif kind == 8:
        version = draw(st.sampled_from([0, 2, U64_MAX]))
        return replace(input, history=replace(history, algorithm_version=version))
    else:
        return replace(input, history=replace(history, session_id=draw(st.sampled_from(["", "\ud800"]))))
    return replace(input, history=replace(history, groups=tuple(groups), turns=tuple(turns)))


def _current(draw: st.DrawFn, input: ContextBuildInput) -> ContextBuildInput:
    current = list(input.current)
    at = draw(st.integers(0, len(current)))
    kind = draw(st.integers(0, 2))
    if kind == 0:
        current.insert(at, draw(any_messages))
    elif kind == 1:
        del current[at : at + 1]
    else:
        current = draw(st.lists(any_messages, max_size=3))
    return replace(input, current=tuple(current))


def _pins(draw: st.DrawFn, input: ContextBuildInput) -> ContextBuildInput:
    more = draw(st.sampled_from([("nowhere",), ("t0", "t0")]))
    return replace(input, pinned_turns=(*input.pinned_turns, *more))


def _figures(draw: st.DrawFn, input: ContextBuildInput) -> ContextBuildInput:
    edges = st.sampled_from([0, 1, 2**63, U64_MAX - 1, U64_MAX])
    mode, evidence = draw(st.sampled_from(TokenBudgetMode)), draw(st.sampled_from(TokenBoundEvidence))
    return replace(input, budget=ContextBudget(draw(edges), draw(edges), evidence, draw(edges), mode))


def _limits(draw: st.DrawFn, input: ContextBuildInput) -> ContextBuildInput:
    name = draw(st.sampled_from(ContextBuildLimits.__struct_fields__))
    return replace(input, limits=replace(input.limits, **{name: draw(st.sampled_from([0, 1, 2, 300]))}))


def _target(draw: st.DrawFn, input: ContextBuildInput) -> ContextBuildInput:
    anything = st.sampled_from([*BLANKS, *NOT_BLANKS, "\ud800"])
    return replace(input, target=ContextTarget(draw(anything), draw(anything)))


def _constraint(draw: st.DrawFn, input: ContextBuildInput) -> ContextBuildInput:
    return replace(input, constraint=draw(any_constraints))


def _texts(draw: st.DrawFn, input: ContextBuildInput) -> ContextBuildInput:
    bad = draw(texts(True))
    return replace(input, system=(*input.system, bad), state_version=draw(st.sampled_from([None, bad])))


_faults: list[_Fault] = [_history, _current, _pins, _figures, _limits, _target, _constraint, _texts]
_faults += [_history, _current] * 3


@st.composite
def any_build_inputs(draw: st.DrawFn) -> ContextBuildInput:
    """Inputs with up to three things changed for the worse."""
    input = replace(draw(build_inputs()), limits=ContextBuildLimits())
    for fault in draw(st.lists(st.sampled_from(_faults), min_size=1, max_size=3)):
        input = fault(draw, input)
    return input


# --- counters -----------------------------------------------------------------------------


class Table:
    """Additive: figures by the length of a message, from a list; some figures may be none at all."""

    def __init__(self, figures: list[Any], method: str, evidence: TokenBoundEvidence, template: Any) -> None:
        self.figures = figures
        self.method = method
        self.evidence = evidence
        self.template_tokens = template

    def message_tokens(self, message: Any) -> Any:
        figure = self.figures[PY.json_length(message) % len(self.figures)]
        if isinstance(figure, Exception):
            raise figure
        return figure

    constraint_tokens = message_tokens


_evidence = st.sampled_from(TokenBoundEvidence)
_figures_given = st.one_of(
    *[st.integers(0, 100)] * 5,
    st.sampled_from([2**62, 2**63, U64_MAX, -1, 2**64, True, 1.0, None, ValueError("no"), KeyError("k")]),
)
_methods = st.sampled_from(["m", "m", "m", "m", " "])
tables = st.builds(
    Table, st.lists(_figures_given, min_size=1, max_size=3), _methods, _evidence, _figures_given
)
_parts = st.one_of(*[st.integers(0, 500)] * 6, st.sampled_from([0, 2**63, U64_MAX]))
_counts = st.fixed_dictionaries(dict.fromkeys(("system", "messages", "constraint", "template"), _parts))


@st.composite
def counters(draw: st.DrawFn, input: ContextBuildInput) -> Callable[[Any], Any]:
    """A function from engine to a fresh counter, so that both engines meet the same answers."""
    kind = draw(st.integers(0, 5))
    if kind <= 1:
        template = draw(st.sampled_from([0, 0, 32, 32, 32, U64_MAX]))
        return lambda engine: engine.byte_heuristic(template)
    if kind == 2:
        return lambda engine: ExactBytes()
    if kind <= 4:
        table = draw(tables)
        return lambda engine: table if kind == 3 else Whole(table)
    script = draw(st.lists(_counts, min_size=1, max_size=4))
    target = draw(st.sampled_from([*[input.target] * 4, ContextTarget("other", "r")]))
    method, evidence = draw(_methods), draw(_evidence)
    error = draw(st.sampled_from([None, None, "boom"]))
    return lambda engine: Scripted(script, target, method=method, evidence=evidence, error=error)
