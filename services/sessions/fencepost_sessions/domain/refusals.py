"""The expected answers that are not results: each wrote nothing. translate.py gives each its gRPC status."""

from __future__ import annotations

from fencepost_kit.refusal import Refusal


class InvalidName(Refusal):
    """A name breaks the rules of names."""

    reason = "invalid_name"


class NameTaken(Refusal):
    """Another agent of the project has this name, perhaps in other case or normal form."""

    reason = "name_taken"


class NameQuarantined(Refusal):
    """Another agent gave this name up less than QUARANTINE_MS ago. The same call succeeds once that time has passed."""

    reason = "name_quarantined"
    may_resend = True


class InvalidRole(Refusal):
    """A role that an agent cannot have."""

    reason = "invalid_role"


class InvalidProvider(Refusal):
    """A provider name breaks its rules."""

    reason = "invalid_provider"


class InvalidWorkspace(Refusal):
    """A workspace is no absolute path."""

    reason = "invalid_workspace"


class InvalidLocation(Refusal):
    """A project's location or kind is not valid."""

    reason = "invalid_location"


class ConflictingKind(Refusal):
    """The project at this location stands with another kind."""

    reason = "conflicting_kind"


class InvalidTarget(Refusal):
    """A target is neither an exact name nor a UUID."""

    reason = "invalid_target"


class AmbiguousTarget(Refusal):
    """A name means agents of several projects."""

    reason = "ambiguous_target"


class NotFound(Refusal):
    """There is no such thing, or none that the caller may see."""

    reason = "not_found"


class InvalidIdempotencyKey(Refusal):
    """A key is empty or over IDEMPOTENCY_KEY_BYTES_MAX."""

    reason = "invalid_idempotency_key"


class IdempotencyConflict(Refusal):
    """The key was used for other content."""

    reason = "idempotency_conflict"


class StaleGeneration(Refusal):
    """The caller's idea of the current generation is not current."""

    reason = "stale_generation"


class InvalidLimit(Refusal):
    """A page size out of range."""

    reason = "invalid_limit"


class InvalidCursor(Refusal):
    """A page token that this list did not give out."""

    reason = "invalid_cursor"


class LimitReached(Refusal):
    """The home holds as many of these as it can."""

    reason = "limit_reached"


class AgentDeleted(Refusal):
    """The agent is being deleted, or was."""

    reason = "agent_deleted"


class ConfirmationMismatch(Refusal):
    """The name typed for confirmation is not the agent's."""

    reason = "confirmation_mismatch"


class InvalidState(Refusal):
    """The agent is not where this step of its deletion begins."""

    reason = "invalid_state"


class InvalidToolsProfile(Refusal):
    """A tools profile names something else than families of tools."""

    reason = "invalid_tools_profile"


class InvalidLaunchSettings(Refusal):
    """A launch setting breaks its rule, or all together are too long."""

    reason = "invalid_launch_settings"


class InvalidCustomArguments(Refusal):
    """Custom arguments that a POSIX shell could not split into words."""

    reason = "invalid_custom_arguments"


class InvalidDesiredState(Refusal):
    """A desired state that this version does not know."""

    reason = "invalid_desired_state"


class InvalidConversation(Refusal):
    """A conversation's name breaks its rules, or is the name of something else."""

    reason = "invalid_conversation"


class ConversationConflict(Refusal):
    """The agent is bound to another conversation, or another agent to this one."""

    reason = "conversation_conflict"


class InvalidLease(Refusal):
    """What was asked of a lease breaks its rules."""

    reason = "invalid_lease"


class LeaseHeld(Refusal):
    """Somebody else holds the agent or its conversation."""

    reason = "lease_held"


class LeaseLost(Refusal):
    """The acquisition holds nothing, or no longer."""

    reason = "lease_lost"


class InvalidStatus(Refusal):
    """A report of what was observed breaks its rules."""

    reason = "invalid_status"


class StaleStatus(Refusal):
    """A later report of the same life stands."""

    reason = "stale_status"


class InvalidRevision(Refusal):
    """A follower speaks of a revision that this directory has not reached."""

    reason = "invalid_revision"


class EpochMismatch(Refusal):
    """A follower speaks of another directory than this one."""

    reason = "epoch_mismatch"


class StorageError(Refusal):
    """The disk failed before the change was made durable: nothing of it is written."""

    reason = "storage_error"
    may_resend = True
