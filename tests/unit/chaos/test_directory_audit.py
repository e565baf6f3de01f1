"""The part of the chaos run's judgement that looks at the directory of agents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from fencepost_chaos.auditor import Broken
from fencepost_chaos.directory import Asked, Known, audit_deleted, audit_directory
from fencepost_chaos.history import Directed, Outcome


def change(call: str, subject: str, result: str, key: str = "k") -> Directed:
    return Directed(client="op", call=call, key=key, subject=subject, outcome=Outcome.DONE, result=result)


CREATED: Final = change("create", "new", "id-new")
BEGUN: Final = (change("begin", "id-vic", "2"), change("begin", "id-vic", "3"))
UPDATED: Final = (change("update", "id-vic", "p1"), change("update", "id-vic", "p2"))
NEW: Final = Known(agent_id="id-new", name="new", generation=1, provider="")
VIC: Final = Known(agent_id="id-vic", name="vic", generation=3, provider="p2")


def test_a_directory_that_is_as_it_was_answered_is_not_complained_of() -> None:
    assert not list(audit_directory([CREATED, *BEGUN, *UPDATED], [NEW, VIC]))


@pytest.mark.requirement("chaos.the-auditor-finds-each-broken-promise")
@pytest.mark.parametrize(
    ("changes", "agents"),
    [
        ([CREATED], [VIC]),
        ([CREATED], [NEW, Known(agent_id="id-other", name="new", generation=1, provider="")]),
        ([CREATED], [Known(agent_id="id-new", name="other", generation=1, provider="")]),
        (BEGUN, [Known(agent_id="id-vic", name="vic", generation=4, provider="p2")]),
        ([*BEGUN, BEGUN[1]], [VIC]),
        ([BEGUN[0], change("begin", "id-vic", "4")], [VIC]),
        (UPDATED, [Known(agent_id="id-vic", name="vic", generation=3, provider="p1")]),
    ],
)
def test_a_change_that_is_lost_or_doubled_is_found(changes: list[Directed], agents: list[Known]) -> None:
    assert {violation.broken for violation in audit_directory(changes, agents)} == {Broken.DIRECTORY}


DELETED: Final = change("delete", "id-new", "new")
AGAIN: Final = Known(agent_id="id-other", name="new", generation=1, provider="")
ASKED: Final = Asked(
    agent_id="id-new",
    ended=True,
    shown="not_found",
    caller="unauthenticated",
    reader="unauthenticated",
    sending="agent_deleted",
    folder=False,
)


def test_an_agent_that_was_deleted_may_be_missing() -> None:
    assert not list(audit_directory([CREATED, DELETED], []))
    assert not list(audit_deleted([ASKED]))


@pytest.mark.requirement("chaos.the-auditor-finds-each-broken-promise")
@pytest.mark.parametrize("agents", [[NEW], [AGAIN]])
def test_an_agent_that_is_there_after_its_deletion_is_found(agents: list[Known]) -> None:
    assert {violation.broken for violation in audit_directory([CREATED, DELETED], agents)} == {Broken.UNDEAD}


@pytest.mark.requirement("chaos.the-auditor-finds-each-broken-promise")
@pytest.mark.parametrize(
    ("lie", "broken"),
    [
        ({"ended": False}, Broken.UNDEAD),
        ({"shown": "nothing"}, Broken.UNDEAD),
        ({"sending": "nothing"}, Broken.UNDEAD),
        ({"sending": "not_found"}, Broken.UNDEAD),
        ({"caller": "nothing"}, Broken.NOT_ERASED),
        ({"reader": "nothing"}, Broken.NOT_ERASED),
        ({"reader": "stale_generation"}, Broken.NOT_ERASED),
        ({"folder": True}, Broken.NOT_ERASED),
    ],
)
def test_what_a_deleted_agent_can_still_do_is_found(lie: dict[str, Any], broken: Broken) -> None:
    assert [violation.broken for violation in audit_deleted([ASKED, replace(ASKED, **lie)])] == [broken]
