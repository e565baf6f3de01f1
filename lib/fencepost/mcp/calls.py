"""The tool calls in progress: what each is owed when the edge is slow, restarts, or is not there.

Pure: time and frames come in, frames and answers go out. Imported at the first tool call, not at the start.

Frames to the edge, one a line, <n> numbering this process's calls from 1 on:

    <n> <the request, as the client sent it>
    <n> within <milliseconds> <the request>     asked again after a loss; the tool may wait no longer than this
    <n> settle <epoch, or -> <the request>      its answer was lost: tell what became of its key, do not call it
    <n> cancel                                  nobody waits for it any more; a mutation completes all the same

Frames from the edge:

    <n> <the JSON-RPC response>
    <n> again                                   not begun, or ended by the edge's stop: ask the next edge
    <n> unreadable                              the edge cannot read the request: nothing was done
    0 epoch <epoch>                             calls from here on are made to this store
    0 draining                                  send nothing new here
"""

from __future__ import annotations

from fencepost.mcp import answers, wire

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from fencepost.mcp.session import Call

# How long a call may take in all. The edge's own budget ends before, the mailbox's before that.
CALL_MS_MAX: Final = 64_000
# How long a call that has not left this process waits for an edge.
RECONNECT_MS_MAX: Final = 10_000
# How long to look for an edge that tells what became of a mutation.
SETTLE_MS_MAX: Final = 20_000
# How long calls may go on when the input has ended.
EOF_MS_MAX: Final = 5_000
# How often a client that wants to hears that its call goes on.
PROGRESS_MS: Final = 10_000
CALLS_IN_FLIGHT_MAX: Final = 64
REMEMBERED_BYTES_MAX: Final = 8 * 1024 * 1024

# What an edge has begun of these completes, and nobody asks for it again.
ACTING: Final = answers.SETTLES | answers.TELLS

UNREADABLE: Final = "the request is nested too deeply, or holds a number that is none; nothing was done"
_UP: Final = "Start the services with `fencepost up`; `fencepost status` shows what runs."
_ONCE: Final = (
    "Do not call it with another request_id. Where you gave one, the same call with the same request_id is carried out"
    " once at most, so it may be repeated as it was; else look whether it was done."
)
_SEE: Final = "Look at the agent's status with list_agents before you decide anew."
_LOOK: Final = (
    "Do not send it again. Ask the recipient, or look whether it arrived with `fencepost message list --sent` in this"
    " agent's environment."
)


class BrokenEdge(Exception):
    """The edge sent what no edge sends; its connection is worth nothing any more."""


