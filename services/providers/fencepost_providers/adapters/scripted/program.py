"""A small agent program that does what a script says: one conversation in a file, JSON lines over stdio.

Run by `fencepost_providers.adapters.scripted.scripted_adapter`, standard library only:

    python -IS program.py --folder FOLDER --generation N [--script FILE]
    python -IS program.py --version [--script FILE]

Requests are `{"id", "method", "params"}`: hello, open, activity, show, start, steer, interrupt. Answers are `{"id",
"result"}` or `{"id", "error": {"code", "message"}}`; events are `{"event", "generation", ...}`: activity, turn_started,
item, turn_ended. It ends where its input does.

What it does with a piece of work are directives, one a line: from the script by record id (`records`) or by a text in
the body (`works`), else from the lines of the body that are directives, else the script's `default`, else
`SAY done: $LINE`. `$LINE` is the first line of the body, `$RECORD` its record id, `$RESULT` what the last CALL gave.
See DIRECTIVES and MISBEHAVIOURS.

`start`, `stop` and `version` of the script say how it starts, stops and what it is; `own_turns` are lists of directives
for turns that nobody asked for. In FOLDER: `conversations/ID.jsonl` (what was said; locked by its one writer),
`executions.log` (a line for each piece of work that entered a turn: record, turn, mode, generation, pid), `gates/NAME`
(what WAIT waits for).
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Step = tuple[str, str]
Condition = Callable[[], bool]
Running = Generator[Condition, None, tuple[str, str]]

VERSION = "1.1.0"
TEXT_PART_CHARACTERS = 16_384
POLL_S = 0.005
HUGE_BYTES = 3 * 1024 * 1024
READ_BYTES = 4_096
EXIT_REFUSED = 3
EXIT_DIED = 9
DEFAULT = ("SAY done: $LINE",)
GARBAGE = b'not json\n[1]\n"text"\n\xff\xfe\n\n{"id": 987654, "result": {}}\n{"event": 7}\n'
PHASES = {"SAY": "final", "PLAIN": "plain", "COMMENTARY": "commentary"}
REFUSALS = ("active_writer", "busy", "stale_turn", "unknown_error")

DIRECTIVES = {
    "SAY": "say the text as the final answer",
    "COMMENTARY": "say the text as commentary",
    "PLAIN": "say the text without a phase",
    "NOTEXT": "say nothing",
    "BIG": "say a final answer of so many bytes",
    "SLEEP": "wait so many milliseconds",
    "WAIT": "wait until gates/NAME exists",
    "HANG": "wait until interrupted",
    "ASK": "need a person's action; the text says which",
    "ANSWERED": "need it no longer",
    "CALL": "call a tool of the MCP server with JSON arguments",
    "FAIL": "end the turn as failed; the text says why",
    "DIE": "exit in the middle of the turn with this exit code",
    "MISBEHAVE": "do one of MISBEHAVIOURS, with its number where it takes one",
}

MISBEHAVIOURS = {
    "accepts_no_turn": "answers that the work was accepted, and starts no turn",
    "answers_twice": "answers, and answers again",
    "busy": "refuses: a turn is running",
    "completes_before_answer": "ends the turn before it answers the request that started it",
    "dies_after_execution": "takes the work into a turn, and exits before it answers",
    "dies_after_write": "reads the request, and exits before it does anything",
    "dies_mid_write": "exits while the request is being written",
    "double_completion": "ends the turn twice, the second time as failed",
    "drops": "reads the request, and nothing else",
    "end_unsaid": "is idle again without having said that the turn ended",
    "folds": "takes a start into the turn that runs, and answers with that turn",
    "foreign_receipt": "says that the turn took another record",
    "garbage": "says things that are no JSON, no object, no known event and no answer to anything",
    "half_answer": "exits in the middle of its answer",
    "huge_lines": "says lines over every limit on both outputs",
    "ignores_interrupt": "never answers an interruption of this turn",
    "malformed_answer": "answers with something that has no turn in it",
    "no_receipt": "starts a turn that does not say what it took",
    "old_generation": "says that this turn ended, as its former life",
    "other_turn": "takes the work, and answers with the id of another turn",
    "phantom_turn": "answers with a turn that never starts",
    "refuses_interrupt": "answers that an interruption was accepted, and goes on",
    "slow": "answers only after so many milliseconds",
    "stale_turn": "refuses: another turn runs",
    "swapped": "says that it is idle before it says that the turn ended",
    "unknown_error": "refuses with an error that nobody knows",
}

# What `start` of a script may hold.
START_MISBEHAVIOURS = {
    "active_writer": "refuses to open: another program writes the conversation",
    "exits": "exits with code 3 and a last word on standard error",
    "hangs": "never answers",
    "indexes": "opens only once the gate `indexed` exists",
    "malformed_answer": "answers the greeting with nonsense",
    "other_conversation": "opens another conversation than asked for",
    "unknown_error": "refuses to open with an error that nobody knows",
}
# What `stop` of a script may hold.
STOP_MISBEHAVIOURS = {"ignores": "goes on after the end of its input and after SIGTERM"}


class Problem(Exception):
    """A request that is refused, with a code for the adapter."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def new_id(prefix: str) -> str:
    """Return an id that was never used before."""
    return f"{prefix}-{os.urandom(8).hex()}"


