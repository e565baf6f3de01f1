"""Where things lie, which homes are refused, and which credentials are believed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost import Home, Refused
from fencepost.home import (
    CREDENTIAL_BYTES_MAX,
    SERVICES,
    SOCKET_PATH_BYTES_MAX,
    is_token,
    is_uuid,
    read_address,
    read_credential,
)
from fencepost.sockets import HASH_CHARS, candidate, prepare, recorded

AGENT = "0190f3a2-1111-7222-8333-444455556666"
TOKEN = "fp_" + "a" * 43


def test_the_layout_is_the_documented_one() -> None:
    home = Home("/h")
    assert [str(home.socket(name)) for name in SERVICES] == [
        "/h/run/sessions.sock",
        "/h/run/mailbox.sock",
        "/h/run/mcp_edge.sock",
        "/h/run/providers.sock",
    ]
    assert str(home.database("mailbox")) == "/h/mailbox/mailbox.db"
    assert str(home.address("mailbox")) == "/h/run/mailbox.addr"
    assert str(home.lock("mailbox")) == "/h/run/mailbox.lock"
    assert str(home.log("mailbox")) == "/h/logs/mailbox.log"
    assert str(home.agent_credential(AGENT)) == f"/h/agents/{AGENT}/credential"
    assert str(home.service_credential("mcp_edge")) == "/h/services/mcp_edge.credential"
    assert str(home.operator_credential) == "/h/operator.credential"
    assert (str(home.edge_socket), str(home.edge_address)) == ("/h/run/edge.sock", "/h/run/edge.addr")
    assert (str(home.up_lock), str(home.up_status)) == ("/h/run/up.lock", "/h/run/up.json")


def test_the_home_comes_from_the_environment_and_else_from_the_users_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somebody")
    assert Home.from_environment({"FENCEPOST_HOME": "/h"}) == Home("/h")
    assert Home.from_environment({}) == Home("/somebody/.fencepost")
    assert Home.from_environment({"FENCEPOST_HOME": ""}) == Home("/somebody/.fencepost")
    with pytest.raises(Refused):
        Home.from_environment({"FENCEPOST_HOME": "/h\0x"})


@pytest.mark.requirement("home.no-path-leaves-the-home")
@pytest.mark.parametrize(
    "text", ["..", "../../etc", "", AGENT.upper(), AGENT[:-1], AGENT + "0", AGENT.replace("-", "x")]
)
def test_an_agent_id_that_is_no_uuid_makes_no_path(text: str) -> None:
    assert not is_uuid(text)
    with pytest.raises(Refused):
        Home("/h").agent_credential(text)


@pytest.mark.requirement("home.no-path-leaves-the-home")
@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "x" * 33])
def test_a_service_name_that_is_no_plain_word_makes_no_path(name: str) -> None:
    with pytest.raises(ValueError, match="not a service name"):
        Home("/h").socket(name)


def _of_length(bytes_of_run: int) -> Home:
    return Home("/" + "x" * (bytes_of_run - len("//run")))


_ROOM = SOCKET_PATH_BYTES_MAX - len("/providers.sock")


@pytest.mark.requirement("home.a-long-path-gets-a-short-folder")
def test_sockets_leave_the_home_only_where_its_path_is_over_the_limit(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits, over = _of_length(_ROOM), _of_length(_ROOM + 1)
    assert fits.socket_folder == str(fits.run)
    assert len(os.fsencode(fits.socket("providers"))) == SOCKET_PATH_BYTES_MAX
    assert over.socket("mcp_edge").parent.parent == runtime / "fencepost"
    assert over.edge_socket.parent == over.socket("mailbox").parent
    over.check_socket_paths()
    assert over.socket_folder != _of_length(_ROOM + 2).socket_folder
    assert list(runtime.iterdir()) == []


@pytest.mark.requirement("home.a-long-path-gets-a-short-folder")
def test_the_socket_limit_counts_bytes_and_not_characters(runtime: Path) -> None:
    assert str(runtime) in Home("/" + "日" * (SOCKET_PATH_BYTES_MAX // 3)).socket_folder


@pytest.mark.requirement("home.too-long-for-a-socket-is-refused")
def test_a_home_whose_short_folder_is_too_long_as_well_is_refused_before_anything_exists(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    tail = f"/fencepost-{os.geteuid()}/{'0' * HASH_CHARS}"
    deep = Home(home.path / ("d" * SOCKET_PATH_BYTES_MAX))
    monkeypatch.setenv("TMPDIR", "/" + "t" * (_ROOM - len(tail) - 1))
    deep.check_socket_paths()
    monkeypatch.setenv("TMPDIR", "/" + "t" * (_ROOM - len(tail)))
    with pytest.raises(Refused) as caught:
        deep.prepare()
    assert caught.value.reason == "home_path_too_long"
    assert "1 bytes less are enough" in caught.value.hint
    assert not deep.path.exists()


@pytest.mark.requirement("home.a-long-path-gets-a-short-folder")
def test_the_short_folder_is_private_and_remembered_by_the_home_whatever_the_next_environment_says(
    long_home: Home, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        long_home.prepare()
    finally:
        os.umask(before)
    folder = Path(long_home.socket_folder)
    assert folder.parent == runtime / "fencepost"
    assert {made.stat().st_mode & 0o777 for made in (folder, folder.parent)} == {0o700}
    assert (long_home.run / "sockets").read_text() == f"{folder}\n"
    assert (long_home.run / "sockets").stat().st_mode & 0o777 == 0o600
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert Path(long_home.socket_folder) == folder
    long_home.prepare()
    folder.rmdir()  # a restart of the machine empties runtime folders
    assert Path(long_home.socket_folder) != folder


@pytest.mark.requirement("home.a-long-path-gets-a-short-folder")
@pytest.mark.parametrize("content", ["relative\n", "/one\n/two\n", "/nowhere/at/all\n", "x" * 5000, ""])
def test_a_note_of_the_short_folder_that_cannot_be_used_is_written_anew(long_home: Home, content: str) -> None:
    long_home.prepare()
    folder = long_home.socket_folder
    (long_home.run / "sockets").write_text(content)
    long_home.prepare()
    assert (long_home.run / "sockets").read_text() == f"{folder}\n"


@pytest.mark.requirement("home.a-long-path-gets-a-short-folder")
@pytest.mark.parametrize("level", ["parent", "folder"])
@pytest.mark.parametrize("flaw", ["link", "open", "file"])
def test_a_short_folder_that_is_a_link_or_open_to_others_is_refused(long_home: Home, level: str, flaw: str) -> None:
    folder = Path(long_home.socket_folder)
    target = folder if level == "folder" else folder.parent
    if level == "folder":
        folder.parent.mkdir(mode=0o700)
    if flaw == "link":
        long_home.path.parent.mkdir(mode=0o700, exist_ok=True)
        target.symlink_to(long_home.path.parent)
    elif flaw == "file":
        target.write_text("mine")
    else:
        target.mkdir()
        target.chmod(0o750)
    with pytest.raises(Refused) as caught:
        long_home.prepare()
    assert caught.value.reason == "runtime_folder_unsafe"
    assert str(target) in caught.value.message
    assert not (long_home.run / "sockets").exists()


@pytest.mark.requirement("home.a-long-path-gets-a-short-folder")
def test_a_short_folder_of_another_user_is_refused(long_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    long_home.prepare()
    folder = long_home.socket_folder
    other = os.geteuid() + 1
    monkeypatch.setattr("fencepost.sockets.os.geteuid", lambda: other)
    assert recorded(str(long_home.run)) is None
    with pytest.raises(Refused, match=r"belongs to another user|lets other users"):
        prepare(folder, str(long_home.run))


@pytest.mark.requirement("home.a-long-path-gets-a-short-folder")
def test_a_short_folder_is_not_made_where_others_may_replace_it(
    long_home: Home, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    shared = runtime / "t"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(shared))
    with pytest.raises(Refused) as caught:
        long_home.prepare()
    assert caught.value.reason == "runtime_folder_unsafe"
    shared.chmod(0o1777)
    long_home.prepare()
    assert Path(long_home.socket_folder).parent == shared / f"fencepost-{os.geteuid()}"


@pytest.mark.requirement("home.a-long-path-gets-a-short-folder")
def test_a_runtime_folder_that_is_not_ours_alone_is_passed_over(runtime: Path) -> None:
    names = {"XDG_RUNTIME_DIR": str(runtime), "TMPDIR": "/tmp"}
    runtime.chmod(0o755)
    assert candidate("/h", bytes_max=_ROOM, env=names).startswith(f"{os.path.realpath('/tmp')}/fencepost-")
    runtime.chmod(0o700)
    ours = candidate("/h", bytes_max=_ROOM, env=names)
    assert ours.startswith(f"{runtime}/fencepost/")
    assert candidate("/h", bytes_max=len(ours), env=names) == ours
    assert candidate("/h", bytes_max=len(ours) - 1, env=names) != ours


@pytest.mark.requirement("home.private-from-creation")
def test_a_home_is_private_from_its_creation(home: Home) -> None:
    before = os.umask(0)
    try:
        made = Home(home.path.parent / "other")
        made.prepare()
    finally:
        os.umask(before)
    assert {folder.stat().st_mode & 0o777 for folder in (made.path, made.run, made.logs)} == {0o700}
    made.prepare()


@pytest.mark.requirement("home.private-from-creation")
def test_a_home_that_others_can_write_to_is_refused(home: Home) -> None:
    home.path.chmod(0o770)
    with pytest.raises(Refused) as caught:
        home.prepare()
    assert caught.value.reason == "home_unsafe"
    home.path.chmod(0o700)
    home.run.chmod(0o750)
    with pytest.raises(Refused):
        home.prepare()
    home.run.chmod(0o700)


def test_a_run_folder_that_is_a_link_is_refused(home: Home) -> None:
    home.run.rmdir()
    home.run.symlink_to(home.logs)
    with pytest.raises(Refused):
        home.prepare()


def test_a_home_below_a_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(Refused) as caught:
        Home(tmp_path / "f" / "home").prepare()
    assert "FENCEPOST_HOME" in caught.value.hint


def put(path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


@pytest.mark.requirement("identity.credential-file-is-private-and-exact")
def test_a_private_file_with_exactly_one_token_is_read(tmp_path: Path) -> None:
    assert read_credential(put(tmp_path / "c", TOKEN)) == TOKEN
    assert read_credential(put(tmp_path / "c", TOKEN + "\n")) == TOKEN


@pytest.mark.requirement("identity.credential-file-is-private-and-exact")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_credential_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(Refused) as caught:
        read_credential(put(tmp_path / "c", TOKEN, mode))
    assert caught.value.reason == "credential_unsafe"
    assert TOKEN not in str(caught.value)


@pytest.mark.requirement("identity.credential-file-is-private-and-exact")
@pytest.mark.parametrize(
    "content",
    [
        *("", "\n", TOKEN + "\n\n", TOKEN + " ", TOKEN[:-1], TOKEN + "a", "xx_" + "a" * 43, TOKEN[:-1] + "!"),
        *(b"\xff" * 46, TOKEN + "\n" * (CREDENTIAL_BYTES_MAX + 1)),
    ],
)
def test_a_file_with_anything_but_one_token_is_refused_without_repeating_it(
    tmp_path: Path, content: str | bytes
) -> None:
    with pytest.raises(Refused) as caught:
        read_credential(put(tmp_path / "c", content))
    assert caught.value.reason == "credential_malformed"
    assert TOKEN[:-1] not in str(caught.value)


@pytest.mark.requirement("identity.credential-file-is-private-and-exact")
def test_a_link_a_folder_a_pipe_and_nothing_are_no_credentials(tmp_path: Path) -> None:
    put(tmp_path / "c", TOKEN)
    (tmp_path / "link").symlink_to(tmp_path / "c")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("link", "pipe", ".", "nothing"):
        with pytest.raises(Refused):
            read_credential(tmp_path / name)


@pytest.mark.parametrize("text", ["tcp:127.0.0.1:1", "unix:relative", "", "unix:/a\nunix:/b", "unix:/" + "a" * 5000])
def test_an_address_that_is_no_absolute_unix_socket_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Refused) as caught:
        read_address(put(tmp_path / "a", text))
    assert caught.value.reason == "address_malformed"


def test_an_address_is_read_and_a_missing_one_is_none(tmp_path: Path) -> None:
    assert read_address(put(tmp_path / "a", "unix:/run/x.sock\n")) == "unix:/run/x.sock"
    assert read_address(tmp_path / "nothing") is None


def test_tokens_have_one_form() -> None:
    assert is_token(TOKEN)
    assert not is_token(TOKEN + "\n")


@pytest.mark.requirement("home.cheap-to-import")
def test_importing_the_home_loads_neither_grpc_nor_the_costly_half_of_the_standard_library() -> None:
    program = (
        "import sys; before = set(sys.modules); import fencepost.home, fencepost.errors;"
        "print(sorted(set(sys.modules) - before))"
    )
    out = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    loaded = set(eval(out))
    assert not {"grpc", "typing", "dataclasses", "re", "pathlib", "enum", "inspect", "json", "asyncio"} & loaded, loaded


@pytest.mark.requirement("cli.an-unusable-home-is-refused")
@pytest.mark.parametrize(
    ("number", "reason", "words"),
    [
        (errno.EACCES, "invalid_home", "closed to this user"),
        (errno.EPERM, "invalid_home", "closed to this user"),
        (errno.ELOOP, "invalid_home", "a loop of links"),
        (errno.ENOTDIR, "invalid_home", "not a folder"),
        (errno.EIO, "invalid_home", os.strerror(errno.EIO)),
        (errno.ENAMETOOLONG, "home_path_too_long", "limit"),
    ],
)
def test_whatever_the_system_answers_about_a_home_becomes_a_refusal_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str, words: str
) -> None:
    def stat(_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(Refused) as caught:
        Home.from_environment({"FENCEPOST_HOME": str(tmp_path)})
    monkeypatch.undo()
    assert (caught.value.reason, words in caught.value.message) == (reason, True)
    assert "FENCEPOST_HOME" in caught.value.hint


@pytest.mark.requirement("cli.an-unusable-home-is-refused")
def test_a_relative_home_in_a_folder_that_is_gone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(Refused, match="is gone"):
        Home.from_environment({"FENCEPOST_HOME": "home"})
    monkeypatch.chdir(tmp_path)


@pytest.mark.requirement("cli.an-unusable-home-is-refused")
def test_a_home_that_is_not_there_yet_can_be_used_and_is_not_made(tmp_path: Path) -> None:
    assert Home.from_environment({"FENCEPOST_HOME": str(tmp_path / "a" / "b")}).path == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == []
