"""`fencepost message tail`: what becomes true of messages, as it becomes true."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final

import typer

from fencepost.cli import acting, screen
from fencepost.cli.directory import resolve
from fencepost.cli.options import AsJson
from fencepost.cli.plain import enum_word, line, one_line, plain
from fencepost.cli.task_words import event_line
from fencepost.errors import FencepostError, NotWritten, Refused
from fencepost.mailbox.v1 import mailbox_pb2 as pb

# How long to look for a mailbox that went away before giving up; a restart takes a second or two.
AWAY_MS_MAX: Final = 60_000
AWAY_PAUSE_MS: Final = 250
ONLY_NEW: Final = -1


def tail(
    *,
    agent: Annotated[str | None, typer.Option(metavar="TARGET", help="Only this agent's: for the operator.")] = None,
    after: Annotated[
        int | None,
        typer.Option(metavar="N", help="Begin behind this sequence; 0 for everything. Default: what is new."),
    ] = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="What happens to tasks too.")] = False,
    until_now: Annotated[bool, typer.Option("--until-now", help="End when everything so far is told.")] = False,
    as_json: AsJson = False,
) -> None:
    """Follow facts in commit order: admitted, exposed, replied, acknowledged ... Exposes nothing. Ends by Ctrl-C.

    With --json one document a line. A restart of the mailbox is ridden out: nothing is skipped or told twice.
    """
    who = acting.as_whoever()
    if agent is not None and not who.is_operator:
        raise Refused("permission_denied", "--agent is the operator's; an agent follows its own; nothing was read")
    if after is not None and after < 0:
        raise Refused("invalid_limit", "--after takes a sequence of at least 0; nothing was read")
    if until_now and after is None:
        after = 0
    ask = pb.WatchEventsRequest(after=ONLY_NEW if after is None else after, tasks=tasks)

    async def work(services: acting.Services) -> None:
        if agent is not None:
            ask.agent_id = (await resolve(services, agent)).agent.agent_id
        await _follow(services, ask, until_now=until_now, as_json=as_json)

    acting.call(who, work)


async def _follow(services: acting.Services, ask: pb.WatchEventsRequest, *, until_now: bool, as_json: bool) -> None:
    away_since: float | None = None
    while True:
        try:
            async for event in services.mailbox.watch_events(ask):
                away_since = None
                ask.after = event.position
                if not event.caught_up:
                    _put(event, as_json=as_json)
                elif until_now:
                    return
            lost: FencepostError = NotWritten("connection_lost", "the mailbox ended the stream; nothing was written")
        except NotWritten as error:
            lost = error
        except Refused as error:
            if not error.may_resend:
                raise
            lost = error
        away_since = time.monotonic() if away_since is None else away_since
        if time.monotonic() - away_since > AWAY_MS_MAX / 1000:
            raise lost
        await asyncio.sleep(AWAY_PAUSE_MS / 1000)


def _put(event: pb.WatchEventsResponse, *, as_json: bool) -> None:
    if as_json:
        screen.put(line(plain(event)))
        return
    if event.HasField("task_event"):
        screen.put(event_line(event.task.task_id, event.task_event))
        return
    record, fact = event.record, event.fact
    kind = enum_word(record.DESCRIPTOR.fields_by_name["kind"], record.kind)
    sender = one_line(record.sender.name) if record.HasField("sender") else "the host"
    way = f"{kind} from {sender} to {one_line(record.recipient.name)}"
    shown = f"{screen.moment(fact.at_ms)}  {fact.fact:<12}  {record.record_id}  {way}"
    screen.put(f"{shown}: {one_line(record.body)}" if fact.fact == "admitted" else shown)
