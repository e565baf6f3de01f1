"""Credentials: what a token stands for. The token itself is never here, only its SHA-256."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fencepost_sessions.domain.agents import Agent
from fencepost_sessions.domain.limits import OLD_CREDENTIALS_KEPT_MAX, ROW_FRAME_BYTES
from fencepost_sessions.domain.roles import Role

OPERATOR_LABEL: Final = "operator"
# Services of the home that speak to others. sessions itself asks nobody.
SERVICE_LABELS: Final = ("mailbox", "mcp_edge", "providers")
# The follower whose confirmation makes a removal enforced: the one that admits senders.
ENFORCING_FOLLOWER: Final = "mailbox"


@dataclass(frozen=True, kw_only=True, slots=True)
class Credential:
    """A credential's row.

    `appeared_revision` is when it came, `revision` when it last changed: its role follows the agent's.
    """

    credential_id: bytes
    agent_id: bytes | None
    project_id: bytes | None
    role: Role
    generation: int
    token_sha256: bytes
    created_at_ms: int
    appeared_revision: int
    revision: int
    label: str


def credential_bytes(credential: Credential) -> int:
    """Return at least the bytes that a credential takes in a message."""
    return ROW_FRAME_BYTES + len(credential.label.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Minted:
    """A new credential before it has a revision: its id, the hash of its token and when."""

    credential_id: bytes
    token_sha256: bytes
    now_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HomeCredential:
    """A credential of the home rather than of an agent: the operator's, or a service's."""

    role: Role
    label: str


HOME_CREDENTIALS: Final = (
    HomeCredential(role=Role.OPERATOR, label=OPERATOR_LABEL),
    *(HomeCredential(role=Role.SERVICE, label=label) for label in SERVICE_LABELS),
)


def credential_of_agent(agent: Agent, minted: Minted) -> Credential:
    """Return the credential of an agent's current generation, in the agent's revision."""
    return Credential(
        credential_id=minted.credential_id,
        agent_id=agent.agent_id,
        project_id=agent.project_id,
        role=agent.role,
        generation=agent.generation,
        token_sha256=minted.token_sha256,
        created_at_ms=minted.now_ms,
        appeared_revision=agent.revision,
        revision=agent.revision,
        label=agent.name,
    )


def credential_of_home(home: HomeCredential, minted: Minted, *, revision: int) -> Credential:
    """Return an operator's or a service's credential."""
    return Credential(
        credential_id=minted.credential_id,
        agent_id=None,
        project_id=None,
        role=home.role,
        generation=0,
        token_sha256=minted.token_sha256,
        created_at_ms=minted.now_ms,
        appeared_revision=revision,
        revision=revision,
        label=home.label,
    )


def outlived(credentials: Sequence[Credential], *, generation: int) -> tuple[Credential, ...]:
    """Return which of an agent's credentials are dropped once `generation` has begun.

    Old ones stay for a while so that a zombie is told that its generation is stale, which it can act on, rather than
    that it is unknown. OLD_CREDENTIALS_KEPT_MAX older ones stay, the youngest generations first.
    """
    old = sorted(
        (one for one in credentials if one.generation < generation), key=lambda one: one.generation, reverse=True
    )
    return tuple(old[OLD_CREDENTIALS_KEPT_MAX:])
