"""`fencepost agent watch|prompt|interrupt|attach`: a person beside an agent's running conversation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Annotated, Final

import typer

from fencepost.cli import acting, exits, screen
from fencepost.cli.body import read_body
from fencepost.cli.directory import resolve
from fencepost.cli.options import AsJson, FromFile, Key, Stdin, Target, Text, key_or_new
from fencepost.cli.plain import enum_word, line, one_line, plain
from fencepost.errors import FencepostError, NotWritten, Refused, Uncertain
from fencepost.mailbox.v1 import mailbox_pb2
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2

PROMPT_WAIT_S_MAX: Final = 3_600
LOOK_AGAIN_MS: Final = 250
IDLE_WAIT_S_DEFAULT: Final = 60
IDLE_WAIT_S_MAX: Final = 600
ONLY_NEW: Final = -1
WATCH_POLL_MS: Final = 500
# How long to look for providers that went away before giving up; a restart takes a second or two.
WATCH_AWAY_MS_MAX: Final = 60_000


def watch(
    target: Target,
    *,
    after: Annotated[
        int | None,
        typer.Option(metavar="N", help="Begin behind this position; 0 for all that is kept. Default: what is new."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Follow an agent's conversation: words, tool calls, results, activity. Ends by Ctrl-C. --json: one row a line.

    A restart of providers is ridden out: no row is told twice.
    """
    operator = acting.as_operator()
    if after is not None and after < 0:
        raise Refused("invalid_limit", "--after takes a position of at least 0; nothing was read")

    async def work(services: acting.Services) -> None:
        agent = (await resolve(services, target)).agent
        begin = ONLY_NEW if after is None else after
        async with aclosing(_rows(services, agent.agent_id, begin)) as rows:  # type: ignore[type-var]
            async for row in rows:
                put_row(row, as_json=as_json)

    acting.call(operator, work)


async def _rows(services: acting.Services, agent_id: str, after: int) -> AsyncIterator[pb.WatchConversationResponse]:
    """Yield each row once, until the agent is deleted. Positions go up over restarts of providers: none is told twice.

    A stream that ends or is lost is asked for again behind its last row. Where there was none yet, what has happened
    since the watching began is told.

    Raises:
        NotWritten: providers does not run, or was away for WATCH_AWAY_MS_MAX.
        Refused: it refuses the watch for good.
    """
    began_ms = int(time.time() * 1000)
    told_from_ms = 0
    away_since: float | None = None
    ended = False
    while True:
        asked_at = time.monotonic()
        ask = pb.WatchConversationRequest(agent_id=agent_id, after=after)
        try:
            async with aclosing(services.providers.watch_conversation(ask)) as rows:  # type: ignore[type-var]
                async for row in rows:
                    after, away_since = row.position, None
                    if row.at_ms >= told_from_ms:
                        yield row
            lost: NotWritten | Refused | None = None
        except (NotWritten, Refused) as error:
            if ended and error.reason == "not_found":
                return
            if not _may_come_back(error, stood=ended or away_since is not None):
                raise
            lost = error
        ended = ended or lost is None
        if after == ONLY_NEW:
            after, told_from_ms = 0, began_ms
        # A look this long was a stream that stood, and no wait for a service that is away.
        if away_since is None or time.monotonic() - asked_at > WATCH_AWAY_MS_MAX / 1000:
            away_since = time.monotonic()
        elif time.monotonic() - away_since > WATCH_AWAY_MS_MAX / 1000:
            raise lost or _ended()
        await asyncio.sleep(WATCH_POLL_MS / 1000)


def _may_come_back(error: NotWritten | Refused, *, stood: bool) -> bool:
    """Tell whether a watch is worth asking for again: one that `stood` outlives a service that is away."""
    if isinstance(error, NotWritten):
        return stood or error.reason == "connection_lost"
    # A service that has just started does not know yet whom it runs.
    return error.may_resend or (stood and error.reason == "agent_off")


def _ended() -> NotWritten:
    return NotWritten(
        "connection_lost",
        f"providers ended the watch again and again, for {WATCH_AWAY_MS_MAX // 1000} s; nothing was changed",
        hint="`fencepost status` shows whether it runs.",
    )


def put_row(row: pb.WatchConversationResponse, *, as_json: bool) -> None:
    """Show one row of a conversation."""
    if as_json:
        screen.put(line(plain(row)))
        return
    kind = (enum_word(row.DESCRIPTOR.fields_by_name["kind"], row.kind) or "row").replace("_", " ")
    name = f" {one_line(row.name)}" if row.name else ""
    screen.put(f"{screen.instant(row.at_ms)}  {kind}{name}")
    if row.text:
        screen.put_body(row.text + (" [cut]" if row.cut else ""))


