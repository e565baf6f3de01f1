"""The calls that no agent makes: a dispatcher that races the readers for requests, and the person who runs the home."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from fencepost_chaos.faces import GrpcFace, RecordedMailbox, RecordedSessions
from fencepost_chaos.history import Claimed, Directed, Log, Outcome, now_ns
from fencepost_chaos.workload import Peer, answer

from fencepost.common.v1 import common_pb2
from fencepost.errors import FencepostError, Refused
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2

PURSUED_S_MAX: Final = 60.0
PURSUE_PAUSE_S: Final = 0.1
IDLE_PAUSE_S: Final = 0.03
DIRECTORY_PAUSE_MS: Final = (5, 40)
CREATED_MAX: Final = 150
CLAIM_TERM_MS: Final = 600_000
_MAY_RESEND: Final = frozenset({"draining", "overloaded", "dependency_unavailable", "storage_error"})

T = TypeVar("T")


async def pursued(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call whose repetition changes nothing more, until it is answered.

    Raises:
        Refused: the answer was no, for another reason than that the service could not be asked.
        FencepostError: there was no answer within PURSUED_S_MAX.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + PURSUED_S_MAX
    while True:
        try:
            return await call()
        except Refused as refused:
            if refused.reason not in _MAY_RESEND or clock() > until:
                raise
        except FencepostError:
            if clock() > until:
                raise
        await asyncio.sleep(PURSUE_PAUSE_S)


class Dispatcher:
    """Claims requests of agents that also read for themselves, says that they were accepted, and answers them."""

    def __init__(
        self, *, name: str, mailbox: RecordedMailbox, faces: Sequence[tuple[Peer, GrpcFace]], log: Log, seed: str
    ) -> None:
        self._name = name
        self._mailbox = mailbox
        self._faces = faces
        self._log = log
        self._dice = random.Random(f"{seed} {name}")
        self._id = str(uuid.UUID(int=self._dice.getrandbits(128)))
        self._count = 0
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Claim nothing more; what is claimed is carried to its end."""
        self._stopping.set()

    async def run(self) -> None:
        """Claim until stopped."""
        while not self._stopping.is_set():
            peer, face = self._dice.choice(self._faces)
            claim = await self._claim(peer)
            if claim is None:
                await asyncio.sleep(IDLE_PAUSE_S)
                continue
            await pursued(
                lambda taken=claim: self._mailbox.finish(  # type: ignore[misc]
                    pb.FinishRequest(
                        token=taken.token,
                        generation=taken.generation,
                        outcome=pb.CLAIM_OUTCOME_ACCEPTED,
                        evidence="chaos: accepted",
                    )
                )
            )
            await answer(face, claim.record.record_id, claim.record.sender.agent_id, self._op_id)

    def _op_id(self, kind: str) -> str:
        self._count += 1
        return f"{self._name}-{kind}-{self._count}"

    async def _claim(self, peer: Peer) -> Any:
        key = self._op_id("claim")
        ask = pb.ClaimRequest(
            agent_id=peer.agent_id,
            generation=1,
            dispatcher_id=self._id,
            incarnation=1,
            kind=pb.CLAIM_KIND_REQUEST,
            term_ms=CLAIM_TERM_MS,
            idempotency_key=key,
        )
        claimed = await pursued(lambda: self._mailbox.claim(ask))
        if not claimed.HasField("claim"):
            return None
        self._log.add(
            Claimed(
                client=self._name,
                key=key,
                token=claimed.claim.token,
                record_id=claimed.claim.record.record_id,
                at_ns=now_ns(),
            )
        )
        return claimed.claim


class Operator:
    """Creates agents, changes one, and begins lives of it, one keyed call after the other."""

    def __init__(
        self,
        *,
        name: str,
        sessions: RecordedSessions,
        mailbox: RecordedMailbox,
        victim: Peer,
        project_id: str,
        log: Log,
        seed: str,
    ) -> None:
        self._name = name
        self._sessions = sessions
        self._mailbox = mailbox
        self._victim = victim
        self._project_id = project_id
        self._log = log
        self._dice = random.Random(f"{seed} {name}")
        self._count = 0
        self._created = 0
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin nothing new."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until stopped."""
        calls = {"create": self._create, "begin": self._begin, "update": self._update}
        while not self._stopping.is_set():
            call = self._dice.choices(tuple(calls), (0.2, 0.4, 0.4))[0]
            if call == "create" and self._created >= CREATED_MAX:
                call = "begin"
            self._count += 1
            key, losses = f"{self._name}-{call}-{self._count}", self._sessions.losses
            subject, result, outcome, reason = self._victim.agent_id, "", Outcome.DONE, ""
            try:
                subject, result = await calls[call](key)
            except FencepostError as error:
                outcome, reason = Outcome(error.outcome), error.reason
            self._log.add(
                Directed(
                    client=self._name,
                    call=call,
                    key=key,
                    subject=subject,
                    outcome=outcome,
                    reason=reason,
                    result=result,
                    lost=self._sessions.losses - losses,
                )
            )
            await asyncio.sleep(self._dice.uniform(*DIRECTORY_PAUSE_MS) / 1000)

    async def _create(self, key: str) -> tuple[str, str]:
        self._created += 1
        ask = sessions_pb2.CreateAgentRequest(
            idempotency_key=key, project_id=self._project_id, name=key, role=common_pb2.ROLE_AGENT
        )
        created = await pursued(lambda: self._sessions.create_agent(ask))
        return key, created.agent.agent_id

    async def _begin(self, key: str) -> tuple[str, str]:
        ask = sessions_pb2.BeginGenerationRequest(idempotency_key=key, agent_id=self._victim.agent_id)
        begun = await pursued(lambda: self._sessions.begin_generation(ask))
        life = pb.OpenGenerationRequest(agent_id=self._victim.agent_id, generation=begun.generation)
        await pursued(lambda: self._mailbox.open_generation(life))
        return self._victim.agent_id, str(begun.generation)

    async def _update(self, key: str) -> tuple[str, str]:
        ask = sessions_pb2.UpdateAgentRequest(idempotency_key=key, agent_id=self._victim.agent_id, provider=key)
        updated = await pursued(lambda: self._sessions.update_agent(ask))
        return self._victim.agent_id, updated.agent.provider
