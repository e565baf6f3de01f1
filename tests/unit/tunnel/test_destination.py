"""Where a tunnel may lead, the words of ssh, and what ssh's own words mean."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import NotWritten, Refused
from fencepost.tunnel import keeper
from fencepost.tunnel.destination import (
    BOOTSTRAP,
    DESTINATION_CHARS_MAX,
    PORT_MAX,
    REMOTE_HOME_BYTES_MAX,
    Destination,
    check_destination,
    failure,
    ssh_words,
)
from fencepost.tunnel.standing import RECONNECT_MS_MAX, RECONNECT_MS_MIN, pause_ms


def checked(name: str, *, port: int | None = None, remote_home: str = "") -> str:
    """The reason for which a destination is refused, or nothing."""
    try:
        check_destination(Destination(name=name, port=port), remote_home)
    except Refused as refused:
        return refused.reason
    return ""


@pytest.mark.parametrize(
    "name", ["host", "me@host", "me.you-2@host.example.org", "192.0.2.7", "me@::1", "_alias", "a" * 320]
)
def test_a_host_with_or_without_a_user_may_be_a_destination(name: str) -> None:
    assert checked(name) == ""


@pytest.mark.requirement("tunnel.nothing-given-is-read-as-more")
@pytest.mark.parametrize(
    "name",
    [
        *("", "-oProxyCommand=id", "-l", "me@-oProxyCommand=id", "-me@host", "me@", "@host", "a b", "a;id", "$(id)"),
        *("`id`", "a\nb", "a\0b", "me@me@host", "ssh://host", "[::1]", "host/..", "häst", "%h", "a'b", "a" * 321),
    ],
)
def test_whatever_could_be_read_as_more_than_a_name_is_refused(name: str) -> None:
    assert checked(name) == "invalid_destination"


@given(name=st.text(max_size=DESTINATION_CHARS_MAX + 2))
def test_what_passes_begins_no_option_and_means_itself_in_a_shell(name: str) -> None:
    if not checked(name):
        assert not name.startswith("-")
        assert "@-" not in name
        assert shlex.quote(name) == name


@pytest.mark.requirement("tunnel.nothing-given-is-read-as-more")
@pytest.mark.parametrize(
    ("port", "fine"), [(1, True), (PORT_MAX, True), (0, False), (PORT_MAX + 1, False), (-1, False)]
)
def test_a_port_is_one(*, port: int, fine: bool) -> None:
    assert (checked("host", port=port) == "") is fine


@pytest.mark.requirement("tunnel.nothing-given-is-read-as-more")
@pytest.mark.parametrize(
    ("folder", "fine"),
    [
        ("", True),
        ("/srv/f", True),
        ("below/home-2", True),
        ("a" * REMOTE_HOME_BYTES_MAX, True),
        ("a" * (REMOTE_HOME_BYTES_MAX + 1), False),
        ("-x", False),
        ("a:b", False),
        ("a b", False),
        ("a%h", False),
        ("a${HOME}", False),
        ("~/x", False),
        ("a'b", False),
    ],
)
def test_a_folder_over_there_holds_nothing_that_ssh_expands(*, folder: str, fine: bool) -> None:
    assert (checked("host", remote_home=folder) == "") is fine


@pytest.mark.requirement("tunnel.only-the-edge-and-the-named-agents")
def test_ssh_is_called_for_one_socket_only_and_never_reads_the_destination_as_an_option() -> None:
    destination = Destination(name="me@host", port=2222, identity="/k", configuration="/c")
    words = ssh_words("/usr/bin/ssh", destination, forward="/r/run/edge-1.sock", local="edge.sock")
    assert words[-3:] == ["--", "me@host", BOOTSTRAP]
    assert [words[at + 1] for at, word in enumerate(words) if word in {"-L", "-R", "-D", "-W"}] == [
        "/r/run/edge-1.sock:./edge.sock"
    ]
    options = {words[at + 1] for at, word in enumerate(words) if word == "-o"}
    assert {"BatchMode=yes", "ExitOnForwardFailure=yes", "ControlMaster=no", "ControlPath=none"} <= options
    assert {"ForwardAgent=no", "ForwardX11=no", "PermitLocalCommand=no", "ServerAliveInterval=10"} <= options
    assert "-A" not in words
    asking = ssh_words("ssh", Destination(name="host", may_ask=True), forward=None, local="edge.sock")
    assert "BatchMode=no" in asking
    assert "-R" not in asking


@pytest.mark.requirement("tunnel.nothing-given-is-read-as-more")
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_what_a_shell_over_there_is_given_is_always_the_same_and_runs_what_follows(shell: str) -> None:
    program = b"print('ran', b.readline())"
    done = subprocess.run(
        [shell, "-c", BOOTSTRAP],
        input=b"%d\n%brest\n" % (len(program), program),
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == b"ran b'rest\\n'\n"


@pytest.mark.requirement("tunnel.errors-say-what-is-wrong")
@pytest.mark.parametrize(
    ("said", "status", "reason", "passes"),
    [
        ("No ED25519 host key is known for x.\nHost key verification failed.", 255, "host_key_unknown", False),
        ("REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.", 255, "host_key_changed", False),
        ("me@host: Permission denied (publickey).", 255, "ssh_auth_refused", False),
        ("Received disconnect: Too many authentication failures", 255, "ssh_auth_refused", False),
        ("Error: remote port forwarding failed for listen path /r/s", 255, "forwarding_refused", False),
        ("bash: line 1: exec: python3: not found", 127, "remote_without_python", False),
        ("python3: Command not found.", 1, "remote_without_python", False),
        ("fish: Unknown command: python3", 127, "remote_without_python", False),
        ("", 127, "remote_without_python", False),
        ("ssh: Could not resolve hostname x: Name or service not known", 255, "unreachable", True),
        ("ssh: connect to host x port 22: Connection refused", 255, "unreachable", True),
        ("Timeout, server host not responding.", 255, "unreachable", True),
        ("Connection to host closed by remote host.", 255, "ssh_failed", True),
        ("something new", 255, "ssh_failed", True),
        ("", -9, "ssh_failed", True),
    ],
)
def test_what_ssh_says_becomes_a_reason_and_whether_it_may_pass(
    *, said: str, status: int, reason: str, passes: bool
) -> None:
    error, may_pass = failure(said, status)
    assert (error.reason, may_pass) == (reason, passes)
    assert isinstance(error, NotWritten if passes else Refused)


@pytest.mark.requirement("tunnel.a-lost-connection-is-replaced")
def test_pauses_double_up_to_their_cap_and_half_of_each_is_left_to_chance() -> None:
    assert [pause_ms(attempt, spread=1.0) for attempt in range(4)] == [RECONNECT_MS_MIN * n for n in (1, 2, 4, 8)]
    assert pause_ms(0, spread=0.0) == RECONNECT_MS_MIN // 2
    assert pause_ms(10_000, spread=1.0) == RECONNECT_MS_MAX


def test_the_keeper_and_the_command_line_agree_on_what_ssh_reads_unchanged() -> None:
    assert all(checked("host", remote_home=f"a{char}") == "" for char in keeper.PATH_CHARS)
