"""`fencepost agent`: create, list, show, change and delete agents."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fencepost.cli import acting, screen
from fencepost.cli.deleting import delete
from fencepost.cli.directory import NO_AGENTS, all_agents, all_projects, readers, resolve
from fencepost.cli.launching import (
    AgentClass,
    Approval,
    Arguments,
    Effort,
    Include,
    Model,
    Sandbox,
    SessionPolicy,
    Tools,
    WhenActive,
    launch_facts,
    launch_settings,
)
from fencepost.cli.options import AsJson, Key, Target, key_or_new
from fencepost.cli.plain import enum_word, one_line, plain
from fencepost.cli.project import locate
from fencepost.cli.running import runtime_of, runtime_words
from fencepost.cli.screen import Column
from fencepost.client import new_key
from fencepost.common.v1 import common_pb2
from fencepost.connect.entry import connection
from fencepost.errors import Refused
from fencepost.providers.v1 import providers_pb2
from fencepost.sessions.v1 import sessions_pb2 as pb

agents = typer.Typer(help="Create, list, show, change and delete agents.", no_args_is_help=True)
agents.command("delete")(delete)

ROLES: Final = {"agent": common_pb2.ROLE_AGENT, "coordinator": common_pb2.ROLE_COORDINATOR}

Role = Annotated[str | None, typer.Option(metavar="ROLE", help="agent, or coordinator: also supervises its project.")]
Provider = Annotated[str | None, typer.Option(metavar="NAME", help="The agent program, for example codex.")]
Workspace = Annotated[Path | None, typer.Option(metavar="DIR", help="The folder it works in.")]
ProjectOption = Annotated[
    Path | None,
    typer.Option(
        "--project", metavar="DIR", help="A folder of the project; by default the current one. Worktrees share."
    ),
]


@agents.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="1 to 64 characters, unique in its project.")],
    *,
    project: ProjectOption = None,
    provider: Provider = None,
    role: Role = None,
    workspace: Workspace = None,
    agent_class: AgentClass = None,
    model: Model = None,
    effort: Effort = None,
    sandbox: Sandbox = None,
    approval: Approval = None,
    arguments: Arguments = None,
    include: Include = None,
    when_active: WhenActive = None,
    session: SessionPolicy = None,
    tools: Tools = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Create an agent, and print how to connect it."""
    operator = acting.as_operator()
    location = locate(Path.cwd() if project is None else project)
    ask = pb.CreateAgentRequest(
        idempotency_key=key_or_new(key),
        name=name,
        role=_role(role) or common_pb2.ROLE_AGENT,
        provider=provider or "",
        workspace="" if workspace is None else os.path.abspath(workspace),  # noqa: PTH100 (a name, not a lookup)
        launch=launch_settings(
            model=model,
            effort=effort,
            sandbox=sandbox,
            approval=approval,
            agent_class=agent_class,
            arguments=arguments,
            include=include,
            when_active=when_active,
            session=session,
            tools=tools,
        ),
    )

    async def work(services: acting.Services) -> tuple[pb.Project, pb.CreateAgentResponse]:
        found = await services.sessions.ensure_project(
            pb.EnsureProjectRequest(
                idempotency_key=new_key("cli"), kind=location.kind, location=location.path, name=location.name
            )
        )
        ask.project_id = found.project.project_id
        return found.project, await services.sessions.create_agent(ask)

    in_project, created = acting.call(operator, work)
    connect = connection(operator.home, created.agent.agent_id)
    if as_json:
        screen.put_json({**plain(created), "project": plain(in_project), "connect": connect})
        return
    again = " already stood, created by an earlier call with this key" if created.duplicate else " created"
    screen.put(f"Agent {one_line(created.agent.name)}{again}, in project {one_line(in_project.name)}.")
    screen.put(f"  UUID        {created.agent.agent_id}")
    screen.put(f"  Credential  {created.credential_file}")
    if created.agent.provider:
        screen.put(f"\nTo have Fencepost run it: fencepost agent start {shlex.quote(one_line(created.agent.name))}")
    screen.put("\nIts shell, or the program that starts it:")
    for variable, value in connect["environment"].items():
        screen.put(f"  export {variable}={shlex.quote(value)}")
    screen.put("\nIts MCP configuration:")
    screen.put(json.dumps(connect["mcp"], indent=2, ensure_ascii=False))


