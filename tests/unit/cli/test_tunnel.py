"""`fencepost tunnel` before anything is started: for whom it is, what it refuses, and what it tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.cli import tunnelling
from fencepost.cli.tunnel import GIVE_UP_S_MAX
from fencepost.errors import NotWritten, Refused
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost.tunnel.link import Link, Prepared
from fencepost.tunnel.standing import Happening
from fencepost_testing.shell import AGENT, BOB, Shell

STANDS = Happening(what="stands", prepared=Prepared(folder="/r", shim="", python="/usr/bin/python3"), pid=7)


@pytest.fixture
def served(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell in whose home the edge runs; no ssh is ever started."""

    def never(_: Link) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr(Link, "prepare", never)
    shell.home.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    shell.home.edge_address.write_text(f"unix:{shell.home.text}/run/edge.sock\n")
    return shell


@pytest.mark.requirement("tunnel.nothing-given-is-read-as-more")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--", "-oProxyCommand=id"), "invalid_destination"),
        (("me@-oProxyCommand=id",), "invalid_destination"),
        (("host", "--remote-home", "a:b"), "invalid_arguments"),
        (("host", "--port", "0"), "invalid_arguments"),
        (("host", "--at-end", "burn"), "invalid_arguments"),
        (("host", "--give-up-s", str(GIVE_UP_S_MAX + 1)), "invalid_arguments"),
        (("host", "--give-up-s", "-1"), "invalid_arguments"),
        (("host", "--identity", "/nowhere/at/all"), "invalid_arguments"),
        (("host", *(f"--agent=a{number}" for number in range(tunnelling.AGENTS_MAX + 1))), "invalid_arguments"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_started(
    served: Shell, arguments: tuple[str, ...], code: str
) -> None:
    done = served("tunnel", "--json", *arguments)
    assert (done.code, done.error["code"]) == (1, code)
    assert not served.sessions.asked


@pytest.mark.requirement("tunnel.only-the-edge-and-the-named-agents")
def test_an_agent_opens_no_tunnel_and_without_an_edge_there_is_nothing_to_forward(shell: Shell) -> None:
    assert (shell("tunnel", "host", "--json").code, shell.acted) == (6, [])
    shell.as_agent()
    assert shell("tunnel", "host", "--json").error["code"] == "permission_denied"


@pytest.mark.requirement("tunnel.errors-say-what-is-wrong")
def test_an_agent_that_does_not_exist_or_has_no_credential_here_is_refused(served: Shell) -> None:
    served.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=sessions.Agent(agent_id=BOB, name="bob"))
    assert served("tunnel", "host", "--agent", "bob", "--json").error["code"] == "credential_missing"
    served.sessions.answers["get_agent"] = Refused("not_found", "there is none")
    assert served("tunnel", "host", "--agent", "bob", "--json").code == 2


def a_teller(at_end: str = "remove") -> tunnelling._Teller:
    wish = tunnelling.Wish(
        destination="host",
        agents=("ada",),
        remote_home="",
        install_shim=False,
        at_end=at_end,
        port=None,
        identity=None,
        ssh_config=None,
        ask=False,
        give_up_s=0,
        as_json=False,
    )
    return tunnelling._Teller(wish, [sessions.Agent(agent_id=AGENT, name="ada")])


@pytest.mark.requirement("tunnel.an-agent-elsewhere-takes-part")
def test_a_person_is_told_what_to_give_the_program_over_there(capsys: pytest.CaptureFixture[str]) -> None:
    tell = a_teller()
    tell(STANDS)
    tell(Happening(what="lost", error=NotWritten("unreachable", "gone", state={"ssh": "timed\x1bout"}), again_ms=500))
    tell(STANDS)
    out = capsys.readouterr().out
    assert f'"env": {{\n        "FENCEPOST_HOME": "/r",\n        "FENCEPOST_SESSION_ID": "{AGENT}",' in out
    assert '"FENCEPOST_SERVER_NAME": "fencepost-ssh"' in out
    assert "begin again with --install-shim" in out
    assert "Lost: gone (timed␛out). Again in 500 ms." in out
    assert "The tunnel stands again (ssh is process 7)." in out


@pytest.mark.requirement("tunnel.nothing-is-left-behind")
@pytest.mark.parametrize(
    ("at_end", "cleared", "code", "words"),
    [
        ("remove", True, 0, "are gone"),
        ("remove", False, 7, "fencepost agent renew ada"),
        ("remove", None, 7, "fencepost agent renew ada"),
        ("renew", None, 0, "goes by itself within 45 s"),
        ("keep", True, 0, "stay over there, as you asked"),
    ],
)
def test_an_end_that_the_other_machine_did_not_confirm_is_no_clean_end(
    *, capsys: pytest.CaptureFixture[str], at_end: str, cleared: bool | None, code: int, words: str
) -> None:
    tell = a_teller(at_end)
    tell(STANDS)
    tell(Happening(what="ended", cleared=cleared))
    assert tell.last() == code
    assert words in capsys.readouterr().out


def test_the_paths_of_files_are_made_whole_since_ssh_is_started_elsewhere(served: Shell, tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    wish = a_teller()._wish
    named = tunnelling._checked(
        tunnelling.Wish(**{**{name: getattr(wish, name) for name in wish.__slots__}, "identity": Path("key")})
    )
    assert named.identity == str(tmp_path / "key")
