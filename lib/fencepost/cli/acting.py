"""Whom a command acts for, and the calls it makes.

With an agent in the environment a command acts as that agent and nothing more; the operator's authority needs the
operator's own credential of the home and an environment that names no agent.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from fencepost.client import (
    READY_BUDGET_MS,
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
from fencepost.errors import NotWritten, Refused
from fencepost.home import CREDENTIAL_VARIABLE, SERVICES, SESSION_VARIABLE, Home

# Where no service has ever published an address, waiting longer than this only annoys.
READY_UNPUBLISHED_MS: Final = 300

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Acting:
    """The home, and who acts in it."""

    home: Home
    identity: Identity
    is_operator: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """The services as the acting identity sees them."""

    mailbox: Mailbox
    sessions: Sessions
    providers: Providers
    contexts: Contexts
    files: Files
    tasks: Tasks
    evidence: Evidences


def agent_named() -> bool:
    """Tell whether the environment names an agent."""
    return bool(os.environ.get(SESSION_VARIABLE) or os.environ.get(CREDENTIAL_VARIABLE))


def as_agent() -> Acting:
    """Act as the agent that the environment names; refuse where it names none. Nothing else is touched."""
    home = Home.from_environment()
    return Acting(home=home, identity=Identity.from_environment(home), is_operator=False)


def refuse_agents() -> None:
    """Refuse an operator's command in an agent's environment."""
    if agent_named():
        raise Refused(
            "permission_denied",
            "this is an operator's command, and this process acts as an agent; nothing was done",
            hint=f"A person runs it in a shell in which {SESSION_VARIABLE} and {CREDENTIAL_VARIABLE} are not set.",
        )


def as_operator() -> Acting:
    """Act as the person who owns the home; refuse under an agent's identity."""
    refuse_agents()
    home = Home.from_environment()
    try:
        identity = Identity.operator(home)
    except Refused as refused:
        if refused.reason != "credential_missing":
            raise
        raise NotWritten(
            "not_running",
            f"no services have ever run in the home {home.text}: it has no operator credential; nothing was done",
            hint="Start them with `fencepost up`.",
        ) from None
    return Acting(home=home, identity=identity, is_operator=True)


def as_whoever() -> Acting:
    """Act as the agent that the environment names, and where it names none, as the operator."""
    return as_agent() if agent_named() else as_operator()


@asynccontextmanager
async def connected(acting: Acting, *, budgets: Budgets | None = None) -> AsyncIterator[Services]:
    """Yield the services; channels open at the first call and are closed at the end."""
    if budgets is None:
        published = any(acting.home.address(service).exists() for service in SERVICES)
        budgets = Budgets(ready_ms=READY_BUDGET_MS if published else READY_UNPUBLISHED_MS)
    async with Channels(acting.home) as channels:
        services = Services(
            mailbox=Mailbox(channels, acting.identity.token, budgets=budgets),
            sessions=Sessions(channels, acting.identity.token, budgets=budgets),
            providers=Providers(channels, acting.identity.token, budgets=budgets),
            contexts=Contexts(channels, acting.identity.token, budgets=budgets),
            files=Files(channels, acting.identity.token, budgets=budgets),
            tasks=Tasks(channels, acting.identity.token, budgets=budgets),
            evidence=Evidences(channels, acting.identity.token, budgets=budgets),
        )
        if acting.identity.needs_verifying:
            await acting.identity.verify(services.sessions)
        yield services


def call(acting: Acting, work: Callable[[Services], Awaitable[T]]) -> T:
    """Run `work` with the services, in an event loop of its own."""

    async def run() -> T:
        async with connected(acting) as services:
            return await work(services)

    return asyncio.run(run())
