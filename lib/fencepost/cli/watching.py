"""`fencepost agent watch|prompt|interrupt|attach`: a person beside an agent's running conversation."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from typing import Annotated, Any, Final

import typer

from fencepost.cli import acting, exits, screen
from fencepost.cli.body import read_body
from fencepost.cli.directory import resolve
from fencepost.cli.options import AsJson, FromFile, Key, Stdin, Target, Text, key_or_new
from fencepost.cli.plain import enum_word, one_line, plain
from fencepost.errors import Refused
from fencepost.mailbox.v1 import mailbox_pb2
from fencepost.providers.v1 import providers_pb2 as pb

PROMPT_WAIT_S_MAX: Final = 3_600
LOOK_AGAIN_MS: Final = 250
IDLE_WAIT_S_DEFAULT: Final = 60
IDLE_WAIT_S_MAX: Final = 600
ONLY_NEW: Final = -1


def watch(
    target: Target,
    *,
    after: Annotated[
        int | None,
        typer.Option(metavar="N", help="Begin behind this position; 0 for all that is kept. Default: what is new."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Follow an agent's conversation: words, tool calls, results, activity. Ends by Ctrl-C. --json: one row a line."""
    operator = acting.as_operator()
    if after is not None and after < 0:
        raise Refused("invalid_limit", "--after takes a position of at least 0; nothing was read")

    async def work(services: acting.Services) -> None:
        agent = (await resolve(services, target)).agent
        ask = pb.WatchConversationRequest(agent_id=agent.agent_id, after=ONLY_NEW if after is None else after)
        async for row in services.providers.watch_conversation(ask):
            put_row(row, as_json=as_json)

    acting.call(operator, work)


def put_row(row: pb.WatchConversationResponse, *, as_json: bool) -> None:
    """Show one row of a conversation."""
    if as_json:
        screen.put(json.dumps({"schema": 1, **plain(row)}, ensure_ascii=False, separators=(",", ":")))
        return
    kind = (enum_word(row.DESCRIPTOR.fields_by_name["kind"], row.kind) or "row").replace("_", " ")
    name = f" {one_line(row.name)}" if row.name else ""
    screen.put(f"{screen.instant(row.at_ms)}  {kind}{name}")
    if row.text:
        screen.put_body(row.text + (" [cut]" if row.cut else ""))


