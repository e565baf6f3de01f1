"""What a sender says of a record besides its text, looked up before the record is stored (agent_send)."""

from __future__ import annotations

from typing import Final

from fencepost_kit.identity import Caller
from fencepost_kit.values import value
from fencepost_mailbox.domain.refusals import NotFound
from fencepost_mailbox.domain.tasks.needs import TASK_PREFIX
from fencepost_mailbox.domain.texts import PREFIX
from fencepost_mailbox.domain.threads.attributes import (
    THREAD_PREFIX,
    check_one_thread,
    check_subject,
    id_under,
    thread_of,
)
from fencepost_mailbox.domain.values import Attributes, Kind, Record
from fencepost_mailbox.store.protocol import Queries
from fencepost_mailbox.usecases.ports import Ports, may_see
from fencepost_mailbox.usecases.tasks.callers import actor_of, visible

# Records of a thread that are looked at for one that a caller may see, and in how many steps.
THREAD_STEP_RECORDS: Final = 100
THREAD_STEPS_MAX: Final = 20


@value(frozen=True, kw_only=True, slots=True)
class Attached:
    """Attributes as they were written in a call; empty texts for what was not given."""

    subject: str = ""
    thread_id: str = ""
    reply_to: str = ""
    task_id: str = ""

    def parts(self) -> list[bytes]:
        """Return what stands for them in the content of the call."""
        return [one.encode("utf-8", "replace") for one in (self.subject, self.thread_id, self.reply_to, self.task_id)]


def record_named(text: str) -> tuple[Kind, bytes] | None:
    """Return what an id of a record names, or None where it is none."""
    for kind, prefix in PREFIX.items():
        if text.startswith(prefix):
            raw = id_under(prefix, text)
            return None if raw is None else (kind, raw)
    return None


def visible_record(queries: Queries, caller: Caller, text: str, what: str) -> Record:
    """Return the record that an id names, where the caller may see it.

    Raises:
        NotFound: there is none, or none that the caller may see.
    """
    named = record_named(text)
    record = queries.record(named[1]) if named is not None else None
    if named is None or record is None or record.kind is not named[0] or not may_see(caller, record):
        raise NotFound(
            f"{what} names no record that you may see; nothing was written",
            hint="Use the id of a record that you sent or were sent.",
        )
    return record


def thread_of_record(queries: Queries, record: Record) -> bytes:
    """Return the thread that a record belongs to."""
    parent = queries.record(record.parent_id) if record.parent_id is not None and record.attributes is None else None
    return thread_of(record, parent)


def thread_named(queries: Queries, caller: Caller, text: str) -> bytes:
    """Return the thread that its own id or the id of a record of it names, where the caller may see a record of it.

    Raises:
        NotFound: there is none, or none of which the caller may see a record.
    """
    if not text.startswith(THREAD_PREFIX):
        return thread_of_record(queries, visible_record(queries, caller, text, "thread_id"))
    thread, after = id_under(THREAD_PREFIX, text), 0
    for _ in range(THREAD_STEPS_MAX):
        found = queries.threads.of_thread(thread, after, THREAD_STEP_RECORDS) if thread is not None else []
        if thread is not None and any(may_see(caller, record) for record in found):
            return thread
        if len(found) < THREAD_STEP_RECORDS:
            break
        after = found[-1].sequence
    raise NotFound(
        "no thread has this id, or none of which you may see a record; nothing was written",
        hint="Give thr_ and 32 hexadecimal digits, or the id of a record of the thread.",
    )


def attach(ports: Ports, caller: Caller, given: Attached, record_id: bytes) -> Attributes | None:
    """Return the attributes of a new record, or None where nothing was said.

    Raises:
        InvalidAttributes: see check_subject and check_one_thread.
        NotFound: a thread, record or task that is named is none that the caller may see.
    """
    if not any((given.subject, given.thread_id, given.reply_to, given.task_id)):
        return None
    queries = ports.store.read
    subject, task_id, answered = check_subject(given.subject), None, None
    with queries.snapshot():
        named = thread_named(queries, caller, given.thread_id) if given.thread_id else None
        if given.reply_to:
            answered = visible_record(queries, caller, given.reply_to, "reply_to")
        if given.task_id:
            task_id = id_under(TASK_PREFIX, given.task_id)
            # No task has this id: refused as one that the caller may not see.
            visible(queries, actor_of(ports, caller), task_id if task_id is not None else b"")
        thread = check_one_thread(
            named=named, answered=thread_of_record(queries, answered) if answered is not None else None
        )
    return Attributes(
        thread=thread if thread is not None else record_id,
        subject=subject,
        reply_to=answered.record_id if answered is not None else None,
        reply_to_kind=answered.kind if answered is not None else None,
        task_id=task_id,
    )