class Calls:
    """Every call that has come in and is not answered yet."""

    def __init__(
        self,
        *,
        emit: Callable[[bytes], None],
        examine: Callable[[Call], bytes | None],
    ) -> None:
        """Build the table.

        `emit` sends a notification to the client. `examine` returns the answer to a call whose arguments are wrong.
        """
        self._emit: Final = emit
        self._examine: Final = examine
        # Takes back a frame that was handed out by `frames` and not yet reported as written; the link sets it.
        self.withdraw: Callable[[Call], None] = lambda _call: None
        self._calls: Final[dict[int, Call]] = {}
        self._count = 0
        self._bytes = 0
        self._epoch = ""
        self._open = False
        self._control: Final[list[bytes]] = []
        # The time of the present step, monotonic; the loop sets it before anything else.
        self.now = 0.0

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def wants_edge(self) -> bool:
        """True where some call waits to be sent."""
        return any(not call.queued and not call.written for call in self._calls.values())

    # From the client.

    def admit(self, call: Call) -> None:
        """Take over a call, or answer that there are too many."""
        if len(self._calls) >= CALLS_IN_FLIGHT_MAX or self._bytes + len(call.line) > REMEMBERED_BYTES_MAX:
            call.sink(
                wire.tool_error(
                    call.id_text,
                    code="overloaded",
                    message=f"{len(self._calls)} calls are in progress and no more fit; this one was not sent.",
                    hint="Call it again when one of them has been answered.",
                )
            )
            return
        self._count += 1
        call.number = self._count
        call.begun_s = self.now
        call.deadline_s = self.now + CALL_MS_MAX / 1000
        call.progress_s = self.now + PROGRESS_MS / 1000
        call.give_up_s = None if self._open else self.now + RECONNECT_MS_MAX / 1000
        self._calls[call.number] = call
        self._bytes += len(call.line)

    def cancel(self, id_text: str) -> None:
        """Send nothing further for a call. What an edge has admitted completes (M056)."""
        for call in list(self._calls.values()):
            if call.id_text == id_text:
                self._silence(call)

    def end_of_input(self) -> None:
        """Let waits end, and everything else finish within EOF_MS_MAX."""
        for call in list(self._calls.values()):
            if call.wait_ms:
                self._silence(call)
            else:
                call.deadline_s = min(call.deadline_s, self.now + EOF_MS_MAX / 1000)

    def _silence(self, call: Call) -> None:
        if call.written and call.name not in ACTING:
            self._control.append(b"%d cancel\n" % call.number)
        self._conclude(call, None)

    # From the link.

    def opened(self, epoch: str) -> None:
        """An edge took the connection; it calls the store of this epoch, or has not learned one yet."""
        self._open = True
        self._epoch = epoch
        for call in self._calls.values():
            call.give_up_s = None

    def frames(self) -> list[tuple[Call | None, bytes]]:
        """Return what is to be sent now, each with the call whose writing is to be reported."""
        if not self._open:
            return []
        due: list[tuple[Call | None, bytes]] = [(None, frame) for frame in self._control]
        self._control.clear()
        for call in self._calls.values():
            if not call.queued and not call.written:
                call.queued = True
                due.append((call, self._frame(call)))
        return due

    def _frame(self, call: Call) -> bytes:
        if call.settling:
            return b"%d settle %b %b\n" % (call.number, call.epoch.encode() or b"-", call.line)
        if call.again and call.wait_ms:
            return b"%d within %d %b\n" % (call.number, self._left_ms(call), call.line)
        return b"%d %b\n" % (call.number, call.line)

    def _left_ms(self, call: Call) -> int:
        return max(0, int(call.wait_ms - (self.now - call.begun_s) * 1000))

    def written(self, call: Call) -> None:
        """The system has taken the whole frame of this call: from here on an edge may act on it."""
        call.queued = False
        call.written = True
        if not call.settling:
            call.epoch = call.epoch or self._epoch

    def answered(self, frame: bytes) -> None:
        """Act on one line of the edge. Frames of calls that are gone are ignored.

        Raises:
            BrokenEdge: the line is none of the protocol.
        """
        number, _, rest = frame.partition(b" ")
        if not number.isdigit() or len(number) > 18:
            raise BrokenEdge
        if number == b"0":
            self._told(rest)
            return
        call = self._calls.get(int(number))
        if call is None:
            return
        if rest == b"again":
            call.written = False
            # Of a call that acts this proves that it was not begun, so it stays a call that never left.
            call.again = call.again or call.name not in ACTING
            call.give_up_s = self.now + self._patience_s(call)
            self._open = False
        elif rest.startswith(b"{"):
            self._conclude(call, rest)
        elif rest == b"unreadable":
            self._conclude(call, wire.failure(call.id_text, wire.INVALID_REQUEST, UNREADABLE))
        else:
            raise BrokenEdge

    def _told(self, word: bytes) -> None:
        name, _, rest = word.partition(b" ")
        if name == b"epoch":
            self._epoch = rest.decode("ascii", "replace")
            for call in self._calls.values():
                # An edge tells the epoch before it calls the store, so a call without one has not been made yet.
                if call.written and not call.epoch:
                    call.epoch = self._epoch
        elif name == b"draining":
            self._open = False
            for call in self._calls.values():
                if not call.written and call.give_up_s is None:
                    call.give_up_s = self.now + RECONNECT_MS_MAX / 1000
        else:
            raise BrokenEdge

    def lost(self) -> None:
        """The connection is gone: what it carried is settled or asked again, over the next one."""
        self._open = False
        self._control.clear()
        for call in list(self._calls.values()):
            if call.written and call.name in answers.TELLS:
                # It may have acted on a turn that has ended since: once more, it would act on another.
                self._conclude(call, _given_up(call))
                continue
            if call.written:
                call.again = True
                call.settling = call.name in answers.SETTLES
            call.queued = call.written = False
            if call.give_up_s is None:
                call.give_up_s = self.now + self._patience_s(call)

    def _patience_s(self, call: Call) -> float:
        if call.settling:
            return SETTLE_MS_MAX / 1000
        # Who waits anyway may wait for the edge too.
        return max(RECONNECT_MS_MAX, self._left_ms(call) if call.again else 0) / 1000

    def unreachable(self) -> None:
        """An attempt to connect has failed: tell wrong arguments now, since no edge will."""
        for call in list(self._calls.values()):
            if not call.examined and not call.again:
                call.examined = True
                answer = self._examine(call)
                if answer is not None:
                    self._conclude(call, answer)

    def absent(self) -> None:
        """Nothing has ever run in this home: what has not been sent need not wait."""
        for call in list(self._calls.values()):
            if not call.again:
                self._conclude(call, _given_up(call))

    def refused(self, *, code: str, message: str, hint: str) -> None:
        """The edge does not talk to this shim: answer everything that waits."""
        for call in list(self._calls.values()):
            if call.settling:
                self._conclude(call, _given_up(call))
            elif not call.written:
                self._conclude(call, wire.tool_error(call.id_text, code=code, message=message, hint=hint))

    # From the clock.

    def tick(self) -> None:
        """Answer what is overdue, and tell who wants to know that its call goes on."""
        for call in list(self._calls.values()):
            if self.now >= call.deadline_s or (call.give_up_s is not None and self.now >= call.give_up_s):
                self._conclude(call, _given_up(call))
            elif call.progress_token is not None and self.now >= call.progress_s:
                call.progress_s = self.now + PROGRESS_MS / 1000
                self._emit(progress(call.progress_token, int(self.now - call.begun_s)))

    def next_due_s(self) -> float | None:
        """Return when `tick` has something to do next."""
        due = [call.deadline_s for call in self._calls.values()]
        due += [call.give_up_s for call in self._calls.values() if call.give_up_s is not None]
        due += [call.progress_s for call in self._calls.values() if call.progress_token is not None]
        return min(due, default=None)

    def _conclude(self, call: Call, answer: bytes | None) -> None:
        if self._calls.pop(call.number, None) is None:
            return
        self._bytes -= len(call.line)
        if call.queued:
            self.withdraw(call)
        call.sink(answer)


def _given_up(call: Call) -> bytes:
    """Return the answer to a call that got none in time: what is proved of it, and what is not."""
    left = call.written or call.again
    if not left:
        return wire.tool_error(
            call.id_text,
            code="not_written",
            message="Fencepost's mcp_edge could not be reached in time; the call was not sent and nothing was written.",
            hint=f"It may be called again. {_UP}",
        )
    if call.name in answers.SETTLES:
        return wire.tool_error(
            call.id_text,
            code="delivery_uncertain",
            message="The call was sent and no answer came in time. What became of it could not be learned: it may or"
            " may not have been written.",
            hint=_LOOK if call.name in answers.MESSAGES else _ONCE,
            uncertain=True,
        )
    if call.name in answers.TELLS:
        return wire.tool_error(
            call.id_text,
            code="delivery_uncertain",
            message="The call was sent and its answer was lost: it may or may not have been carried out.",
            hint=_SEE,
            uncertain=True,
        )
    return wire.tool_error(
        call.id_text,
        code="control_transport_error",
        message="No answer came in time. Calling this tool again with the same arguments changes nothing more.",
        hint=f"Call it again. {_UP}",
        # A page may have been shown and acknowledged; both are the same when repeated.
        uncertain=call.name == "receive_messages",
    )


def progress(token: str, seconds: int) -> bytes:
    """Return the line that tells under a token, given as JSON text, that its call goes on."""
    return (
        f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},'
        f'"progress":{seconds},"message":{wire.quote(f"in progress for {seconds} s")}}}}}'
    ).encode()
