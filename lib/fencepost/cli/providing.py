"""`fencepost provider`, `fencepost delivery`, `agent models|tools|doctor`: what programs do, what became of work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from fencepost.cli import acting, exits, screen
from fencepost.cli.directory import resolve
from fencepost.cli.options import AsJson, Key, RecordId, Target, key_or_new
from fencepost.cli.plain import enum_word, one_line, plain
from fencepost.cli.running import put_runtime
from fencepost.cli.screen import Column
from fencepost.cli.why import ladder, latencies
from fencepost.errors import Refused
from fencepost.mailbox.v1 import mailbox_pb2
from fencepost.providers.v1 import providers_pb2 as pb

provider = typer.Typer(help="Agent programs that Fencepost can run.", no_args_is_help=True)
delivery = typer.Typer(help="What became of work, and what can be done with a conversation.", no_args_is_help=True)

RESOLUTIONS: Final = {
    "done": mailbox_pb2.RESOLUTION_DONE,
    "not_done": mailbox_pb2.RESOLUTION_NOT_DONE,
    "as_new": mailbox_pb2.RESOLUTION_AS_NEW,
}
ProviderName = Annotated[str, typer.Option("--provider", metavar="NAME", help="The agent program, for example codex.")]
Refresh = Annotated[bool, typer.Option("--refresh", help="Ask the program now, even where an answer is known.")]


@provider.command("list")
def list_providers(*, as_json: AsJson = False) -> None:
    """List the agent programs that Fencepost knows, and what is installed here."""
    found = acting.call(acting.as_whoever(), lambda services: services.providers.list_providers())
    if as_json:
        screen.put_json(plain(found))
        return
    columns = [Column(title=title) for title in ("NAME", "VERSION")] + [
        Column(title="PROGRAM", text=True),
        Column(title="PROBLEM", text=True),
    ]
    rows = [[item.name, item.version or "-", item.program or "-", item.problem or "none"] for item in found.providers]
    screen.put(screen.table(columns, rows))


@provider.command("models")
def models(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The agent program, for example codex.")],
    *,
    refresh: Refresh = False,
    as_json: AsJson = False,
) -> None:
    """List the models that an installed program offers, with their efforts."""
    _models(name, refresh=refresh, as_json=as_json)


def agent_models(*, provider_name: ProviderName, refresh: Refresh = False, as_json: AsJson = False) -> None:
    """List the models that an installed program offers, with their efforts."""
    _models(provider_name, refresh=refresh, as_json=as_json)


def _models(name: str, *, refresh: bool, as_json: bool) -> None:
    found = acting.call(acting.as_whoever(), lambda services: services.providers.list_models(name, refresh=refresh))
    if as_json:
        screen.put_json(plain(found))
        return
    if found.models:
        columns = [Column(title=title) for title in ("MODEL", "DEFAULT EFFORT", "EFFORTS")]
        rows = [
            [item.model + (" *" if item.is_default else ""), item.default_effort or "-", " ".join(item.efforts) or "-"]
            for item in found.models
        ]
        screen.put(
            screen.table(
                [*columns, Column(title="TITLE", text=True)],
                [[*row, item.title] for row, item in zip(rows, found.models, strict=True)],
            )
        )
        screen.put(f"* the program's own choice. Source: {one_line(found.source)}, {screen.moment(found.asked_at_ms)}.")
    else:
        screen.put("No models are known.")
    if found.problem:
        screen.put(one_line(found.problem))


@delivery.command("capabilities")
def capabilities(target: Target, *, as_json: AsJson = False) -> None:
    """Tell what can be done with an agent's conversation, and why not where not."""
    who = acting.as_whoever()

    async def work(services: acting.Services) -> pb.GetCapabilitiesResponse:
        agent = (await resolve(services, target)).agent
        return await services.providers.get_capabilities(agent.agent_id)

    found = acting.call(who, work)
    if as_json:
        screen.put_json(plain(found))
        return
    screen.put(f"{one_line(found.provider) or 'no program'} {one_line(found.version)}".rstrip())
    fields = pb.Capability.DESCRIPTOR.fields_by_name
    columns = [Column(title="CAPABILITY"), Column(title="SUPPORT"), Column(title="REASON", text=True)]
    rows = [
        [
            (enum_word(fields["kind"], item.kind) or "?").replace("_", " "),
            enum_word(fields["support"], item.support) or "?",
            item.reason,
        ]
        for item in found.capabilities
    ]
    screen.put(screen.table(columns, rows))


