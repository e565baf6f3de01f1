"""Mailbox over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from fencepost.client import Mailbox
from fencepost.errors import FencepostError
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost_kit.ids import uuid_text
from fencepost_kit.renewing import Renewing
from fencepost_providers.domain.carried import Answer, Bound, Carried, Outcome
from fencepost_providers.links import Binding, ClaimAsk, Taken, Work
from fencepost_providers.store.protocol import Dispatcher
from fencepost_providers.translate import binding_from_proto, binding_to_proto, delivery_from_proto

CLAIM_TERM_MS: Final = 60_000
BINDINGS_PAGE: Final = 500
OWNERS_MAX: Final = 500


_FINISHED: Final = {
    Answer.ACCEPTED: pb.CLAIM_OUTCOME_ACCEPTED,
    Answer.VISIBLE: pb.CLAIM_OUTCOME_VISIBLE,
    Answer.FAILED: pb.CLAIM_OUTCOME_FAILED,
    Answer.UNCERTAIN: pb.CLAIM_OUTCOME_UNCERTAIN,
}


class MailboxLink:
    """See MailboxPort."""

    def __init__(self, connect: Callable[[], Mailbox], dispatcher: Callable[[], Dispatcher]) -> None:
        """Connect with the credential that this service has now; `connect` reads it anew each time."""
        self._mailbox = Renewing(connect)
        self._dispatcher = dispatcher

    @property
    def _dispatcher_id(self) -> str:
        return uuid_text(self._dispatcher().dispatcher_id)

    async def watch_work(self, dispatcher_id: str) -> AsyncIterator[Work]:
        """See MailboxPort."""
        try:
            async for message in self._mailbox.client.watch_work(pb.WatchWorkRequest(dispatcher_id=dispatcher_id)):
                yield Work(
                    agent_id=message.agent_id,
                    requests=message.requests,
                    context=message.context,
                    high_water=message.high_water,
                    wake=message.wake,
                    stop=message.stop,
                    left=message.left,
                    held_until_ms=message.held_until_ms,
                )
        except FencepostError as error:
            self._mailbox.notice(error)
            raise

    async def claim(self, ask: ClaimAsk) -> Taken | None:
        """See MailboxPort."""
        wanted = pb.ClaimRequest(
            agent_id=ask.agent_id,
            generation=ask.generation,
            dispatcher_id=self._dispatcher_id,
            incarnation=self._dispatcher().incarnation,
            kind=pb.ClaimKind.ValueType(ask.kind),
            high_water=ask.high_water,
            term_ms=CLAIM_TERM_MS,
            idempotency_key=ask.key,
        )
        answer = await self._mailbox.ask(lambda mailbox: mailbox.claim(wanted))
        if not answer.HasField("claim"):
            return None
        claim = answer.claim
        return Taken(
            token=claim.token,
            generation=claim.generation,
            expires_at_ms=claim.expires_at_ms,
            delivery=delivery_from_proto(claim.record),
        )

    async def tell_carried(self, carried: Carried) -> None:
        """See MailboxPort."""
        if carried.answer is Answer.RELEASED:
            given_back = pb.ReleaseRequest(token=carried.token, generation=carried.generation, proof=carried.evidence)
            await self._mailbox.ask(lambda mailbox: mailbox.release(given_back))
            return
        finished = pb.FinishRequest(
            token=carried.token,
            generation=carried.generation,
            outcome=_FINISHED[carried.answer],
            evidence=carried.evidence,
            binding=None if carried.binding is None else binding_to_proto(carried.binding),
        )
        await self._mailbox.ask(lambda mailbox: mailbox.finish(finished))

    async def tell_outcome(self, outcome: Outcome) -> None:
        """See MailboxPort."""
        told = pb.RecordOutcomeRequest(
            token=outcome.token,
            generation=outcome.generation,
            binding=binding_to_proto(outcome.binding),
            outcome=pb.TurnOutcome.ValueType(outcome.status),
            final_text=outcome.final_text,
            final_bytes=outcome.final_bytes,
            evidence=outcome.evidence,
        )
        await self._mailbox.ask(lambda mailbox: mailbox.record_outcome(told))

    async def bindings(self) -> Sequence[Binding]:
        """See MailboxPort."""
        found: list[Binding] = []
        token = ""
        while True:
            ask = pb.ListBindingsRequest(dispatcher_id=self._dispatcher_id, page_size=BINDINGS_PAGE, page_token=token)
            page = await self._mailbox.ask(lambda mailbox, ask=ask: mailbox.list_bindings(ask))  # type: ignore[misc]
            for one in page.bindings:
                bound = Bound(
                    token=one.token,
                    agent_id=one.agent_id,
                    record_id=one.record_id,
                    generation=one.generation,
                    binding=binding_from_proto(one.binding),
                )
                found.append(Binding(bound=bound, uncertain=one.binding.state == pb.BINDING_STATE_UNCERTAIN))
            token = page.next_page_token
            if not token:
                return found

    async def report_owners(self, owners: Sequence[tuple[str, int]]) -> None:
        """See MailboxPort."""
        ask = pb.ReportOwnersRequest(
            dispatcher_id=self._dispatcher_id,
            incarnation=self._dispatcher().incarnation,
            owners=[pb.Owner(agent_id=agent_id, generation=generation) for agent_id, generation in owners[:OWNERS_MAX]],
        )
        await self._mailbox.ask(lambda mailbox: mailbox.report_owners(ask))

    async def open_generation(self, agent_id: str, generation: int) -> None:
        """See MailboxPort."""
        ask = pb.OpenGenerationRequest(agent_id=agent_id, generation=generation)
        await self._mailbox.ask(lambda mailbox: mailbox.open_generation(ask))