# What a person who prompts may expect of whoever reads that mailbox.
_EXPECTATIONS: Final = {
    mailbox_pb2.RECIPIENT_READER_NATIVE: "It is carried into {name}'s running conversation.",
    mailbox_pb2.RECIPIENT_READER_OFF: "{name} is switched off; it waits for: fencepost agent start {name}",
    mailbox_pb2.RECIPIENT_READER_MANUAL: "{name} reads for itself; its words stay in its own conversation.",
    mailbox_pb2.RECIPIENT_READER_NONE: "Nobody carries for {name} now; it waits until somebody does.",
}


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

    try:
        stored, told = acting.call(operator, work)
    except (NotWritten, Uncertain) as error:
        error.state = {**error.state, "idempotency_key": ask.idempotency_key}
        raise
    if as_json:
        fields = {**plain(stored), "idempotency_key": ask.idempotency_key}
        screen.put_json(fields | {"explained": None if told is None else plain(told)})
    else:
        _say_prompted(stored, told, wait_s)
    if told is not None and not told.binding.final_text:
        raise typer.Exit(exits.FAILED if _hopeless(told) == "failed" else exits.TIMED_OUT)


def _say_prompted(stored: mailbox_pb2.PromptResponse, told: mailbox_pb2.ExplainResponse | None, wait_s: int) -> None:
    name = one_line(stored.recipient.name)
    earlier = "was stored by an earlier call with this key" if stored.duplicate else "is stored"
    screen.put(f"Prompt for {name} {earlier}: {stored.record_id}")
    if told is not None and told.binding.final_text:
        screen.put_body(told.binding.final_text)
        return
    if told is None:
        expectation = _EXPECTATIONS.get(stored.recipient_reader)
        if expectation is not None:
            screen.put(f"  {expectation.format(name=name)}")
    else:
        if not _settled(told):
            screen.put(f"  No answer within {wait_s} s; nothing was taken back.")
        screen.put(f"  {one_line(told.summary)}")
    screen.put(f"  What becomes of it: fencepost delivery show {stored.record_id}")


def _settled(told: mailbox_pb2.ExplainResponse) -> bool:
    open_ones = {mailbox_pb2.ANSWER_STATE_OPEN, mailbox_pb2.ANSWER_STATE_UNSPECIFIED}
    return told.record.answer_state not in open_ones or bool(_hopeless(told))


def _hopeless(told: mailbox_pb2.ExplainResponse) -> str:
    """Return why no answer of the assistant's will come: "uncertain", "failed", or nothing."""
    if told.record.delivery_state == mailbox_pb2.DELIVERY_STATE_UNCERTAIN:
        return "uncertain"
    closed = told.record.answer_state not in {
        mailbox_pb2.ANSWER_STATE_OPEN,
        mailbox_pb2.ANSWER_STATE_UNSPECIFIED,
        mailbox_pb2.ANSWER_STATE_ANSWERED,
    }
    return "failed" if closed or told.record.delivery_state == mailbox_pb2.DELIVERY_STATE_FAILED else ""


async def _answered(services: acting.Services, record_id: str, wait_s: int) -> mailbox_pb2.ExplainResponse:
    end = time.monotonic() + wait_s
    while True:
        told = await services.mailbox.explain(record_id)
        if _settled(told) or time.monotonic() >= end:
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

    async def work(services: acting.Services) -> tuple[sessions_pb2.Agent, pb.InterruptTurnResponse]:
        agent = (await resolve(services, target)).agent
        if agent.desired == sessions_pb2.DESIRED_STATE_UNSPECIFIED:
            raise _impossible(agent, "Fencepost does not run it.")
        try:
            ask = pb.InterruptTurnRequest(target=agent.agent_id, turn_id=turn)
            return agent, await services.providers.interrupt_turn(ask)
        except Uncertain as lost:
            raise _unknown(agent, lost.message) from None

    agent, answer = acting.call(who, work)
    if answer.interruption == pb.INTERRUPTION_UNSUPPORTED:
        raise _impossible(agent, answer.detail)
    if answer.interruption not in _INTERRUPTIONS:
        raise _unknown(agent, answer.detail)
    if as_json:
        screen.put_json(plain(answer))
        return
    turn_id = f" (turn {one_line(answer.turn_id)})" if answer.turn_id else ""
    screen.put(f"Interruption: {_INTERRUPTIONS[answer.interruption]}{turn_id}.")
    if answer.detail:
        screen.put(f"  {one_line(answer.detail)}")


_INTERRUPTIONS: Final = {
    pb.INTERRUPTION_REQUESTED: "asked for; the turn has not ended yet",
    pb.INTERRUPTION_CONFIRMED: "the turn ended, interrupted",
    pb.INTERRUPTION_NOTHING: "no turn was in progress",
}


def _impossible(agent: sessions_pb2.Agent, why: str) -> Refused:
    return Refused(
        "unsupported_capability",
        f"the turn of {one_line(agent.name)} was not interrupted, and nothing was sent to its program: {why}",
        hint=f"fencepost delivery capabilities {one_line(agent.name)} tells what can be done, and why not where not.",
    )


