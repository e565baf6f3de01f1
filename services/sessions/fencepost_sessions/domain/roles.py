"""Who a caller is and which role an agent can have."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fencepost_sessions.domain.refusals import InvalidRole


class Role(enum.IntEnum):
    """Who a credential speaks for; the numbers are those of fencepost.common.v1.Role."""

    AGENT = 1
    COORDINATOR = 2
    OPERATOR = 3
    SERVICE = 4


AGENT_ROLES = frozenset({Role.AGENT, Role.COORDINATOR})


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The verified holder of the presented credential."""

    credential_id: bytes
    role: Role
    agent_id: bytes | None
    project_id: bytes | None
    label: str

    @property
    def scope(self) -> bytes:
        """What idempotency keys of this caller belong to: the agent over all its lives, else the credential."""
        return self.agent_id or self.credential_id

    @property
    def project_seen(self) -> bytes | None:
        """The one project whose agents this caller sees; None for one who sees all."""
        return self.project_id if self.role in AGENT_ROLES else None


def agent_role(role: int | None) -> Role:
    """Return the role of a new or changed agent; None is a plain agent.

    Raises:
        InvalidRole: anything but agent and coordinator: an agent never becomes operator or service.
    """
    if role is None:
        return Role.AGENT
    if role not in AGENT_ROLES:
        raise InvalidRole(
            "an agent's role is agent or coordinator; nothing was written", hint="Name one of these two roles."
        )
    return Role(role)
