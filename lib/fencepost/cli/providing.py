"""`fencepost provider`, `fencepost delivery`, `agent models|tools|doctor`: what programs do, what became of work."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from fencepost.cli import acting, exits, screen
from fencepost.cli.directory import resolve
from fencepost.cli.options import AsJson, Key, RecordId, Target, key_or_new
from fencepost.cli.plain import enum_word, one_line, plain
from fencepost.cli.running import put_runtime
from fencepost.cli.screen import Column
from fencepost.cli.why import explained, ladder
from fencepost.errors import NotWritten, Refused, Uncertain
from fencepost.mailbox.v1 import mailbox_pb2
from fencepost.providers.v1 import providers_pb2 as pb

provider = typer.Typer(help="Agent programs that Fencepost can run.", no_args_is_help=True)
delivery = typer.Typer(help="What became of work, and what can be done with a conversation.", no_args_is_help=True)

RESOLUTIONS: Final = {
    "done": mailbox_pb2.RESOLUTION_DONE,
    "not_done": mailbox_pb2.RESOLUTION_NOT_DONE,
    "as_new": mailbox_pb2.RESOLUTION_AS_NEW,
}
NOTE_BYTES_MAX: Final = 4096

ProviderName = Annotated[str, typer.Option("--provider", metavar="NAME", help="The agent program, for example codex.")]
Refresh = Annotated[bool, typer.Option("--refresh", help="Ask the program now, even where an answer is known.")]


@provider.command("list")
def list_providers(*, as_json: AsJson = False) -> None:
    """List the agent programs that Fencepost knows, and what is installed here."""
    found = acting.call(acting.as_whoever(), lambda services: services.providers.list_providers())
    if as_json:
        screen.put_json(plain(found))
        return
    if not found.providers:
        screen.put("No adapter is installed, so Fencepost can run no agent program.")
        return
    columns = [Column(title=title) for title in ("NAME", "TITLE", "VERSION", "SUPPORT")]
    rows = [
        [item.name, item.title, item.version or "-", _support(item), item.program or "-"] for item in found.providers
    ]
    screen.put(screen.table([*columns, Column(title="PROGRAM", text=True)], rows))
    # Below the table, whole: what to do must not be cut at the terminal's edge.
    for item in found.providers:
        if item.problem:
            screen.put(f"{one_line(item.name)}: {one_line(item.problem)}")


def _support(item: pb.Provider) -> str:
    """Return how far an installed program is supported: by the least of what it can do at all."""
    if item.problem:
        return "cannot be used"
    found = {one.support for one in item.capabilities} - {pb.SUPPORT_NONE, pb.SUPPORT_UNSPECIFIED}
    if not found:
        return "none"
    return "certified" if found == {pb.SUPPORT_CERTIFIED} else "uncertified"


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
        screen.put(f"No models of {one_line(name)} are known.")
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
    screen.put(f"{one_line(found.provider) or 'no adapter'} {one_line(found.version)}".rstrip())
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
        screen.put_json(explained(told))
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
    if len(note.encode("utf-8", "surrogateescape")) > NOTE_BYTES_MAX:
        raise Refused("invalid_arguments", f"--note takes at most {NOTE_BYTES_MAX} bytes; nothing was written")
    ask = mailbox_pb2.ResolveDeliveryRequest(
        record_id=record_id, resolution=RESOLUTIONS[chosen[0]], note=note, idempotency_key=key_or_new(key)
    )
    try:
        answer = acting.call(operator, lambda services: services.mailbox.resolve_delivery(ask))
    except (NotWritten, Uncertain) as error:
        error.state = {**error.state, "idempotency_key": ask.idempotency_key}
        raise
    if as_json:
        screen.put_json({**plain(answer), "idempotency_key": ask.idempotency_key})
        return
    settled = "was settled so by an earlier call" if answer.duplicate else "is settled"
    screen.put(f"{one_line(record_id)} {settled}: {chosen[0].replace('_', ' ')}.")
    if answer.reply_id:
        screen.put(f"  Its requester is answered: {answer.reply_id}")
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
        screen.put(f"{one_line(request_id)} {'was withdrawn before' if answer.duplicate else 'is withdrawn'}.")


def tools(
    target: Target,
    *,
    approve: Annotated[
        list[str] | None,
        typer.Option("--approve", metavar="TOOL", help="A tool that it may use unasked; may be repeated."),
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
        for title, path in (("home", found.runtime.private_home), ("log", found.runtime.log_file)):
            if path:
                screen.put(f"  {title} {one_line(path)}")
        if found.launch_arguments:
            screen.put(f"  started with {one_line(shlex.join(found.launch_arguments))}")
        put_findings(found.findings)
        if found.restart_required:
            screen.put("Settings changed that only a restart applies: fencepost agent restart " + one_line(target))
    if any(item.gravity == pb.GRAVITY_ERROR for item in found.findings):
        raise typer.Exit(exits.FAILED)


_MARKS: Final = {pb.GRAVITY_ERROR: "PROBLEM", pb.GRAVITY_WARNING: "Warning", pb.GRAVITY_FACT: "Note"}


def put_findings(findings: Sequence[pb.Finding]) -> None:
    """Show findings to people."""
    if all(item.gravity == pb.GRAVITY_FACT for item in findings):
        screen.put("Nothing is wrong, as far as can be seen.")
    for item in findings:
        screen.put(f"{_MARKS.get(item.gravity, '?')}: {one_line(item.text)} ({item.code})")
        if item.hint:
            screen.put(f"  {one_line(item.hint)}")
