"""The connection of a shim whose arguments name its agent: `--agent NAME [--project DIR]`.

Nothing happens before the first tool call: programs and editors start servers only to look at them. Then a short-lived
child finds or creates the agent with the operator's credential, and this process holds the name by a kernel lock until
it ends or is told to let go. Imported only where the arguments name an agent.
"""

from __future__ import annotations

import os
import sys
import time

from fencepost import holds
from fencepost.errors import Refused
from fencepost.home import CREDENTIAL_VARIABLE, GENERATION_VARIABLE, SESSION_VARIABLE, read_credential
from fencepost.mcp import answers, wire
from fencepost.mcp.calls import ACTING, RECONNECT_MS_MAX, Calls
from fencepost.mcp.link import Identity, Link, expected_generation

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final

    from fencepost.home import Home
    from fencepost.mcp.arguments import Asked
    from fencepost.mcp.offers import Wish
    from fencepost.mcp.session import Call

# How long the child may take, below RECONNECT_MS_MAX, so that its own reason is told. It limits itself to less.
TAKE_MS_MAX: Final = 9_000
ANSWER_BYTES_MAX: Final = 16 * 1024
# How often it is looked whether the name was asked back; a call looks at once, an idle shim wakes every 5 s.
LOOK_MS: Final = 2_000
_SIGKILL: Final = 9
_SAFE: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./@%+=:,")


class NamedCalls(Calls):
    """The table of calls of an agent whose name can be asked back."""

    def __init__(self, *, emit: Callable[[bytes], None], examine: Callable[[Call], bytes | None]) -> None:
        super().__init__(emit=emit, examine=examine)
        # Looks whether the name was asked back; the link sets it.
        self.look: Callable[[], None] = lambda: None
        self.over: Refused | None = None

    def admit(self, call: Call) -> None:
        """Take over a call, or refuse it where the name was given up."""
        self.look()
        if self.over is not None:
            call.sink(_answer(call, self.over))
            return
        super().admit(call)

    def named(self) -> None:
        """The identity is known: what waits for an edge has its whole time for that from now on."""
        for call in self._calls.values():
            if call.give_up_s is not None:
                call.give_up_s = self.now + RECONNECT_MS_MAX / 1000

    def give_up(self, refused: Refused) -> None:
        """Refuse what was not sent and end what only waits; mutations that were sent finish."""
        self.over = refused
        for call in list(self._calls.values()):
            if call.written and call.name not in ACTING:
                self._control.append(b"%d cancel\n" % call.number)
                self._conclude(call, _answer(call, refused))
        self.refused(code=refused.reason, message=_sentence(refused.message), hint=refused.hint)


