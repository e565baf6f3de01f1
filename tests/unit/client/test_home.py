"""Where things lie, which homes are refused, and which credentials are believed."""

from __future__ import annotations

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

AGENT = "0190f3a2-1111-7222-8333-444455556666"
TOKEN = "fp_" + "a" * 43


def test_the_layout_is_the_documented_one() -> None:
    home = Home("/h")
    assert [str(home.socket(name)) for name in SERVICES] == [
        "/h/run/sessions.sock",
        "/h/run/mailbox.sock",
        "/h/run/mcp_edge.sock",
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


@pytest.mark.requirement("home.too-long-for-a-socket-is-refused")
def test_a_home_over_the_socket_limit_is_refused_before_anything_exists(tmp_path: Path) -> None:
    longest = len("/run/mcp_edge.sock")
    fits = Home("/" + "x" * (SOCKET_PATH_BYTES_MAX - longest - 1))
    fits.check_socket_paths()
    over = Home("/" + "x" * (SOCKET_PATH_BYTES_MAX - longest))
    with pytest.raises(Refused) as caught:
        over.check_socket_paths()
    assert caught.value.reason == "home_path_too_long"
    assert "1 bytes shorter" in caught.value.hint
    deep = Home(tmp_path / ("d" * SOCKET_PATH_BYTES_MAX))
    with pytest.raises(Refused):
        deep.prepare()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("home.too-long-for-a-socket-is-refused")
def test_the_socket_limit_counts_bytes_and_not_characters() -> None:
    with pytest.raises(Refused):
        Home("/" + "日" * (SOCKET_PATH_BYTES_MAX // 3)).check_socket_paths()


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
