"""A running app-server with one thread of one agent: what is put into it, and the proof that it is there.

Source: M076-M093 M104-M106 M135-M146 M183-M185 R127 R131 R132. Tried on 0.159.2, 0.169.0, 0.171.0:
- `turn/start` while a turn runs is not refused: it is folded into that turn, whose id it returns. Hence a word of the
  program that the thread rests, FRESH_MS_MAX before at most, said by itself or asked for, the attention to whatever is
  said since, and the comparison afterwards.
- Every refusal has the same code, so the texts in STALE and REFUSED_UNREAD are all that proves anything. The rest of
  refusals proves nothing.
- `turn/interrupt` with an empty turn id is answered as if there were something to interrupt: none is ever sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fencepost_providers.adapters.base import (
    INTERRUPT_MS_MAX,
    SUBMIT_MS_MAX,
    Attachment,
    Listener,
    StartFailed,
    Terminal,
)
from fencepost_providers.adapters.codex import deliveries, launch, versions
from fencepost_providers.adapters.codex.events import (
    INBOX_ITEM,
    TURNS_MAX,
    Conversation,
    Heard,
    cut,
)
from fencepost_providers.adapters.codex.launch import Server
from fencepost_providers.adapters.codex.rpc import Hear, Json, NoAnswer, NotSent, Refused
from fencepost_providers.domain.runtimes import (
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
    TurnEnd,
    TurnStatus,
    Uncertain,
    Visible,
)
from fencepost_providers.processes.child import to_the_end

PROVIDER: Final = "codex"
# Of SUBMIT_MS_MAX: for a question before, for the answer to the submission itself; the rest is for the receipt.
ASK_MS_MAX: Final = 3_000
SUBMIT_ANSWER_MS_MAX: Final = 15_000
SPARE_MS: Final = 1_000
STEER_RECEIPT_MS_MAX: Final = 5_000
LAST_WORD_MS_MAX: Final = 2_000
# How old the program's word that the thread rests may be for a start. Whatever happens afterwards is said by itself, in
# order, and makes it void, so that age adds nothing to its doubt; but a program that has said nothing for longer may
# hang, and a question before the start finds that out while nothing is sent yet.
FRESH_MS_MAX: Final = 2_000
PUBLISH_EVERY_MS: Final = 300_000

STALE: Final = re.compile(r"no active turn to steer|expected active turn id `[^`]*` but found `[^`]*`")
NOTHING_RUNS: Final = "no active turn to interrupt"
ANOTHER_RUNS: Final = re.compile(r"expected active turn id \S+ but found \S+")
# Refused by what reads requests, before anything carries them out.
UNREAD: Final = "Invalid request: "
# What a version that does not know `toolOutput` sees of a request that has nothing else.
NO_INPUT: Final = "input must not be empty"
# A server that was told to end refuses new work before it is dispatched. The refusal answers this very request, and a
# steer refused so was told to no model (tests/e2e_external/codex). 0.159.2 says so in words only, newer ones in data.
DRAINING: Final = "serverShuttingDown"
DRAINING_WORDS: Final = "Server is draining; retry after reconnecting"


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What a runtime needs to start its server again for a terminal, and to open its thread there."""

    program: str
    workspace: str
    parameters: Mapping[str, Any]
    environment: Mapping[str, str]
    launch: Callable[[str, Hear], Awaitable[Server]]
    """Start a server on a socket of this name beside the one that a terminal looks for."""
    project: Callable[[Permits], Awaitable[None]]
    """Write the launch settings where a terminal reads them."""
    restore: Callable[[], Awaitable[None]]
    """Take them back. Raises nothing: what cannot be taken back now is taken back by the next preparation."""
    publish: Callable[[], Awaitable[None]]
    """Give the user's own history what is new of the agent's. Raises nothing, and is bounded."""


