"""ListProjects: every project of the home, oldest first."""

from __future__ import annotations

from fencepost_sessions.domain.paging import (
    NumberPosition,
    Page,
    cut,
    list_mark,
    number_position,
    number_token,
    page_rows,
)
from fencepost_sessions.domain.projects import Project, project_bytes
from fencepost_sessions.store.protocol import Reading
from fencepost_sessions.usecases.ports import Ports


async def list_projects(ports: Ports, *, page_size: int, page_token: str) -> Page[Project]:
    """Return a page.

    Raises:
        InvalidLimit, InvalidCursor: nothing was read.
    """
    rows = page_rows(page_size)

    def question(reading: Reading) -> Page[Project]:
        mark = list_mark(reading.directory().epoch, "projects", None)
        after = number_position(mark, page_token)
        page, last = cut(reading.projects(after=after, rows=rows + 1), rows, project_bytes)
        place = None if last is None else NumberPosition(number=last.number, row_id=last.project_id)
        return Page(rows=page, next_token="" if place is None else number_token(mark, place))

    return ports.store.read(question)
