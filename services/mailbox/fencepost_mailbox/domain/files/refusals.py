"""Every way in which a file reservation says no. That others hold a file is none of them: that is an answer."""

from __future__ import annotations

from fencepost_mailbox.domain.refusals import MailboxRefusal


class InvalidPath(MailboxRefusal):
    """A path is not canonical, or a glob has no wildcard; the state names it."""

    reason = "invalid_path"


class InvalidReservation(MailboxRefusal):
    """Another field of a call about reservations breaks its rule; `field` in the state names it."""

    reason = "invalid_reservation"


class ReservationLost(MailboxRefusal):
    """The caller does not hold what it would renew: it expired, was released, or ended with its attempt or life."""

    reason = "reservation_lost"


class ReservationLimit(MailboxRefusal):
    """The agent holds as many paths as one may."""

    reason = "reservation_limit"
