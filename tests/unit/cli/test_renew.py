"""A new generation from the shell, and the words in which commands speak to people."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.cli.screen import in_commands
from fencepost.common.v1 import common_pb2
from fencepost.errors import NotWritten, Refused, Uncertain
from fencepost.home import read_credential
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.mcp.registry import TOOLS
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_testing.shell import BOB, Shell

ASK = "ask_0190f3a2111172228333444455556666"


def begins(shell: Shell) -> None:
    found = sessions.Agent(agent_id=BOB, name="bob", generation=1)
    shell.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=found)
    shell.sessions.answers["begin_generation"] = sessions.BeginGenerationResponse(
        generation=2, credential_file="/there/credential"
    )


@pytest.mark.requirement("cli.a-new-life-from-the-shell")
def test_a_new_generation_is_begun_opened_and_told_with_what_is_uncertain_and_open(shell: Shell) -> None:
    begins(shell)
    shell.mailbox.answers["open_generation"] = pb.OpenGenerationResponse(
        floor=2,
        uncertain_record_ids=["ask_1"],
        uncertain_count=3,
        open_requests=[pb.OpenRequest(request_id=ASK, sender=common_pb2.AgentRef(name="ada"))],
    )
    out = shell("agent", "renew", "bob", "--idempotency-key", "k").out
    for expected in ("Generation 2 of bob", "/there/credential", "is fenced", "Uncertain: ask_1", "2 more", ASK, "ada"):
        assert expected in out
    assert shell.sessions.asked[-1][1] == sessions.BeginGenerationRequest(idempotency_key="k", agent_id=BOB)
    assert shell.mailbox.asked == [("open_generation", pb.OpenGenerationRequest(agent_id=BOB, generation=2))]
    document = shell("agent", "renew", "bob", "--json").document
    assert (document["generation"], document["floor"], document["agent_id"]) == (2, 2, BOB)
    assert document["uncertain_record_ids"] == ["ask_1"]


@pytest.mark.requirement("cli.a-new-life-from-the-shell")
@pytest.mark.parametrize("failure", [NotWritten, Refused, Uncertain])
def test_a_generation_that_the_mailbox_did_not_open_is_uncertain_and_the_command_that_ends_it_is_told(
    shell: Shell, failure: type[NotWritten | Refused | Uncertain]
) -> None:
    begins(shell)
    shell.mailbox.answers["open_generation"] = failure("unreachable", "no mailbox")
    done = shell("agent", "renew", "bob", "--idempotency-key", "k", "--json")
    assert (done.code, done.error["outcome"]) == (7, "uncertain")
    assert done.error["hint"] == f"Finish it: fencepost agent renew {BOB} --idempotency-key k"
    assert done.error["state"]["generation"] == "2"


@pytest.mark.requirement("cli.a-new-life-from-the-shell")
def test_an_agent_renews_nobody_and_an_unknown_outcome_keeps_its_key(shell: Shell) -> None:
    begins(shell)
    shell.sessions.answers["begin_generation"] = Uncertain("deadline_exceeded", "no answer")
    done = shell("agent", "renew", "bob", "--idempotency-key", "k", "--json")
    assert (done.code, done.error["state"]["idempotency_key"]) == (7, "k")
    assert shell.mailbox.asked == []
    shell.as_agent()
    assert shell("agent", "renew", "bob", "--json").error["code"] == "permission_denied"


@pytest.mark.requirement("cli.a-new-life-from-the-shell")
@pytest.mark.parametrize(
    ("place", "words"),
    [(f"agents/{BOB}/credential", "fencepost agent renew"), ("operator.credential", "chmod 600"), ("x", "chmod 600")],
)
def test_a_credential_that_others_may_know_is_refused_with_what_its_owner_can_do(
    tmp_path: Path, place: str, words: str
) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("fp_" + "a" * 43)
    path.chmod(0o644)
    with pytest.raises(Refused) as caught:
        read_credential(path)
    assert (caught.value.reason, words in caught.value.hint) == ("credential_unsafe", True)


def test_a_credential_that_is_a_link_is_refused_as_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(Refused, match="is a link, and a link is refused") as caught:
        read_credential(tmp_path / "link")
    assert caught.value.reason == "credential_unreadable"


def test_no_hint_at_a_shell_names_a_tool_of_mcp(shell: Shell) -> None:
    shell.as_agent()
    shell.mailbox.answers["send"] = Refused("invalid_target", "empty", hint="Name one agent: list_agents shows them.")
    expected = "Name one agent: `fencepost agent list` shows them."
    assert shell("message", "send", "x", "hi", "--json").error["hint"] == expected
    assert expected in shell("message", "send", "x", "hi").err
    # `reply` is the one tool that is a word too, and the command's own name.
    for tool in {tool.name for tool in TOOLS} - {"reply"}:
        assert in_commands(f"Use {tool}.").startswith("Use `fencepost ")
    assert in_commands("my_send_message `wait_agent` list_agents_x") == "my_send_message `wait_agent` list_agents_x"


@pytest.mark.parametrize(("key", "words"), [((), "says the same"), (("--idempotency-key", "k"), "with this key")])
def test_an_identical_second_reply_speaks_of_a_key_only_where_one_was_given(
    shell: Shell, key: tuple[str, ...], words: str
) -> None:
    shell.as_agent()
    shell.mailbox.answers["reply"] = pb.ReplyResponse(request_id=ASK, record_id="rep_1", duplicate=True)
    out = shell("message", "reply", ASK, "done", *key).out
    assert (words in out, "with this key" in out) == (True, bool(key))


def test_revoking_waits_a_moment_for_the_mailbox_to_enforce_it(shell: Shell) -> None:
    answers = iter([False, False, True])
    shell.sessions.answers["revoke_credential"] = lambda _: sessions.RevokeCredentialResponse(
        revision=4, enforced=next(answers)
    )
    assert "the mailbox enforces it" in shell("credential", "revoke", BOB).out
    assert len(shell.sessions.asked) == 3
