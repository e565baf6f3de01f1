"""ListCredentials: what is valid, without secrets, oldest first."""

from __future__ import annotations

from fencepost_sessions.domain.credentials import Credential, credential_bytes
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.paging import (
    NumberPosition,
    Page,
    cut,
    list_mark,
    number_position,
    number_token,
    page_rows,
)
from fencepost_sessions.store.protocol import Reading
from fencepost_sessions.usecases.loading import existing_agent
from fencepost_sessions.usecases.ports import Ports


async def list_credentials(ports: Ports, *, agent_id: str, page_size: int, page_token: str) -> Page[Credential]:
    """Return a page: of one agent, or of all and the home.

    Raises:
        Malformed, NotFound (no such agent), InvalidLimit, InvalidCursor: nothing was read.
    """
    narrowed = uuid_bytes(agent_id, what="agent_id") if agent_id else None
    rows = page_rows(page_size)

    def question(reading: Reading) -> Page[Credential]:
        if narrowed is not None:
            existing_agent(reading, narrowed)
        mark = list_mark(reading.directory().epoch, "credentials", narrowed)
        after = number_position(mark, page_token)
        page, last = cut(reading.credentials(agent_id=narrowed, after=after, rows=rows + 1), rows, credential_bytes)
        place = None if last is None else NumberPosition(number=last.appeared_revision, row_id=last.credential_id)
        return Page(rows=page, next_token="" if place is None else number_token(mark, place))

    return ports.store.read(question)
