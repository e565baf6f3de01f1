"""Every statement, written in SQLAlchemy Core and compiled beforehand: scripts/generate_sql.py."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Insert, Table, bindparam, delete, insert, select, update

from fencepost_providers.store.tables import CarriedRow, DispatcherRow, IntegrationRow, LifeRow, OutcomeRow
from fencepost_providers.store.tables import Table as Declared


def _table(declared: type[Declared]) -> Table:
    table = declared.metadata.tables[str(declared.__tablename__)]
    assert isinstance(table, Table)
    return table


_DISPATCHER: Final = _table(DispatcherRow)
_CARRIED: Final = _table(CarriedRow)
_OUTCOME: Final = _table(OutcomeRow)
_LIFE: Final = _table(LifeRow)
_INTEGRATION: Final = _table(IntegrationRow)


def _inserting(table: Table) -> Insert:
    return insert(table).values({column.name: bindparam(column.name) for column in table.columns})


DISPATCHER_READ: Final = select(_DISPATCHER.c.dispatcher_id, _DISPATCHER.c.incarnation)
DISPATCHER_INSERT: Final = _inserting(_DISPATCHER)
DISPATCHER_DELETE: Final = delete(_DISPATCHER)

CARRIED_ALL: Final = select(_CARRIED).order_by(_CARRIED.c.written_at_ms, _CARRIED.c.token)
CARRIED_BY_TOKEN: Final = select(_CARRIED).where(_CARRIED.c.token == bindparam("w_token"))
CARRIED_INSERT: Final = _inserting(_CARRIED)
CARRIED_SETTLE: Final = (
    update(_CARRIED)
    .values(
        {
            name: bindparam(f"v_{name}")
            for name in ("answer", "evidence", "provider", "conversation_id", "turn_id", "mode")
        }
    )
    .where(_CARRIED.c.token == bindparam("w_token"), _CARRIED.c.answer == bindparam("w_answer"))
)
CARRIED_DELETE: Final = delete(_CARRIED).where(
    _CARRIED.c.token == bindparam("w_token"), _CARRIED.c.answer == bindparam("w_answer")
)
CARRIED_CLEAR: Final = delete(_CARRIED)

OUTCOME_ALL: Final = select(_OUTCOME).order_by(_OUTCOME.c.written_at_ms, _OUTCOME.c.token)
OUTCOME_BY_TOKEN: Final = select(_OUTCOME.c.token).where(_OUTCOME.c.token == bindparam("w_token"))
OUTCOME_INSERT: Final = _inserting(_OUTCOME)
OUTCOME_DELETE: Final = delete(_OUTCOME).where(_OUTCOME.c.token == bindparam("w_token"))
OUTCOME_CLEAR: Final = delete(_OUTCOME)

LIFE_ALL: Final = select(_LIFE).order_by(_LIFE.c.agent_id)
LIFE_INSERT: Final = _inserting(_LIFE)
LIFE_DELETE: Final = delete(_LIFE).where(_LIFE.c.agent_id == bindparam("w_agent_id"))
LIFE_CLEAR: Final = delete(_LIFE)

INTEGRATION_ALL: Final = select(_INTEGRATION).order_by(_INTEGRATION.c.written_at_ms, _INTEGRATION.c.request_id)
INTEGRATION_INSERT: Final = _inserting(_INTEGRATION)
INTEGRATION_DELETE: Final = delete(_INTEGRATION).where(_INTEGRATION.c.request_id == bindparam("w_request_id"))
INTEGRATION_CLEAR: Final = delete(_INTEGRATION)
