"""ullage: fit a growing conversation into a model's context window.

Counts the whole request, reserves room for the answer, drops the oldest whole
turns until it fits, and reports every count and every turn dropped.
"""

from . import errors, estimate, scope, threshold
from ._core import json_length, json_text_length
from .batch import TranscriptBatch
from .budget import ContextBudget, ContextBuildLimits, ContextTarget, TokenBoundEvidence, TokenBudgetMode
from .builder import CanonicalContextBuilder
from .contract import ContextBuilder
from .counters import ByteHeuristicCounter
from .counting import AdditiveTokenCounter, ContextTokenCounter
from .errors import *  # noqa: F403
from .estimate import *  # noqa: F403
from .events import SessionEvent
from .fit import FitResult, fit
from .fitted import FittedContext
from .history import (
    ConversationProjection,
    GroupKind,
    LegacyReplies,
    OmissionReason,
    OmittedEvent,
    ProjectedTurn,
    ProjectionConfig,
    ProjectionGroup,
    TurnState,
)
from .journal import read_journal, read_sessions
from .messages import (
    AssistantMessage,
    AutoChoice,
    Constraint,
    GenerationRequest,
    JsonSchema,
    Message,
    NamedChoice,
    NativeTools,
    RequiredChoice,
    SystemMessage,
    TextConstraint,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from .narrow import HistoryShare, ThresholdSource, narrowed_budget
from .projection import CanonicalConversationProjector, history_and_current
from .rebudgeted import BatchStatus, RebudgetedBatch
from .report import (
    BuiltContext,
    ContextBuildInput,
    ContextBuildReport,
    ContextCountAttempt,
    ContextTokenBreakdown,
    ContextTokenCount,
    ContextTurnSelection,
)
from .scope import *  # noqa: F403
from .threshold import *  # noqa: F403
from .transcript import MessageRole, Transcript, TranscriptArrays

__version__ = "0.1.0"

__all__ = [
    *errors.__all__,
    *estimate.__all__,
    *scope.__all__,
    *threshold.__all__,
    "AdditiveTokenCounter",
    "AssistantMessage",
    "AutoChoice",
    "BatchStatus",
    "BuiltContext",
    "ByteHeuristicCounter",
    "CanonicalContextBuilder",
    "CanonicalConversationProjector",
    "Constraint",
    "ContextBudget",
    "ContextBuildInput",
    "ContextBuildLimits",
    "ContextBuildReport",
    "ContextBuilder",
    "ContextCountAttempt",
    "ContextTarget",
    "ContextTokenBreakdown",
    "ContextTokenCount",
    "ContextTokenCounter",
    "ContextTurnSelection",
    "ConversationProjection",
    "FitResult",
    "FittedContext",
    "GenerationRequest",
    "GroupKind",
    "HistoryShare",
    "JsonSchema",
    "LegacyReplies",
    "Message",
    "MessageRole",
    "NamedChoice",
    "NativeTools",
    "OmissionReason",
    "OmittedEvent",
    "ProjectedTurn",
    "ProjectionConfig",
    "ProjectionGroup",
    "RebudgetedBatch",
    "RequiredChoice",
    "SessionEvent",
    "SystemMessage",
    "TextConstraint",
    "ThresholdSource",
    "TokenBoundEvidence",
    "TokenBudgetMode",
    "ToolCall",
    "ToolChoice",
    "ToolDefinition",
    "ToolMessage",
    "Transcript",
    "TranscriptArrays",
    "TranscriptBatch",
    "TurnState",
    "UserMessage",
    "fit",
    "history_and_current",
    "json_length",
    "json_text_length",
    "narrowed_budget",
    "read_journal",
    "read_sessions",
]
