"""RevokeCredential: what it stands for ends with its row."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_kit import logs
from fencepost_sessions.domain.credentials import ENFORCING_FOLLOWER, HomeCredential
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.refusals import NotFound
from fencepost_sessions.store.protocol import Reading, Writing
from fencepost_sessions.usecases.home_credentials import ReplaceHomeCredential
from fencepost_sessions.usecases.ports import Ports

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Revoked:
    """The revision that carries the removal, and whether the enforcing follower has confirmed it."""

    revision: int
    enforced: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Removing:
    credential_id: bytes

    def apply(self, tx: Writing, /) -> int:
        credential = tx.credential(self.credential_id)
        if credential is None:
            return _removed_before(tx, self.credential_id)
        revision = tx.next_revision()
        tx.remove_credentials((credential,), revision=revision)
        return revision


def _removed_before(reading: Reading, credential_id: bytes) -> int:
    removal = reading.removal(credential_id)
    if removal is None:
        raise NotFound(
            "there is no such credential; nothing was written", hint="List the credentials to see their ids."
        )
    return removal.revision


async def revoke_credential(ports: Ports, credential_id: str) -> Revoked:
    """Remove a credential and return the revision of its removal, which is on disk. Removing it again answers the same.

    An agent whose credential is gone has none until its next generation begins. A credential of the home is replaced:
    the new token is in its file before the answer, so that neither the operator nor a service is ever locked out.

    Raises:
        Malformed, NotFound (never there, or removed so long ago that it is forgotten).
    """
    wanted = uuid_bytes(credential_id, what="credential_id")
    credential = ports.store.read(lambda reading: reading.credential(wanted))
    if credential is None:
        revision = ports.store.read(lambda reading: _removed_before(reading, wanted))
    elif credential.agent_id is None:
        home = HomeCredential(role=credential.role, label=credential.label)
        replaced = await ports.tokens.grant(
            home, lambda minted: ReplaceHomeCredential(home=home, minted=minted, only_if=wanted)
        )
        revision = replaced.revision
    else:
        revision = await ports.store.commit(_Removing(credential_id=wanted))
    if credential is not None:
        _log.info("credential_revoked", credential_id=credential_id, revision=revision)
    return Revoked(revision=revision, enforced=ports.followers.has_confirmed(ENFORCING_FOLLOWER, revision))
