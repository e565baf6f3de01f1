"""`fencepost agent renew`: begin the next life of an agent, so that whatever runs with the old credential is fenced."""

from __future__ import annotations

from fencepost.cli import acting, screen
from fencepost.cli.directory import resolve
from fencepost.cli.options import AsJson, Key, Target, key_or_new
from fencepost.cli.plain import one_line, plain
from fencepost.errors import FencepostError, Uncertain
from fencepost.mailbox.v1 import mailbox_pb2
from fencepost.sessions.v1 import sessions_pb2 as pb


def renew(target: Target, *, key: Key = None, as_json: AsJson = False) -> None:
    """Begin a new generation of an agent: a new credential; a program that runs with the old one is fenced."""
    operator = acting.as_operator()
    ident = key_or_new(key)

    async def work(
        services: acting.Services,
    ) -> tuple[pb.Agent, pb.BeginGenerationResponse, mailbox_pb2.OpenGenerationResponse]:
        agent = (await resolve(services, target)).agent
        return agent, *await begin_generation(services, agent, ident)

    agent, begun, opened = acting.call(operator, work)
    if as_json:
        fields = {"agent_id": agent.agent_id, "name": agent.name, **plain(begun), **plain(opened)}
        screen.put_json({**fields, "idempotency_key": ident})
        return
    name = one_line(agent.name)
    stood = " already stood, begun by an earlier call with this key" if begun.duplicate else " has begun"
    screen.put(f"Generation {begun.generation} of {name} ({agent.agent_id}){stood}.")
    screen.put(f"  Credential  {begun.credential_file}")
    screen.put("A program that runs with the old credential is fenced: start it again, it then reads the new one.")
    for record_id in opened.uncertain_record_ids:
        screen.put(f"Uncertain: {record_id}, which the old generation had claimed.")
    if opened.uncertain_count > len(opened.uncertain_record_ids):
        screen.put(f"Uncertain: {opened.uncertain_count - len(opened.uncertain_record_ids)} more.")
    for request in opened.open_requests:
        screen.put(f"Open: {request.request_id} from {one_line(request.sender.name)} waits for {name}'s reply.")


async def begin_generation(
    services: acting.Services, agent: pb.Agent, key: str
) -> tuple[pb.BeginGenerationResponse, mailbox_pb2.OpenGenerationResponse]:
    """Begin an agent's next generation in the directory, and open it in the mailbox.

    Raises:
        FencepostError: it was not begun; Uncertain with `idempotency_key`: finish it with the same key.
    """
    try:
        begun = await services.sessions.begin_generation(
            pb.BeginGenerationRequest(idempotency_key=key, agent_id=agent.agent_id)
        )
    except Uncertain as error:
        error.state = {**error.state, "idempotency_key": key}
        raise
    opening = mailbox_pb2.OpenGenerationRequest(agent_id=agent.agent_id, generation=begun.generation)
    try:
        return begun, await services.mailbox.open_generation(opening)
    except FencepostError as error:
        raise _half_done(error, agent, begun.generation, key) from error


def _half_done(error: FencepostError, agent: pb.Agent, generation: int, key: str) -> Uncertain:
    """Tell that the directory has begun the generation and that the mailbox has not confirmed it."""
    return Uncertain(
        error.reason,
        f"generation {generation} of {agent.name} has begun and its credential is written; the mailbox has not"
        f" confirmed it: {error.message}",
        hint=f"Finish it: fencepost agent renew {agent.agent_id} --idempotency-key {key}",
        state={**error.state, "idempotency_key": key, "generation": str(generation)},
    )
