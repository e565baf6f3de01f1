"""How the mailbox takes what sessions answers.

A rotated credential is read again, a directory that went back is not followed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from fencepost.client import Sessions
from fencepost.errors import FencepostError, NotWritten, Refused
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost_kit.identity import UnusableCredential
from fencepost_mailbox.directory import Diverged, Unreachable
from fencepost_mailbox.sessions_link import SessionsLink
from fencepost_mailbox.store.protocol import DirectoryPosition

HERE = DirectoryPosition(epoch="e", revision=7)


class Answering:
    """Sessions that answers every call with one error."""

    def __init__(self, error: FencepostError) -> None:
        self.error = error
        self.calls = 0

    async def watch_directory(self, _ask: pb.WatchDirectoryRequest) -> AsyncIterator[pb.WatchDirectoryResponse]:
        self.calls += 1
        raise self.error
        yield pb.WatchDirectoryResponse()

    async def confirm_revision(self, _ask: Any) -> None:
        self.calls += 1
        raise self.error

    async def lookup_credential(self, _digest: bytes) -> None:
        self.calls += 1
        raise self.error


def refused(reason: str) -> Refused:
    return Refused(reason, "no")


async def drained(link: SessionsLink) -> None:
    async for _ in link.watch(HERE):
        pass


@pytest.mark.requirement("mailbox.follows-under-its-own-current-credential")
@pytest.mark.parametrize("call", ["watch", "confirm", "lookup"])
async def test_a_credential_that_was_rotated_is_read_again_for_the_next_call(call: str) -> None:
    made: list[Answering] = []

    def connect() -> Sessions:
        made.append(Answering(refused("unauthenticated")))
        return cast("Sessions", made[-1])

    link = SessionsLink(connect)
    with pytest.raises(Unreachable):
        await {"watch": lambda: drained(link), "confirm": lambda: link.confirm(HERE)}.get(
            call, lambda: link.lookup_credential(b"x")
        )()
    assert len(made) == 2
    with pytest.raises(Unreachable):
        await link.confirm(HERE)
    assert made[0].calls == made[1].calls == 1


async def test_a_credential_that_cannot_be_read_now_leaves_the_link_as_it_is() -> None:
    first = Answering(refused("unauthenticated"))
    answers: list[Answering] = [first]

    def connect() -> Sessions:
        if not answers:
            raise UnusableCredential("gone")
        return cast("Sessions", answers.pop())

    link = SessionsLink(connect)
    for _ in range(2):
        with pytest.raises(Unreachable):
            await link.confirm(HERE)
    assert first.calls == 2


@pytest.mark.requirement("mailbox.a-directory-that-went-back-is-not-followed")
async def test_a_directory_behind_the_mirror_is_told_apart_from_one_that_is_away() -> None:
    with pytest.raises(Diverged):
        await drained(SessionsLink(lambda: cast("Sessions", Answering(refused("invalid_revision")))))
    with pytest.raises(Unreachable):
        await drained(SessionsLink(lambda: cast("Sessions", Answering(NotWritten("unreachable", "away")))))
