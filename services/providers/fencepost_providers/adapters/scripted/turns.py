"""What was seen of the turns of one conversation: who started them, what they took, their last words."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from fencepost_providers.domain.runtimes import FINAL_BYTES_MAX, TurnEnd, TurnStatus

TURNS_REMEMBERED_MAX: Final = 64


@dataclass(slots=True)
class Words:
    """A text that comes in parts; counted whole, kept up to FINAL_BYTES_MAX bytes."""

    text: str = ""
    size: int = 0
    is_complete: bool = False

    def add(self, part: str, *, more: bool) -> None:
        """Take one part; nothing changes once it is complete."""
        if self.is_complete:
            return
        self.size += len(part.encode("utf-8", "surrogatepass"))
        self.text = self.text + part if self.size <= FINAL_BYTES_MAX else ""
        self.is_complete = not more


@dataclass(slots=True)
class Turn:
    """One turn as it was seen. `started_by` is None until its start was heard, "" where nobody we know started it."""

    turn_id: str
    started_by: str | None = None
    took: set[str] = field(default_factory=set)
    finals: OrderedDict[str, Words] = field(default_factory=OrderedDict)
    plain: OrderedDict[str, Words] = field(default_factory=OrderedDict)
    end: TurnEnd | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, phase: str, item: str, part: str, *, more: bool) -> None:
        """Take a part of what the assistant said; commentary is no last word."""
        said = {"final": self.finals, "plain": self.plain}.get(phase)
        if said is not None:
            said.setdefault(item, Words()).add(part, more=more)
            # Only the last item and the one before it, which may still be told twice, matter.
            while len(said) > 2:
                said.popitem(last=False)

    def finish(self, status: TurnStatus, detail: str) -> TurnEnd:
        """Return the end of the turn: the last final item, else the last one without a phase."""
        said = self.finals or self.plain
        last = next(reversed(said.values()), Words())
        self.end = TurnEnd(
            turn_id=self.turn_id, status=status, final_text=last.text, final_bytes=last.size, detail=detail
        )
        self.changed.set()
        return self.end


class Turns:
    """The turns of a conversation, the TURNS_REMEMBERED_MAX latest."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, Turn] = OrderedDict()

    def __contains__(self, turn_id: str) -> bool:
        return turn_id in self._turns

    def known(self) -> frozenset[str]:
        """Return the ids of all turns that were heard of."""
        return frozenset(self._turns)

    def get(self, turn_id: str) -> Turn:
        """Return what was seen of a turn, which may be nothing yet."""
        turn = self._turns.get(turn_id)
        if turn is None:
            turn = self._turns[turn_id] = Turn(turn_id)
            while len(self._turns) > TURNS_REMEMBERED_MAX:
                self._turns.popitem(last=False)
        return turn