def read_script(path: str) -> Json:
    """Return the script in a file; an empty one without a path."""
    if not path:
        return {}
    script = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(script, dict):
        raise TypeError("a script is a JSON object")
    return script


def write_all(number: int, data: bytes) -> None:
    """Write all of it, however many calls that takes."""
    while data:
        data = data[os.write(number, data) :]


def directives(lines: Sequence[str]) -> list[Step]:
    """Return the word and argument of those lines that are directives."""
    split = (line.rstrip("\r").partition(" ") for line in lines)
    return [(word, argument) for word, _, argument in split if word in DIRECTIVES]


def misbehaviours(steps: Sequence[Step]) -> dict[str, str]:
    """Return the names of what to do wrong, each with its argument."""
    return dict(argument.partition(" ")[::2] for word, argument in steps if word == "MISBEHAVE")


def never() -> bool:
    """Say that what is waited for has not happened."""
    return False


def at_once() -> bool:
    """Say that nothing is waited for."""
    return True


class Conversation:
    """What was said, one JSON line each; one program writes at a time."""

    def __init__(self, folder: Path, wanted: str) -> None:
        places = folder / "conversations"
        places.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.id = wanted or new_id("conversation")
        path = places / f"{self.id}.jsonl"
        if wanted and (path.parent != places or not path.exists()):
            raise Problem("unknown_conversation", f"there is no conversation {wanted}")
        made = 0 if wanted else os.O_CREAT | os.O_EXCL
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | made, 0o600)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Problem("active_writer", f"conversation {self.id} already has an active writer") from None

    def add(self, role: str, text: str, **more: str) -> None:
        """Keep something that was said."""
        write_all(self.file, json.dumps({"role": role, "text": text, **more}).encode() + b"\n")


class Turn:
    """A running turn and what is left to do in it."""

    def __init__(self) -> None:
        self.id = new_id("turn")
        self.steps: list[Step] = []
        self.wrong: dict[str, str] = {}
        self.started_by = ""
        self.is_announced = False
        self.detail = ""
        self.result = ""


class Call:
    """One call of a tool, through an MCP server of its own, on a thread of its own."""

    def __init__(self, mcp: Json, argument: str) -> None:
        self.mcp = mcp
        self.tool, _, arguments = argument.partition(" ")
        self.arguments = json.loads(arguments or "{}")
        self.result = ""
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def is_done(self) -> bool:
        """Whether it has an answer, or never will."""
        return not self.thread.is_alive()

    def run(self) -> None:
        """Start the server, greet it, call, and end it."""
        greeting = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "scripted", "version": VERSION},
        }
        try:
            with subprocess.Popen(
                [self.mcp["command"], *self.mcp["arguments"]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **self.mcp["environment"]},
            ) as server:
                self.ask(server, "initialize", greeting, 1)
                self.ask(server, "notifications/initialized", {}, 0)
                said = self.ask(server, "tools/call", {"name": self.tool, "arguments": self.arguments}, 2)
            self.result = "".join(part.get("text", "") for part in said["result"]["content"])
        except (OSError, ValueError, KeyError) as error:
            self.result = f"the call failed: {error!r}"

    def ask(self, server: subprocess.Popen[bytes], method: str, params: Json, number: int) -> Json:
        """Send a frame; return the answer, where it has a number."""
        assert server.stdin is not None
        assert server.stdout is not None
        frame: Json = {"jsonrpc": "2.0", "method": method, "params": params}
        if number:
            frame["id"] = number
        server.stdin.write(json.dumps(frame).encode() + b"\n")
        server.stdin.flush()
        answer: Json = {}
        while number and answer.get("id") != number:
            answer = json.loads(server.stdout.readline())
        return answer