@agents.command("list")
def list_agents(
    *,
    project: Annotated[
        Path | None,
        typer.Option("--project", metavar="DIR", help="Only the project of this folder; for the operator."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every project of the home: what the operator sees without --project.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List agents: an agent sees its own project; the operator every project, or that of --project."""
    who = acting.as_whoever()
    if project is not None and (every or not who.is_operator):
        raise Refused("invalid_arguments", "--project is the operator's, and does not go with --all; nothing was read")
    location = None if project is None else locate(project)

    async def work(services: acting.Services) -> tuple[list[pb.Agent], dict[str, str], dict[str, Any]]:
        known = {item.project_id: item for item in await all_projects(services.sessions)} if who.is_operator else {}
        wanted = ""
        if location is not None:
            wanted = next((key for key, item in known.items() if item.location == location.path), "")
            if not wanted:
                return [], {}, {}
        found = await all_agents(services.sessions, wanted)
        return found, {key: item.name for key, item in known.items()}, await readers(services, found)

    found, names, reading = acting.call(who, work)
    if as_json:
        rows = [{**plain(agent), "reader": reading.get(agent.agent_id)} for agent in found]
        screen.put_json({"agents": rows})
        return
    if not found:
        screen.put(NO_AGENTS)
        return
    columns = [Column(title=title) for title in ("NAME", "UUID", "ROLE", "PROVIDER", "STATUS", "GEN", "LAST READ")]
    # An agent sees one project, its own, and nothing of its name.
    columns += [Column(title="PROJECT", text=True)] if who.is_operator else []
    now_ms = int(time.time() * 1000)
    cells = [_row(agent, names if who.is_operator else None, reading, now_ms) for agent in found]
    screen.put(screen.table([*columns, Column(title="WORKSPACE", text=True)], cells))


def _row(agent: pb.Agent, names: Mapping[str, str] | None, reading: Mapping[str, Any], now_ms: int) -> list[str]:
    reader = reading.get(agent.agent_id)
    if agent.state == pb.AGENT_STATE_DELETING:
        read = "deleting"
    elif reader is None:
        read = "?"
    else:
        read = "waiting now" if reader["waiting"] else screen.ago(reader["last_read_at_ms"], now_ms)
    role = "coordinator" if agent.role == common_pb2.ROLE_COORDINATOR else "agent"
    project = [] if names is None else [names.get(agent.project_id, agent.project_id)]
    status = status_words(agent, now_ms)
    return [
        *(agent.name, agent.agent_id, role, agent.provider, status, str(agent.generation), read),
        *project,
        agent.workspace,
    ]


def status_words(agent: pb.Agent, now_ms: int) -> str:
    """Return what was observed of an agent's runtime, and what a person wants where that differs."""
    fields = agent.DESCRIPTOR.fields_by_name
    wanted = enum_word(fields["desired"], agent.desired)
    if wanted is None:
        return "by itself"
    if not agent.status.state:
        return f"not seen yet, wanted {wanted}"
    seen = (enum_word(agent.status.DESCRIPTOR.fields_by_name["state"], agent.status.state) or "?").replace("_", " ")
    odd = f", wanted {wanted}" if wanted == "paused" or (wanted == "on") != (seen != "off") else ""
    return f"{seen} ({screen.ago(agent.status.observed_at_ms, now_ms)}){odd}"


@agents.command("show")
def show(target: Target, *, as_json: AsJson = False) -> None:
    """Show one agent."""
    who = acting.as_whoever()

    async def work(
        services: acting.Services,
    ) -> tuple[pb.GetAgentResponse, dict[str, Any], providers_pb2.Runtime | None]:
        found = await resolve(services, target)
        return found, await readers(services, [found.agent]), await runtime_of(services, found.agent)

    found, reading, runtime = acting.call(who, work)
    agent, reader = found.agent, reading.get(found.agent.agent_id)
    if as_json:
        fields = {**plain(found), "reader": reader, "runtime": None if runtime is None else plain(runtime)}
        screen.put_json(fields | ({"connect": connection(who.home, agent.agent_id)} if who.is_operator else {}))
        return
    now_ms = int(time.time() * 1000)
    deleting = agent.state == pb.AGENT_STATE_DELETING
    facts = {
        "Name": agent.name,
        "UUID": agent.agent_id,
        "Project": agent.project_id,
        "Role": "coordinator" if agent.role == common_pb2.ROLE_COORDINATOR else "agent",
        "Provider": agent.provider or "not known",
        "Workspace": agent.workspace or "not known",
        "Generation": str(agent.generation),
        "Status": status_words(agent, now_ms),
        "Detail": agent.status.detail,
        "Runtime": "" if runtime is None else runtime_words(runtime),
        "Problem": "" if runtime is None else runtime.problem,
        "Log": "" if runtime is None else runtime.log_file,
        "Conversation": agent.conversation_id,
        **launch_facts(agent),
        "State": "deleting: no credential, its mail is being closed and erased" if deleting else "",
        "Created": screen.moment(agent.created_at_ms),
        "Last read": "not known" if reader is None else screen.ago(reader["last_read_at_ms"], now_ms),
        "Credential": "" if deleting else found.credential_file,
    }
    screen.put("\n".join(f"{name:<12} {one_line(value)}" for name, value in facts.items() if value))


@agents.command("update")
def update(
    target: Target,
    *,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="A new name.")] = None,
    role: Role = None,
    provider: Annotated[str | None, typer.Option(metavar="NAME", help='The agent program; "" clears it.')] = None,
    workspace: Annotated[str | None, typer.Option(metavar="DIR", help='The folder it works in; "" clears it.')] = None,
    agent_class: AgentClass = None,
    model: Model = None,
    effort: Effort = None,
    sandbox: Sandbox = None,
    approval: Approval = None,
    arguments: Arguments = None,
    include: Include = None,
    when_active: WhenActive = None,
    session: SessionPolicy = None,
    tools: Tools = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Change an agent; what is not named stays."""
    operator = acting.as_operator()
    launch = launch_settings(
        model=model,
        effort=effort,
        sandbox=sandbox,
        approval=approval,
        agent_class=agent_class,
        arguments=arguments,
        include=include,
        when_active=when_active,
        session=session,
        tools=tools,
    )
    ask = pb.UpdateAgentRequest(
        idempotency_key=key_or_new(key), name=name, role=_role(role), provider=provider, launch=launch
    )
    if workspace is not None:
        ask.workspace = workspace and os.path.abspath(workspace)  # noqa: PTH100 (a name, not a lookup)
    if all(value is None for value in (name, role, provider, workspace, launch)):
        raise Refused("invalid_arguments", "nothing to change was named; nothing was written", hint="See --help.")

    async def work(services: acting.Services) -> pb.UpdateAgentResponse:
        ask.agent_id = (await resolve(services, target)).agent.agent_id
        return await services.sessions.update_agent(ask)

    changed = acting.call(operator, work)
    if as_json:
        screen.put_json(plain(changed))
        return
    screen.put(f"Agent {one_line(changed.agent.name)} ({changed.agent.agent_id}) changed.")
    if name is not None:
        screen.put("An earlier name of it means nobody now, and no other agent can take one for a minute.")


def _role(text: str | None) -> common_pb2.Role.ValueType | None:
    if text is None:
        return None
    if text not in ROLES:
        raise Refused("invalid_arguments", f"a role is one of {', '.join(ROLES)}; nothing was written")
    return ROLES[text]
