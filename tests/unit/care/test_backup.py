"""Backups of a home that nobody serves: what is refused, what is kept, and what a restore leaves alone."""

from __future__ import annotations

import json
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from fencepost.care import Manifest, back_up, backup, read_manifest, restore
from fencepost.care.manifest import MANIFEST_BYTES_MAX, STORES
from fencepost.errors import Refused
from fencepost.home import MAILBOX, SESSIONS, Home
from fencepost_kit.files import OwnerLock
from fencepost_kit.sqlite import COPY_MARK, SqliteDatabase, load_migrations, read_one

MARK = "INSERT INTO generation_floor (agent_id, generation) VALUES (?, 1)"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.prepare()
    for service, (_, package) in STORES.items():
        database = SqliteDatabase(made.database(service), migrations=load_migrations(package))
        database.open()
        database.close()
    return made


def write(home: Home, agent: bytes) -> None:
    with closing(sqlite3.connect(home.database(MAILBOX))) as connection:
        connection.execute(MARK, (agent,))
        connection.commit()


def floors(database: Path) -> list[bytes]:
    with closing(sqlite3.connect(database)) as connection:
        return [row[0] for row in connection.execute("SELECT agent_id FROM generation_floor ORDER BY agent_id")]


def aged(folder: Path, ms: int) -> None:
    """Let a backup be older."""
    path = folder / "manifest.json"
    plain = json.loads(path.read_text())
    plain["made_at_ms"] -= ms
    path.write_text(json.dumps(plain))


@pytest.mark.requirement("care.a-backup-is-one-moment-of-each-store")
def test_a_backup_is_private_marked_and_says_what_it_holds(home: Home) -> None:
    write(home, b"a")
    made = back_up(home)
    assert made.folder.parent == home.path / "backups"
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.folder.iterdir()} == {
        "mailbox.db": 0o600,
        "sessions.db": 0o600,
        "manifest.json": 0o600,
    }
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    found = read_manifest(made.folder)
    assert found == made.manifest
    assert [store.service for store in found.stores] == [MAILBOX, SESSIONS]
    assert found.stores[0].rows["generation_floor"] == 1
    assert read_one(made.folder / "mailbox.db", "PRAGMA application_id") == COPY_MARK
    assert read_one(home.database(MAILBOX), "PRAGMA application_id") == 0


