"""The expected answer "no" of providers; nothing was written or changed."""

from __future__ import annotations

from fencepost_kit.refusal import Refusal


class ProvidersRefusal(Refusal):
    """A refusal of this service."""

    reason = "providers_refused"


class NotFound(ProvidersRefusal):
    """No such agent, or none that the caller may see."""

    reason = "not_found"


class AmbiguousTarget(ProvidersRefusal):
    """A name that means agents of several projects."""

    reason = "ambiguous_target"


class UnknownProvider(ProvidersRefusal):
    """No adapter of this name is installed, or it cannot be loaded."""

    reason = "unknown_provider"


class StaleTurn(ProvidersRefusal):
    """Another turn is in progress than the one that was observed."""

    reason = "stale_turn"


class ConversationConflict(ProvidersRefusal):
    """The agent has another conversation than the caller believes."""

    reason = "conversation_conflict"


class AgentOff(ProvidersRefusal):
    """A person does not want this agent to run."""

    reason = "agent_off"


class StillBusy(ProvidersRefusal):
    """The agent's turn did not end in time, or somebody else changes its runtime."""

    reason = "agent_busy"


class UnsupportedCapability(ProvidersRefusal):
    """This program, or this version of it, cannot do that."""

    reason = "unsupported_capability"


class CannotStart(ProvidersRefusal):
    """The program cannot be started as things are."""

    reason = "cannot_start"


class InvalidTools(ProvidersRefusal):
    """A tool that is none of ours, none at all, or too many."""

    reason = "invalid_tools"


class WatcherTooSlow(ProvidersRefusal):
    """A watcher read slower than the conversation spoke."""

    reason = "watcher_too_slow"


class TooManyWatchers(ProvidersRefusal):
    """The watches of this service are all taken."""

    reason = "too_many_watchers"


class StorageError(ProvidersRefusal):
    """The disk did not take it; nothing was written."""

    reason = "storage_error"
    may_resend = True
