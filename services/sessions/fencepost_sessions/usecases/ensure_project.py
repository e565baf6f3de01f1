"""EnsureProject: the project of a location, created where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from fencepost_sessions.domain.idempotency import Key, idempotency_key, same_content
from fencepost_sessions.domain.projects import (
    Project,
    ProjectPlace,
    check_room_for_project,
    check_same_kind,
    project_place,
)
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.store.protocol import Writing
from fencepost_sessions.usecases.answers import project_of_words, words_of_project
from fencepost_sessions.usecases.ports import Ports


@dataclass(frozen=True, kw_only=True, slots=True)
class EnsureProject:
    """The request as it came."""

    idempotency_key: str
    kind: int
    location: str
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectStands:
    """The project, and whether the first call with this key created it."""

    project: Project
    created: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ensuring:
    key: Key
    place: ProjectPlace
    project_id: bytes
    now_ms: int

    def apply(self, tx: Writing, /) -> ProjectStands:
        first = tx.first_answer(self.key)
        if first is not None:
            words = same_content(first, self.key)
            project = project_of_words(cast("dict[str, object]", words["project"]))
            return ProjectStands(project=project, created=bool(words["created"]))
        answer = self._stands(tx)
        words = {"project": words_of_project(answer.project), "created": answer.created}
        tx.remember(self.key, words, now_ms=self.now_ms)
        return answer

    def _stands(self, tx: Writing) -> ProjectStands:
        standing = tx.project_at(self.place.location)
        if standing is not None:
            check_same_kind(standing, self.place)
            return ProjectStands(project=standing, created=False)
        count = tx.project_count()
        check_room_for_project(count)
        project = Project(
            project_id=self.project_id,
            number=count + 1,
            kind=self.place.kind,
            location=self.place.location,
            name=self.place.name,
            created_at_ms=self.now_ms,
        )
        tx.insert_project(project)
        return ProjectStands(project=project, created=True)


async def ensure_project(ports: Ports, caller: Caller, request: EnsureProject) -> ProjectStands:
    """Return the project of a location; it is on disk.

    Raises:
        InvalidLocation, InvalidName, InvalidIdempotencyKey, IdempotencyConflict, ConflictingKind, LimitReached:
            nothing is written.
    """
    place = project_place(kind=request.kind, location=request.location, name=request.name)
    key = idempotency_key(
        scope=caller.scope,
        operation="EnsureProject",
        key=request.idempotency_key,
        content=(request.kind, request.location, request.name),
    )
    return await ports.store.commit(
        _Ensuring(key=key, place=place, project_id=ports.new_id(), now_ms=ports.clock.now_ms())
    )
