"""What keeps contexts, and what lets them go: tasks that refer to them, and projects that nobody uses (T014 T091)."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost_kit.values import value
from fencepost_mailbox.domain.context.values import PROJECT_OPEN_MS, SWEPT_VERSIONS_MAX
from fencepost_mailbox.domain.refusals import NotFound
from fencepost_mailbox.domain.tasks.values import ContextRef
from fencepost_mailbox.store.protocol import Applied, Transaction


def pin_snapshots(
    tx: Transaction, project_id: bytes, refs: Sequence[ContextRef], task_id: bytes
) -> tuple[ContextRef, ...]:
    """Return references with the versions that they mean now, and keep these versions for the task from here on.

    For the transaction that gives the task: what it refers to is what its issuer could read then, whatever is published
    later.

    Raises:
        NotFound: the project has no such context, or not in this version; the state names it.
    """
    pinned = []
    for ref in refs:
        topic = tx.context.topic(project_id, ref.key)
        version = ref.version or (topic.newest if topic is not None else 0)
        if topic is None or tx.context.version(project_id, ref.key, version) is None:
            raise NotFound(
                "a context that the task refers to is not there, or not in this version; nothing was written",
                hint="List what the project has with context_list, or publish it first.",
                state={"key": ref.key, "version": str(ref.version)},
            )
        tx.context.refer(project_id, ref.key, version, task_id)
        pinned.append(ContextRef(key=ref.key, version=version))
    return tuple(pinned)


@value(frozen=True, kw_only=True, slots=True)
class NotingActivity:
    """Write when agents of projects last called."""

    projects: Sequence[tuple[bytes, int]]

    def apply(self, tx: Transaction) -> Applied[None]:
        """Write it."""
        tx.context.note_active(self.projects)
        return Applied(value=None)


@value(frozen=True, kw_only=True, slots=True)
class Sweeping:
    """One chunk of letting go of what a project that is not open has not pinned."""

    project_id: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[int]:
        """Remove at most SWEPT_VERSIONS_MAX versions; 0 where nothing is left to remove, or the project is open."""
        before_ms = self.now_ms - PROJECT_OPEN_MS
        if tx.context.open_since(self.project_id, before_ms):
            return Applied(value=0)
        return Applied(value=tx.context.sweep(self.project_id, before_ms, SWEPT_VERSIONS_MAX))