class NamedLink(Link):
    """A link that learns its identity at the first call, and holds the name while it lives."""

    def __init__(
        self,
        *,
        home: Home,
        asked: Asked,
        calls: NamedCalls,
        nonce: str,
        env: Mapping[str, str],
        command: tuple[str, ...] | None = None,
        wish: Wish | None = None,
    ) -> None:
        super().__init__(home=home, identity=None, calls=calls, nonce=nonce, wish=wish)
        self._asked: Final = asked
        self._named_calls: Final = calls
        self._env: Final = dict(env)
        # -P: the folder of the agent's work, in which anything may lie, is no place to import from.
        self._command: Final = command or (sys.executable, "-P", "-m", "fencepost.take")
        self._child = 0
        self._pipe = -1
        self._answer = b""
        self._child_due_s = 0.0
        self._hold: holds.Hold | None = None
        self._look_s = 0.0
        calls.look = self.look

    # For the loop.

    def fileno(self) -> int:
        """Return the descriptor to poll, or -1."""
        return self._pipe if self._pipe >= 0 else super().fileno()

    def next_due_s(self) -> float | None:
        """Return when `step` has something to do by itself."""
        if self._pipe >= 0:
            return self._child_due_s
        return super().next_due_s()

    def step(self) -> None:
        """Learn the identity where a call wants it; connect and send; give the name back where that was asked."""
        now = self._calls.now
        if self._pipe >= 0:
            if now >= self._child_due_s:
                self._fail(_unanswered(f"did not answer within {TAKE_MS_MAX} ms"))
            return
        if self._identity is None:
            if self._calls.wants_edge:
                self._start()
            return
        if now >= self._look_s:
            self.look()
        super().step()
        if self._named_calls.over is not None and not self._calls:
            self.drop()
            if self._hold is not None:
                self._hold.let_go()

    def readable(self) -> None:
        """Take what the child or the edge sent."""
        if self._pipe < 0:
            super().readable()
            return
        data = os.read(self._pipe, ANSWER_BYTES_MAX)
        self._answer += data
        if len(self._answer) > ANSWER_BYTES_MAX:
            self._fail(_unanswered("gave an answer that is too long"))
        elif not data:
            answer = self._join()
            try:
                self._named(answer)
            except Refused as refused:
                self._fail(refused)

    def look(self) -> None:
        """Give the name up where somebody has asked for that."""
        self._look_s = self._calls.now + LOOK_MS / 1000
        if self._named_calls.over is None and self._hold is not None and self._hold.asked_to_let_go():
            self._named_calls.give_up(
                Refused(
                    "name_released",
                    f"this process gave up the name {self._asked.name} because `fencepost agent release` asked for it;"
                    " this call was not carried out and nothing was written",
                    hint="Ask your user. A new start of this MCP server takes the name again.",
                )
            )

    # The child.

    def _start(self) -> None:
        ours, theirs = os.pipe()
        try:
            self._child = os.posix_spawn(
                self._command[0],
                [*self._command, *self._asked.words()],
                self._env,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, theirs, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
            )
        except OSError as error:
            os.close(ours)
            self._fail(_unanswered(f"cannot be started: {error.strerror}"))
            return
        finally:
            os.close(theirs)
        os.set_blocking(ours, False)
        self._pipe = ours
        self._answer = b""
        self._child_due_s = self._calls.now + TAKE_MS_MAX / 1000

    def _join(self) -> bytes:
        """End the child, which has said what it had to say or has run out of time, and return what it said."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._child:
            try:
                os.kill(self._child, _SIGKILL)
                os.waitpid(self._child, 0)
            except OSError:
                # Somebody made the system reap our children for us.
                pass
            self._child = 0
        return self._answer

    def _named(self, answer: bytes) -> None:
        try:
            found = wire.decode(answer)
            error = found.get("error")
            agent_id = str(found.get("agent_id", ""))
        except (wire.NotJson, AttributeError):
            raise _unanswered("ended without an answer") from None
        if isinstance(error, dict):
            code, message, hint = (str(error.get(key, "")) for key in ("code", "message", "hint"))
            raise Refused(code or "not_written", message, hint=hint)
        credential = self._home.agent_credential_text(agent_id)
        hold = self._held(credential.removesuffix("/credential"))
        try:
            self._identity = self._read_identity(credential)
            self._identity.who = agent_id
        except Refused:
            hold.let_go()
            raise
        self._hold = hold
        self._asked.folder = credential.removesuffix("/credential")
        self._look_s = 0.0
        self._named_calls.named()

    def _held(self, folder: str) -> holds.Hold:
        try:
            hold = holds.take(folder, version=answers.VERSION)
        except OSError as error:
            raise Refused(
                "home_not_writable",
                f"the agent's folder {folder} cannot be used: {error.strerror}; nothing was sent",
                hint="Make it writable for this user.",
            ) from None
        if isinstance(hold, holds.Hold):
            return hold
        raise Refused("name_held", _held_text(self._asked.name, hold), hint=_held_hint(self._asked))

    def _read_identity(self, credential: str) -> Identity:
        if self._env.get(CREDENTIAL_VARIABLE) or self._env.get(SESSION_VARIABLE):
            # The child has proved that both name the same agent.
            return Identity.from_environment(self._home, self._env)
        return Identity(
            token=read_credential(credential),
            agent_id=None,
            generation=expected_generation(self._env.get(GENERATION_VARIABLE, "")),
        )

    def _fail(self, refused: Refused) -> None:
        self._join()
        # Wrong arguments are told first: they stay wrong when the identity is put right.
        self._calls.unreachable()
        self._calls.refused(code=refused.reason, message=_sentence(refused.message), hint=refused.hint)


def _answer(call: Call, refused: Refused) -> bytes:
    return wire.tool_error(
        call.id_text, code=refused.reason, message=_sentence(refused.message), hint=refused.hint, uncertain=False
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _unanswered(what: str) -> Refused:
    return Refused(
        "not_written",
        f"the program that looks up this server's agent {what}; nothing was sent",
        hint="It may be called again. `fencepost doctor` finds what is wrong.",
    )


def _held_text(name: str, holder: holds.Holder) -> str:
    who = f"process {holder.pid}" if holder.pid else "another process"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since_ms / 1000)) if holder.since_ms else ""
    return f"the name {name} is held by {who}{f' since {since}' if since else ''}; nothing was sent"


def _held_hint(asked: Asked) -> str:
    words = ["fencepost", "agent", "release", asked.name]
    words += [] if asked.project is None else ["--project", asked.project]
    command = " ".join(word if set(word) <= _SAFE else "'" + word.replace("'", "'\\''") + "'" for word in words)
    return f"Two sessions cannot be one agent: use another name, end the other session, or let a person run: {command}"
