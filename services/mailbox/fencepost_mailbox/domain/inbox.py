"""Where a record stands in its recipient's inbox, and what a wait waits for.

One derivation, stored beside the record.
"""

from __future__ import annotations

from fencepost_mailbox.domain.values import WORK, Answer, Delivery, Inbox, Kind


def place(*, kind: Kind, delivery: Delivery, answer: Answer, exposed: bool, acknowledged: bool) -> Inbox:
    """Return the part of the inbox for a record in this state.

    A wait ends when something is FRESH (M007): exactly what receive without a cursor would show. What was carried into
    the conversation is AWAY (DECISIONS M007 M038). An uncertain record stays readable (M107); a settled request is
    never shown as new (M072). A prompt that was read for itself is closed by that and shown until it is acknowledged. A
    wake-up is never read: what it tells of stands among the notifications.
    """
    if kind is Kind.WAKE:
        return Inbox.AWAY
    if kind is Kind.PROMPT and delivery is Delivery.RECEIVER:
        return Inbox.SEEN if acknowledged else Inbox.FRESH
    if kind in WORK:
        if delivery is Delivery.PENDING:
            return Inbox.FRESH if answer is Answer.OPEN else Inbox.AWAY
        if delivery not in (Delivery.RECEIVER, Delivery.UNCERTAIN):
            return Inbox.AWAY
        if answer is Answer.OPEN:
            return Inbox.SEEN if acknowledged else Inbox.FRESH
        return Inbox.SEEN if exposed else Inbox.AWAY
    if delivery is Delivery.STORED:
        return Inbox.FRESH
    if delivery in (Delivery.EXPOSED, Delivery.UNCERTAIN):
        return Inbox.SEEN if acknowledged else Inbox.FRESH
    return Inbox.AWAY


def acknowledgeable(*, delivery: Delivery, exposed: bool) -> bool:
    """Tell whether a cursor that covers the record acknowledges it: only what its recipient was shown."""
    return exposed or delivery in (Delivery.VISIBLE, Delivery.ACCEPTED)


def possibly_seen(*, kind: Kind, delivery: Delivery) -> bool:
    """Tell whether it may already stand in the conversation, so that it is to be read and not executed (M107)."""
    del kind
    return delivery is Delivery.UNCERTAIN
