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


class InvalidCommit(ProvidersRefusal):
    """A commit that is no full object id."""

    reason = "invalid_commit"


class InvalidState(ProvidersRefusal):
    """A task that is not accepted, or is integrated already."""

    reason = "invalid_state"


class VersionConflict(ProvidersRefusal):
    """The task has another version than the caller believes."""

    reason = "version_conflict"


class RequestConflict(ProvidersRefusal):
    """A request_id that stands for another call."""

    reason = "request_conflict"


class TaskRefused(ProvidersRefusal):
    """The mailbox does not take the record, for a reason that the state names."""

    reason = "task_refused"


class GitUnavailable(ProvidersRefusal):
    """No git is installed here, or one that is too old."""

    reason = "git_unavailable"


class GitFailed(ProvidersRefusal):
    """A git command failed, or took too long, before anything was changed."""

    reason = "git_failed"


class NoMainCheckout(ProvidersRefusal):
    """The project has no main checkout on a branch with a commit."""

    reason = "no_main_checkout"


class CheckoutBusy(ProvidersRefusal):
    """Somebody else works in the main checkout with git: a lock, a merge or rebase that is not finished."""

    reason = "checkout_busy"


class CheckoutDirty(ProvidersRefusal):
    """The main checkout has changes that are not committed, or files in the way."""

    reason = "checkout_dirty"


class UnknownCommit(ProvidersRefusal):
    """The commit is neither in the main repository nor in the assignee's checkout."""

    reason = "unknown_commit"


class IncompleteHistory(ProvidersRefusal):
    """Objects of the commit or its history are missing, or there is no common history."""

    reason = "incomplete_history"


class MergeConflict(ProvidersRefusal):
    """The commit does not merge without conflicts."""

    reason = "merge_conflict"


class FilteredFiles(ProvidersRefusal):
    """Files of the change are converted by a program that this service does not run."""

    reason = "filtered_files"


class ChangeTooLarge(ProvidersRefusal):
    """A change with more paths than can be looked at."""

    reason = "change_too_large"


class BranchMoved(ProvidersRefusal):
    """The main checkout or its branch changed meanwhile; what was merged was thrown away."""

    reason = "branch_moved"
    may_resend = True
