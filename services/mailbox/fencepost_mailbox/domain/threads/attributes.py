"""What a sender may say of a record besides its text, and which thread a record belongs to."""

from __future__ import annotations

from typing import Final

from fencepost_mailbox.domain.refusals import InvalidAttributes
from fencepost_mailbox.domain.values import SUBJECT_BYTES_MAX, Attributes, Record

THREAD_PREFIX: Final = "thr_"
_LINE_ENDS: Final = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


def thread_id_text(thread: bytes) -> str:
    """Return the public form of a thread's id."""
    return THREAD_PREFIX + thread.hex()


def id_under(prefix: str, text: str) -> bytes | None:
    """Return the 16 bytes that an id of this prefix names, or None where `text` is none."""
    try:
        raw = bytes.fromhex(text.removeprefix(prefix))
    except ValueError:
        return None
    return raw if len(raw) == 16 and text == prefix + raw.hex() else None


def check_subject(subject: str) -> str:
    """Return `subject`.

    Raises:
        InvalidAttributes: over SUBJECT_BYTES_MAX bytes, several lines, or not valid Unicode.
    """
    try:
        size = len(subject.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidAttributes("the subject is not valid Unicode text; nothing was written") from None
    if size > SUBJECT_BYTES_MAX:
        raise InvalidAttributes(
            f"the subject has {size} bytes, at most {SUBJECT_BYTES_MAX} fit; nothing was written",
            hint="Say the rest in the text.",
            state={"bytes": str(size), "bytes_max": str(SUBJECT_BYTES_MAX)},
        )
    if _LINE_ENDS.intersection(subject):
        raise InvalidAttributes("a subject is one line; nothing was written", hint="Say the rest in the text.")
    return subject


def thread_of(record: Record, parent: Record | None) -> bytes:
    """Return the thread of a record; `parent` is the record that it is about, or None where that was erased.

    Without attributes a record is the first of its own thread, and a reply or notice belongs to that of its parent.
    """
    if record.attributes is not None:
        return record.attributes.thread
    if record.parent_id is None:
        return record.record_id
    return parent.attributes.thread if parent is not None and parent.attributes is not None else record.parent_id


def check_one_thread(*, named: bytes | None, answered: bytes | None) -> bytes | None:
    """Return the thread that a new record joins, or None where it begins one.

    Raises:
        InvalidAttributes: the thread that was named is not that of the record that is answered.
    """
    if named is not None and answered is not None and named != answered:
        raise InvalidAttributes(
            "reply_to belongs to another thread than the one that is named; nothing was written",
            hint="Leave thread_id out: what answers a record joins its thread.",
        )
    return named if named is not None else answered


def of_answer(request: Record) -> Attributes | None:
    """Return the attributes of what answers a request or is told about it: its thread and task, where it has any."""
    given = request.attributes
    return None if given is None else Attributes(thread=given.thread, task_id=given.task_id)