class Program:
    """The conversation and its one turn."""

    def __init__(self, folder: Path, generation: int, script_path: str) -> None:
        self.folder = folder
        self.generation = generation
        self.script_path = script_path
        self.script = read_script(script_path)
        self.conversation: Conversation | None = None
        self.mcp: Json = {}
        self.turn: Turn | None = None
        self.running: Running | None = None
        self.waiting: Condition = at_once
        self.later: list[tuple[float, Json]] = []
        self.own_turns: list[list[str]] = list(self.script.get("own_turns", ()))

    # --- saying -------------------------------------------------------------------------------------------------------

    def emit(self, frame: Json) -> None:
        """Say one frame."""
        write_all(1, json.dumps(frame).encode() + b"\n")

    def event(self, event: str, **more: object) -> None:
        """Say that something happened."""
        self.emit({"event": event, "generation": self.generation, **more})

    def answer(self, request: int, result: Json, wrong: dict[str, str]) -> None:
        """Answer a submission, as wrongly as asked for."""
        frame: Json = {"id": request, "result": 7 if "malformed_answer" in wrong else result}
        if "half_answer" in wrong:
            line = json.dumps(frame).encode()
            write_all(1, line[: len(line) // 2])
            os._exit(EXIT_DIED)
        if "slow" in wrong:
            self.later.append((time.monotonic() + int(wrong["slow"]) / 1000, frame))
            return
        self.emit(frame)
        if "answers_twice" in wrong:
            self.emit(frame)

    def activity(self) -> Json:
        """Return what the conversation does."""
        if self.turn is None:
            return {"state": "idle", "turn": "", "detail": ""}
        state = "action_needed" if self.turn.detail else "processing"
        return {"state": state, "turn": self.turn.id, "detail": self.turn.detail}

    def say_activity(self) -> None:
        """Say what the conversation does."""
        self.event("activity", **self.activity())

    def say_text(self, turn: Turn, phase: str, text: str) -> None:
        """Say a text of the assistant, in parts where it is long."""
        item = new_id("item")
        self.keep("assistant", text, phase=phase, turn=turn.id)
        for start in range(0, max(1, len(text)), TEXT_PART_CHARACTERS):
            part = text[start : start + TEXT_PART_CHARACTERS]
            more = start + TEXT_PART_CHARACTERS < len(text)
            self.event("item", turn=turn.id, item=item, kind=phase, text=part, more=more)

    def keep(self, role: str, text: str, **more: str) -> None:
        """Keep what was said in the conversation."""
        if self.conversation is None:
            raise Problem("not_open", "no conversation is open")
        self.conversation.add(role, text, **more)

    # --- work ---------------------------------------------------------------------------------------------------------

    def steps_for(self, delivery: Json) -> list[Step]:
        """Return the directives for a delivery; the script is read again, so that it may grow meanwhile."""
        self.script = read_script(self.script_path)
        body = delivery["body"]
        lines = self.script.get("records", {}).get(delivery["record_id"])
        if lines is None:
            lines = next((work["do"] for work in self.script.get("works", ()) if work.get("match", "") in body), None)
        steps = directives(body.split("\n") if lines is None else lines)
        steps = steps or directives(self.script.get("default", DEFAULT))
        first = body.split("\n", 1)[0].rstrip("\r")
        return [(word, text.replace("$LINE", first).replace("$RECORD", delivery["record_id"])) for word, text in steps]

    def take(self, turn: Turn, delivery: Json, steps: Sequence[Step], mode: str) -> None:
        """Let a piece of work into a turn: from here on it counts as executed."""
        record = delivery["record_id"]
        self.keep("user", delivery["body"], record=record, turn=turn.id, mode=mode)
        line = f"{record} {turn.id} {mode} {self.generation} {os.getpid()}\n"
        log = os.open(self.folder / "executions.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        write_all(log, line.encode())
        os.close(log)
        turn.steps += steps

    def begin(self) -> Turn:
        """Begin a turn without anything to do yet."""
        turn = self.turn = Turn()
        self.running = self.run(turn)
        self.waiting = at_once
        return turn

    def announce(self, turn: Turn) -> None:
        """Say that a turn began."""
        turn.is_announced = True
        self.event("turn_started", turn=turn.id, record=turn.started_by)
        self.say_activity()

    def submit(self, request: int, params: Json, mode: str) -> None:
        """Start a turn with work, or put it into the running one."""
        delivery = params["delivery"]
        steps = self.steps_for(delivery)
        wrong = misbehaviours(steps)
        steps = [step for step in steps if step[0] != "MISBEHAVE"]
        if self.lost(wrong):
            return
        if "accepts_no_turn" in wrong or "phantom_turn" in wrong:
            self.answer(request, {"turn": new_id("turn") if "phantom_turn" in wrong else ""}, wrong)
            return
        turn = self.turn
        if mode == "steer" and (turn is None or turn.id != params["turn"]):
            raise Problem("stale_turn", "that turn is not running")
        if mode == "start" and turn is not None:
            if "folds" not in wrong:
                raise Problem("busy", f"turn {turn.id} is running")
            mode = "fold"
        if turn is None:
            turn = self.begin()
            turn.started_by = delivery["record_id"]
        turn.wrong.update(wrong)
        self.take(turn, delivery, steps, mode)
        self.acknowledge(request, turn, delivery, wrong)

    def lost(self, wrong: dict[str, str]) -> bool:
        """Do what is done wrong before a request is looked at; tell whether nothing shall become of it."""
        if "dies_after_write" in wrong:
            os._exit(EXIT_DIED)
        if "drops" in wrong:
            return True
        for code in REFUSALS:
            if code in wrong:
                raise Problem(code, "the script says so")
        if "huge_lines" in wrong:
            write_all(1, b"x" * HUGE_BYTES + b"\n")
            write_all(2, b"y" * HUGE_BYTES + b"\n")
        if "garbage" in wrong:
            write_all(1, GARBAGE)
            self.event("unheard_of", turn="turn-of-nobody")
            self.event("turn_ended", turn=None, status=[])
        return False

    def acknowledge(self, request: int, turn: Turn, delivery: Json, wrong: dict[str, str]) -> None:
        """Answer, and say what begins and what was taken."""
        if "dies_after_execution" in wrong:
            os._exit(EXIT_DIED)
        result = {"turn": new_id("turn") if "other_turn" in wrong else turn.id}
        early = "completes_before_answer" in wrong
        if not early:
            self.answer(request, result, wrong)
        if not turn.is_announced:
            self.announce(turn)
        if "no_receipt" not in wrong:
            taken = "request-of-somebody-else" if "foreign_receipt" in wrong else delivery["record_id"]
            text = delivery["body"][:TEXT_PART_CHARACTERS]
            self.event("item", turn=turn.id, item=new_id("item"), kind="user", record=taken, text=text)
        if "old_generation" in wrong:
            late = {"turn": turn.id, "status": "failed", "detail": "a former life"}
            self.emit({"event": "turn_ended", "generation": self.generation - 1, **late})
        if early:
            while self.turn is turn:
                self.step()
                time.sleep(POLL_S)
            self.answer(request, result, wrong)

    # --- turns --------------------------------------------------------------------------------------------------------

    def run(self, turn: Turn) -> Running:
        """Do a turn step by step; yields what it waits for. Returns status and detail of its end."""
        while turn.steps:
            word, text = turn.steps.pop(0)
            text = text.replace("$RESULT", turn.result)
            if word in PHASES:
                self.say_text(turn, PHASES[word], text)
            elif word == "BIG":
                self.say_text(turn, "final", "b" * int(text))
            elif word == "SLEEP":
                yield after(int(text))
            elif word == "WAIT":
                yield (self.folder / "gates" / text).exists
            elif word == "HANG":
                yield never
            elif word in ("ASK", "ANSWERED"):
                turn.detail = text if word == "ASK" else ""
                self.say_activity()
            elif word == "CALL":
                call = Call(self.mcp, text)
                yield call.is_done
                turn.result = call.result
                self.event("item", turn=turn.id, item=new_id("item"), kind="tool", name=call.tool, text=call.result)
            elif word == "FAIL":
                return "failed", text
            elif word == "DIE":
                os._exit(int(text or EXIT_DIED))
        return "completed", ""

    def step(self) -> None:
        """Go on with the turn as far as it goes without waiting."""
        while self.turn is not None and self.running is not None and self.waiting():
            try:
                self.waiting = next(self.running)
            except StopIteration as end:
                self.end_turn(self.turn, *end.value)

    def end_turn(self, turn: Turn, status: str, detail: str) -> None:
        """End the turn, and say so."""
        self.turn = None
        if "swapped" in turn.wrong:
            self.say_activity()
        if "end_unsaid" not in turn.wrong:
            self.event("turn_ended", turn=turn.id, status=status, detail=detail)
        if "double_completion" in turn.wrong:
            self.event("turn_ended", turn=turn.id, status="failed", detail="again")
        if "swapped" not in turn.wrong:
            self.say_activity()

    # --- requests -----------------------------------------------------------------------------------------------------

    def hello(self, request: int, _: Json) -> None:
        """Say the version."""
        wrong = self.script.get("start", ())
        if "exits" in wrong:
            write_all(2, b"no licence on this machine\n")
            os._exit(EXIT_REFUSED)
        if "hangs" not in wrong:
            version = self.script.get("version", VERSION)
            self.emit({"id": request, "result": 7 if "malformed_answer" in wrong else {"version": version}})

    def open(self, request: int, params: Json) -> None:
        """Open exactly the wanted conversation, or a new one."""
        wrong = self.script.get("start", ())
        for code in REFUSALS:
            if code in wrong:
                raise Problem(code, "the script says so")
        self.conversation = Conversation(self.folder, params["conversation"])
        self.mcp = params["mcp"]
        gate = self.folder / "gates" / "indexed"
        while "indexes" in wrong and not gate.exists() and not select.select([0], [], [], POLL_S)[0]:
            continue
        opened = new_id("conversation") if "other_conversation" in wrong else self.conversation.id
        self.emit({"id": request, "result": {"conversation": opened}})
        self.say_activity()

    def ask_activity(self, request: int, _: Json) -> None:
        """Answer what the conversation does."""
        self.emit({"id": request, "result": self.activity()})

    def show(self, request: int, params: Json) -> None:
        """Keep a text in the conversation without a turn."""
        delivery = params["delivery"]
        wrong = misbehaviours(self.steps_for(delivery))
        if self.lost(wrong):
            return
        self.keep("context", delivery["body"], record=delivery["record_id"])
        self.answer(request, {"shown": "" if "no_receipt" in wrong else delivery["record_id"]}, wrong)

    def start(self, request: int, params: Json) -> None:
        """Start a turn with work."""
        self.submit(request, params, "start")

    def steer(self, request: int, params: Json) -> None:
        """Put work into exactly the named turn."""
        self.submit(request, params, "steer")

    def interrupt(self, request: int, params: Json) -> None:
        """End exactly the named turn."""
        turn = self.turn
        if turn is None or turn.id != params["turn"]:
            raise Problem("no_such_turn", "that turn is not running")
        if "ignores_interrupt" in turn.wrong:
            return
        self.emit({"id": request, "result": {}})
        if "refuses_interrupt" not in turn.wrong:
            self.end_turn(turn, "interrupted", "")

    def handle(self, line: bytes) -> None:
        """Answer one request."""
        methods: dict[str, Callable[[int, Json], None]] = {
            "hello": self.hello,
            "open": self.open,
            "activity": self.ask_activity,
            "show": self.show,
            "start": self.start,
            "steer": self.steer,
            "interrupt": self.interrupt,
        }
        frame = json.loads(line)
        try:
            methods[frame["method"]](frame["id"], frame["params"])
        except Problem as problem:
            self.emit({"id": frame["id"], "error": {"code": problem.code, "message": str(problem)}})

    def go_on(self) -> float | None:
        """Do what is due; return in how many seconds to look again, None where only a request changes anything."""
        if self.own_turns and self.conversation is not None and self.turn is None:
            turn = self.begin()
            turn.steps = directives(self.own_turns.pop(0))
            turn.wrong = misbehaviours(turn.steps)
            self.announce(turn)
        self.step()
        now = time.monotonic()
        for frame in [frame for at, frame in self.later if at <= now]:
            self.emit(frame)
        self.later = [(at, frame) for at, frame in self.later if at > now]
        idle = self.turn is None and not self.later and not (self.own_turns and self.conversation)
        return None if idle else POLL_S

    def serve(self) -> None:
        """Answer requests and go on with turns until the input ends."""
        partial = b""
        while True:
            if not select.select([0], [], [], self.go_on())[0]:
                continue
            data = os.read(0, READ_BYTES)
            if not data:
                return
            *lines, partial = (partial + data).split(b"\n")
            for line in lines:
                self.handle(line)
            if b"MISBEHAVE dies_mid_write" in partial:
                os._exit(EXIT_DIED)


def after(ms: int) -> Condition:
    """Return the condition that so many milliseconds have passed."""
    until = time.monotonic() + ms / 1000
    return lambda: time.monotonic() >= until


def main(argv: Sequence[str]) -> int:
    """Serve one conversation on standard input and output."""
    options = dict(zip(argv[1::2], argv[2::2], strict=False))
    script = options.get("--script", "")
    if "--version" in argv:
        path = script or (argv[argv.index("--script") + 1] if "--script" in argv else "")
        write_all(1, f"scripted {read_script(path).get('version', VERSION)}\n".encode())
        return 0
    program = Program(Path(options["--folder"]), int(options["--generation"]), script)
    stubborn = "ignores" in program.script.get("stop", ())
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    program.serve()
    while stubborn:
        time.sleep(1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
