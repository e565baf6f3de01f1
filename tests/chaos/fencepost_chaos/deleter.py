"""Deletes agents while others still write to them, as a person does who retires one in the middle of its work."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from fencepost_chaos.faces import GrpcFace, Op, RecordedMailbox, RecordedSessions
from fencepost_chaos.history import Call, Doomed, Log, Mutation, Outcome, now_ns
from fencepost_chaos.pursuit import pursued
from fencepost_chaos.workload import Peer

from fencepost.client import Channels
from fencepost.home import read_credential
from fencepost.sessions.v1 import sessions_pb2

ASKED: Final = (1, 3)
# Of the agents, how many leave so much that it is erased in more than one chunk.
FULL_SHARE: Final = 0.25
# Who goes on writing while it is deleted, and how much each at most.
LATE_SENDERS: Final = 2
LATE_MAX: Final = 8
# Notes to itself, each a record and a key, to be erased both: together more rows than one chunk has.
NOTES: Final = 105
NOTES_AT_ONCE: Final = 35
# Shown to the agent before its end: to be answered by the host all the same.
READ: Final = 20


class Deleter:
    """Gives an agent mail of every kind, then deletes it while more comes."""

    def __init__(
        self,
        *,
        name: str,
        sessions: RecordedSessions,
        channels: Channels,
        senders: Sequence[tuple[Peer, GrpcFace]],
        log: Log,
        seed: str,
    ) -> None:
        self._name = name
        self._sessions = sessions
        self._channels = channels
        self._senders = senders
        self._log = log
        self._seed = seed
        self._dice = random.Random(f"{seed} {name} deletes")

    async def delete(self, key: str, agent: Peer) -> None:
        """Delete an agent that nobody else deletes; returns when the deletion is answered, which is not its end.

        Raises:
            FencepostError: see pursued().
        """
        token = read_credential(self._channels.home.agent_credential(agent.agent_id))
        await asyncio.gather(*self._mail(f"{key}-early", agent, requests=self._dice.randint(*ASKED)))
        if self._dice.random() < FULL_SHARE:
            await self._fill(key, agent, token)
        ask = sessions_pb2.DeleteAgentRequest(idempotency_key=key, agent_id=agent.agent_id, confirm_name=agent.name)
        self._log.add(
            Doomed(client=self._name, key=key, agent=agent.agent_id, name=agent.name, token=token, at_ns=now_ns())
        )
        # What races is answered by the host, or refused: never both, never neither.
        await asyncio.gather(
            pursued(lambda: self._sessions.delete_agent(ask)),
            *(self._go_on(f"{key}-late-{number}", agent) for number in range(LATE_SENDERS)),
        )

    async def _go_on(self, prefix: str, agent: Peer) -> None:
        """Ask and tell it more, one after the other, until that is refused: some calls meet the very closing."""
        _, face = self._dice.choice(self._senders)
        for number in range(LATE_MAX):
            call = (Call.REQUEST, Call.SEND)[number % 2]
            if (await self._one(face, call, f"{prefix}-{number}", agent)).outcome is Outcome.REFUSED:
                return

    def _mail(self, prefix: str, agent: Peer, *, requests: int) -> list[asyncio.Task[Mutation]]:
        """Begin to ask it so many times, and to tell it something."""
        calls = [*(Call.REQUEST for _ in range(requests)), Call.SEND]
        return [
            asyncio.create_task(self._one(self._dice.choice(self._senders)[1], call, f"{prefix}-{number}", agent))
            for number, call in enumerate(calls)
        ]

    @staticmethod
    async def _one(face: GrpcFace, call: Call, op: str, to: Peer) -> Mutation:
        # By its UUID: its name may be refused as unknown once it is deleted.
        return await face.mutate(
            Op(op=op, call=call, target=to.agent_id, recipient=to.agent_id, body=f"{op} for {to.name}")
        )

    async def _fill(self, key: str, agent: Peer, token: str) -> None:
        """Have the agent write much to itself and something to another, and read some of what it was sent."""
        mailbox = RecordedMailbox(self._channels, token, client=self._name, log=self._log)
        face = GrpcFace(client=self._name, agent=agent.agent_id, mailbox=mailbox, log=self._log, seed=self._seed)
        await pursued(face.open)
        peer, _ = self._dice.choice(self._senders)
        await self._one(face, Call.SEND, f"{key}-last-words", peer)
        await face.receive(cursor="", ack="", limit=READ, timeout_ms=0)
        for first in range(0, NOTES, NOTES_AT_ONCE):
            numbers = range(first, min(first + NOTES_AT_ONCE, NOTES))
            await asyncio.gather(*(self._one(face, Call.SEND, f"{key}-note-{number}", agent) for number in numbers))
