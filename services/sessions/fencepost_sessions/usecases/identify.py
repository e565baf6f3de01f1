"""Who holds a token: asked before every call of this service itself."""

from __future__ import annotations

from fencepost_kit.refusal import Unauthenticated
from fencepost_sessions.domain.credentials import Credential
from fencepost_sessions.store.protocol import Store


def holder_of(store: Store, token_sha256: bytes) -> Credential:
    """Return the credential of a token, whatever its generation: nothing that an agent may ask here gives it authority.

    Raises:
        Unauthenticated: nobody holds this token, or no longer.
    """
    credential = store.read(lambda reading: reading.credential_of_token(token_sha256))
    if credential is None:
        raise Unauthenticated(
            "the credential is not known here or was removed; nothing was written",
            hint="Read the credential file again: a new generation or a replaced credential writes a new token there.",
        )
    return credential
