"""The credentials of the home: the operator's, and one for each service. There is always one of each, in its file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fencepost_kit import logs
from fencepost_sessions.domain.credentials import HOME_CREDENTIALS, HomeCredential, Minted, credential_of_home
from fencepost_sessions.store.protocol import Reading, Writing
from fencepost_sessions.usecases.ports import Ports

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class HomeReplaced:
    """The revision in which a credential of the home was replaced, and whether this run did it."""

    revision: int
    granted: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaceHomeCredential:
    """Puts a new credential in place of every standing one of its kind.

    With `only_if`, only while that credential still stands: whoever removed it first has replaced it too.
    """

    home: HomeCredential
    minted: Minted
    only_if: bytes | None = None

    def rehearse(self, reading: Reading, /) -> HomeReplaced | None:
        """Return the removal's revision where the credential is gone already."""
        if self.only_if is None or reading.credential(self.only_if) is not None:
            return None
        removal = reading.removal(self.only_if)
        return HomeReplaced(revision=removal.revision if removal else reading.directory().revision, granted=False)

    def apply(self, tx: Writing, /) -> HomeReplaced:
        """Remove, add, in one revision."""
        earlier = self.rehearse(tx)
        if earlier is not None:
            return earlier
        revision = tx.next_revision()
        tx.remove_credentials(tx.credentials_of_home(self.home.role, self.home.label), revision=revision)
        tx.insert_credential(credential_of_home(self.home, self.minted, revision=revision))
        return HomeReplaced(revision=revision, granted=True)


async def ensure_home_credentials(ports: Ports) -> None:
    """Make every credential of the home valid and its file readable by its owner alone, replacing what is not.

    A file that is missing, unsafe or malformed, or whose token the directory does not know (a database that was put
    back), gets a new token; the old one is removed from the directory.
    """
    for home in HOME_CREDENTIALS:
        await ports.tokens.settle(home)
        current = await ports.tokens.files.current(home)
        if current is not None and ports.store.read(partial(_is_known, home=home, token_sha256=current)):
            continue
        await ports.tokens.grant(home, partial(_replacing, home))
        _log.info("home_credential_minted", label=home.label)


def _is_known(reading: Reading, home: HomeCredential, token_sha256: bytes) -> bool:
    found = reading.credential_of_token(token_sha256)
    return found is not None and found.agent_id is None and (found.role, found.label) == (home.role, home.label)


def _replacing(home: HomeCredential, minted: Minted) -> ReplaceHomeCredential:
    return ReplaceHomeCredential(home=home, minted=minted)
