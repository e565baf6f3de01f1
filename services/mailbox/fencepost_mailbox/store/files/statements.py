"""Every statement of file reservations, written with SQLAlchemy Core and compiled to the text that the driver runs."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, func, select, tuple_, update

from fencepost_mailbox.store.dialect import const as _const
from fencepost_mailbox.store.dialect import sqlite, whole_row
from fencepost_mailbox.store.files.tables import RESERVATION

_R = RESERVATION.c
_ZERO = _const(0)  # the dialect would bind one
_ONE = _const(1)
_STANDS = _R.expires_at_ms > bindparam("now_ms")

# The index by leading folder carries both: few rows are read however many are held elsewhere.
AT_FOLDER = sqlite(
    select(RESERVATION).where(_R.project_id == bindparam("project_id"), _R.leading == bindparam("leading"), _STANDS)
)
BELOW_FOLDER = sqlite(
    select(RESERVATION).where(
        _R.project_id == bindparam("project_id"),
        _R.leading >= bindparam("first"),
        _R.leading < bindparam("end"),
        _STANDS,
    )
)
OF_RESERVATION = sqlite(
    select(RESERVATION).where(_R.reservation_id == bindparam("reservation_id"), _STANDS).order_by(_R.place)
)
HELD_COUNT = sqlite(select(func.count()).select_from(RESERVATION).where(_R.holder == bindparam("holder"), _STANDS))
HELD_BY = sqlite(
    select(RESERVATION)
    .where(
        _R.holder == bindparam("holder"),
        tuple_(_R.reservation_id, _R.place) > tuple_(bindparam("reservation_id"), bindparam("place")),
        _STANDS,
    )
    .order_by(_R.reservation_id, _R.place)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
LISTED = sqlite(
    select(RESERVATION)
    .where(
        _R.project_id == bindparam("project_id"),
        tuple_(_R.leading, _R.reservation_id, _R.place)
        > tuple_(bindparam("leading"), bindparam("reservation_id"), bindparam("place")),
        _STANDS,
    )
    .order_by(_R.leading, _R.reservation_id, _R.place)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
ANY_EXPIRED = sqlite(select(_ONE).where(_R.expires_at_ms <= bindparam("now_ms")).limit(_ONE).offset(_ZERO))
EXPIRED = sqlite(
    select(_R.reservation_id, _R.place)
    .where(_R.expires_at_ms <= bindparam("now_ms"))
    .order_by(_R.expires_at_ms)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
INSERT = whole_row(RESERVATION)
SET_EXPIRY = sqlite(
    update(RESERVATION)
    .where(
        _R.reservation_id == bindparam("was_reservation_id"),
        _R.place == bindparam("was_place"),
        _R.expires_at_ms == bindparam("was_expires_at_ms"),
    )
    .values(expires_at_ms=bindparam("expires_at_ms"))
)
DROP = sqlite(
    delete(RESERVATION).where(_R.reservation_id == bindparam("reservation_id"), _R.place == bindparam("place"))
)
DROP_OF_ATTEMPT = sqlite(delete(RESERVATION).where(_R.attempt_id == bindparam("attempt_id")))
DROP_OF_HOLDER = sqlite(delete(RESERVATION).where(_R.holder == bindparam("holder"), _R.generation < bindparam("below")))
