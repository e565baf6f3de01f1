"""`fencepost message`: what agents say to each other, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final

import typer

from fencepost.cli import acting, screen
from fencepost.cli.body import read_body
from fencepost.cli.directory import resolve, with_near_miss
from fencepost.cli.options import AsJson, FromFile, Key, RecordId, Stdin, Target, Text, key_or_new
from fencepost.cli.plain import enum_word, one_line, plain
from fencepost.cli.screen import Column
from fencepost.client import Mailbox
from fencepost.errors import NotWritten, Refused, Uncertain
from fencepost.mailbox.v1 import mailbox_pb2 as pb

messages = typer.Typer(help="Send, read and answer messages.", no_args_is_help=True)

WAIT_MS_MAX: Final = 60_000
PAGE_RECORDS_MAX: Final = 100
STATUSES: Final = {
    "done": pb.REPLY_STATUS_DONE,
    "blocked": pb.REPLY_STATUS_BLOCKED,
    "failed": pb.REPLY_STATUS_FAILED,
}
# What a sender may expect of the recipient's reader.
EXPECTATIONS: Final = {
    pb.RECIPIENT_READER_NATIVE: "It is carried into {name}'s running conversation.",
    pb.RECIPIENT_READER_MANUAL: "{name} reads for itself and last did {read}; while idle it does not wake.",
    pb.RECIPIENT_READER_NONE: "Nobody has ever read {name}'s mailbox; it lies there until somebody does.",
    pb.RECIPIENT_READER_OFF: "A person has switched {name} off; it lies there until it is switched on.",
}

Subject = Annotated[str, typer.Option(metavar="TEXT", help="What it is about: one line, at most 256 bytes.")]
ThreadId = Annotated[str, typer.Option("--thread", metavar="ID", help="The thread it joins, or any record of that.")]
ReplyTo = Annotated[str, typer.Option("--reply-to", metavar="ID", help="The record it answers without settling it.")]
TaskId = Annotated[str, typer.Option("--task", metavar="ID", help="The task that it is about.")]
TimeoutMs = Annotated[int, typer.Option("--timeout-ms", metavar="MS", help=f"How long to wait: 0 to {WAIT_MS_MAX}.")]


@messages.command("send")
def send(
    target: Target,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    subject: Subject = "",
    thread_id: ThreadId = "",
    reply_to: ReplyTo = "",
    task_id: TaskId = "",
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Send information: it obliges nobody and starts nothing."""
    agent = acting.as_agent()
    ask = pb.SendRequest(target=target, body=read_body(text, stdin=stdin, file=file), idempotency_key=key_or_new(key))
    _attach(ask, subject=subject, thread_id=thread_id, reply_to=reply_to, task_id=task_id)
    answer = _admit(agent, ask, lambda mailbox: mailbox.send(ask), target)
    _show_receipt(answer, answer.record_id, "Information", ask.idempotency_key, given=key is not None, as_json=as_json)


