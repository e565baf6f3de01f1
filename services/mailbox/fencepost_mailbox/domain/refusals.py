"""Every way in which the mailbox says no.

A refusal wrote nothing; its reason is stable and public (docs/reference/errors.md).
"""

from __future__ import annotations

from fencepost_kit.refusal import Refusal


class MailboxRefusal(Refusal):
    """Base of the mailbox's own refusals."""

    reason = "refused"


class InvalidMessage(MailboxRefusal):
    """The body is blank, too long, or not text."""

    reason = "invalid_message"


class InvalidIdempotencyKey(MailboxRefusal):
    """The key is empty or too long."""

    reason = "invalid_idempotency_key"


class IdempotencyConflict(MailboxRefusal):
    """The key stands for a call with other content."""

    reason = "idempotency_conflict"


class KeyCancelled(MailboxRefusal):
    """The key was settled as cancelled: a late arrival of its call writes nothing."""

    reason = "key_cancelled"


class InvalidLimit(MailboxRefusal):
    """A number is outside its documented range."""

    reason = "invalid_limit"


class InvalidTimeout(MailboxRefusal):
    """A wait is outside its documented range."""

    reason = "invalid_timeout"


class InvalidCursor(MailboxRefusal):
    """The cursor is malformed or another recipient's."""

    reason = "invalid_cursor"


class ExpiredCursor(MailboxRefusal):
    """The cursor was issued by another store than this one."""

    reason = "expired_cursor"


class InvalidTarget(MailboxRefusal):
    """The target is not one exact name or UUID."""

    reason = "invalid_target"


class AmbiguousTarget(MailboxRefusal):
    """Several agents have the name."""

    reason = "ambiguous_target"


class NotFound(MailboxRefusal):
    """No such agent or record, or none that the caller may see."""

    reason = "not_found"


class AgentDeleted(MailboxRefusal):
    """The agent is being deleted, or was: nothing is taken for it or from it any more."""

    reason = "agent_deleted"


class SelfRequest(MailboxRefusal):
    """An agent asked itself to work."""

    reason = "self_request"


class Unauthorized(MailboxRefusal):
    """The caller is not the one who may do this to this record."""

    reason = "unauthorized"


class InvalidTask(MailboxRefusal):
    """The record is not a request."""

    reason = "invalid_task"


class ConflictingReply(MailboxRefusal):
    """The request has another answer already."""

    reason = "conflicting_reply"


class Withdrawn(MailboxRefusal):
    """The request was taken back by its sender."""

    reason = "withdrawn"


class StaleGeneration(MailboxRefusal):
    """The caller is an earlier life of the agent."""

    reason = "stale_generation"


class StaleIncarnation(MailboxRefusal):
    """The dispatcher has been started again since."""

    reason = "stale_incarnation"


class StaleClaim(MailboxRefusal):
    """The token does not hold the record, or not under this generation."""

    reason = "stale_claim"


class ConflictingOutcome(MailboxRefusal):
    """The claim has another outcome already."""

    reason = "conflicting_outcome"


class StaleBinding(MailboxRefusal):
    """No such turn is bound under the claim."""

    reason = "stale_binding"


class InvalidBinding(MailboxRefusal):
    """The turn is not named as a turn must be, or where none can be bound."""

    reason = "invalid_binding"


class NotPending(MailboxRefusal):
    """Somebody may have seen the request already, or it is settled."""

    reason = "not_pending"


class HopLimit(MailboxRefusal):
    """Too many requests of agents led to this one."""

    reason = "hop_limit"


class InvalidAttributes(MailboxRefusal):
    """A subject is too long or has several lines, or reply_to belongs to another thread than the one named."""

    reason = "invalid_attributes"


class InvalidQuery(MailboxRefusal):
    """What is searched for has no word, or is too much."""

    reason = "invalid_query"


class NotShown(MailboxRefusal):
    """The record was not shown to its recipient yet, so it cannot be acknowledged."""

    reason = "not_shown"


class InvalidState(MailboxRefusal):
    """The event is not possible from the state the record is in."""

    reason = "invalid_state"


class DirectoryStale(MailboxRefusal):
    """The agent directory has not been heard from for too long to honour an operator or a name."""

    reason = "dependency_unavailable"
    may_resend = True


class StorageError(MailboxRefusal):
    """The disk refused before anything was committed."""

    reason = "storage_error"
    may_resend = True
