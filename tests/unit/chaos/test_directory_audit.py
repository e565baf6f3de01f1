"""The part of the chaos run's judgement that looks at the directory of agents."""

from __future__ import annotations

from typing import Final

import pytest
from fencepost_chaos.auditor import Broken
from fencepost_chaos.directory import Known, audit_directory
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
