"""Programs and their models, what became of work, approvals, and what is wrong with a program."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.cli.providing import NOTE_BYTES_MAX
from fencepost.errors import NotWritten, Refused, Uncertain
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_testing.shell import BOB, Shell

ASK = "ask_0190f3a2111172228333444455556666"


@pytest.fixture
def managed(shell: Shell) -> Shell:
    bob = sessions.Agent(agent_id=BOB, name="bob", desired=sessions.DESIRED_STATE_ON)
    shell.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=bob)
    shell.monkeypatch.setenv("COLUMNS", "200")
    return shell


def capability(support: Any, kind: Any = pb.CAPABILITY_KIND_MID_TURN) -> pb.Capability:
    return pb.Capability(kind=kind, support=support, reason="older than 0.159.2")


@pytest.mark.requirement("cli.names-programs-and-models")
@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        (pb.Provider(capabilities=[capability(pb.SUPPORT_CERTIFIED)]), "certified"),
        (
            pb.Provider(capabilities=[capability(pb.SUPPORT_CERTIFIED), capability(pb.SUPPORT_NONE)]),
            "certified",
        ),
        (
            pb.Provider(capabilities=[capability(pb.SUPPORT_CERTIFIED), capability(pb.SUPPORT_UNCERTIFIED)]),
            "uncertified",
        ),
        (pb.Provider(capabilities=[capability(pb.SUPPORT_NONE)]), "none"),
        (pb.Provider(problem="no codex was found. Install it."), "cannot be used"),
    ],
)
def test_programs_are_listed_with_how_far_they_are_supported(
    managed: Shell, provider: pb.Provider, expected: str
) -> None:
    provider.MergeFrom(pb.Provider(name="codex", title="Codex"))
    managed.providers.answers["list_providers"] = pb.ListProvidersResponse(providers=[provider])
    out = managed("provider", "list").out
    (row,) = (line for line in out.splitlines() if line.startswith("codex  "))
    assert expected in row
    assert ("codex: no codex was found. Install it." in out) == bool(provider.problem)
    found = managed("provider", "list", "--json").document["providers"]
    assert found[0]["problem"] == provider.problem


def test_a_home_without_adapters_says_so(managed: Shell) -> None:
    managed.providers.answers["list_providers"] = pb.ListProvidersResponse()
    assert "No adapter is installed" in managed("provider", "list").out


@pytest.mark.requirement("cli.names-programs-and-models")
@pytest.mark.parametrize("command", [("provider", "models", "codex"), ("agent", "models", "--provider", "codex")])
def test_models_are_listed_with_their_efforts_and_where_that_comes_from(
    managed: Shell, command: tuple[str, ...]
) -> None:
    model = pb.Model(model="m-1", title="Em", efforts=["low", "high"], default_effort="low", is_default=True)
    managed.providers.answers["list_models"] = lambda _: pb.ListModelsResponse(
        models=[model, pb.Model(model="m-2")], source="live", asked_at_ms=1, problem="the newest answer was no list"
    )
    done = managed(*command, "--refresh")
    for expected in ("m-1 *", "low high", "Source: live", "the newest answer was no list"):
        assert expected in done.out
    assert managed.providers.asked == [("list_models", "codex")]
    assert managed(*command, "--json").document["models"][0]["is_default"] is True


def test_no_models_and_an_unknown_provider_are_told_apart(managed: Shell) -> None:
    managed.providers.answers["list_models"] = pb.ListModelsResponse(source="unavailable", problem="no codex was found")
    done = managed("provider", "models", "codex")
    assert (done.code, done.out) == (0, "No models of codex are known.\nno codex was found\n")
    managed.providers.answers["list_models"] = Refused("unknown_provider", "no adapter named 'x'", hint="See.")
    done = managed("provider", "models", "x", "--json")
    assert (done.code, done.error["code"]) == (1, "unknown_provider")


@pytest.mark.requirement("cli.names-programs-and-models")
def test_capabilities_are_told_with_the_reason_where_they_are_none(managed: Shell) -> None:
    managed.providers.answers["get_capabilities"] = pb.GetCapabilitiesResponse(
        provider="codex", version="0.154.0", capabilities=[capability(pb.SUPPORT_NONE)]
    )
    out = managed("delivery", "capabilities", "bob").out
    assert out.startswith("codex 0.154.0\n")
    assert [word in out for word in ("mid turn", "none", "older than 0.159.2")] == [True] * 3
    managed.providers.answers["get_capabilities"] = pb.GetCapabilitiesResponse()
    assert managed("delivery", "capabilities", "bob").out.startswith("no adapter\n")
    assert managed("delivery", "capabilities", "bob", "--json").document["capabilities"] == []


@pytest.mark.requirement("cli.settles-uncertain-work")
def test_a_delivery_is_shown_with_its_facts_and_its_turn(managed: Shell) -> None:
    bound = mailbox.Binding(
        provider="codex",
        provider_turn_id="t1",
        state=mailbox.BINDING_STATE_PUBLISHED,
        outcome=mailbox.TURN_OUTCOME_COMPLETED,
        final_text="fine\nFencepost: all is well",
    )
    told = mailbox.ExplainResponse(
        record=mailbox.Record(record_id=ASK), facts=[mailbox.Fact(fact="bound")], binding=bound, summary="Done."
    )
    managed.mailbox.answers["explain"] = told
    out = managed("delivery", "show", ASK).out
    for expected in ("bound", "Done.", "Turn t1 of codex: completed.", "  | fine\n  | Fencepost: all is well"):
        assert expected in out
    found = managed("delivery", "show", ASK, "--json").document
    assert (found["binding"]["outcome"], found["facts"][0]["since_previous_ms"]) == ("completed", None)
    told.binding.outcome = mailbox.TURN_OUTCOME_UNSPECIFIED
    assert "Turn t1 of codex: published." in managed("delivery", "show", ASK).out


@pytest.mark.requirement("cli.settles-uncertain-work")
@pytest.mark.parametrize(
    ("option", "resolution"),
    [
        ("--done", mailbox.RESOLUTION_DONE),
        ("--not-done", mailbox.RESOLUTION_NOT_DONE),
        ("--as-new", mailbox.RESOLUTION_AS_NEW),
    ],
)
def test_a_person_settles_uncertain_work_by_exactly_one_word(managed: Shell, option: str, resolution: Any) -> None:
    managed.mailbox.answers["resolve_delivery"] = mailbox.ResolveDeliveryResponse(
        reply_id="rep_1", new_record_id="ask_2", duplicate=resolution == mailbox.RESOLUTION_DONE
    )
    done = managed("delivery", "resolve", ASK, option, "--note", "I looked", "--idempotency-key", "k")
    ask = mailbox.ResolveDeliveryRequest(record_id=ASK, resolution=resolution, note="I looked", idempotency_key="k")
    assert (done.code, managed.mailbox.asked) == (0, [("resolve_delivery", ask)])
    assert ("by an earlier call" in done.out) == (resolution == mailbox.RESOLUTION_DONE)
    assert ("rep_1" in done.out, "ask_2" in done.out) == (True, True)
    assert managed("delivery", "resolve", ASK, option, "--json").document["new_record_id"] == "ask_2"


@pytest.mark.parametrize(
    "options",
    [(), ("--done", "--not-done"), ("--done", "--note", "x" * (NOTE_BYTES_MAX + 1))],
    ids=["none", "two", "a long note"],
)
def test_what_is_no_word_is_refused_before_a_call(managed: Shell, options: tuple[str, ...]) -> None:
    done = managed("delivery", "resolve", ASK, *options, "--json")
    assert (done.code, done.error["code"], managed.acted) == (1, "invalid_arguments", [])


def test_the_longest_note_is_taken(managed: Shell) -> None:
    managed.mailbox.answers["resolve_delivery"] = mailbox.ResolveDeliveryResponse()
    assert managed("delivery", "resolve", ASK, "--done", "--note", "é" * (NOTE_BYTES_MAX // 2)).code == 0


@pytest.mark.requirement("cli.settles-uncertain-work")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("invalid_state", "the request is not uncertain; nothing was written"), 1),
        (NotWritten("unreachable", "nobody there"), 6),
        (Uncertain("connection_lost", "lost"), 7),
    ],
)
def test_a_settlement_without_a_receipt_is_called_what_it_is(managed: Shell, error: Any, code: int) -> None:
    managed.mailbox.answers["resolve_delivery"] = error
    done = managed("delivery", "resolve", ASK, "--done", "--json", "--idempotency-key", "k")
    assert (done.code, done.error["outcome"]) == (code, error.outcome)
    assert isinstance(error, Refused) or done.error["state"]["idempotency_key"] == "k"


@pytest.mark.parametrize(("duplicate", "text"), [(False, "is withdrawn"), (True, "was withdrawn before")])
def test_a_request_is_taken_back_by_its_sender(managed: Shell, *, duplicate: bool, text: str) -> None:
    managed.as_agent()
    managed.mailbox.answers["withdraw"] = mailbox.WithdrawResponse(duplicate=duplicate)
    assert managed("message", "withdraw", ASK).out == f"{ASK} {text}.\n"
    assert managed("message", "withdraw", ASK, "--json").document["request_id"] == ASK
    managed.mailbox.answers["withdraw"] = Refused("not_pending", "somebody may have seen it")
    assert managed("message", "withdraw", ASK, "--json").error["code"] == "not_pending"


@pytest.mark.requirement("cli.approves-tools-by-name")
def test_tools_are_approved_by_name_and_it_is_told_when_that_takes_effect(managed: Shell) -> None:
    managed.providers.answers["approve_tools"] = pb.ApproveToolsResponse(
        approved=["reply", "send_message"], restart_required=True
    )
    done = managed("agent", "tools", "bob", "--approve", "reply", "--approve", "send_message")
    assert done.out.startswith("Approved: reply, send_message.\n")
    assert "fencepost agent restart bob" in done.out
    asked = pb.ApproveToolsRequest(agent_id=BOB, tools=["reply", "send_message"])
    assert managed.providers.asked == [("approve_tools", asked)]
    assert managed("agent", "tools", "bob", "--approve", "reply", "--json").document["restart_required"] is True
    managed.providers.answers["approve_tools"] = Refused("invalid_tools", "no such tool", hint="There are: reply.")
    assert managed("agent", "tools", "bob", "--approve", "x", "--json").error["code"] == "invalid_tools"


@pytest.mark.requirement("cli.approves-tools-by-name")
def test_without_a_name_nothing_is_approved(managed: Shell) -> None:
    done = managed("agent", "tools", "bob", "--json")
    assert (done.code, done.error["code"], managed.acted) == (1, "invalid_arguments", [])


def inspection(*findings: pb.Finding) -> pb.InspectRuntimeResponse:
    return pb.InspectRuntimeResponse(
        runtime=pb.Runtime(state=pb.RUNTIME_STATE_OFF, private_home="/h/agents/x/habitat/.codex", log_file="/h/l"),
        findings=findings,
        launch_arguments=["codex", "-c", "model=a b"],
        restart_required=True,
    )


@pytest.mark.requirement("cli.inspects-an-agent")
@pytest.mark.parametrize(
    ("gravity", "code", "mark"),
    [(pb.GRAVITY_FACT, 0, "Note"), (pb.GRAVITY_WARNING, 0, "Warning"), (pb.GRAVITY_ERROR, 1, "PROBLEM")],
)
def test_what_is_wrong_with_an_agent_is_told_with_its_remedy(
    managed: Shell, gravity: Any, code: int, mark: str
) -> None:
    finding = pb.Finding(code="registration_occupied", gravity=gravity, text="the name is taken", hint="Rename it.")
    managed.providers.answers["inspect_runtime"] = inspection(finding)
    done = managed("agent", "doctor", "bob")
    assert done.code == code
    for expected in (
        f"{mark}: the name is taken (registration_occupied)\n  Rename it.",
        "  home /h/agents/x/habitat/.codex",
        "  log /h/l",
        "started with codex -c 'model=a b'",
        "fencepost agent restart bob",
    ):
        assert expected in done.out
    assert ("Nothing is wrong" in done.out) == (gravity == pb.GRAVITY_FACT)
    found = managed("agent", "doctor", "bob", "--json")
    assert (found.code, found.document["findings"][0]["code"]) == (code, "registration_occupied")
