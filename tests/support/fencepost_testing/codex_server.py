"""A stand-in for the program codex, made after recordings of the real one (tests/fixtures/codex). Tests only.

`python codex_server.py FOLDER ...` where `...` is what codex would get: `--version`, `debug models`, `resume ID`, or
`app-server --listen unix://PATH`. FOLDER holds what a bench wants of it: `version`, `models.json`, `script.json` (the
acts of each record), `gates/`, `faults.json` (a list of [method, how], each done once), and what it did:
`executions.log`, `requests.jsonl`.

As the real one: a thread rests before its turn is complete; work for a running turn is folded into it; a thread has a
file only once it has a name, a turn or an item; one writer for each thread; all refusals have one code.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import unix_connect
from websockets.asyncio.server import ServerConnection, unix_serve
from websockets.exceptions import ConnectionClosed

Json = dict[str, Any]
VERSION: Final = "0.171.0"
CONTROL: Final = "app-server-control/app-server-control.sock"
LOOK_S: Final = 0.002
MODELS: Final = {
    "models": [
        {
            "slug": "one",
            "display_name": "One",
            "priority": 1,
            "default_reasoning_level": "low",
            "supported_reasoning_levels": [{"effort": "low"}, {"effort": "high"}],
        }
    ]
}


class Refusal(Exception):
    """An error answer."""

    def __init__(self, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.data = data


class Thread:
    """One conversation."""

    def __init__(self, thread_id: str, place: Path) -> None:
        self.id = thread_id
        self.place = place
        self.status: Json = {"type": "idle"}
        self.subscribers: set[ServerConnection] = set()
        self.turn: Turn | None = None
        self.turns: list[Json] = []
        self.asked: dict[int, tuple[Json, asyncio.Event]] = {}
        self.lock = -1

    def write(self, line: Json) -> None:
        self.place.parent.mkdir(parents=True, exist_ok=True)
        with self.place.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def load(self) -> None:
        """Take up a thread again; a turn that never ended was interrupted."""
        turns: dict[str, Json] = {}
        for line in self.place.read_text(encoding="utf-8").splitlines():
            said = json.loads(line)
            if "turn" in said:
                turns[said["turn"]["id"]] = said["turn"]
        for turn in turns.values():
            turn["status"] = "interrupted" if turn["status"] == "inProgress" else turn["status"]
        self.turns = list(turns.values())

    def described(self) -> Json:
        described = {"id": self.id, "status": self.status, "path": str(self.place), "model": "one", "turns": []}
        return {**described, "canAcceptDirectInput": True}


class Turn:
    """A running turn: its inputs are worked off one after the other, in the order in which they came."""

    def __init__(self, turn_id: str) -> None:
        self.id = turn_id
        self.inputs: list[tuple[str, list[list[str]]]] = []
        self.done = 0
        self.task: asyncio.Task[None] | None = None
        self.last: Json | None = None
        self.words = 0

    def told(self, status: str, error: Json | None = None) -> Json:
        items = [self.last] if self.last and status == "completed" else []
        view = "summary" if items else "notLoaded"
        return {"id": self.id, "items": items, "itemsView": view, "status": status, "error": error}


class Failed(Exception):
    """The model refused."""


class Server:
    """The app-server."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.home = home
        self.threads: dict[str, Thread] = {}
        self.ending = asyncio.Event()
        self.draining = False
        self.clients: set[ServerConnection] = set()
        self.numbers = iter(range(1, 1_000_000))

    # --- files of the bench ------------------------------------------------------------------------------------------

    def fault(self, method: str) -> str:
        """Return how this request is to be mishandled, once."""
        path = self.folder / "faults.json"
        if not path.exists():
            return ""
        faults = json.loads(path.read_text(encoding="utf-8"))
        for number, (wanted, how) in enumerate(faults):
            if wanted == method:
                del faults[number]
                draft = path.with_suffix(".new")
                draft.write_text(json.dumps(faults), encoding="utf-8")
                draft.replace(path)
                return str(how)
        return ""

    def acts(self, record_id: str) -> list[list[str]]:
        path = self.folder / "script.json"
        script = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return script.get(record_id) or [["SAY", "done"]]

    def executed(self, record_id: str) -> None:
        with (self.folder / "executions.log").open("a", encoding="utf-8") as file:
            file.write(f"{record_id}\n")

    # --- connections -------------------------------------------------------------------------------------------------

    async def serve(self, client: ServerConnection) -> None:
        self.clients.add(client)
        greeted = False
        try:
            async for frame in client:
                message = json.loads(frame)
                if "method" not in message:
                    await self.answered(message)
                elif message["method"] == "initialize":
                    greeted = True
                    version = stored(self.folder / "says_version", stored(self.folder / "version", VERSION))
                    home = stored(self.folder / "says_home", str(self.home))
                    agent = f"{message['params']['clientInfo']['name']}/{version} (Test; x86_64)"
                    await self.reply(client, message, {"userAgent": agent, "codexHome": home})
                elif "id" in message and not greeted:
                    await self.refuse(client, message, Refusal("Not initialized"))
                elif "id" in message:
                    await self.request(client, message)
        except ConnectionClosed:
            pass
        finally:
            self.clients.discard(client)
            for thread in self.threads.values():
                thread.subscribers.discard(client)

    async def request(self, client: ServerConnection, message: Json) -> None:
        method, params = message["method"], message["params"]
        with (self.folder / "requests.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"method": method, "params": params}) + "\n")
        how = self.fault(method)
        if how == "hang_up":
            client.transport.abort()
        elif how == "die":
            os._exit(7)
        elif how == "garbage":
            await client.send("}{")
        elif how == "ignore":
            return
        elif how.startswith("refuse "):
            await self.refuse(client, message, Refusal(how.removeprefix("refuse ")))
        elif how.startswith("answer "):
            await self.reply(client, message, json.loads(how.removeprefix("answer ")))
        else:
            await self.carry_out(client, message, method, params, how)

    async def carry_out(self, client: ServerConnection, message: Json, method: str, params: Json, how: str) -> None:
        handler = HANDLERS.get(method)
        try:
            if handler is None:
                raise Refusal(f"Invalid request: unknown variant `{method}`")
            if self.draining and method in {"turn/start", "turn/steer"}:
                raise Refusal("Server is draining; retry after reconnecting", {"reason": "serverShuttingDown"})
            result = await handler(self, client, params, how)
        except Refusal as error:
            await self.refuse(client, message, error)
            return
        except KeyError as error:
            await self.refuse(client, message, Refusal(f"Invalid request: missing field `{error.args[0]}`"))
            return
        if how == "lose":
            return
        if how == "lose_and_hang_up":
            client.transport.abort()
            return
        await self.reply(client, message, result)

    async def reply(self, client: ServerConnection, message: Json, result: Json) -> None:
        await self.tell_one(client, {"id": message["id"], "result": result})

    async def refuse(self, client: ServerConnection, message: Json, error: Refusal) -> None:
        told = {"code": -32600, "message": str(error), **({"data": error.data} if error.data else {})}
        await self.tell_one(client, {"error": told, "id": message["id"]})

    async def tell_one(self, client: ServerConnection, message: Json) -> None:
        with contextlib.suppress(ConnectionClosed):
            await client.send(json.dumps(message))

    async def tell(self, thread: Thread, method: str, /, **params: Any) -> None:
        for client in tuple(thread.subscribers):
            await self.tell_one(
                client, {"method": method, "params": {"threadId": thread.id, **params}, "emittedAtMs": 1}
            )

    # --- threads -----------------------------------------------------------------------------------------------------

    def place(self, thread_id: str) -> Path:
        return self.home / "sessions" / f"{thread_id}.jsonl"

    def loaded(self, params: Json) -> Thread:
        thread = self.threads.get(params["threadId"])
        if thread is None:
            raise Refusal(f"thread not found: {params['threadId']}")
        return thread

    def own(self, thread: Thread) -> None:
        """Become the only writer."""
        locks = self.home / "thread-writer-locks"
        locks.mkdir(exist_ok=True)
        thread.lock = os.open(locks / thread.id, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(thread.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(thread.lock)
            raise Refusal(f"thread {thread.id} already has an active writer") from None

    async def account_read(self, _: ServerConnection, __: Json, ___: str) -> Json:
        needed = (self.folder / "needs_login").exists()
        return {"account": None, "requiresOpenaiAuth": needed}

    async def thread_start(self, client: ServerConnection, _: Json, __: str) -> Json:
        thread_id = str(uuid.uuid4())
        thread = Thread(thread_id, self.place(thread_id))
        self.own(thread)
        self.threads[thread_id] = thread
        thread.subscribers.add(client)
        await self.tell(thread, "thread/started", thread=thread.described())
        return {"thread": thread.described(), "model": "one"}

    async def thread_resume(self, client: ServerConnection, params: Json, _: str) -> Json:
        thread = self.threads.get(params["threadId"])
        if thread is None:
            thread = Thread(params["threadId"], self.place(params["threadId"]))
            if not thread.place.exists():
                raise Refusal(f"no rollout found for thread id {thread.id}")
            self.own(thread)
            thread.load()
            self.threads[thread.id] = thread
        thread.subscribers.add(client)
        for number, (asked, _answer) in thread.asked.items():
            await self.tell_one(client, {**asked, "id": number})
        settings = {"model": params.get("model", "one"), "approvalPolicy": params.get("approvalPolicy", "never")}
        return {"thread": thread.described(), **settings, "sandbox": {"type": "readOnly"}, "reasoningEffort": None}

    async def thread_read(self, _: ServerConnection, params: Json, __: str) -> Json:
        thread = self.threads.get(params["threadId"])
        if thread is not None:
            return {"thread": thread.described()}
        if not self.place(params["threadId"]).exists():
            raise Refusal(f"no rollout found for thread id {params['threadId']}")
        return {"thread": {"id": params["threadId"], "status": {"type": "notLoaded"}, "model": "one"}}

    async def thread_name(self, _: ServerConnection, params: Json, __: str) -> Json:
        thread = self.loaded(params)
        if not (self.folder / "names_lie_elsewhere").exists():
            thread.write({"name": params["name"]})
        return {}

    async def thread_inject(self, _: ServerConnection, params: Json, __: str) -> Json:
        thread = self.loaded(params)
        if not params["items"]:
            raise Refusal("items must not be empty")
        for item in params["items"]:
            thread.write({"item": item})
        return {}

    async def thread_loaded(self, _: ServerConnection, params: Json, __: str) -> Json:
        return {"data": list(self.threads)[: params.get("limit", 100)], "nextCursor": None}

    async def thread_turns(self, _: ServerConnection, params: Json, __: str) -> Json:
        thread = self.loaded(params)
        running = [thread.turn.told("inProgress")] if thread.turn else []
        return {"data": [*running, *reversed(thread.turns)][: params.get("limit", 100)]}

    # --- turns -------------------------------------------------------------------------------------------------------

    async def turn_start(self, _: ServerConnection, params: Json, how: str) -> Json:
        thread, item = self.loaded(params), given(params)
        if how == "person_first":
            await self.begin(thread, person("HOLD go"))
        turn = thread.turn
        if turn is not None:
            await self.join(thread, turn, item)
        else:
            turn = await self.begin(thread, item, how)
        return {"turn": turn.told("inProgress")}

    async def turn_steer(self, _: ServerConnection, params: Json, how: str) -> Json:
        thread = self.loaded(params)
        if thread.turn is None:
            raise Refusal("no active turn to steer")
        wanted, found = params["expectedTurnId"], thread.turn.id
        if wanted != found:
            raise Refusal(f"expected active turn id `{wanted}` but found `{found}`")
        if how != "unshown":
            await self.join(thread, thread.turn, given(params))
        return {"turnId": str(uuid.uuid4()) if how == "other_turn" else found}

    async def turn_interrupt(self, _: ServerConnection, params: Json, how: str) -> Json:
        thread, wanted = self.loaded(params), params["turnId"]
        turn = thread.turn
        if wanted and turn is None:
            raise Refusal("no active turn to interrupt")
        if turn is None:
            return {}
        if wanted != turn.id:
            raise Refusal(f"expected active turn id {wanted} but found {turn.id}")
        if turn.task is not None and how != "unheeded":
            turn.task.cancel()
        return {}

    async def begin(self, thread: Thread, item: Json, how: str = "") -> Turn:
        turn = thread.turn = Turn(str(uuid.uuid4()))
        thread.write({"turn": turn.told("inProgress")})
        await self.set_status(thread, {"type": "active", "activeFlags": []})
        await self.tell(thread, "turn/started", turn=turn.told("inProgress"))
        if how != "unshown":
            await self.join(thread, turn, item)
        turn.task = asyncio.create_task(self.run(thread, turn, how))
        return turn

    async def join(self, thread: Thread, turn: Turn, item: Json) -> None:
        record_id = item["record"]
        shown = {**item["shown"], "id": str(uuid.uuid4())}
        thread.write({"item": shown})
        for method in ("item/started", "item/completed"):
            await self.tell(thread, method, turnId=turn.id, item=shown)
        turn.inputs.append((record_id, item["acts"] or self.acts(record_id)))

    async def run(self, thread: Thread, turn: Turn, how: str) -> None:
        status, error = "completed", None
        try:
            while turn.done < len(turn.inputs):
                record_id, acts = turn.inputs[turn.done]
                turn.done += 1
                self.executed(record_id)
                for act in acts:
                    await self.act(thread, turn, *act)
        except Failed as failure:
            status, error = "failed", {"message": str(failure)}
            await self.tell(thread, "error", error=error, willRetry=False, turnId=turn.id)
        except asyncio.CancelledError:
            status = "interrupted"
        thread.asked.clear()
        told = turn.told(status, error)
        thread.turns.append(told)
        thread.turn = None
        thread.write({"turn": told})
        rests = {"type": "systemError" if status == "failed" else "idle"}
        if how != "rests_late":
            await self.set_status(thread, rests)
        if how != "end_untold":
            await self.tell(thread, "turn/completed", turn=told)
        if how == "told_twice":
            await self.tell(thread, "turn/completed", turn=turn.told("failed", {"message": "twice"}))
        if how == "rests_late":
            await self.set_status(thread, rests)
        if self.draining:
            self.ending.set()

    async def act(self, thread: Thread, turn: Turn, verb: str, rest: str = "") -> None:
        if verb == "HOLD":
            await until((self.folder / "gates" / rest).exists)
        elif verb == "FAIL":
            raise Failed(rest)
        elif verb == "ASK":
            await self.ask(thread, turn, rest)
        elif verb != "SILENT":
            phase = {"ASIDE": "commentary", "UNPHASED": None}.get(verb, "final_answer")
            text = "x" * int(rest) if verb == "LONG" else rest
            turn.words += 1
            item = {"type": "agentMessage", "id": f"msg_{turn.id}_{turn.words}", "text": text, "phase": phase}
            await self.tell(thread, "item/started", turnId=turn.id, item={**item, "text": ""})
            await self.tell(thread, "item/completed", turnId=turn.id, item=item)
            if verb != "ASIDE":
                turn.last = item

    async def ask(self, thread: Thread, turn: Turn, reason: str) -> None:
        number, answer = next(self.numbers), asyncio.Event()
        params = {"threadId": thread.id, "turnId": turn.id, "itemId": "call_1", "command": "rm -r x", "reason": reason}
        asked = {"method": "item/commandExecution/requestApproval", "params": params}
        thread.asked[number] = (asked, answer)
        await self.set_status(thread, {"type": "active", "activeFlags": ["waitingOnApproval"]})
        for client in tuple(thread.subscribers):
            await self.tell_one(client, {**asked, "id": number})
        await answer.wait()
        del thread.asked[number]
        await self.tell(thread, "serverRequest/resolved", requestId=number)
        await self.set_status(thread, {"type": "active", "activeFlags": []})

    async def answered(self, message: Json) -> None:
        for thread in self.threads.values():
            if message["id"] in thread.asked:
                thread.asked[message["id"]][1].set()

    async def set_status(self, thread: Thread, status: Json) -> None:
        thread.status = status
        await self.tell(thread, "thread/status/changed", status=status)

    def end(self) -> None:
        """Take SIGTERM: drain at first, end at the second."""
        running = any(thread.turn for thread in self.threads.values())
        if self.draining or not running:
            self.ending.set()
        self.draining = True
        (self.folder / "draining").touch()


HANDLERS: Final[dict[str, Callable[[Server, ServerConnection, Json, str], Any]]] = {
    "account/read": Server.account_read,
    "thread/start": Server.thread_start,
    "thread/resume": Server.thread_resume,
    "thread/read": Server.thread_read,
    "thread/name/set": Server.thread_name,
    "thread/inject_items": Server.thread_inject,
    "thread/loaded/list": Server.thread_loaded,
    "thread/turns/list": Server.thread_turns,
    "turn/start": Server.turn_start,
    "turn/steer": Server.turn_steer,
    "turn/interrupt": Server.turn_interrupt,
}


def given(params: Json) -> Json:
    """Return what a turn is given: the item that shows it, whose record it is, and acts where they stand in it."""
    output = params.get("toolOutput")
    if output is not None:
        shown = {"type": "functionCallOutput", **{key: output[key] for key in ("name", "namespace", "output")}}
        return {"shown": shown, "record": json.loads(output["output"])["interaction_id"], "acts": None}
    if not params["input"]:
        raise Refusal("input must not be empty")
    typed = person(params["input"][0]["text"])
    client_id = params.get("clientUserMessageId")
    if client_id is None:
        return typed
    return {"shown": {**typed["shown"], "clientId": client_id}, "record": client_id, "acts": None}


def person(text: str) -> Json:
    """Return what somebody at a terminal typed: lines of acts."""
    acts = [line.split(" ", 1) for line in text.splitlines() if line]
    content = [{"type": "text", "text": text}]
    return {"shown": {"type": "userMessage", "clientId": None, "content": content}, "record": "", "acts": acts}


async def until(is_so: Callable[[], bool]) -> None:
    """Look again and again: what is waited for is made by another process."""
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)


def stored(path: Path, otherwise: str) -> str:
    return path.read_text(encoding="utf-8").strip() if path.exists() else otherwise


@contextlib.contextmanager
def linked(path: Path, folder: Path) -> Iterator[str]:
    """Listen in a short place, with a link to it where the caller wants it, as the real program does."""
    short = folder / f"s{os.getpid()}"
    if os.path.lexists(path):
        sys.exit(f"Error: app-server control socket is already in use at {path}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.symlink_to(short)
    try:
        yield str(short)
    finally:
        for made in (path, short):
            made.unlink(missing_ok=True)


async def app_server(folder: Path, socket: Path) -> int:
    if (folder / "refuses_to_start").exists():
        print("error: unexpected argument", file=sys.stderr)
        return 2
    server, loop = Server(folder, Path(os.environ["CODEX_HOME"])), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, server.end)
    await until(lambda: not (folder / "indexes").exists())
    with linked(socket, folder) as short:
        listening = await unix_serve(server.serve, short, compression=None, max_size=None, close_timeout=0.1)
        await server.ending.wait()
        listening.close()
    return 0


async def terminal(folder: Path, thread_id: str) -> int:
    """Be a person's terminal: open the thread at the server of this home, or silently by itself; stay until told."""
    socket = Path(os.environ["CODEX_HOME"]) / CONTROL
    if (folder / "embedded").exists() or not socket.exists():
        await asyncio.Event().wait()
    wanted = stored(folder / "opens", thread_id)
    for last in (False, True):  # it looks first, and comes again
        async with unix_connect(os.path.realpath(socket), uri="ws://localhost/", compression=None) as server:
            client = {"clientInfo": {"name": "codex-tui", "version": VERSION}}
            for number, (method, params) in enumerate(
                [("initialize", client), ("thread/resume", {"threadId": wanted})]
            ):
                if last or number == 0:
                    await server.send(json.dumps({"id": number, "method": method, "params": params}))
                    await server.recv()
            if last:
                await until((folder / "leave").exists)
    return 0


def main() -> int:
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    if words == ["--version"]:
        if (folder / "hangs").exists():
            signal.pause()
        print(f"codex-cli {stored(folder / 'version', VERSION)}")
        return 0
    if words == ["debug", "models"]:
        print(stored(folder / "models.json", json.dumps(MODELS)))
        return 0
    if words[:1] == ["resume"]:
        return asyncio.run(terminal(folder, words[1]))
    if words[:1] == ["app-server"] and "--listen" in words:
        return asyncio.run(app_server(folder, Path(words[words.index("--listen") + 1].removeprefix("unix://"))))
    print(f"error: unexpected argument {words}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
