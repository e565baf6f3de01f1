"""A mailbox that was restored from a copy is another store than the one that was copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost_kit.sqlite import copy_database, read_one
from fencepost_mailbox.domain.refusals import ExpiredCursor
from fencepost_mailbox.domain.values import Delivery, FactKind
from fencepost_mailbox.usecases.claim import Restoring
from fencepost_testing.mailboxes import Desk, a_desk

pytestmark = [pytest.mark.requirement("care.a-restored-store-is-another-store")]


async def test_a_restored_store_has_its_own_epoch_expires_cursors_and_makes_held_claims_uncertain(
    desk: Desk, tmp_path: Path
) -> None:
    await desk.send("ann", "bob")
    cursor = (await desk.receive("bob")).ack_cursor
    request = await desk.request("ann", "bob")
    await desk.taken("bob")
    copy = tmp_path / "restored" / "mailbox.db"
    copy.parent.mkdir()
    copy_database(desk._path, copy)
    async with a_desk(copy, "ann", "bob", "cyd") as restored:
        assert restored.store.restored
        assert restored.store.epoch != desk.store.epoch
        assert await restored.store.submit(Restoring(now_ms=restored.clock.now_ms())) == 1
        assert restored.now(request).delivery is Delivery.UNCERTAIN
        assert FactKind.UNCERTAIN in restored.facts(request)
        with pytest.raises(ExpiredCursor):
            await restored.receive("bob", cursor=cursor)
        epoch = restored.store.epoch
        await restored.restart()
        assert not restored.store.restored
        assert restored.store.epoch == epoch
    assert desk.now(request).delivery is not Delivery.UNCERTAIN


async def test_a_restore_that_was_cut_off_before_its_first_operation_begins_anew(desk: Desk, tmp_path: Path) -> None:
    await desk.request("ann", "bob")
    await desk.taken("bob")
    copy = tmp_path / "copy.db"
    copy_database(desk._path, copy)
    async with a_desk(copy, "ann", "bob") as cut_off:
        first = cut_off.store.epoch
    async with a_desk(copy, "ann", "bob") as again:
        assert again.store.restored
        assert again.store.epoch != first
        assert await again.store.submit(Restoring(now_ms=again.clock.now_ms())) == 1
    assert read_one(copy, "PRAGMA application_id") == 0


async def test_a_restored_store_has_no_place_in_the_directory(desk: Desk, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy_database(desk._path, copy)
    async with a_desk(copy, "ann") as restored:
        position, _, _ = restored.store.directory()
        assert (position.epoch, position.revision) == ("", 0)
