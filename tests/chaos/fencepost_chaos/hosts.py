"""The calls that no agent makes: a dispatcher that races the readers for requests, and the person who runs the home."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

from fencepost_chaos.deleter import Deleter
from fencepost_chaos.faces import GrpcFace, RecordedMailbox, RecordedSessions
from fencepost_chaos.history import Began, Claimed, Directed, Log, Outcome, digest, now_ns
from fencepost_chaos.pursuit import pursued
from fencepost_chaos.workload import Peer, answer

from fencepost.common.v1 import common_pb2
from fencepost.errors import FencepostError, Refused
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2

IDLE_PAUSE_S: Final = 0.03
DIRECTORY_PAUSE_MS: Final = (5, 40)
LIVING_MAX: Final = 50
SHARES: Final = MappingProxyType({"create": 0.2, "begin": 0.3, "update": 0.29, "delete": 0.19, "lease": 0.02})
LEASE_TERM_MS: Final = 1_000
# A start of sessions grants a lease a whole term once more.
LEASE_TERMS_MAX: Final = 60
CLAIM_TERM_MS: Final = 600_000
# Of the claims, how many are bound to a turn whose end answers them; the others are answered by a reply.
BOUND_SHARE: Final = 0.5


class Dispatcher:
    """Claims requests of agents that also read for themselves, and answers them: by a reply, or by a turn's end."""

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
            if self._dice.random() < BOUND_SHARE:
                await self._carry(claim)
            else:
                await self._accept(claim, None)
                await answer(face, claim.record.record_id, claim.record.sender.agent_id, self._op_id)

    async def _accept(self, claim: pb.Claim, binding: pb.Binding | None) -> None:
        ask = pb.FinishRequest(
            token=claim.token,
            generation=claim.generation,
            outcome=pb.CLAIM_OUTCOME_ACCEPTED,
            evidence="chaos: accepted",
            binding=binding,
        )
        await pursued(lambda: self._mailbox.finish(ask))

    async def _carry(self, claim: pb.Claim) -> None:
        """Bind a request to a turn of its own and tell how that ended: the mailbox answers from it."""
        turn = self._op_id("turn")
        binding = pb.Binding(
            provider="chaos",
            provider_session_id=self._name,
            provider_turn_id=turn,
            admission_mode=pb.ADMISSION_MODE_START,
        )
        await self._accept(claim, binding)
        said = f"{turn} done"
        self._log.add(Began(op=turn, client=self._name, body=digest(said), at_ns=now_ns()))
        ask = pb.RecordOutcomeRequest(
            token=claim.token,
            generation=claim.generation,
            binding=binding,
            outcome=pb.TURN_OUTCOME_COMPLETED,
            final_text=said,
            final_bytes=len(said),
            evidence="chaos: completed",
        )
        await pursued(lambda: self._mailbox.record_outcome(ask))

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
    """Creates agents and deletes them, changes one, and begins lives of it, one keyed call after the other."""

    def __init__(
        self,
        *,
        name: str,
        sessions: RecordedSessions,
        mailbox: RecordedMailbox,
        deleter: Deleter,
        victim: Peer,
        project_id: str,
        log: Log,
        seed: str,
    ) -> None:
        self._name = name
        self._sessions = sessions
        self._mailbox = mailbox
        self._deleter = deleter
        self._victim = victim
        self._project_id = project_id
        self._log = log
        self._dice = random.Random(f"{seed} {name}")
        self._count = 0
        # Agents that were created and are not deleted yet.
        self._living: list[Peer] = []
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin nothing new."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until stopped."""
        calls = {
            "create": self._create,
            "begin": self._begin,
            "update": self._update,
            "delete": self._delete,
            "lease": self._lease,
        }
        while not self._stopping.is_set():
            call = self._dice.choices(tuple(calls), [SHARES[name] for name in calls])[0]
            if not self._living:
                call = "create"
            elif call == "create" and len(self._living) >= LIVING_MAX:
                call = "delete"
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
        ask = sessions_pb2.CreateAgentRequest(
            idempotency_key=key, project_id=self._project_id, name=key, role=common_pb2.ROLE_AGENT
        )
        created = await pursued(lambda: self._sessions.create_agent(ask))
        self._living.append(Peer(name=key, agent_id=created.agent.agent_id))
        return key, created.agent.agent_id

    async def _delete(self, key: str) -> tuple[str, str]:
        agent = self._living.pop(self._dice.randrange(len(self._living)))
        await self._deleter.delete(key, agent)
        return agent.agent_id, agent.name

    async def _begin(self, key: str) -> tuple[str, str]:
        ask = sessions_pb2.BeginGenerationRequest(idempotency_key=key, agent_id=self._victim.agent_id)
        begun = await pursued(lambda: self._sessions.begin_generation(ask))
        life = pb.OpenGenerationRequest(agent_id=self._victim.agent_id, generation=begun.generation)
        await pursued(lambda: self._mailbox.open_generation(life))
        return self._victim.agent_id, str(begun.generation)

    async def _lease(self, key: str) -> tuple[str, str]:
        """Let a lease expire: its holder is told so, whatever was killed meanwhile, and never that it still stands."""
        agent = self._dice.choice(self._living)
        ask = sessions_pb2.AcquireLeaseRequest(
            idempotency_key=key,
            agent_id=agent.agent_id,
            kind=sessions_pb2.LEASE_KIND_BACKGROUND,
            holder=self._name,
            term_ms=LEASE_TERM_MS,
        )
        try:
            lease = (await pursued(lambda: self._sessions.acquire_lease(ask))).lease
            renew = sessions_pb2.RenewLeaseRequest(acquisition_id=lease.acquisition_id)
            for _ in range(LEASE_TERMS_MAX):
                # Longer than a term, so that only a start of sessions in between can have saved it.
                await asyncio.sleep(LEASE_TERM_MS * 1.2 / 1000)
                await pursued(lambda: self._sessions.renew_lease(renew))
        except Refused as refused:
            if refused.reason != "lease_lost":
                raise
        return agent.agent_id, ""

    async def _update(self, key: str) -> tuple[str, str]:
        ask = sessions_pb2.UpdateAgentRequest(idempotency_key=key, agent_id=self._victim.agent_id, provider=key)
        updated = await pursued(lambda: self._sessions.update_agent(ask))
        return self._victim.agent_id, updated.agent.provider
