"""Every statement of evidence, in SQLAlchemy Core, compiled to the text that is run."""

from __future__ import annotations

from sqlalchemy import bindparam, func, select, update

from fencepost_mailbox.store.dialect import const as _const
from fencepost_mailbox.store.dialect import sqlite, whole_row
from fencepost_mailbox.store.evidence.tables import EVIDENCE

_E = EVIDENCE.c
_ZERO = _const(0)  # the dialect would bind one

ONE = sqlite(select(EVIDENCE).where(_E.evidence_id == bindparam("evidence_id")))
OF_TASK = sqlite(
    select(EVIDENCE)
    .where(_E.task_id == bindparam("task_id"), _E.evidence_id > bindparam("after"))
    .order_by(_E.evidence_id)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
COUNT = sqlite(select(func.count()).select_from(EVIDENCE).where(_E.task_id == bindparam("task_id")))
INSERT = whole_row(EVIDENCE)
VERIFY = sqlite(
    update(EVIDENCE)
    .values(
        verdict=bindparam("verdict"),
        verified_at_ms=bindparam("verified_at_ms"),
        verified_for=bindparam("verified_for"),
        checkout=bindparam("checkout"),
        detail=bindparam("detail"),
    )
    .where(_E.evidence_id == bindparam("was_evidence_id"))
)
