"""The summary that a person reads, and build/chaos.json."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from fencepost_chaos.auditor import Counts, Hit, Violation
from fencepost_chaos.task_audit import TaskCounts

SHOWN_MAX: Final = 20
OPEN_SHARE_MIN: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a run showed."""

    seed: str
    seconds: float
    wanted_kills: int
    clients: Sequence[str]
    counts: Counts
    tasks: TaskCounts
    hits: Sequence[Hit]
    violations: Sequence[Violation]
    # What kept the run from being carried out as planned; a run with such a line is no success.
    shortcomings: Sequence[str]
    repeats_of_a_key: int
    pages: int
    claimed: int
    directory_calls: int
    answered_by_the_host: int

    @property
    def good(self) -> bool:
        """True where every promise held and the run was carried out as planned."""
        return not self.violations and not self.shortcomings

    def by_place(self) -> dict[str, int]:
        """Count kills by service and fault point."""
        places = Counter(f"{hit.kill.service} {hit.kill.point or 'at random'}" for hit in self.hits)
        return dict(sorted(places.items()))

    def text(self) -> str:
        """Return the summary."""
        counts, tasks = self.counts, self.tasks
        share = counts.kills_while_a_call_was_open / max(1, counts.kills)
        clients = f"{len(self.clients)} clients: {', '.join(self.clients)}"
        done = f"{self.pages} pages, {self.claimed} claims, {self.directory_calls} calls to the directory"
        deleted = f"{counts.deleted}, {self.answered_by_the_host} requests to them answered by the host"
        settled = f"settled written {counts.settled_written}, settled cancelled {counts.settled_cancelled}"
        broken = f"lost {counts.lost}, doubled {counts.doubled}, out of order {counts.out_of_order}"
        cut = f"{counts.kills_while_a_call_was_open} ({share:.0%}), parked waits not counted"
        tasks_settled = f"settled written {tasks.settled_written}, settled cancelled {tasks.settled_cancelled}"
        tasks_written = f"{tasks.acknowledged} to {tasks.tasks} tasks; {tasks.races_lost} races lost"
        tasks_lost = tasks.settled_written + tasks.settled_cancelled + tasks.uncertain
        lines = [
            f"chaos: seed {self.seed}, {self.seconds:.0f} s, {clients}",
            f"  kills                        {counts.kills} of {self.wanted_kills}",
            f"  kills while a call was open  {cut}",
            f"  acknowledged                 {counts.acknowledged}; {done}",
            f"  lost answers                 {counts.lost_answers}: {settled}, uncertain {counts.uncertain}",
            f"  writes to tasks              {tasks_written}",
            f"  lost answers about tasks     {tasks_lost}: {tasks_settled}, uncertain {tasks.uncertain}",
            f"  agents deleted               {deleted}",
            f"  made again under their key   {self.repeats_of_a_key}",
            f"  {broken}, other violations {counts.other}",
            "  kills by place:",
            *(f"    {number:4}  {place}" for place, number in self.by_place().items()),
        ]
        lines += [f"  VIOLATION {one.broken}: {one.text}" for one in self.violations[:SHOWN_MAX]]
        if len(self.violations) > SHOWN_MAX:
            lines.append(f"  ... and {len(self.violations) - SHOWN_MAX} more")
        lines += [f"  NOT AS PLANNED: {one}" for one in self.shortcomings]
        lines.append("  every promise held" if self.good else f"  FAILED; again: --seed {self.seed}")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """Write the figures as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "wanted_kills": self.wanted_kills,
            **asdict(self.counts),
            "tasks": asdict(self.tasks),
            "by_place": self.by_place(),
            "violations": [{"broken": str(one.broken), "text": one.text} for one in self.violations],
            "shortcomings": list(self.shortcomings),
            "good": self.good,
        }
        path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
