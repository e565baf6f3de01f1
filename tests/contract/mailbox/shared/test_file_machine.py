"""Random histories of file reservations over a real store, judged against a model that fits on a page.

The model keeps a list of what is held and tries every file of a small world; it knows neither folders to look under nor
indexes. After every step the store must bar and list as the model says.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fencepost_mailbox.domain.files.refusals import ReservationLost
from fencepost_mailbox.domain.files.values import Mode
from fencepost_mailbox.usecases.open_generation import OpenGeneration
from fencepost_testing.histories import ends_before_it_began
from fencepost_testing.mailboxes import id16
from fencepost_testing.shared_desk import SharedDesk

AGENTS = ("ann", "bob", "dan")
NAMES = ("a", "b", "B")
FILES = ["/".join(path) for depth in (1, 2, 3, 4) for path in product(NAMES, repeat=depth)]
PATHS = [".", "a", "b", "B", "a/a", "a/b", "a/B", "b/a", "a/b/a"]
GLOBS = ["*", "a/*", "**/a", "a/**", "?/b", "b/?/*"]
CHECKOUTS = ("", "/one", "/two")


@cache
def covers(what: str, file: str, ignore_case: bool) -> bool:
    """Whether a path or glob covers a file, by one regular expression."""
    if ignore_case:
        what, file = what.lower(), file.lower()
    parts = [] if what == "." else what.split("/")
    text = "".join(
        "(?:[^/]+/)*" if part == "**" else part.replace("*", "[^/]*").replace("?", "[^/]") + "/" for part in parts
    )
    return re.fullmatch(text + "(?:[^/]+/)*", "" if file == "." else file + "/") is not None


@cache
def is_below(folder: str, file: str) -> bool:
    """Whether a folder without wildcards has a file below it, or is it."""
    return not folder or (file + "/").startswith(folder + "/")


@cache
def related(one: str, other: str, ignore_case: bool) -> bool:
    """Whether two globs count as overlapping: by the folders before their first wildcards."""
    folders = []
    for glob in (one, other):
        before = re.split(r"[*?]", glob, maxsplit=1)[0]
        folders.append(before[: before.rfind("/") + 1].rstrip("/"))
    if ignore_case:
        folders = [folder.lower() for folder in folders]
    return is_below(folders[0], folders[1]) or is_below(folders[1], folders[0])


@dataclass(eq=False)
class Held:
    """A path or glob in the model."""

    holder: str
    what: str
    exclusive: bool
    checkout: str
    ignore_case: bool
    until_ms: int
    reservation_id: bytes

    def meets(self, what: str, checkout: str, ignore_case: bool) -> bool:
        """Whether it has a file in common with what is asked about."""
        if self.checkout and checkout and self.checkout != checkout:
            return False
        either = self.ignore_case or ignore_case
        wild = [("*" in text or "?" in text) for text in (self.what, what)]
        if all(wild):
            return related(self.what, what, either)
        return any(covers(self.what, file, either) and covers(what, file, either) for file in [*FILES, "."])


class ReservationMachine(RuleBasedStateMachine):
    """Three agents, a clock, and a store."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.runner = self.stack.enter_context(asyncio.Runner())
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.held: list[Held] = []
        self.generation = dict.fromkeys(AGENTS, 1)

    def run(self, work: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(10):
                return await work

        return self.runner.run(bounded())

    @initialize()
    def begin(self) -> None:
        self.desk = SharedDesk(Path(self.folder) / "mailbox.db", *AGENTS, "cyd")
        self.run(self.desk.start())
        self.stack.callback(lambda: self.run(self.desk.stop()))

    def teardown(self) -> None:
        self.stack.close()

    @property
    def now_ms(self) -> int:
        return self.desk.clock.now_ms()

    @rule(who=st.sampled_from(AGENTS), path=st.sampled_from(PATHS), exclusive=st.booleans())
    def reserve_one(self, who: str, path: str, exclusive: bool) -> None:
        self.reserve(who, [path], [], exclusive, "", False, 300)

    @rule(who=st.sampled_from(AGENTS), glob=st.sampled_from(GLOBS), ignore_case=st.booleans())
    def reserve_a_glob(self, who: str, glob: str, ignore_case: bool) -> None:
        self.reserve(who, [], [glob], False, "", ignore_case, 300)

    @rule(
        who=st.sampled_from(AGENTS),
        paths=st.lists(st.sampled_from(PATHS), min_size=1, max_size=3, unique=True),
        globs=st.lists(st.sampled_from(GLOBS), max_size=1),
        exclusive=st.booleans(),
        checkout=st.sampled_from(CHECKOUTS),
        ignore_case=st.booleans(),
        seconds=st.sampled_from((1, 3, 300)),
    )
    def reserve_many(self, **options: Any) -> None:
        self.reserve(**options)

    def reserve(
        self,
        who: str,
        paths: list[str],
        globs: list[str],
        exclusive: bool,
        checkout: str,
        ignore_case: bool,
        seconds: int,
    ) -> None:
        blocked = any(
            one.holder != who and (exclusive or one.exclusive) and one.meets(what, checkout, ignore_case)
            for one in self.held
            for what in (*paths, *globs)
        )
        answer = self.run(
            self.desk.reserve(
                who,
                *paths,
                globs=globs,
                mode=Mode.EXCLUSIVE if exclusive else Mode.SHARED,
                checkout=checkout,
                ignore_case=ignore_case,
                seconds=seconds,
                generation=self.generation[who],
            )
        )
        assert (answer.reservation_id is None) == blocked
        if answer.reservation_id is not None:
            self.held += [
                Held(
                    holder=who,
                    what=what,
                    exclusive=exclusive,
                    checkout=checkout,
                    ignore_case=ignore_case,
                    until_ms=self.now_ms + 1000 * seconds,
                    reservation_id=answer.reservation_id,
                )
                for what in (*paths, *globs)
            ]

    @rule(who=st.sampled_from(AGENTS), what=st.sampled_from(PATHS), seconds=st.sampled_from((1, 5)))
    def renew(self, who: str, what: str, seconds: int) -> None:
        mine = [one for one in self.held if one.holder == who and one.what == what]
        renewal = self.desk.renew(who, what, seconds=seconds, generation=self.generation[who])
        if not mine:
            with pytest.raises(ReservationLost):
                self.run(renewal)
            return
        assert self.run(renewal).count == len(mine)
        for one in mine:
            one.until_ms = max(one.until_ms, self.now_ms + 1000 * seconds)

    @rule(who=st.sampled_from(AGENTS), what=st.sampled_from((*PATHS, *GLOBS)))
    def release(self, who: str, what: str) -> None:
        gone = [one for one in self.held if one.holder == who and one.what == what]
        wild = "*" in what or "?" in what
        done = self.run(
            self.desk.let_go(
                who,
                *(() if wild else (what,)),
                globs=(what,) if wild else (),
                generation=self.generation[who],
            )
        )
        assert done.count == len(gone)
        self.held = [one for one in self.held if one not in gone]

    @rule(pick=st.integers(0, 20))
    def release_by_id(self, pick: int) -> None:
        if not self.held:
            return
        chosen = self.held[pick % len(self.held)]
        self.run(
            self.desk.let_go(chosen.holder, ids=[chosen.reservation_id], generation=self.generation[chosen.holder])
        )
        self.held = [one for one in self.held if one.reservation_id != chosen.reservation_id]

    @rule(what=st.sampled_from(("a life", "time", "time", "sweep", "restart")), who=st.sampled_from(AGENTS))
    def disturb(self, what: str, who: str) -> None:
        if what == "a life":
            self.generation[who] += 1
            self.run(OpenGeneration(self.desk.ports)(id16(who), self.generation[who]))
            self.held = [one for one in self.held if one.holder != who]
        elif what == "time":
            self.run(self.desk.clock.advance(1))
            self.held = [one for one in self.held if one.until_ms > self.now_ms]
        elif what == "sweep":
            self.run(self.desk.sweeper.drop_expired())
        else:
            self.run(self.desk.restart())

    @rule(
        who=st.sampled_from(AGENTS),
        what=st.sampled_from(PATHS),
        checkout=st.sampled_from(CHECKOUTS),
        ignore_case=st.booleans(),
    )
    def check(self, who: str, what: str, checkout: str, ignore_case: bool) -> None:
        shares = any(
            one.holder == who
            and (not one.checkout or not checkout or one.checkout == checkout)
            and all(
                covers(one.what, file, one.ignore_case or ignore_case)
                for file in [*FILES, "."]
                if covers(what, file, ignore_case)
            )
            for one in self.held
        )
        expected = {
            one.holder
            for one in self.held
            if one.holder != who and one.meets(what, checkout, ignore_case) and (one.exclusive or not shares)
        }
        found = self.run(self.desk.bars(who, what, checkout=checkout, ignore_case=ignore_case))
        assert set(found) == expected

    @invariant()
    def what_is_listed_is_what_is_held(self) -> None:
        if not hasattr(self, "desk"):
            return
        found = self.run(self.desk.reservations(size=3))
        assert sorted((self.desk.name_of(one.holder), one.span.path, one.expires_at_ms) for one in found) == sorted(
            (one.holder, one.what, one.until_ms) for one in self.held
        )
        assert not [
            (one, other)
            for one in self.held
            for other in self.held
            if one.holder != other.holder
            and (one.exclusive or other.exclusive)
            and one.meets(other.what, other.checkout, other.ignore_case)
        ]


TestReservationMachine = pytest.mark.requirement("files.held-to-a-model")(ReservationMachine.TestCase)
TestReservationMachine.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_history_that_never_began_leaves_nothing_behind() -> None:
    ends_before_it_began(ReservationMachine)