@messages.command("followup")
def followup(
    target: Target,
    text: Text = None,
    *,
    stdin: Stdin = False,
    file: FromFile = None,
    subject: Subject = "",
    thread_id: ThreadId = "",
    reply_to: ReplyTo = "",
    task_id: TaskId = "",
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Assign a request, and print its id without waiting for the reply."""
    agent = acting.as_agent()
    body = read_body(text, stdin=stdin, file=file)
    ask = pb.RequestRequest(target=target, body=body, idempotency_key=key_or_new(key))
    _attach(ask, subject=subject, thread_id=thread_id, reply_to=reply_to, task_id=task_id)
    answer = _admit(agent, ask, lambda mailbox: mailbox.request(ask), target)
    _show_receipt(answer, answer.request_id, "Request", ask.idempotency_key, given=key is not None, as_json=as_json)


@messages.command("reply")
def reply(
    request_id: Annotated[str, typer.Argument(metavar="ID", help="The request answered: ask_ and 32 digits.")],
    text: Text = None,
    *,
    status: Annotated[str, typer.Option(metavar="STATUS", help="done, blocked or failed.")] = "done",
    stdin: Stdin = False,
    file: FromFile = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Answer a request; the request decides who gets the reply."""
    agent = acting.as_agent()
    if status not in STATUSES:
        raise Refused("invalid_arguments", f"a status is one of {', '.join(STATUSES)}; nothing was sent")
    body = read_body(text, stdin=stdin, file=file)
    ask = pb.ReplyRequest(request_id=request_id, status=STATUSES[status], body=body, idempotency_key=key_or_new(key))
    answer = _admit(agent, ask, lambda mailbox: mailbox.reply(ask), None)
    _show_receipt(
        answer,
        answer.record_id,
        f"Reply to {answer.request_id}",
        ask.idempotency_key,
        given=key is not None,
        as_json=as_json,
    )


def _attach(ask: pb.SendRequest | pb.RequestRequest, **given: str) -> None:
    if any(given.values()):
        ask.attributes.CopyFrom(pb.Attributes(**given))


def _admit(agent: acting.Acting, ask: Any, mutate: Callable[[Mailbox], Awaitable[Any]], target: str | None) -> Any:
    """Call a mutation; an outcome that is not a receipt is told with the key under which it can be asked about."""

    async def work(services: acting.Services) -> Any:
        try:
            return await mutate(services.mailbox)
        except Refused as refused:
            if target is not None:
                raise await with_near_miss(services, refused, target) from None
            raise

    try:
        return acting.call(agent, work)
    except (NotWritten, Uncertain) as error:
        error.state = {**error.state, "idempotency_key": ask.idempotency_key}
        raise


def _show_receipt(answer: Any, record_id: str, what: str, key: str, *, given: bool, as_json: bool) -> None:
    if as_json:
        screen.put_json({**plain(answer), "idempotency_key": key})
        return
    name = one_line(answer.recipient.name)
    state = enum_word(answer.DESCRIPTOR.fields_by_name["delivery_state"], answer.delivery_state)
    # Without a key of the caller's the same reply is known by its request and content.
    earlier = (
        "was stored by an earlier call with this key" if given else "was stored by an earlier call and says the same"
    )
    stored = earlier if answer.duplicate else "is stored"
    screen.put(f"{what} for {name} ({answer.recipient.agent_id}) {stored}: {state}.")
    screen.put(f"  {record_id}")
    expectation = EXPECTATIONS.get(answer.recipient_reader)
    if expectation is not None:
        read = screen.ago(answer.recipient_last_read_at_ms, int(time.time() * 1000))
        screen.put(f"  {expectation.format(name=name, read=read)}")


@messages.command("receive")
def receive(
    *,
    cursor: Annotated[str, typer.Option(metavar="CURSOR", help="Continue behind this cursor.")] = "",
    ack_cursor: Annotated[str, typer.Option(metavar="CURSOR", help="First acknowledge an earlier page.")] = "",
    limit: Annotated[int, typer.Option(metavar="N", help=f"1 to {PAGE_RECORDS_MAX} records.")] = PAGE_RECORDS_MAX,
    timeout_ms: TimeoutMs = 0,
    as_json: AsJson = False,
) -> None:
    """Read a page of your messages. Reading acknowledges nothing; --ack-cursor does."""
    agent = acting.as_agent()
    _check_range("--limit", "invalid_limit", limit, 1, PAGE_RECORDS_MAX)
    _check_range("--timeout-ms", "invalid_timeout", timeout_ms, 0, WAIT_MS_MAX)
    ask = pb.ReceiveRequest(cursor=cursor, ack_cursor=ack_cursor, limit=limit, timeout_ms=timeout_ms)
    page = acting.call(agent, lambda services: services.mailbox.receive(ask))
    if as_json:
        screen.put_json(plain(page))
        return
    for record in page.records:
        screen.put(_headline(record))
        screen.put_body(record.body)
        screen.put("")
    if not page.records:
        ended = {"provider_context_available": "It stands in your conversation.", "draining": "The mailbox restarts."}
        screen.put(f"Nothing new. {ended.get(page.wake_reason, '')}".rstrip())
    for request in page.open_requests:
        screen.put(f"Open: {request.request_id} from {one_line(request.sender.name)} waits for your reply.")
    if page.has_more:
        screen.put(f"More: fencepost message receive --cursor {page.next_cursor}")
    if page.ack_cursor:
        screen.put(f"Acknowledge: fencepost message receive --ack-cursor {page.ack_cursor}")


def _headline(record: pb.Record) -> str:
    kind = enum_word(record.DESCRIPTOR.fields_by_name["kind"], record.kind)
    parts = [record.record_id, f"{kind} from {_who(record)}", screen.moment(record.admitted_at_ms)]
    if record.kind == pb.RECORD_KIND_REPLY:
        parts.append(
            f"{enum_word(record.DESCRIPTOR.fields_by_name['reply_status'], record.reply_status)}: {record.parent_id}"
        )
    elif record.parent_id:
        parts.append(f"about {record.parent_id}")
    if record.attributes.subject:
        parts.append(f"subject: {one_line(record.attributes.subject)}")
    if record.attributes.task_id:
        parts.append(f"task: {record.attributes.task_id}")
    if record.origin == pb.ORIGIN_AUTOMATIC:
        parts.append("published automatically")
    if record.possibly_seen:
        parts.append("possibly seen before: read it, do not execute it again")
    return " | ".join(parts)


def _who(record: pb.Record) -> str:
    if not record.HasField("sender"):
        return "the host"
    # A deleted agent has no name any more.
    return one_line(record.sender.name) or record.sender.agent_id


@messages.command("wait")
def wait(*, timeout_ms: TimeoutMs = WAIT_MS_MAX, as_json: AsJson = False) -> None:
    """Wait until there is something new to receive. A wait that ends empty is no failure."""
    agent = acting.as_agent()
    _check_range("--timeout-ms", "invalid_timeout", timeout_ms, 0, WAIT_MS_MAX)
    answer = acting.call(agent, lambda services: services.mailbox.wait(pb.WaitRequest(timeout_ms=timeout_ms)))
    if as_json:
        screen.put_json(plain(answer))
    elif answer.timed_out:
        screen.put(f"Nothing came within {screen.span(timeout_ms)}.")
    elif answer.wake_reason == "activity":
        screen.put("There is something to read: fencepost message receive")
    else:
        screen.put(f"The wait ended: {one_line(answer.wake_reason)}. Receive, or wait again.")


@messages.command("list")
def list_messages(
    *,
    agent: Annotated[str | None, typer.Option(metavar="TARGET", help="Whose: for the operator.")] = None,
    sent: Annotated[bool, typer.Option("--sent", help="Only what was sent.")] = False,
    inbox: Annotated[bool, typer.Option("--inbox", help="Only what was received.")] = False,
    open_only: Annotated[bool, typer.Option("--open", help="Only requests without an answer.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help=f"1 to {PAGE_RECORDS_MAX} records.")] = 50,
    page_token: Annotated[str, typer.Option(metavar="TOKEN", help="Continue an earlier listing.")] = "",
    as_json: AsJson = False,
) -> None:
    """List records, newest first, without exposing or acknowledging any."""
    who = acting.as_whoever()
    if sent and inbox:
        raise Refused("invalid_arguments", "--sent and --inbox exclude each other; leave both out for all")
    if agent is not None and not who.is_operator:
        raise Refused("permission_denied", "--agent is the operator's; an agent lists its own; nothing was read")
    if agent is None and who.is_operator:
        raise Refused(
            "invalid_arguments",
            "an operator lists the messages of one agent; nothing was read",
            hint="Name it: fencepost message list --agent TARGET",
        )
    _check_range("--limit", "invalid_limit", limit, 1, PAGE_RECORDS_MAX)
    direction = pb.DIRECTION_SENT if sent else pb.DIRECTION_INBOX if inbox else pb.DIRECTION_UNSPECIFIED
    ask = pb.ListRecordsRequest(direction=direction, page_size=limit, page_token=page_token, open_only=open_only)

    async def work(services: acting.Services) -> pb.ListRecordsResponse:
        if agent is not None:
            ask.agent_id = (await resolve(services, agent)).agent.agent_id
        return await services.mailbox.list_records(ask)

    page = acting.call(who, work)
    if as_json:
        screen.put_json(plain(page))
        return
    if not page.records:
        screen.put("No messages.")
        return
    screen.put(records_table(page.records))
    if page.next_page_token:
        screen.put(f"More: --page-token {page.next_page_token}")


def records_table(records: Sequence[pb.Record]) -> str:
    """Return a listing for people."""
    columns = [Column(title=title) for title in ("ID", "ADMITTED", "FROM", "TO", "DELIVERY", "ANSWER")]
    fields = pb.Record.DESCRIPTOR.fields_by_name
    rows = [
        [
            record.record_id,
            screen.moment(record.admitted_at_ms),
            _who(record),
            record.recipient.name,
            enum_word(fields["delivery_state"], record.delivery_state) or "-",
            enum_word(fields["answer_state"], record.answer_state) or "-",
            f"{record.attributes.subject}: {record.body}" if record.attributes.subject else record.body,
        ]
        for record in records
    ]
    return screen.table([*columns, Column(title="TEXT", text=True)], rows)


@messages.command("show")
def show(record_id: RecordId, *, as_json: AsJson = False) -> None:
    """Show one record with its text, to its sender, its recipient or the operator. Exposes nothing."""
    who = acting.as_whoever()
    record = acting.call(who, lambda services: services.mailbox.get_record(record_id)).record
    if as_json:
        screen.put_json({"record": plain(record)})
        return
    fields = record.DESCRIPTOR.fields_by_name
    delivery = enum_word(fields["delivery_state"], record.delivery_state)
    answer = enum_word(fields["answer_state"], record.answer_state)
    screen.put(_headline(record))
    states = [f"to {one_line(record.recipient.name)}", f"delivery: {delivery}", f"answer: {answer}" if answer else ""]
    states.append("acknowledged" if record.acknowledged else "not acknowledged")
    screen.put("  " + " | ".join(state for state in states if state))
    about = record.attributes
    named = [f"thread: {about.thread_id}"] if about.thread_id else []
    named += [f"answers {about.reply_to}"] if about.reply_to else []
    if named:
        screen.put("  " + " | ".join(named))
    screen.put("")
    screen.put_body(record.body)


@messages.command("thread")
def thread(
    any_id: Annotated[str, typer.Argument(metavar="ID", help="A thread (thr_...), or any record of it.")],
    *,
    limit: Annotated[int, typer.Option(metavar="N", help=f"1 to {PAGE_RECORDS_MAX} records.")] = 50,
    page_token: Annotated[str, typer.Option(metavar="TOKEN", help="Continue an earlier page.")] = "",
    as_json: AsJson = False,
) -> None:
    """Read a thread in order, of its records those that you may see. Exposes and acknowledges nothing."""
    who = acting.as_whoever()
    _check_range("--limit", "invalid_limit", limit, 1, PAGE_RECORDS_MAX)
    ask = pb.GetThreadRequest(id=any_id, page_size=limit, page_token=page_token)
    page = acting.call(who, lambda services: services.mailbox.get_thread(ask))
    if as_json:
        screen.put_json(plain(page))
        return
    screen.put(f"{page.thread_id}: {one_line(page.subject)}" if page.subject else page.thread_id)
    for record in page.records:
        screen.put("")
        screen.put(f"{_headline(record)} | to {one_line(record.recipient.name)}")
        screen.put_body(record.body)
    if page.next_page_token:
        screen.put("")
        screen.put(f"More: --page-token {page.next_page_token}")


@messages.command("search")
def search(
    query: Annotated[str, typer.Argument(metavar="WORDS", help='Words, "words in this order", beginnings*.')],
    *,
    limit: Annotated[int, typer.Option(metavar="N", help=f"1 to {PAGE_RECORDS_MAX} records.")] = 50,
    page_token: Annotated[str, typer.Option(metavar="TOKEN", help="Continue an earlier page.")] = "",
    as_json: AsJson = False,
) -> None:
    """Find records by words in subject and text, newest first, among those that you may see. Exposes nothing."""
    who = acting.as_whoever()
    _check_range("--limit", "invalid_limit", limit, 1, PAGE_RECORDS_MAX)
    ask = pb.SearchRecordsRequest(query=query, page_size=limit, page_token=page_token)
    page = acting.call(who, lambda services: services.mailbox.search_records(ask))
    if as_json:
        screen.put_json(plain(page))
        return
    if page.found:
        columns = [Column(title=title) for title in ("ID", "ADMITTED", "FROM", "TO", "SUBJECT")]
        rows = [
            [
                found.record.record_id,
                screen.moment(found.record.admitted_at_ms),
                _who(found.record),
                found.record.recipient.name,
                found.record.attributes.subject or "-",
                found.excerpt,
            ]
            for found in page.found
        ]
        screen.put(screen.table([*columns, Column(title="TEXT", text=True)], rows))
    else:
        screen.put("No messages.")
    if page.next_page_token:
        screen.put(f"More: --page-token {page.next_page_token}")
    if not page.complete:
        screen.put("The newest messages are not searched yet. Search again.")


def _check_range(option: str, reason: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise Refused(reason, f"{option} takes {least} to {most}; nothing was asked")
