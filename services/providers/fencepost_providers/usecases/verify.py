"""VerifyEvidence: who has a part in a task may have its evidence looked at."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost_kit.identity import Caller, Role
from fencepost_kit.ids import uuid_text
from fencepost_providers.domain.integration import TaskFacts
from fencepost_providers.domain.refusals import NotFound
from fencepost_providers.domain.verification import Checked, check_asked
from fencepost_providers.usecases.ports import Ports


async def verify_evidence(
    ports: Ports, caller: Caller, *, task_id: str, evidence_ids: Sequence[str]
) -> Sequence[Checked]:
    """Look at evidence in the assignee's checkout, and record what was found.

    Raises:
        Malformed: the ids can mean nothing.
        NotFound: no such task, or one in which the caller has no part; nothing was read.
        Others: see Verifications.
    """
    ports.directory.check_fresh()
    check_asked(task_id, evidence_ids)
    facts = await ports.integrations.task(task_id)
    asked_by = "" if caller.agent_id is None else uuid_text(caller.agent_id)
    if not _has_part(facts, caller, asked_by):
        raise NotFound("no task in which you have a part has this id; nothing was read")
    reported = await ports.verifications.reported(task_id, evidence_ids)
    agent = ports.directory.agent(facts.assignee_id)
    folder = "" if agent is None else agent.launch.checkout_root or agent.workspace
    return await ports.verifications.verify(task_id, reported, folder=folder, asked_by=asked_by)


def _has_part(facts: TaskFacts, caller: Caller, agent_id: str) -> bool:
    if caller.role is Role.OPERATOR:
        return True
    if caller.project_id is None or uuid_text(caller.project_id) != facts.project_id:
        return False
    parts = {facts.issuer_id, facts.assignee_id, facts.reviewer_id} - {""}
    return caller.role is Role.COORDINATOR or agent_id in parts