def _unknown(agent: sessions_pb2.Agent, why: str) -> Uncertain:
    return Uncertain(
        "delivery_uncertain",
        f"whether the turn of {one_line(agent.name)} was interrupted is not known; it is not tried again: {why}",
        hint=f"Look at it with `fencepost agent show {one_line(agent.name)}` before you decide anew.",
    )


def attach(
    target: Target,
    *,
    wait_idle_s: Annotated[
        int,
        typer.Option("--wait-idle-s", metavar="S", help=f"Wait for a running turn to end: 0 to {IDLE_WAIT_S_MAX} s."),
    ] = IDLE_WAIT_S_DEFAULT,
    trust_workspace: Annotated[
        bool, typer.Option("--trust-workspace", help="Let the program trust the agent's workspace, while attached.")
    ] = False,
    skip_update_check: Annotated[
        bool, typer.Option("--skip-update-check", help="Keep the program from looking for its updates, while attached.")
    ] = False,
) -> None:
    """Open the agent's own program in this terminal, on the same conversation. Delivery goes on once it is attached."""
    operator = acting.as_operator()
    if not 0 <= wait_idle_s <= IDLE_WAIT_S_MAX:
        raise Refused("invalid_arguments", f"--wait-idle-s takes 0 to {IDLE_WAIT_S_MAX}; nothing was done")
    if not (os.isatty(0) and os.isatty(1)):
        raise Refused("no_terminal", "this is no terminal; nothing was done", hint="Run it in a terminal window.")

    async def work(services: acting.Services) -> int:
        agent = (await resolve(services, target)).agent
        ask = pb.AttachTerminalRequest(
            agent_id=agent.agent_id,
            wait_idle_ms=wait_idle_s * 1000,
            trust_workspace=trust_workspace,
            skip_update_check=skip_update_check,
        )
        screen.put(f"Handing the conversation of {one_line(agent.name)} over to this terminal ...")
        async with aclosing(services.providers.attach_terminal(ask)) as steps:  # type: ignore[type-var]
            return await _attached(steps)

    if acting.call(operator, work):
        raise typer.Exit(exits.FAILED)


async def _attached(steps: AsyncIterator[pb.AttachTerminalResponse]) -> int:
    """Follow the steps until the program is to be started; then until the person has ended it."""
    async for step in steps:
        match step.WhichOneof("step"):
            case "waiting_for_turn":
                screen.put("It is in a turn; waiting for its end ...")
            case "launch":
                return await _in_the_foreground(step.launch, steps)
            case "ended":
                raise Refused("not_attached", f"no terminal was attached: {one_line(step.ended)}")
    raise NotWritten("connection_lost", "providers ended the attachment before a terminal was started")


async def _in_the_foreground(launch: pb.Launch, steps: AsyncIterator[pb.AttachTerminalResponse]) -> int:
    """Run the program in this terminal, which is its own meanwhile: nothing else is printed before it has ended.

    It has no deadline: the person ends it. What was said of the attachment while it ran is told afterwards.
    """
    told = asyncio.ensure_future(_outlived(steps))
    try:
        with _lent_terminal():
            status = await _run(launch)
        if told.done() and told.exception() is None and told.result():
            screen.put(f"The attachment had ended before: {one_line(told.result())}")
        elif told.done() and isinstance(error := told.exception(), FencepostError):
            raise error
        return status
    finally:
        told.cancel()
        await asyncio.gather(told, return_exceptions=True)


async def _outlived(steps: AsyncIterator[pb.AttachTerminalResponse]) -> str:
    """Read what is said while the program runs; return why the attachment ended, where it did."""
    async for step in steps:
        if step.WhichOneof("step") == "ended":
            return step.ended
    return ""


async def _run(launch: pb.Launch) -> int:
    environment = {**os.environ, **launch.environment}
    try:
        program = await asyncio.create_subprocess_exec(
            *launch.argv, env=environment, cwd=launch.working_directory or None
        )
    except (OSError, ValueError) as error:
        what = launch.argv[0] if launch.argv else "no program"
        raise Refused(
            "cannot_start",
            f"{one_line(what)} could not be started in {one_line(launch.working_directory)} ({type(error).__name__});"
            " the agent goes on as before",
            hint="`fencepost agent doctor NAME` says what is wrong.",
        ) from None
    try:
        return await program.wait()
    finally:
        if program.returncode is None:
            # Only where this process itself is being ended.
            program.terminate()
            await program.wait()


@contextlib.contextmanager
def _lent_terminal() -> Iterator[None]:
    """Lend the terminal to a program: its keys for interrupting mean the program, and its settings come back."""
    settings = termios.tcgetattr(0)
    # A function and not SIG_IGN, which the program would inherit.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        termios.tcsetattr(0, termios.TCSADRAIN, settings)
