"""One shim's connection as the services see it: its token, its keys, and what it has been told."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

from fencepost.client import (
    Budgets,
    Channels,
    Contexts,
    Evidences,
    Files,
    Identity,
    Mailbox,
    Providers,
    Sessions,
    Tasks,
)
from fencepost.home import CREDENTIAL_VARIABLE, MAILBOX
from fencepost.mcp import profiles
from fencepost.mcp.registry import Menu, menu
from fencepost_mcp_edge.domain.frames import Hello, Request

KEY_BYTES_MAX: Final = 256
# A restart of a service fits into each; their sum stays below EDGE_CALL_MS_MAX.
BUDGETS: Final = Budgets(ready_ms=10_000, call_ms=10_000, settle_ms=20_000)
# For a mutation whose answer was lost with an earlier edge: there is nothing to do but to go on asking.
SETTLE_BUDGETS: Final = Budgets(ready_ms=20_000, call_ms=20_000, settle_ms=20_000)
# For what an answer can do without.
BRIEF_BUDGETS: Final = Budgets(ready_ms=2_000, call_ms=2_000, settle_ms=0)

# Returns the families that are stored for a caller's agent, None where nothing is.
Stored = Callable[["Caller"], Awaitable[frozenset[str] | None]]


class Caller:
    """The agent behind a connection. Acts by that agent's own token and by nothing else."""

    def __init__(
        self, *, channels: Channels, hello: Hello, tell: Callable[[str], None], stored: Stored | None = None
    ) -> None:
        """Build the faces. `tell` sends the shim a word about the connection."""
        self.mailbox: Final = Mailbox(channels, hello.token, budgets=BUDGETS)
        self.settling: Final = Mailbox(channels, hello.token, budgets=SETTLE_BUDGETS)
        self.brief: Final = Mailbox(channels, hello.token, budgets=BRIEF_BUDGETS)
        self.sessions: Final = Sessions(channels, hello.token, budgets=BUDGETS)
        self.providers: Final = Providers(channels, hello.token, budgets=BUDGETS)
        self.tasks: Final = Tasks(channels, hello.token, budgets=BUDGETS)
        self.settling_tasks: Final = Tasks(channels, hello.token, budgets=SETTLE_BUDGETS)
        self.contexts: Final = Contexts(channels, hello.token, budgets=BUDGETS)
        self.evidence: Final = Evidences(channels, hello.token, budgets=BUDGETS)
        self.files: Final = Files(channels, hello.token, budgets=BUDGETS)
        self._stored = stored
        self._channels = channels
        self._hello = hello
        self._tell = tell
        self._told_epoch = self.known_epoch
        self._confirmed = hello.agent_id is None and hello.generation is None
        self._confirming = asyncio.Lock()
        self._agent_id = ""

    @property
    def known_epoch(self) -> str:
        """The store's epoch, or empty where it has not been learned since the last loss."""
        return self._channels.epochs.get(MAILBOX, "")

    def key(self, number: int, request: Request) -> str | None:
        """Return the idempotency key of a call, the same whenever it is asked about; None where it would be too long.

        No id looks like the number of a call: as JSON it begins with a digit, a minus or a quote.
        """
        part = request.key_part
        key = f"mcp-{self._hello.nonce}:#{number}" if part is None else f"mcp-{self._hello.nonce}:{part}"
        return key if len(key) <= KEY_BYTES_MAX else None

    @property
    def run(self) -> str:
        """What the notifications of one registration of the agent are counted by: the same as long as its shim lives.

        Over HTTP, where nothing is kept between requests, a life of the agent is one run.
        """
        return self._hello.nonce if self._hello.stays else "http"

    @property
    def warp(self) -> bool:
        """True where the tools go by their other names."""
        return self._hello.warp

    @property
    def who(self) -> str | None:
        """Whose folder of the home tells which tools are offered, as far as the shim said."""
        return self._hello.who

    async def menu(self) -> Menu:
        """Return what is offered to the agent now: what was asked for, as far as what is stored for it allows.

        Raises:
            FencepostError: what is stored could not be learned.
        """
        return menu(await self.families(), warp=self._hello.warp)

    @property
    def token_sha256(self) -> str:
        """What stands for the credential where it is remembered."""
        return hashlib.sha256(self._hello.token.encode()).hexdigest()

    @property
    def asked(self) -> frozenset[str]:
        """The families that were asked for, whatever is stored."""
        return profiles.allowed(self._hello.tools, None)

    async def families(self) -> frozenset[str]:
        """Return the families that are offered now. Raises FencepostError, see menu."""
        return profiles.allowed(self._hello.tools, None if self._stored is None else await self._stored(self))

    async def confirm(self) -> None:
        """Ask sessions, once, whether the credential is the one that the shim's environment names.

        Raises:
            Refused: it is not: identity_disagreement, stale_generation, unauthenticated.
            NotWritten: sessions could not be asked.
        """
        if self._confirmed:
            return
        async with self._confirming:
            if not self._confirmed:
                identity = Identity(
                    token=self._hello.token,
                    agent_id=self._hello.agent_id,
                    source=CREDENTIAL_VARIABLE,
                    expected_generation=self._hello.generation,
                    unconfirmed=True,
                )
                await identity.verify(self.sessions)
                self._confirmed = True

    async def tell_epoch(self) -> None:
        """Let the shim know the store's epoch before a mutation is sent there: settling it later needs the epoch.

        Raises:
            FencepostError: the store could not be asked, so nothing was sent to it.
        """
        epoch = self.known_epoch or (await self.mailbox.describe()).epoch
        if epoch != self._told_epoch:
            self._told_epoch = epoch
            self._tell(f"epoch {epoch}")

    async def agent_id(self) -> str:
        """Return the UUID of the agent itself. Raises FencepostError."""
        if not self._agent_id:
            self._agent_id = (await self.sessions.get_caller()).credential.agent_id
        return self._agent_id