class CodexRuntime:
    """See `fencepost_providers.adapters.base.Runtime`."""

    def __init__(self, *, terms: Terms, version: str, listener: Listener) -> None:
        self.conversation_id = ""
        self.version = version
        self.pid = 0
        self.terms = terms
        self.conversation = Conversation("")
        self.held = ""
        """Why nothing is submitted just now: a terminal is on its way in."""
        self._listener = listener
        self._server: Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self._speaking = False
        self._stopped = False
        self._ending: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._publishing: asyncio.Task[None] | None = None
        self._attachment: Attachment | None = None
        self._submitting = asyncio.Lock()
        self._told: asyncio.Event = asyncio.Event()
        # Until when the last answer about the thread's rest holds, and after how many changes it was given.
        self._fresh: tuple[float, int] = (0.0, -1)

    # --- life --------------------------------------------------------------------------------------------------------

    def hear(self, message: Json) -> None:
        """Take what the program says."""
        before = self.conversation.changes
        self._say(self.conversation.fold(message))
        if self.conversation.changes != before:
            self._heard_now()
        self._told.set()

    def take(self, server: Server) -> None:
        """Go on with this server: from now on its end is ours."""
        self._server, self.pid = server, server.child.pid
        self._watching = asyncio.create_task(self._watch(server), name=f"codex {self.conversation_id}")

    def open(self, conversation_id: str, thread: Json) -> None:
        """Begin with a thread as the program described it."""
        self.conversation_id = conversation_id
        self.conversation = Conversation(conversation_id)
        self.observe(thread)

    def observe(self, thread: Json) -> None:
        """Take the status in a description of the thread, which may be older than what was said before."""
        self._fresh = (0.0, -1)
        status = thread.get("status")
        if isinstance(status, dict):
            self.conversation.observe(status)

    def speak(self) -> None:
        """Let the listener hear what comes from now on."""
        self._speaking = True
        self._publishing = asyncio.create_task(self._publish(), name=f"codex history {self.conversation_id}")

    def let_go(self) -> None:
        """Submit again, now that no terminal is on its way in any more."""
        self.held = ""
        self._say([self.conversation.activity()])

    @property
    def server(self) -> Server | None:
        """The running server; None while there is none."""
        return self._server

    async def release(self) -> None:
        """End the server and hear nothing of its end; harmless when there is none."""
        server, self._server = self._server, None
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
            self._watching = None
        if server is not None:
            await server.stop()

    async def stop(self) -> None:
        """End the program, with everything it started; whoever calls this waits for it, also where it is cancelled."""
        self._stopped, self._speaking = True, False
        self._told.set()
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        await to_the_end(_joined(self._ending))

    async def _end(self) -> None:
        if self._attachment is not None:
            await self._attachment.close()
        try:
            await self.release()
        finally:
            self._over.set()
            if self._publishing is not None:
                await asyncio.wait([self._publishing])

    async def _publish(self) -> None:
        """Publish the agent's history now and then, and once more when its program has ended."""
        over = False
        while not over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PUBLISH_EVERY_MS / 1000):
                    await self._over.wait()
            # Looked at before: an end while this is published leaves words behind that it has not read.
            over = self._over.is_set()
            await self.terms.publish()

    @property
    def stopped(self) -> bool:
        """Whether this runtime is over."""
        return self._stopped

    def lost(self, detail: str, exit_code: int | None = None) -> None:
        """Tell that this runtime is over, once."""
        speaking = self._speaking and not self._stopped
        self._stopped, self._speaking = True, False
        self._told.set()
        self._over.set()
        if speaking:
            self._listener.closed(Closed(intended=False, detail=detail, exit_code=exit_code))

    async def _watch(self, server: Server) -> None:
        gone = asyncio.ensure_future(server.child.gone())
        cut_off = asyncio.ensure_future(server.connection.wait_closed())
        try:
            await asyncio.wait([gone, cut_off], return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():
                # A dying program closes its socket first.
                await asyncio.wait([gone], timeout=LAST_WORD_MS_MAX / 1000)
        finally:
            gone.cancel()
            cut_off.cancel()
        by_itself = server.child.has_ended
        # What was not heard is lost, and with it the continuity of every turn: there is no going on with this server.
        end = await server.stop(grace_ms=0)
        self._server = None
        why = f"codex app-server {end}" if by_itself else f"the connection was lost: {server.connection.why_closed}"
        self.lost(why, end.exit_code if by_itself else None)

    def _say(self, heard: list[Heard]) -> None:
        if not self._speaking:
            return
        for each in heard:
            if isinstance(each, Activity):
                if not self.held:
                    self._listener.activity(each)
            elif isinstance(each, TurnEnd):
                self._listener.turn_ended(each)
            else:
                self._listener.row(each)

    async def until(self, happened: Callable[[], bool], ms: float) -> bool:
        """Wait until something is so, looking again at whatever the program says; False where it never was in time."""
        try:
            async with asyncio.timeout(max(0.0, ms) / 1000):
                while not happened():
                    if self._stopped or self._server is None:
                        return False
                    self._told.clear()
                    await self._told.wait()
        except TimeoutError:
            return happened()
        return True

    async def ask(self, method: str, parameters: Mapping[str, Any], *, timeout_ms: int = ASK_MS_MAX) -> Json:
        """Send a request to the running server.

        Raises:
            NotSent, NoAnswer, Refused: see rpc.
        """
        server = self._server
        if server is None or self._stopped:
            raise NotSent("codex app-server does not run")
        return await server.connection.request(method, parameters, timeout_ms=timeout_ms)

    # --- what it does ------------------------------------------------------------------------------------------------

    async def activity(self) -> Activity:
        """Tell what the conversation does now; the program is asked where it has not just said that it rests."""
        if self.held:
            return Activity(state=State.ACTION_NEEDED, detail=self.held)
        if not self._rests_freshly():
            try:
                await self.look()
            except (NotSent, NoAnswer, Refused):
                return Activity(state=State.UNKNOWN)
        return self.conversation.activity()

    def _heard_now(self) -> None:
        self._fresh = (asyncio.get_running_loop().time() + FRESH_MS_MAX / 1000, self.conversation.changes)

    def _rests_freshly(self) -> bool:
        """Tell whether the program's newest word is that the conversation rests, and not too old for a start."""
        if self._stopped or self._server is None or self._server.connection.unread:
            return False
        until, changes = self._fresh
        fresh = changes == self.conversation.changes and asyncio.get_running_loop().time() < until
        return fresh and self.conversation.resting

    async def look(self) -> None:
        """Ask what the conversation does.

        Raises:
            NotSent, NoAnswer, Refused: see rpc; what was known stays.
        """
        seen = self.conversation.changes
        answer = await self.ask("thread/read", {"threadId": self.conversation_id})
        if self.conversation.changes == seen:
            # Events are said in order with answers: none came, so this is the newest.
            self.observe(_thread(answer))
            self._heard_now()
        resting = self.conversation.status in {"idle", "systemError"}
        if resting and self.conversation.turn_id:
            await self._settle(self.conversation.turn_id)
        elif not resting and not self.conversation.turn_id:
            await self._find()

    async def _find(self) -> None:
        """Learn which turn runs in a thread that was active when we came."""
        try:
            turns = await self._history(1)
        except Refused:
            return
        if turns and turns[0].get("status") == "inProgress" and not self.conversation.resting:
            self.conversation.running(str(turns[0].get("id", "")))

    async def _settle(self, turn_id: str) -> None:
        """Learn the end of a turn that is over: it is said next, or stands in the history."""
        if await self.until(lambda: self.conversation.turn_id != turn_id, LAST_WORD_MS_MAX):
            return
        try:
            turns = await self._history(TURNS_MAX)
        except Refused:
            turns = []
        for turn in turns:
            if turn.get("id") == turn_id and turn.get("status") != "inProgress":
                self._say(self.conversation.ended(turn))

    async def _history(self, limit: int) -> list[Json]:
        asked = {"threadId": self.conversation_id, "limit": limit, "itemsView": "summary"}
        turns = (await self.ask("thread/turns/list", asked)).get("data")
        return [turn for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []

    # --- what is put into it -----------------------------------------------------------------------------------------

    async def show(self, context: Delivery) -> Submission:
        """Show a record without starting a turn."""
        async with self._submitting:
            if self.held:
                return NotSubmitted(code="terminal_joining", detail=self.held)
            try:
                await self.ask(
                    "thread/inject_items",
                    {"threadId": self.conversation_id, "items": deliveries.shown(context)},
                    timeout_ms=SUBMIT_ANSWER_MS_MAX,
                )
            except NotSent as error:
                return _not_connected(error)
            except Refused as error:
                return _refused("thread/inject_items", error)
            except NoAnswer as error:
                return Uncertain(code="codex_no_answer", detail=str(error))
            # Nothing of it is an event: it is told to whoever watches here.
            text, was_cut = cut(context.body, ROW_BYTES_MAX)
            self._say([Row(kind=RowKind.USER, text=text, cut=was_cut, name=INBOX_ITEM)])
            return Visible(evidence=f"codex answered thread/inject_items of {context.record_id}")

    async def begin(self, work: Delivery) -> Submission:
        """Start a turn with work."""
        async with self._submitting:
            if self.held:
                return NotSubmitted(code="terminal_joining", detail=self.held)
            deadline = asyncio.get_running_loop().time() + (SUBMIT_MS_MAX - SPARE_MS) / 1000
            not_now = await self._fence()
            if not_now is not None:
                return not_now
            # Nothing is awaited between this look and the first byte.
            known = frozenset(self.conversation.turns)
            answered, wrong = "", None
            request = {"threadId": self.conversation_id, **deliveries.started(work)}
            try:
                answer = await self.ask("turn/start", request, timeout_ms=SUBMIT_ANSWER_MS_MAX)
                answered = _turn_id(answer)
            except NotSent as error:
                return _not_connected(error)
            except Refused as error:
                return _refused("turn/start", error, no_input=not request["input"])
            except NoAnswer as error:
                wrong = Uncertain(code="codex_no_answer", detail=str(error))
            return await self._begun(work, known, answered, wrong, deadline)

    async def _fence(self) -> NotSubmitted | None:
        """Tell why no turn can be started, or nothing. What was said just now is not asked for."""
        fresh = self._rests_freshly()
        # What had been read before that look, and not been handed on, is heard now.
        await asyncio.sleep(0)
        fresh = fresh and self._rests_freshly()
        # Counts for one start: whatever comes of it, the program says more before the next.
        self._fresh = (0.0, -1)
        try:
            if not fresh:
                await self.look()
        except (NotSent, NoAnswer, Refused) as error:
            return NotSubmitted(
                code="activity_unknown",
                detail=f"codex did not say whether the conversation rests, so nothing was sent: {error}",
                again=Again.NOW,
            )
        if self.conversation.resting:
            return None
        if self.conversation.status == "notLoaded":
            detail = "codex has the conversation not loaded; nothing was sent"
            return NotSubmitted(code="conversation_not_loaded", detail=detail)
        detail = "a turn runs, so none was started; nothing was sent"
        return NotSubmitted(code="conversation_active", detail=detail, again=Again.NOW)

    async def _begun(
        self, work: Delivery, known: frozenset[str], answered: str, wrong: Uncertain | None, deadline: float
    ) -> Submission:
        """Look for the receipt: our record is what opened a turn that was not there before."""
        if answered in known:
            return Uncertain(
                code="codex_folded",
                detail=f"codex put the work into turn {answered}, which ran already, instead of starting one",
            )

        def opened() -> str:
            turn_id = answered or self.conversation.shown_in(work.record_id)
            turn = self.conversation.turns.get(turn_id)
            return turn_id if turn is not None and turn.opened_by is not None else ""

        # Without an answer there is nothing more to wait for than what was said already.
        rest_ms = 0 if wrong else (deadline - asyncio.get_running_loop().time()) * 1000
        await self.until(lambda: bool(opened()) or self.conversation.end_of(answered) is not None, rest_ms)
        turn_id = opened()
        if not turn_id or turn_id in known:
            return wrong or Uncertain(
                code="codex_no_receipt",
                detail=f"codex named turn {answered or '(none)'} and did not show {work.record_id} in it",
            )
        if self.conversation.turns[turn_id].opened_by != work.record_id:
            return Uncertain(
                code="codex_folded",
                detail=f"codex put the work into turn {turn_id}, which something else had started meanwhile",
            )
        return self._accepted(turn_id, Mode.START, f"codex opened turn {turn_id} with {work.record_id}")

    async def steer(self, work: Delivery, turn_id: str) -> Submission:
        """Put work into exactly this running turn."""
        if not versions.steers(self.version):
            reason = f"codex {self.version} takes work only while idle"
            return NotSubmitted(code="mid_turn_unsupported", detail=reason)
        async with self._submitting:
            if self.held:
                return NotSubmitted(code="terminal_joining", detail=self.held)
            if not turn_id or self.conversation.end_of(turn_id) is not None:
                return NotSubmitted(code="turn_ended", detail="that turn is over; nothing was sent", again=Again.NOW)
            fence = {"threadId": self.conversation_id, "expectedTurnId": turn_id}
            request = {**fence, **deliveries.steered(work)}
            wrong: Uncertain | None = None
            answered = ""
            try:
                answer = await self.ask("turn/steer", request, timeout_ms=SUBMIT_ANSWER_MS_MAX)
                answered = str(answer.get("turnId", ""))
            except NotSent as error:
                return _not_connected(error)
            except Refused as error:
                if STALE.fullmatch(error.message):
                    return NotSubmitted(code="turn_ended", detail=error.message, again=Again.NOW)
                return _refused("turn/steer", error)
            except NoAnswer as error:
                wrong = Uncertain(code="codex_no_answer", detail=str(error))
            return await self._steered(work, turn_id, answered, wrong)

    async def _steered(self, work: Delivery, turn_id: str, answered: str, wrong: Uncertain | None) -> Submission:
        """Look for the receipt: the user message that carries our record's id, in exactly this turn."""
        if wrong is None and answered != turn_id:
            return Uncertain(
                code="codex_other_turn", detail=f"codex answered with turn {answered!r} instead of {turn_id}"
            )
        turn = self.conversation.turn(turn_id)

        def told() -> bool:
            return bool(self.conversation.shown_in(work.record_id)) or turn.end is not None

        await self.until(told, 0 if wrong else STEER_RECEIPT_MS_MAX)
        shown = self.conversation.shown_in(work.record_id)
        if shown == turn_id:
            return self._accepted(turn_id, Mode.STEER, f"codex shows {work.record_id} in turn {turn_id}")
        if shown:
            return Uncertain(code="codex_other_turn", detail=f"codex shows the work in turn {shown}, not in {turn_id}")
        if wrong is not None:
            return wrong
        if turn.end is not None or self._stopped:
            return Uncertain(
                code="codex_no_receipt",
                detail=f"codex took the work for turn {turn_id}, which ended without showing it",
            )
        # While a tool runs the message waits, for minutes perhaps. The turn is bound by the program's own answer,
        # fenced by the turn that we named; one that ends without having shown it gives no answer (events.Turn.owed).
        turn.owed.add(work.record_id)
        evidence = f"codex took {work.record_id} into turn {turn_id}, to be shown after its tool"
        return self._accepted(turn_id, Mode.STEER, evidence)

    def _accepted(self, turn_id: str, mode: Mode, evidence: str) -> Accepted:
        binding = TurnBinding(provider=PROVIDER, conversation_id=self.conversation_id, turn_id=turn_id, mode=mode)
        return Accepted(binding=binding, evidence=evidence)

    async def interrupt(self, turn_id: str) -> Interrupted:
        """Interrupt exactly this turn and wait for its end."""
        if not turn_id:
            return Interrupted(result=Interruption.NOTHING, detail="no exact turn is known")
        if (end := self.conversation.end_of(turn_id)) is not None:
            return _after(turn_id, end)
        deadline = asyncio.get_running_loop().time() + INTERRUPT_MS_MAX / 1000
        try:
            await self.ask("turn/interrupt", {"threadId": self.conversation_id, "turnId": turn_id})
        except NotSent as error:
            return Interrupted(result=Interruption.NOTHING, turn_id=turn_id, detail=f"nothing was sent: {error}")
        except NoAnswer as error:
            return Interrupted(result=Interruption.UNCERTAIN, turn_id=turn_id, detail=str(error))
        except Refused as error:
            over = error.message == NOTHING_RUNS or ANOTHER_RUNS.fullmatch(error.message)
            result = Interruption.NOTHING if over else Interruption.UNCERTAIN
            return Interrupted(result=result, turn_id=turn_id, detail=f"codex: {error.message}")
        rest_ms = (deadline - asyncio.get_running_loop().time()) * 1000
        await self.until(lambda: self.conversation.end_of(turn_id) is not None, rest_ms)
        end = self.conversation.end_of(turn_id)
        if end is None:
            return Interrupted(result=Interruption.REQUESTED, turn_id=turn_id, detail="its end was not seen yet")
        if end.status is TurnStatus.INTERRUPTED:
            return Interrupted(result=Interruption.CONFIRMED, turn_id=turn_id)
        return _after(turn_id, end)

    # --- terminals ---------------------------------------------------------------------------------------------------

    async def attach(self, permits: Permits) -> Attachment:
        """Prepare a person's terminal on this conversation."""
        from fencepost_providers.adapters.codex.terminal import prepare  # noqa: PLC0415 (it needs this module's names)

        async with self._submitting:
            self._attachment = await prepare(self, permits)
            return self._attachment

    async def reopen(self) -> Json:
        """Subscribe to the thread of a server that has just started; return the program's answer.

        Raises:
            StartFailed: see launch.
        """
        server = self._server
        if server is None:
            raise StartFailed("codex_ended", "codex app-server ended while a terminal was joining")
        asked = {**self.terms.parameters, "threadId": self.conversation_id, "excludeTurns": True}
        try:
            answer = await launch.asked(server.connection, server.child, "thread/resume", asked)
        except Refused as error:
            raise launch.refused("thread/resume", self.conversation_id, error) from None
        self.observe(_thread(answer))
        return answer

    def terminal(self) -> Terminal:
        """Return how the terminal is started: the program's own, which finds our server by its home."""
        return Terminal(
            argv=(self.terms.program, "resume", self.conversation_id),
            environment=self.terms.environment,
            working_directory=self.terms.workspace,
        )


async def _joined(ending: asyncio.Task[None]) -> None:
    await asyncio.shield(ending)


def _thread(answer: Json) -> Json:
    thread = answer.get("thread")
    return thread if isinstance(thread, dict) else {}


def _turn_id(answer: Json) -> str:
    turn = answer.get("turn")
    return str(turn.get("id", "")) if isinstance(turn, dict) else ""


def _not_connected(error: NotSent) -> NotSubmitted:
    return NotSubmitted(code="codex_not_connected", detail=f"nothing was sent: {error}", again=Again.NOW)


def _refused(method: str, error: Refused, *, no_input: bool = False) -> NotSubmitted | Uncertain:
    """Return what a refusal proves, which mostly is nothing."""
    said = f"codex refused {method}: {error.message}"
    if error.reason == DRAINING or error.message == DRAINING_WORDS:
        return NotSubmitted(code="codex_draining", detail=said)
    if error.message.startswith(UNREAD) or (no_input and error.message == NO_INPUT):
        return NotSubmitted(code="codex_cannot_take_it", detail=said, again=Again.NEVER)
    return Uncertain(code="codex_refused", detail=said)


def _after(turn_id: str, end: TurnEnd) -> Interrupted:
    detail = f"the turn had ended before: {end.status.name.lower()}"
    return Interrupted(result=Interruption.NOTHING, turn_id=turn_id, detail=detail)