@pytest.mark.requirement("care.a-backup-is-one-moment-of-each-store")
def test_what_stands_only_in_the_log_is_in_the_backup(home: Home) -> None:
    with closing(sqlite3.connect(home.database(MAILBOX), isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute(MARK, (b"logged",))
        made = back_up(home)
        writer.execute("BEGIN IMMEDIATE")
        writer.execute(MARK, (b"uncommitted",))
        beside = back_up(home)
        writer.execute("ROLLBACK")
    assert floors(made.folder / "mailbox.db") == floors(beside.folder / "mailbox.db") == [b"logged"]


def test_a_named_folder_is_new_or_empty_and_else_refused(home: Home, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert back_up(home, to=empty).folder == empty
    for taken in (empty, home.database(MAILBOX)):
        before = sorted(empty.iterdir())
        with pytest.raises(Refused) as caught:
            back_up(home, to=taken)
        assert caught.value.reason == "backup_folder_in_use"
        assert sorted(empty.iterdir()) == before
    assert back_up(home, to=tmp_path / "deep" / "er").folder.is_dir()


def test_a_home_without_stores_has_nothing_to_back_up(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        back_up(Home(tmp_path / "nothing"))
    assert caught.value.reason == "nothing_to_back_up"
    assert list(tmp_path.iterdir()) == []


def test_without_room_nothing_is_written(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "SPARE_BYTES_MIN", 1 << 60)
    with pytest.raises(Refused) as caught:
        back_up(home)
    assert caught.value.reason == "no_room_for_backup"
    assert list((home.path / "backups").iterdir()) == []


def test_a_store_that_is_damaged_makes_no_backup(home: Home) -> None:
    path = home.database(MAILBOX)
    path.write_bytes(path.read_bytes()[:4096] + b"x" * 4096 + path.read_bytes()[8192:])
    with pytest.raises(Refused) as caught:
        back_up(home)
    assert caught.value.reason == "database_unusable"
    assert list((home.path / "backups").iterdir()) == []


@pytest.mark.requirement("care.backups-are-bounded")
@pytest.mark.parametrize(("keep", "stay"), [(2, 2), (3, 3), (1, 1)])
def test_the_newest_backups_stay_and_nothing_else_is_touched(home: Home, keep: int, stay: int) -> None:
    (home.path / "backups").mkdir(mode=0o700)
    notes = home.path / "backups" / "notes"
    notes.mkdir()
    made = [back_up(home, keep=keep) for _ in range(3)]
    for number, one in enumerate(made):
        assert one.folder.exists() == (number >= 3 - stay)
    assert notes.is_dir()


@pytest.mark.requirement("care.backups-are-bounded")
@pytest.mark.parametrize(("days", "stays"), [(0, True), (1, False)])
def test_a_backup_over_its_age_is_removed_by_the_next(home: Home, days: int, stays: bool) -> None:
    old = back_up(home)
    aged(old.folder, 29 * backup.DAY_MS + days * 2 * backup.DAY_MS)
    made = back_up(home, keep_days=30)
    assert old.folder.exists() is stays
    assert made.removed == (() if stays else (old.folder,))


@pytest.mark.requirement("care.backups-are-bounded")
@pytest.mark.parametrize("over", [False, True])
def test_backups_are_bounded_in_bytes_and_the_newest_stays(
    home: Home, monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    old = back_up(home)
    size = sum(store.size_bytes for store in old.manifest.stores)
    monkeypatch.setattr(backup, "KEPT_BYTES_MAX", 2 * size - over)
    assert back_up(home).folder.exists()
    assert old.folder.exists() is not over


@pytest.mark.requirement("care.a-restore-replaces-nothing-that-it-does-not-keep")
def test_a_restore_puts_the_backup_in_place_and_the_present_data_aside(home: Home) -> None:
    write(home, b"old")
    made = back_up(home)
    write(home, b"new")
    done = restore(home, made.folder)
    assert done.aside is not None
    assert floors(home.database(MAILBOX)) == [b"old"]
    assert floors(done.aside / MAILBOX / "mailbox.db") == [b"new", b"old"]
    assert stat.S_IMODE(home.database(MAILBOX).stat().st_mode) == 0o600
    assert read_one(home.database(MAILBOX), "PRAGMA application_id") == COPY_MARK
    again = restore(home, made.folder)
    assert again.aside not in {None, done.aside}


@pytest.mark.requirement("care.a-restore-replaces-nothing-that-it-does-not-keep")
def test_a_damaged_present_database_is_moved_aside_with_its_log_as_it_is(home: Home) -> None:
    made = back_up(home)
    database = home.database(MAILBOX)
    log = database.with_name("mailbox.db-wal")
    database.write_bytes(b"no database at all")
    log.write_bytes(b"no log")
    done = restore(home, made.folder)
    assert done.aside is not None
    assert (done.aside / MAILBOX / "mailbox.db").read_bytes() == b"no database at all"
    assert not log.exists()
    assert floors(database) == []


def test_a_backup_is_restored_into_a_home_that_holds_nothing(home: Home, tmp_path: Path) -> None:
    write(home, b"a")
    made = back_up(home)
    fresh = Home(tmp_path / "fresh")
    assert restore(fresh, made.folder).aside is None
    assert floors(fresh.database(MAILBOX)) == [b"a"]


@pytest.mark.requirement("care.a-restore-replaces-nothing-that-it-does-not-keep")
@pytest.mark.parametrize("holder", ["up", "sessions", "database"])
def test_a_home_in_use_is_not_restored(home: Home, holder: str) -> None:
    made = back_up(home)
    paths = {
        "up": home.up_lock,
        "sessions": home.lock(SESSIONS),
        "database": home.database(MAILBOX).with_name("mailbox.db.owner"),
    }
    held = OwnerLock(paths[holder])
    held.acquire()
    try:
        with pytest.raises(Refused) as caught:
            restore(home, made.folder)
    finally:
        held.release()
    assert caught.value.reason == "home_in_use"
    assert not (home.path / "replaced").exists()
    restore(home, made.folder)


def _damage(folder: Path, how: str) -> None:
    copy, manifest = folder / "mailbox.db", folder / "manifest.json"
    plain = json.loads(manifest.read_text())
    if how == "bytes":
        copy.write_bytes(copy.read_bytes()[:-1] + b"x")
    elif how == "missing":
        copy.unlink()
    elif how == "schema":
        plain["stores"][0]["schema"] = 99
    elif how == "rows":
        plain["stores"][0]["rows"]["record"] = 1
    elif how == "format":
        plain["format"] = 2
    elif how == "elsewhere":
        plain["stores"][0]["file"] = "../mailbox.db"
    elif how == "one":
        del plain["stores"][0]
    elif how == "long":
        plain["version"] = "x" * MANIFEST_BYTES_MAX
    manifest.write_text("[]" if how == "list" else "{" if how == "cut" else json.dumps(plain))
    if how == "none":
        manifest.unlink()


@pytest.mark.requirement("care.a-damaged-backup-is-not-restored")
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("bytes", "backup_damaged"),
        ("missing", "backup_damaged"),
        ("schema", "schema_too_new"),
        ("rows", "database_unusable"),
        ("format", "backup_damaged"),
        ("elsewhere", "backup_damaged"),
        ("one", "backup_damaged"),
        ("long", "backup_damaged"),
        ("list", "backup_damaged"),
        ("cut", "backup_damaged"),
        ("none", "backup_missing"),
    ],
)
def test_a_backup_that_is_not_whole_is_refused_and_the_home_stays_as_it_is(home: Home, how: str, reason: str) -> None:
    write(home, b"present")
    made = back_up(home)
    _damage(made.folder, how)
    with pytest.raises(Refused) as caught:
        restore(home, made.folder)
    assert caught.value.reason == reason
    assert floors(home.database(MAILBOX)) == [b"present"]
    assert not (home.path / "replaced").exists()
    assert not list(home.path.rglob("*.restoring"))


@pytest.mark.requirement("care.a-restore-replaces-nothing-that-it-does-not-keep")
def test_a_disk_that_fails_while_a_restore_is_staged_changes_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = back_up(home)
    write(home, b"present")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(Refused, match="the home is as it was") as caught:
        restore(home, made.folder)
    assert caught.value.reason == "restore_failed"
    assert floors(home.database(MAILBOX)) == [b"present"]
    assert not list(home.path.rglob("*.restoring"))
    assert isinstance(made.manifest, Manifest)


@pytest.mark.requirement("care.a-backup-names-what-it-leaves-out")
def test_a_backup_names_the_folders_of_agents_and_the_short_places_of_their_homes(home: Home, tmp_path: Path) -> None:
    assert back_up(home).left_out == ()
    kept, moved, lost = (home.path / "agents" / name / "habitat" for name in ("kept", "moved", "lost"))
    for habitat in (kept, moved, lost):
        habitat.mkdir(parents=True)
    (kept / ".codex").mkdir()
    short = tmp_path / "short" / "0a1b2c3d"
    (short / "h").mkdir(parents=True)
    (moved / ".codex").symlink_to(short / "h")
    (lost / ".codex").symlink_to(lost / ".codex")
    assert back_up(home).left_out == (home.path / "agents", short)
