"""Sessions over gRPC, as the mirror asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from fencepost.client import Sessions
from fencepost.errors import FencepostError, NotWritten, Refused, Uncertain
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost_kit import logs
from fencepost_kit.ids import uuid_text
from fencepost_kit.renewing import UNAUTHENTICATED, Renewing
from fencepost_mailbox.directory import Diverged, Unreachable, Update
from fencepost_mailbox.domain.refusals import AmbiguousTarget, InvalidTarget
from fencepost_mailbox.domain.values import Agent
from fencepost_mailbox.store.protocol import Credential, DirectoryPosition
from fencepost_mailbox.translate import agent_from_proto, credential_from_proto, update_from_proto

FOLLOWER: Final = "mailbox"
_NOT_FOUND: Final = "not_found"
_INVALID_REVISION: Final = "invalid_revision"

_log: Final = logs.get(__name__)


class SessionsLink:
    """See SessionsPort."""

    def __init__(self, connect: Callable[[], Sessions]) -> None:
        """Connect with the credential that this service has now; `connect` reads it anew each time."""
        self._sessions = Renewing(connect)

    def _lost(self, error: FencepostError) -> Exception:
        """Return what a failure means to the mirror; a credential that was rotated is read again for the next call."""
        self._sessions.notice(error)
        if error.reason == _INVALID_REVISION:
            return Diverged(error.message)
        return Unreachable(error.message)

    async def watch(self, position: DirectoryPosition) -> AsyncIterator[Update]:
        """See SessionsPort."""
        ask = pb.WatchDirectoryRequest(epoch=position.epoch, revision=position.revision, follower=FOLLOWER)
        try:
            async for message in self._sessions.client.watch_directory(ask):
                yield update_from_proto(message)
        except FencepostError as error:
            raise self._lost(error) from error
        raise Unreachable("the stream ended")

    async def confirm(self, position: DirectoryPosition) -> None:
        """See SessionsPort."""
        ask = pb.ConfirmRevisionRequest(follower=FOLLOWER, epoch=position.epoch, revision=position.revision)
        try:
            await self._sessions.client.confirm_revision(ask)
        except FencepostError as error:
            raise self._lost(error) from error

    async def lookup_agent(self, project_id: bytes, target: str) -> Agent | None:
        """See SessionsPort."""
        ask = pb.LookupAgentRequest(project_id=uuid_text(project_id), target=target)
        try:
            return agent_from_proto((await self._sessions.client.lookup_agent(ask)).agent)
        except Refused as refused:
            if refused.reason == _NOT_FOUND:
                return None
            if refused.reason == AmbiguousTarget.reason:
                raise AmbiguousTarget(refused.message, hint=refused.hint) from None
            if refused.may_resend or refused.reason == UNAUTHENTICATED:
                raise self._lost(refused) from refused
            raise InvalidTarget(refused.message, hint=refused.hint) from None
        except (NotWritten, Uncertain) as error:
            raise Unreachable from error

    async def finish_deletion(self, epoch: str, agent_id: bytes) -> None:
        """See SessionsPort. Sessions that does not know the agent has nothing to end."""
        try:
            await self._sessions.client.finish_deletion(epoch, uuid_text(agent_id))
        except Refused as refused:
            if refused.reason != _NOT_FOUND:
                _log.debug("deletion_not_ended", reason=refused.reason)
                raise Unreachable(self._lost(refused)) from refused
        except (NotWritten, Uncertain) as error:
            raise Unreachable from error

    async def lookup_credential(self, token_sha256: bytes) -> Credential | None:
        """See SessionsPort."""
        try:
            return credential_from_proto((await self._sessions.client.lookup_credential(token_sha256)).credential)
        except Refused as refused:
            if refused.reason == _NOT_FOUND:
                return None
            raise self._lost(refused) from refused
        except (NotWritten, Uncertain) as error:
            raise Unreachable from error
