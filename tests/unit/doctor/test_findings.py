"""What each set of facts means: a code, and what to do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencepost.connect.trial import Trial
from fencepost.doctor.entries import Entry, Unreadable
from fencepost.doctor.findings import (
    CODES,
    JUDGES,
    NAMED_MAX,
    UNREAD_MS_MIN,
    Ailment,
    Facts,
    Finding,
    Program,
    Severity,
    Version,
    Waiting,
    judge,
)
from fencepost.doctor.processes import Process

ROOT = Path(__file__).resolve().parents[3]
COMMAND = ("/opt/f/bin/fencepost-mcp", "--agent", "ann")
OTHER = ("/opt/old/bin/fencepost-mcp",)
NOW_MS = 1_800_000_000_000
V1, V2 = Version(version="1", registry="a"), Version(version="2", registry="b")


def an_entry(**fields: Any) -> Entry:
    known: dict[str, Any] = {
        "program": "codex",
        "title": "Codex",
        "file": Path("/h/.codex/config.toml"),
        "name": "fencepost",
        "command": COMMAND,
        "environment": {"FENCEPOST_HOME": "/h/f"},
        "enabled": True,
    }
    return Entry(**{**known, **fields})


def a_process(**fields: Any) -> Process:
    known: dict[str, Any] = {"pid": 7, "arguments": ("python", COMMAND[0]), "started_s": 200.0, "home": "/h/f"}
    return Process(**{**known, "orphan": False, **fields})


def an_ailment(**fields: Any) -> Ailment:
    known: dict[str, Any] = {"agent": "ann", "severity": Severity.PROBLEM, "code": "registration_occupied"}
    return Ailment(**{**known, "text": "the name is taken", "hint": "", **fields})


HEALTHY = Facts(
    home="/h/f",
    default_home="/h/.fencepost",
    supervised=True,
    own=V1,
    edge=V1,
    entries=(an_entry(),),
    trials={COMMAND: Trial(problem="", version="1", listing=[1])},
    listing=[1],
    processes=(a_process(),),
    installed_s=100.0,
    own_commands=(COMMAND[0],),
    waiting=(Waiting(agent="bob", records=1, oldest_ms=NOW_MS - UNREAD_MS_MIN + 1, last_read_ms=0),),
    now_ms=NOW_MS,
)
SESSION = {"FENCEPOST_HOME": "/h/f", "FENCEPOST_SESSION_ID": "0195F3A0-0000-7000-8000-000000000001"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "a credential that others read": ("unsafe_mode", {"unsafe": [("/h/f/x", "is open", "600")]}),
    "a file of somebody else": ("unsafe_mode", {"unsafe": [("/h/f/x", "belongs to another user", "")]}),
    "an agent that is no more": ("identity_unusable", {"identity_problem": "no such credential"}),
    "nothing runs": ("services_not_running", {"supervised": False, "edge": None}),
    "a service in a crash loop": ("service_not_ready", {"unready": {"mailbox": "crash_loop"}}),
    "an edge that does not greet": ("edge_unreachable", {"edge": None, "edge_problem": "silence"}),
    "an upgrade under running services": (
        "edge_version",
        {"own": V2, "trials": {COMMAND: Trial(problem="", version="1", listing=[1])}},
    ),
    "other tools of the same version": ("edge_version", {"own": replace(V1, registry="c")}),
    "a broken configuration": (
        "configuration_unreadable",
        {"unreadable": [Unreadable(program="pi", title="Pi", file=Path("/h/x"), why="no value in line 1")]},
    ),
    "a broken record": ("record_unreadable", {"records_problem": "the record x cannot be read"}),
    "no program": ("not_configured", {"entries": (), "trials": {}}),
    "a name that is taken": ("name_occupied", {"entries": (an_entry(command=("other",)),)}),
    "an entry switched off": ("entry_disabled", {"entries": (an_entry(enabled=False),)}),
    "a script that is gone": ("stale_command", {"missing_commands": [COMMAND], "trials": {}}),
    "a script that does not work": ("handshake_failed", {"trials": {COMMAND: Trial(problem="status 1")}}),
    "another installation": (
        "old_shim",
        {
            "entries": (an_entry(command=(*OTHER, *COMMAND[1:])),),
            "trials": {(*OTHER, *COMMAND[1:]): Trial(problem="", version="0")},
        },
    ),
    "the same version with other tools": (
        "old_shim",
        {"trials": {COMMAND: Trial(problem="", version="1", listing=[2])}},
    ),
    "a server from before the upgrade": ("old_shim", {"installed_s": 201.0}),
    "another home": ("home_mismatch", {"entries": (an_entry(environment={"FENCEPOST_HOME": "/other"}),)}),
    "the default home": ("home_mismatch", {"entries": (an_entry(environment={}),)}),
    "Codex that never asks": ("approval_missing", {"entries": (an_entry(refused_tools=("send_message",)),)}),
    "an agent without a credential": (
        "unknown_agent",
        {
            "entries": (an_entry(command=COMMAND[:1], environment=SESSION),),
            "trials": {},
            "unusable_ids": {SESSION["FENCEPOST_SESSION_ID"].lower(): "there is no credential"},
        },
    ),
    "an entry without an agent": ("missing_identity", {"entries": (an_entry(command=COMMAND[:1]),), "trials": {}}),
    "one name for two programs": (
        "agent_configured_twice",
        {"entries": (an_entry(), an_entry(program="pi", title="Pi", file=Path("/h/pi.json")))},
    ),
    "one id for two programs": (
        "agent_configured_twice",
        {
            "entries": tuple(
                an_entry(program=name, command=COMMAND[:1], environment=SESSION) for name in ("codex", "claude")
            ),
            "trials": {},
        },
    ),
    "a server without a program": ("orphan_shim", {"processes": (a_process(orphan=True),)}),
    "mail nobody reads": (
        "mail_unread",
        {"waiting": (Waiting(agent="bob", records=3, oldest_ms=NOW_MS - UNREAD_MS_MIN, last_read_ms=5),)},
    ),
    "agents to run and nobody who runs them": (
        "providers_unreachable",
        {"unattended": ("ann", "bob"), "providers_problem": "nobody answers"},
    ),
    "a program that is not there": (
        "program_unusable",
        {"programs": (Program(name="codex", problem="no codex was found.", agents=("ann",)),)},
    ),
    "an agent that does not work": ("agent_ails", {"ailments": (an_ailment(),)}),
    "tools that are not approved": (
        "agent_may_ail",
        {"ailments": (an_ailment(severity=Severity.WARNING, hint="fencepost agent tools ann --approve TOOL"),)},
    ),
    "an agent that cannot be looked at": ("agent_not_inspected", {"uninspected": {"ann": "no answer within 40 s"}}),
}


@pytest.mark.requirement("doctor.each-finding-has-a-code-and-a-remedy")
def test_where_nothing_is_wrong_nothing_is_found() -> None:
    assert judge(HEALTHY) == []


@pytest.mark.requirement("doctor.each-finding-has-a-code-and-a-remedy")
@pytest.mark.parametrize("case", CASES)
def test_each_thing_that_is_wrong_is_found_under_its_code_and_nothing_else_is(case: str) -> None:
    code, fields = CASES[case]
    found = judge(replace(HEALTHY, **fields))
    assert [finding.code for finding in found] == [code]
    assert found[0].what
    assert found[0].do.endswith((".", "`")) or re.search(r"Run|run|kill|fencepost", found[0].do)
    assert isinstance(found[0].severity, Severity)


@pytest.mark.requirement("doctor.each-finding-has-a-code-and-a-remedy")
def test_every_code_is_proved_and_explained() -> None:
    assert {code for code, _ in CASES.values()} == set(CODES)
    page = (ROOT / "docs" / "howto" / "doctor.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE) == list(CODES)


@pytest.mark.requirement("doctor.each-finding-has-a-code-and-a-remedy")
def test_remedies_name_what_to_run() -> None:
    def remedy(case: str) -> Finding:
        return judge(replace(HEALTHY, **CASES[case][1]))[0]

    assert remedy("a credential that others read").do == "Run: chmod 600 /h/f/x"
    assert "--approve send_message" in remedy("Codex that never asks").do
    assert remedy("a script that is gone").do == "Run again: fencepost connect codex --agent ann"
    assert "kill 7" in remedy("a server without a program").do
    assert remedy("an agent that does not work").do == "Run: fencepost agent doctor ann"
    assert "[registration_occupied]" in remedy("an agent that does not work").what
    assert remedy("tools that are not approved").severity is Severity.WARNING
    assert remedy("a program that is not there").do.endswith("fencepost agent start ann")
    by_hand = judge(replace(HEALTHY, entries=(an_entry(name="mine"),), missing_commands=[COMMAND], trials={}))[0]
    assert "Put it right in /h/.codex/config.toml" in by_hand.do


def test_a_server_of_another_home_or_installation_is_nobodys_business_here() -> None:
    for process in (
        a_process(home="/other", orphan=True),
        a_process(arguments=("python", "/x/fencepost-mcp"), started_s=0.0),
    ):
        assert judge(replace(HEALTHY, processes=(process,))) == []
    assert [found.code for found in judge(replace(HEALTHY, processes=(a_process(home=None, orphan=True),)))]


@pytest.mark.requirement("doctor.looks-at-agents-that-are-run")
@pytest.mark.parametrize(("count", "more"), [(NAMED_MAX, ""), (NAMED_MAX + 2, " and 2 more")])
def test_one_finding_names_so_many_agents_and_counts_the_rest(count: int, more: str) -> None:
    names = [f"a{number}" for number in range(count)]
    (found,) = judge(replace(HEALTHY, unattended=names))
    assert found.what.startswith(", ".join(names[:NAMED_MAX]) + more + " are to run")


@pytest.mark.requirement("doctor.looks-at-agents-that-are-run")
def test_providers_that_are_known_not_to_be_ready_are_told_of_once() -> None:
    facts = replace(HEALTHY, unready={"providers": "crash_loop"}, unattended=("ann",))
    assert [found.code for found in judge(facts)] == ["service_not_ready"]


def test_judging_never_needs_a_fact_that_was_not_seen() -> None:
    bare = Facts(home="/h", default_home="/h", entries=(an_entry(environment={}),))
    assert len(JUDGES) == 13
    assert {finding.code for finding in judge(bare)} == {"services_not_running"}
