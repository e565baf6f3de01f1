"""Every way in which a task says no. A refusal wrote nothing; its reason is public (docs/reference/errors.md)."""

from __future__ import annotations

from typing import Final

from fencepost_mailbox.domain.refusals import MailboxRefusal

# The specification's words.
ALREADY_RUNNING: Final = "An assigned task is already running"


class InvalidTaskField(MailboxRefusal):
    """A field is missing, too long, or outside its range; `field` in the state names it."""

    reason = "invalid_task_field"


class RequestConflict(MailboxRefusal):
    """The request_id stands for a call with other content."""

    reason = "request_conflict"


class VersionConflict(MailboxRefusal):
    """The task has changed since; the state tells how it stands."""

    reason = "version_conflict"


class StaleRevision(MailboxRefusal):
    """Another revision of the task is the current one."""

    reason = "stale_revision"


class StaleAttempt(MailboxRefusal):
    """Another attempt is the current one, or none is."""

    reason = "stale_attempt"


class AlreadyRunning(MailboxRefusal):
    """The agent executes another task."""

    reason = "already_running"


class NotNext(MailboxRefusal):
    """Another task stands before it in the agent's queue; `next` in the state names it."""

    reason = "not_next"


class DeadlinePassed(MailboxRefusal):
    """The time by which the task had to be started has passed."""

    reason = "deadline_passed"


class SelfReview(MailboxRefusal):
    """The one who does the work would review it."""

    reason = "self_review"


class DependencyCycle(MailboxRefusal):
    """The task would wait for itself."""

    reason = "dependency_cycle"


class DependencyLimit(MailboxRefusal):
    """Too many tasks would wait for one, or too many would have to be looked at."""

    reason = "dependency_limit"


class WorkRunning(MailboxRefusal):
    """The agent has a task in execution, so its turn cannot end as ready."""

    reason = "work_running"


class NotificationsUnread(MailboxRefusal):
    """The agent has notifications that it was not given in this run."""

    reason = "notifications_unread"
