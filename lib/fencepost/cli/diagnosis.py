"""What `fencepost doctor` does. Loaded by this command only: others need not pay for it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Final

import typer

from fencepost.cli import acting, exits, managed, screen
from fencepost.cli.directory import all_agents, readers
from fencepost.cli.plain import one_line
from fencepost.client import Budgets
from fencepost.doctor import look
from fencepost.doctor.findings import Facts, Finding, Severity, Waiting, judge
from fencepost.errors import FencepostError
from fencepost.home import Home
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost.sessions.v1 import sessions_pb2 as pb

BUDGETS: Final = Budgets(ready_ms=1_000, call_ms=3_000)
# Agents whose mail is looked at, and records of each: a glance, not an audit.
AGENTS_MAX: Final = 200
RECORDS_MAX: Final = 100
MARKS: Final = {Severity.PROBLEM: "PROBLEM", Severity.WARNING: "Warning", Severity.NOTE: "Note"}


def run(*, as_json: bool) -> None:
    """Look, judge, and say what was found; the exit code is FAILED where a problem was."""
    home = Home.from_environment()
    found = judge(asyncio.run(_facts(home)))
    problems = sum(finding.severity is Severity.PROBLEM for finding in found)
    if as_json:
        rows = [
            {"code": item.code, "severity": item.severity.value, "what": item.what, "do": item.do} for item in found
        ]
        screen.put_json({"home": home.text, "problems": problems, "findings": rows})
    else:
        _show(home, found)
    if problems:
        raise typer.Exit(exits.FAILED)


async def _facts(home: Home) -> Facts:
    facts = await look.facts_of(home, os.environ)
    if facts.edge is None and not facts.supervised:
        return facts
    try:
        who = acting.as_whoever()
    except FencepostError as error:
        return replace(facts, identity_problem=error.message)
    try:
        async with acting.connected(who, budgets=BUDGETS) as services:
            if not who.is_operator:
                await services.sessions.get_caller()
                return facts
            agents = [one for one in await all_agents(services.sessions) if one.state != pb.AGENT_STATE_DELETING]
            facts = replace(facts, waiting=await _waiting(services, agents[:AGENTS_MAX]))
            return await managed.looked_at(services.providers, facts, agents)
    except FencepostError as error:
        # Services that do not answer are told of already; a credential that they refuse is not.
        refused = error.reason in ("unauthenticated", "permission_denied", "stale_generation", "identity_disagreement")
        return replace(facts, identity_problem=error.message) if refused else facts


async def _waiting(services: acting.Services, agents: list[pb.Agent]) -> list[Waiting]:
    """Return the mail that no agent has looked at, where no agent is waiting for it now."""
    reading = await readers(services, agents)
    found = []
    for agent in agents:
        reader = reading.get(agent.agent_id)
        if reader is None or reader["waiting"]:
            continue
        page = await services.mailbox.list_records(
            mailbox.ListRecordsRequest(
                agent_id=agent.agent_id, direction=mailbox.DIRECTION_INBOX, page_size=RECORDS_MAX
            )
        )
        unseen = [
            record.admitted_at_ms
            for record in page.records
            if record.delivery_state == mailbox.DELIVERY_STATE_ADMITTED and not record.acknowledged
        ]
        if unseen:
            oldest_ms, last_read_ms = min(unseen), int(reader["last_read_at_ms"])
            waiting = Waiting(agent=agent.name, records=len(unseen), oldest_ms=oldest_ms, last_read_ms=last_read_ms)
            found.append(waiting)
    return found


def _show(home: Home, found: list[Finding]) -> None:
    for item in found:
        screen.put(f"{MARKS[item.severity]}: {one_line(item.what)} ({item.code})")
        screen.put(f"  {one_line(item.do)}")
    if not any(item.severity is not Severity.NOTE for item in found):
        screen.put(f"Nothing is wrong in the home {one_line(home.text)}, as far as can be seen from here.")
