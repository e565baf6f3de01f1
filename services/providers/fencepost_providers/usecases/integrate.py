"""IntegrateTask: a coordinator's word, checked before any repository is looked at."""

from __future__ import annotations

from fencepost_kit.identity import Caller, Role
from fencepost_kit.ids import uuid_text
from fencepost_providers.domain.integration import Integrated, Wanted, check_wanted
from fencepost_providers.domain.refusals import NotFound
from fencepost_providers.integrations import Work
from fencepost_providers.usecases.ports import Ports, project_of


async def integrate_task(
    ports: Ports, caller: Caller, *, task_id: str, commit: str, note: str, expected_version: int, request_id: str
) -> Integrated:
    """Bring accepted work into the main checkout of its project, and record it.

    Raises:
        Malformed, InvalidCommit: a field can mean nothing.
        NotFound: no such task, or one of another project.
        Others: see Integrations.
    """
    assert caller.role is Role.COORDINATOR, "the guard lets nobody else in"
    assert caller.agent_id is not None, "a coordinator is an agent"
    ports.directory.check_fresh()
    coordinator_id, project_id = uuid_text(caller.agent_id), project_of(caller)
    wanted = Wanted(
        task_id=task_id,
        commit=commit,
        note=note,
        expected_version=expected_version,
        request_id=request_id,
        coordinator_id=coordinator_id,
    )
    check_wanted(wanted)
    facts = await ports.integrations.task(task_id)
    coordinator = ports.directory.agent(coordinator_id)
    if facts.project_id != project_id or coordinator is None:
        raise NotFound("no task that you may see has this id; nothing was changed")

    def worker(agent_id: str) -> str:
        agent = ports.directory.agent(agent_id)
        return "" if agent is None else agent.launch.checkout_root or agent.workspace

    return await ports.integrations.integrate(
        Work(wanted=wanted, project_id=project_id, coordinator=coordinator.name, worker=worker)
    )