def prompt(
    target: Target,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    wait_s: Annotated[
        int,
        typer.Option("--wait-s", metavar="S", help=f"Wait for the assistant's answer: 0 to {PROMPT_WAIT_S_MAX} s."),
    ] = 0,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Say something to an agent as a person: it is carried into its conversation and answered by the assistant."""
    operator = acting.as_operator()
    if not 0 <= wait_s <= PROMPT_WAIT_S_MAX:
        raise Refused("invalid_arguments", f"--wait-s takes 0 to {PROMPT_WAIT_S_MAX}; nothing was sent")
    ask = mailbox_pb2.PromptRequest(body=read_body(text, stdin=stdin, file=file), idempotency_key=key_or_new(key))

    async def work(
        services: acting.Services,
    ) -> tuple[mailbox_pb2.PromptResponse, mailbox_pb2.ExplainResponse | None]:
        ask.target = (await resolve(services, target)).agent.agent_id
        stored = await services.mailbox.prompt(ask)
        return stored, await _answered(services, stored.record_id, wait_s) if wait_s else None

    stored, told = acting.call(operator, work)
    if as_json:
        fields = {**plain(stored), "idempotency_key": ask.idempotency_key}
        screen.put_json(fields | ({} if told is None else {"explained": plain(told)}))
        return
    screen.put(f"Prompt for {one_line(stored.recipient.name)} is stored: {stored.record_id}")
    if told is None:
        screen.put(f"  fencepost delivery show {stored.record_id} tells what becomes of it.")
    elif told.binding.final_text:
        screen.put_body(told.binding.final_text)
    else:
        screen.put(f"  {one_line(told.summary)}")


async def _answered(services: acting.Services, record_id: str, wait_s: int) -> mailbox_pb2.ExplainResponse:
    end = time.monotonic() + wait_s
    while True:
        told = await services.mailbox.explain(record_id)
        settled = told.record.answer_state not in {
            mailbox_pb2.ANSWER_STATE_OPEN,
            mailbox_pb2.ANSWER_STATE_UNSPECIFIED,
        }
        hopeless = told.record.delivery_state in {
            mailbox_pb2.DELIVERY_STATE_UNCERTAIN,
            mailbox_pb2.DELIVERY_STATE_FAILED,
        }
        if settled or hopeless or time.monotonic() >= end:
            return told
        await asyncio.sleep(LOOK_AGAIN_MS / 1000)


def interrupt(
    target: Target,
    *,
    turn: Annotated[
        str, typer.Option("--turn", metavar="ID", help="The turn that you saw; by default the one in progress now.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Interrupt an agent's current turn, where its program can do that exactly. The conversation stays."""
    who = acting.as_whoever()

    async def work(services: acting.Services) -> pb.InterruptTurnResponse:
        agent = (await resolve(services, target)).agent
        return await services.providers.interrupt_turn(pb.InterruptTurnRequest(target=agent.agent_id, turn_id=turn))

    answer = acting.call(who, work)
    if as_json:
        screen.put_json(plain(answer))
        return
    said = {
        pb.INTERRUPTION_REQUESTED: "asked for; the turn has not ended yet",
        pb.INTERRUPTION_CONFIRMED: "the turn ended, interrupted",
        pb.INTERRUPTION_NOTHING: "no turn was in progress",
        pb.INTERRUPTION_UNSUPPORTED: "not possible here",
        pb.INTERRUPTION_UNCERTAIN: "not known whether it reached the program; it is not repeated",
    }.get(answer.interruption, "not known")
    turn_id = f" (turn {one_line(answer.turn_id)})" if answer.turn_id else ""
    screen.put(f"Interruption: {said}{turn_id}.")
    if answer.detail:
        screen.put(f"  {one_line(answer.detail)}")


def attach(
    target: Target,
    *,
    wait_idle_s: Annotated[
        int,
        typer.Option("--wait-idle-s", metavar="S", help=f"Wait for a running turn to end: 0 to {IDLE_WAIT_S_MAX} s."),
    ] = IDLE_WAIT_S_DEFAULT,
) -> None:
    """Open the agent's own program in this terminal, on the same conversation. Delivery goes on once it is attached."""
    operator = acting.as_operator()
    if not 0 <= wait_idle_s <= IDLE_WAIT_S_MAX:
        raise Refused("invalid_arguments", f"--wait-idle-s takes 0 to {IDLE_WAIT_S_MAX}; nothing was done")
    if not (os.isatty(0) and os.isatty(1)):
        raise Refused("no_terminal", "this is no terminal; nothing was done", hint="Run it in a terminal window.")

    async def work(services: acting.Services) -> int:
        agent = (await resolve(services, target)).agent
        ask = pb.AttachTerminalRequest(agent_id=agent.agent_id, wait_idle_ms=wait_idle_s * 1000)
        return await _attached(services, ask)

    status = acting.call(operator, work)
    if status:
        raise typer.Exit(exits.FAILED)


async def _attached(services: acting.Services, ask: pb.AttachTerminalRequest) -> int:
    """Follow the steps; the program runs in the foreground and its end ends the stream, hence the attachment."""
    program: asyncio.Task[int] | None = None
    steps = aiter(services.providers.attach_terminal(ask))
    step: asyncio.Future[pb.AttachTerminalResponse] = asyncio.ensure_future(anext(steps))
    try:
        while True:
            waiting: list[asyncio.Future[Any]] = [step] if program is None else [step, program]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if program is not None and program.done():
                return program.result()
            try:
                said = step.result()
            except StopAsyncIteration:
                return 0 if program is None else await program
            match said.WhichOneof("step"):
                case "waiting_for_turn":
                    screen.put("It is in a turn; waiting for its end ...")
                case "launch":
                    program = asyncio.ensure_future(asyncio.to_thread(_run, said.launch))
                case "ended":
                    screen.put(f"Not attached: {one_line(said.ended)}")
                    return exits.FAILED if program is None else await program
            step = asyncio.ensure_future(anext(steps))
    finally:
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)


def _run(launch: pb.Launch) -> int:
    environment = {**os.environ, **launch.environment}
    # The person ends it: their own program, in their own terminal, has no deadline.
    return subprocess.run(  # noqa: PLW1510 (its status is the answer)
        list(launch.argv), env=environment, cwd=launch.working_directory
    ).returncode
