"""LookupCredential: a follower's mirror has missed a token and asks; only this service may say no."""

from __future__ import annotations

from typing import Final

from fencepost_kit.refusal import Malformed
from fencepost_sessions.domain.credentials import Credential
from fencepost_sessions.domain.refusals import NotFound
from fencepost_sessions.store.protocol import Reading
from fencepost_sessions.usecases.ports import Ports

TOKEN_SHA256_BYTES: Final = 32


async def lookup_credential(ports: Ports, token_sha256: bytes) -> tuple[Credential, int]:
    """Return the credential of a token, and the directory's revision at that moment.

    Raises:
        Malformed: not 32 bytes.
        NotFound: nobody holds this token.
    """
    if len(token_sha256) != TOKEN_SHA256_BYTES:
        raise Malformed(f"token_sha256 has {len(token_sha256)} bytes instead of {TOKEN_SHA256_BYTES}")

    def question(reading: Reading) -> tuple[Credential, int]:
        credential = reading.credential_of_token(token_sha256)
        if credential is None:
            raise NotFound("no credential has this token")
        return credential, reading.directory().revision

    return ports.store.read(question)
