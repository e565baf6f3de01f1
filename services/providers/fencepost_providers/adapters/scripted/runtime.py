"""One running program with its conversation: what submissions came to, and what the program says."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from fencepost_providers.adapters.base import INTERRUPT_MS_MAX, STOP_GRACE_MS, Attachment, Listener, StartFailed
from fencepost_providers.adapters.scripted.connection import Connection, Json, Lost, Malformed, Rejected, Silent
from fencepost_providers.adapters.scripted.turns import Turn, Turns
from fencepost_providers.domain.runtimes import (
    DETAIL_BYTES_MAX,
    ROW_BYTES_MAX,
    Accepted,
    Activity,
    Again,
    Closed,
    Delivery,
    Interrupted,
    Interruption,
    Mode,
    NotSubmitted,
    Permits,
    Row,
    RowKind,
    State,
    Submission,
    TurnBinding,
    TurnStatus,
    Uncertain,
    Visible,
)
from fencepost_providers.processes.child import Child, InputRefused, to_the_end

PROVIDER: Final = "scripted"
SETTLE_MS_MAX: Final = 1_000

_STATES: Final = MappingProxyType(
    {"idle": State.IDLE, "processing": State.PROCESSING, "action_needed": State.ACTION_NEEDED}
)
_STATUSES: Final = MappingProxyType(
    {"completed": TurnStatus.COMPLETED, "interrupted": TurnStatus.INTERRUPTED, "failed": TurnStatus.FAILED}
)
_ROWS: Final = MappingProxyType(
    {
        "user": RowKind.USER,
        "final": RowKind.ASSISTANT,
        "plain": RowKind.ASSISTANT,
        "commentary": RowKind.ASSISTANT,
        "tool": RowKind.TOOL_RESULT,
    }
)
# The two refusals that prove that nothing was taken. Every other one crossed the wire and proves nothing.
_REFUSED: Final = frozenset({"busy", "stale_turn"})


class ScriptedRuntime:
    """See `fencepost_providers.adapters.base.Runtime`. Made by ScriptedAdapter.start alone."""

    def __init__(self, generation: int, listener: Listener, answer_ms: int) -> None:
        self.conversation_id = ""
        self.version = ""
        self.pid = 0
        self.steers = True
        self._listener = listener
        self._answer_ms = answer_ms
        self._connection = Connection(generation, self._event)
        self._child: Child | None = None
        self._turns = Turns()
        # The turn that was seen to start and not to end.
        self._running = ""
        self._held: Activity | None = None
        self._settling: asyncio.TimerHandle | None = None
        self._early: list[Callable[[], None]] | None = []
        self._stopping = False
        self._watching: asyncio.Task[None] | None = None

    # --- starting, for the adapter ------------------------------------------------------------------------------------

    @property
    def hear(self) -> Callable[..., None]:
        """What takes the program's lines."""
        return self._connection.hear

    def own(self, child: Child) -> None:
        """Take the child over; its end is told from here on."""
        self._child = child
        self.pid = child.pid
        self._watching = asyncio.ensure_future(self._watch(child))

    async def ask(self, method: str, params: Json, ms: int | None) -> Json:
        """Send a request; see Connection.ask."""
        if self._child is None:
            raise InputRefused("there is no program")
        return await self._connection.ask(self._child.write, method, params, ms)

    def begin_telling(self) -> None:
        """Tell the listener what was said until now, and from now on."""
        early, self._early = self._early or [], None
        for call in early:
            call()

    # --- the contract -------------------------------------------------------------------------------------------------

    async def activity(self) -> Activity:
        """See Runtime.activity."""
        try:
            result = await self.ask("activity", {}, self._answer_ms)
        except (InputRefused, Rejected, Silent, Lost, Malformed):
            return Activity(state=State.UNKNOWN)
        return _activity(result) or Activity(state=State.UNKNOWN)

    async def show(self, context: Delivery) -> Submission:
        """See Runtime.show. Evidence: the answer names the record that was shown."""
        answer = await self._submit("show", context, {}, self._answer_ms)
        if not isinstance(answer, dict):
            return answer
        if answer.get("shown") != context.record_id:
            return Uncertain(code="no_receipt", detail="the program answered without naming the record")
        return Visible(evidence=f"scripted show {context.record_id}")

    async def begin(self, work: Delivery) -> Submission:
        """See Runtime.begin. Evidence: the program said that this record started the turn, which took it."""
        known = self._turns.known()
        return await self._work("start", work, {}, lambda turn_id: turn_id not in known)

    async def steer(self, work: Delivery, turn_id: str) -> Submission:
        """See Runtime.steer. Evidence: the program said that exactly this turn took this record."""
        if not self.steers:
            return NotSubmitted(
                code="mid_turn_unsupported", detail=f"version {self.version} takes no work into a running turn"
            )
        return await self._work("steer", work, {"turn": turn_id}, lambda answered: answered == turn_id)

    async def interrupt(self, turn_id: str) -> Interrupted:
        """See Runtime.interrupt."""
        turn = self._turns.get(turn_id) if turn_id in self._turns else None
        if not turn_id or (turn is not None and turn.end is not None):
            return Interrupted(result=Interruption.NOTHING, turn_id=turn_id, detail="that turn is not running")
        until = asyncio.get_running_loop().time() + min(self._answer_ms, INTERRUPT_MS_MAX) / 1000
        try:
            await self.ask("interrupt", {"turn": turn_id}, min(self._answer_ms, INTERRUPT_MS_MAX))
        except InputRefused as error:
            return Interrupted(result=Interruption.NOTHING, turn_id=turn_id, detail=str(error))
        except Rejected as error:
            nothing = error.code == "no_such_turn"
            result = Interruption.NOTHING if nothing else Interruption.UNCERTAIN
            return Interrupted(result=result, turn_id=turn_id, detail=_cut(str(error)))
        except (Silent, Lost, Malformed) as error:
            return Interrupted(result=Interruption.UNCERTAIN, turn_id=turn_id, detail=_cut(str(error)))
        turn = self._turns.get(turn_id)
        await _until(turn, lambda: turn.end is not None, until)
        if turn.end is None:
            return Interrupted(result=Interruption.REQUESTED, turn_id=turn_id, detail="the turn has not ended yet")
        if turn.end.status is TurnStatus.INTERRUPTED:
            return Interrupted(result=Interruption.CONFIRMED, turn_id=turn_id)
        return Interrupted(result=Interruption.NOTHING, turn_id=turn_id, detail="the turn had ended by itself")

    async def attach(self, permits: Permits) -> Attachment:
        """Refuse: this program has no terminal."""
        del permits
        raise StartFailed(
            "attach_unsupported",
            "The scripted program has no terminal; nothing was changed.",
            hint="`fencepost agent watch` shows the conversation.",
        )

    async def stop(self) -> None:
        """See Runtime.stop. Politely: by the end of the program's input."""
        self._stopping = True
        if self._child is None or self._watching is None:
            return
        try:
            await self._child.stop(grace_ms=STOP_GRACE_MS, polite=self._close_input)
        finally:
            await to_the_end(_joined(self._watching))

    # --- submissions --------------------------------------------------------------------------------------------------

    async def _submit(self, method: str, delivery: Delivery, more: Json, ms: int) -> Json | NotSubmitted | Uncertain:
        """Send a record once; return the program's answer, or what came instead of one."""
        params = {"delivery": dataclasses.asdict(delivery), **more}
        try:
            return await self.ask(method, params, ms)
        except InputRefused as error:
            again = Again.NOW if self._child is None or self._child.has_ended else Again.WHEN_IDLE
            return NotSubmitted(code="not_written", detail=_cut(str(error)), again=again)
        except Rejected as error:
            if error.code in _REFUSED:
                return NotSubmitted(code=error.code, detail=_cut(str(error)), again=Again.NOW)
            return Uncertain(code="rejected", detail=_cut(f"{error.code}: {error}"))
        except Silent as error:
            return Uncertain(code="answer_timeout", detail=str(error))
        except Lost as error:
            return Uncertain(code="connection_lost", detail=_cut(str(error)))
        except Malformed as error:
            return Uncertain(code="malformed_answer", detail=str(error))

    async def _work(self, method: str, work: Delivery, more: Json, is_right: Callable[[str], bool]) -> Submission:
        until = asyncio.get_running_loop().time() + self._answer_ms / 1000
        answer = await self._submit(method, work, more, self._answer_ms)
        if not isinstance(answer, dict):
            return answer
        turn_id = answer.get("turn")
        if not isinstance(turn_id, str) or not turn_id:
            return Uncertain(code="malformed_answer", detail="the program accepted the work and named no turn")
        if not is_right(turn_id):
            return Uncertain(code="wrong_turn", detail=f"the program answered with turn {turn_id}")
        turn = self._turns.get(turn_id)
        # What a turn took is said before its end: after that no receipt will come.
        await _until(turn, lambda: work.record_id in turn.took or turn.end is not None, until)
        if work.record_id not in turn.took:
            return Uncertain(code="no_receipt", detail=f"the program did not say that turn {turn_id} took the record")
        mode = Mode.START if method == "start" else Mode.STEER
        if mode is Mode.START and turn.started_by != work.record_id:
            return Uncertain(code="wrong_turn", detail=f"turn {turn_id} was started by something else")
        binding = TurnBinding(provider=PROVIDER, conversation_id=self.conversation_id, turn_id=turn_id, mode=mode)
        return Accepted(binding=binding, evidence=f"scripted {method} {work.record_id} {turn_id}")

    # --- what the program says ----------------------------------------------------------------------------------------

    def _tell(self, call: Callable[[], None]) -> None:
        if self._early is None:
            call()
        else:
            self._early.append(call)

    def _event(self, frame: Json) -> None:
        if frame["event"] == "activity":
            self._activity_said(frame)
            return
        turn_id = frame.get("turn")
        if not isinstance(turn_id, str) or not turn_id:
            return
        if frame["event"] == "turn_started":
            turn = self._turns.get(turn_id)
            turn.started_by = str(frame.get("record", ""))
            self._running = turn_id
            turn.changed.set()
            self._row(Row(kind=RowKind.STATUS, text="turn started", turn_id=turn_id))
        elif frame["event"] == "item":
            self._item(self._turns.get(turn_id), frame)
        elif frame["event"] == "turn_ended":
            self._turn_ended(frame, turn_id)

    def _item(self, turn: Turn, frame: Json) -> None:
        kind, text = str(frame.get("kind")), str(frame.get("text", ""))
        if kind == "user":
            turn.took.add(str(frame.get("record", "")))
            turn.changed.set()
        else:
            turn.say(kind, str(frame.get("item")), text, more=bool(frame.get("more")))
        if kind in _ROWS:
            shown = _cut(text, ROW_BYTES_MAX)
            name = str(frame.get("name", ""))
            row = Row(kind=_ROWS[kind], text=shown, cut=shown != text, name=name, turn_id=turn.turn_id)
            self._row(row)

    def _turn_ended(self, frame: Json, turn_id: str) -> None:
        status = frame.get("status")
        turn = self._turns.get(turn_id)
        if not isinstance(status, str) or status not in _STATUSES or turn.end is not None:
            return
        end = turn.finish(_STATUSES[status], _cut(str(frame.get("detail", ""))))
        if self._running == turn_id:
            self._running = ""
        self._tell(lambda: self._listener.turn_ended(end))
        if self._held is not None:
            self._release()

    def _activity_said(self, frame: Json) -> None:
        activity = _activity(frame)
        if activity is None:
            return
        self._drop_held()
        if activity.state is State.IDLE and self._running:
            # Said before the end of the turn, which belongs before it.
            self._held = activity
            self._settling = asyncio.get_running_loop().call_later(SETTLE_MS_MAX / 1000, self._release)
            return
        self._tell(lambda: self._listener.activity(activity))

    def _release(self) -> None:
        activity = self._held
        self._drop_held()
        # Whatever becomes of a turn whose end was not said in time, it does not run.
        self._running = ""
        if activity is not None:
            self._tell(lambda: self._listener.activity(activity))

    def _drop_held(self) -> None:
        self._held = None
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None

    def _row(self, row: Row) -> None:
        self._tell(lambda: self._listener.row(row))

    async def _close_input(self) -> None:
        if self._child is not None:
            self._child.close_input()

    async def _watch(self, child: Child) -> None:
        end = await child.gone()
        self._drop_held()
        self._connection.lose(f"the program {end}")
        closed = Closed(intended=self._stopping, detail=_cut(f"the program {end}"), exit_code=end.exit_code)
        self._tell(lambda: self._listener.closed(closed))


async def _until(turn: Turn, is_so: Callable[[], bool], until: float) -> None:
    """Wait until something is so of a turn, or it is too late."""
    loop = asyncio.get_running_loop()
    while not is_so() and loop.time() < until:
        turn.changed.clear()
        waiting = asyncio.ensure_future(turn.changed.wait())
        try:
            await asyncio.wait([waiting], timeout=until - loop.time())
        finally:
            waiting.cancel()


def _activity(frame: Json) -> Activity | None:
    """Return the activity in a frame, or None where there is none that we know."""
    state = frame.get("state")
    if not isinstance(state, str) or state not in _STATES:
        return None
    turn, detail = frame.get("turn", ""), frame.get("detail", "")
    return Activity(state=_STATES[state], turn_id=str(turn), detail=_cut(str(detail)))


def _cut(text: str, bytes_max: int = DETAIL_BYTES_MAX) -> str:
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


async def _joined(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)
