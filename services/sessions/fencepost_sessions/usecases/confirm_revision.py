"""ConfirmRevision: a follower has made everything up to a revision durable."""

from __future__ import annotations

from fencepost_sessions.domain.directory import confirmed_revision
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.usecases.ports import Ports
from fencepost_sessions.usecases.watch_directory import check_follower, epoch_of


async def confirm_revision(ports: Ports, caller: Caller, *, follower: str, epoch: str, revision: int) -> None:
    """Take a confirmation; removals up to `revision` count as enforced by this follower from now on.

    Raises:
        Malformed, PermissionDenied (another's name), EpochMismatch, InvalidRevision: nothing was confirmed.
    """
    check_follower(caller, follower)
    directory = ports.store.read(lambda reading: reading.directory())
    ports.followers.confirm(follower, confirmed_revision(directory, epoch=epoch_of(epoch), revision=revision))
