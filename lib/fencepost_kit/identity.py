"""Who is calling: roles, callers, and tokens.

A token is `fp_` and 43 characters of base64url (32 random bytes). Services keep and compare only its SHA-256: a lookup
by a digest tells nothing about the token through its timing.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from fencepost.common.v1 import common_pb2
from fencepost.errors import Refused
from fencepost.home import TOKEN_CHARS, TOKEN_PREFIX, is_token, read_credential
from fencepost_kit.files import write_private
from fencepost_kit.refusal import Refusal, Unauthenticated

TOKEN_BYTES: Final = 32
CREDENTIAL_FOLDER_MODE: Final = 0o700
CACHED_TOKENS_MAX: Final = 4096

_SCHEME: Final = "Bearer "
_HEADER_CHARS: Final = len(_SCHEME) + TOKEN_CHARS


class Role(enum.Enum):
    """Whom a credential speaks for; the values are those of common.v1.Role."""

    AGENT = common_pb2.ROLE_AGENT
    COORDINATOR = common_pb2.ROLE_COORDINATOR
    OPERATOR = common_pb2.ROLE_OPERATOR
    SERVICE = common_pb2.ROLE_SERVICE


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """A verified caller, the only source of a sender. Ids are UUIDs of 16 bytes; None where the role has none."""

    credential_id: bytes
    role: Role
    agent_id: bytes | None
    project_id: bytes | None
    generation: int
    label: str


class UnusableCredential(Refusal):
    """A credential file that is missing, open to others, somebody else's, or malformed."""

    reason = "unusable_credential"


def bearer(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Return the token of the one `authorization: Bearer <token>` entry.

    Raises:
        Unauthenticated: there is no such entry, more than one, or not a token. The text never repeats what was sent.
    """
    found: str | bytes | None = None
    for key, value in metadata or ():
        if key == "authorization":
            if found is not None:
                raise Unauthenticated("more than one credential was sent; nothing was written")
            found = value
    if found is None:
        raise Unauthenticated("no credential was sent; nothing was written", hint=_HINT)
    if (
        not isinstance(found, str)
        or len(found) != _HEADER_CHARS
        or not found.startswith("Bearer fp_")
        or not found.isascii()
    ):
        raise Unauthenticated("the credential is malformed; nothing was written", hint=_HINT)
    return found[7:]


_HINT: Final = "Send the token of a credential file of this home as 'authorization: Bearer <token>'."


def fingerprint(token: str) -> bytes:
    """Return what services store of a token: SHA-256 of its ASCII bytes, 32 bytes."""
    return hashlib.sha256(token.encode("ascii")).digest()


def mint_token() -> str:
    """Return a new token with 256 random bits from the system."""
    return TOKEN_PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(TOKEN_BYTES)).rstrip(b"=").decode("ascii")


def read_token(path: str | os.PathLike[str]) -> str:
    """Return the token in a credential file.

    Raises:
        UnusableCredential: missing, a link, another owner's, readable by others, over-long, or not exactly one token.
    """
    try:
        return read_credential(path)
    except Refused as refused:
        raise UnusableCredential(refused.message, hint=refused.hint, state={"cause": refused.reason}) from None


def write_token(path: str | os.PathLike[str], token: str) -> None:
    """Write a credential file, 0600, atomically and durably; its folder is made 0700 where it is missing.

    A reader sees the old token or the new one, never a part, and no moment at which others may read it.

    Raises:
        ValueError: `token` is not a token.
        OSError: the file could not be written; the old one, if any, is still there.
    """
    if not is_token(token):
        raise ValueError("not a token")
    target = Path(path)
    target.parent.mkdir(mode=CREDENTIAL_FOLDER_MODE, parents=True, exist_ok=True)
    write_private(target, token.encode("ascii") + b"\n")


class CallersByToken(Protocol):
    """A service's own directory of who holds which token."""

    def known(self, token_sha256: bytes) -> Caller | None:
        """Return the caller that holds a token where the directory at hand tells, else None."""
        ...

    async def identify(self, token_sha256: bytes) -> Caller:
        """Return the caller that holds a token; raises Unauthenticated where nobody does."""
        ...


class CachedIdentify:
    """Identify for a service with its own directory: remembers fingerprints, and nothing else.

    The directory gets the fingerprint of a token and is asked on every call, so that a revocation or a new generation
    in it holds at once. Only tokens that it knew are remembered; at `size_max` the oldest one goes.
    """

    __slots__ = ("_directory", "_fingerprints", "_size_max")

    def __init__(self, directory: CallersByToken, size_max: int = CACHED_TOKENS_MAX) -> None:
        if size_max < 1:
            raise ValueError("size_max must be at least 1")
        self._directory = directory
        self._size_max = size_max
        self._fingerprints: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._fingerprints)

    def known(self, token: str) -> Caller | None:
        """Return the caller that holds `token` where it was seen before and the directory at hand still tells."""
        mark = self._fingerprints.get(token)
        return None if mark is None else self._directory.known(mark)

    async def __call__(self, token: str) -> Caller:
        """Return the caller that holds `token`; raises what the directory raises."""
        mark = self._fingerprints.get(token)
        if mark is not None:
            try:
                return await self._directory.identify(mark)
            except Unauthenticated:
                self._fingerprints.pop(token, None)
                raise
        mark = fingerprint(token)
        caller = await self._directory.identify(mark)
        while len(self._fingerprints) >= self._size_max:
            del self._fingerprints[next(iter(self._fingerprints))]
        self._fingerprints[token] = mark
        return caller