@delivery.command("show")
def show_delivery(record_id: RecordId, *, as_json: AsJson = False) -> None:
    """Show how far a record has come: every fact, the turn that took it, its answer."""
    told = acting.call(acting.as_whoever(), lambda services: services.mailbox.explain(record_id))
    if as_json:
        fields = plain(told)
        for fact, since_ms in zip(fields["facts"], latencies(told.facts), strict=True):
            fact["since_previous_ms"] = since_ms
        screen.put_json(fields)
        return
    screen.put("\n".join(ladder(told)))
    if told.HasField("binding"):
        bound = told.binding
        fields_of = bound.DESCRIPTOR.fields_by_name
        state = enum_word(fields_of["state"], bound.state)
        outcome = enum_word(fields_of["outcome"], bound.outcome)
        screen.put(f"Turn {one_line(bound.provider_turn_id)} of {one_line(bound.provider)}: {outcome or state}.")
        if bound.final_text:
            screen.put_body(bound.final_text)


@delivery.command("resolve")
def resolve_delivery(
    record_id: RecordId,
    *,
    done: Annotated[bool, typer.Option("--done", help="It was done.")] = False,
    not_done: Annotated[bool, typer.Option("--not-done", help="It was not done, and will not be.")] = False,
    as_new: Annotated[bool, typer.Option("--as-new", help="It was not done: store it as a new request.")] = False,
    note: Annotated[str, typer.Option(metavar="TEXT", help="What the requester reads besides.")] = "",
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Say what became of uncertain work, as the person who looked. Fencepost itself never replays it."""
    operator = acting.as_operator()
    chosen = [name for name, given in (("done", done), ("not_done", not_done), ("as_new", as_new)) if given]
    if len(chosen) != 1:
        raise Refused("invalid_arguments", "name exactly one of --done, --not-done, --as-new; nothing was written")
    ask = mailbox_pb2.ResolveDeliveryRequest(
        record_id=record_id, resolution=RESOLUTIONS[chosen[0]], note=note, idempotency_key=key_or_new(key)
    )
    answer = acting.call(operator, lambda services: services.mailbox.resolve_delivery(ask))
    if as_json:
        screen.put_json({**plain(answer), "idempotency_key": ask.idempotency_key})
        return
    screen.put(f"{record_id} is settled: {chosen[0].replace('_', ' ')}.")
    if answer.new_record_id:
        screen.put(f"  The new request is {answer.new_record_id}.")


def withdraw(
    request_id: Annotated[str, typer.Argument(metavar="ID", help="The request: ask_ and 32 digits.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Take back a request of yours that nobody has seen yet."""
    answer = acting.call(acting.as_agent(), lambda services: services.mailbox.withdraw(request_id))
    if as_json:
        screen.put_json({"request_id": request_id, **plain(answer)})
    else:
        screen.put(f"{request_id} {'was withdrawn before' if answer.duplicate else 'is withdrawn'}.")


def tools(
    target: Target,
    *,
    approve: Annotated[
        list[str] | None,
        typer.Option("--approve", metavar="TOOL", help="Approve this tool of ours for this agent; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Approve tools of Fencepost's MCP server, each by name, in the private home of an agent's program."""
    operator = acting.as_operator()
    if not approve:
        raise Refused(
            "invalid_arguments",
            "no tool was named; nothing was written",
            hint="For example: fencepost agent tools NAME --approve send_message --approve reply",
        )

    async def work(services: acting.Services) -> pb.ApproveToolsResponse:
        agent = (await resolve(services, target)).agent
        return await services.providers.approve_tools(pb.ApproveToolsRequest(agent_id=agent.agent_id, tools=approve))

    answer = acting.call(operator, work)
    if as_json:
        screen.put_json(plain(answer))
        return
    screen.put(f"Approved: {', '.join(one_line(tool) for tool in answer.approved) or 'none'}.")
    if answer.restart_required:
        screen.put(f"  It takes effect after: fencepost agent restart {one_line(target)}")


def agent_doctor(target: Target, *, as_json: AsJson = False) -> None:
    """Find what is wrong with an agent's program, private home and registration. Exits 1 where it does not work."""
    operator = acting.as_operator()

    async def work(services: acting.Services) -> pb.InspectRuntimeResponse:
        agent = (await resolve(services, target)).agent
        return await services.providers.inspect_runtime(agent.agent_id)

    found = acting.call(operator, work)
    if as_json:
        screen.put_json(plain(found))
    else:
        put_runtime(found.runtime)
        if found.runtime.private_home:
            screen.put(f"  home {one_line(found.runtime.private_home)}")
        put_findings(found.findings)
        if found.restart_required:
            screen.put("Settings changed that only a restart applies: fencepost agent restart " + one_line(target))
    if any(item.gravity == pb.GRAVITY_ERROR for item in found.findings):
        raise typer.Exit(exits.FAILED)


def put_findings(findings: Sequence[pb.Finding]) -> None:
    """Show findings to people."""
    if not findings:
        screen.put("Nothing is wrong, as far as can be seen.")
    for item in findings:
        gravity = enum_word(item.DESCRIPTOR.fields_by_name["gravity"], item.gravity) or "?"
        screen.put(f"{gravity}: {one_line(item.text)} [{item.code}]")
        if item.hint:
            screen.put(f"  {one_line(item.hint)}")
