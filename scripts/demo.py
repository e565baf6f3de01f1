"""The main job, shown on real processes: `make demo`.

Starts a throw-away home, its services, and two agents. Each agent is a process of its own that spawns the stdio MCP
server from the configuration which `fencepost agent create` prints, and speaks JSON-RPC to it by hand. Round one is an
exchange: information, a request, its reply. In round two the mailbox is killed while calls are open, and the ids show
that nothing was lost and nothing doubled. Ends by itself within a minute and leaves nothing behind, also on Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from fencepost.client import Channels, Identity, Mailbox
from fencepost.errors import Refused
from fencepost.home import HOME_VARIABLE, MAILBOX, Home
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.up import Overall, ServiceStatus, Status, status
from fencepost_kit import launch

DEMO_S_MAX: Final = 57.0
READY_S_MAX: Final = 25.0
ROUND_S_MAX: Final = 25.0
END_S_MAX: Final = 10.0
NOTES: Final = 60
NOTES_AT_ONCE: Final = 8
# The kill comes when so many notes have their receipts at least, with NOTES_AT_ONCE more on their way.
KILL_AFTER_RECEIPTS: Final = 20
KILL_JITTER_S_MAX: Final = 0.005
SENDS_A_NOTE_MAX: Final = 5
RELEASE: Final = b"go on"
WAIT_MS: Final = 20_000
PAUSE_S: Final = 0.2
LOG_LINES: Final = 15
LINE_BYTES_MAX: Final = 4 * 1024 * 1024

ASSIGNER: Final = "ada"
WORKER: Final = "bob"


# ---------------------------------------------------------------------------------------------------------------------
# An agent program: it has one MCP server, configured as `fencepost agent create` says, and works by calling its tools.
# ---------------------------------------------------------------------------------------------------------------------


class McpClient:
    """One stdio MCP server as a child process: one JSON-RPC message a line, any number of calls at once."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._id = 0
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def spawn(cls, server: dict[str, Any]) -> Self:
        """Start the server that an MCP configuration entry names, and shake hands with it."""
        process = await asyncio.create_subprocess_exec(
            server["command"],
            *server["args"],
            env={**os.environ, **server["env"]},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        client = cls(process)
        about = {"name": "fencepost-demo", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
        await client.request("initialize", hello)
        client._write({"method": "notifications/initialized"})
        return client

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return its result. Ids are never used twice."""
        self._id += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[self._id] = answer
        self._write({"id": self._id, "method": method, "params": params})
        return await answer

    async def close(self) -> int:
        """Close the server's input, which ends it, and join it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(END_S_MAX):
                return await self.process.wait()
        except TimeoutError:
            self.process.kill()
            return await self.process.wait()
        finally:
            await asyncio.gather(self._reading, return_exceptions=True)

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            message = json.loads(line)
            answer = self._waiting.pop(message.get("id"), None)
            if answer is None:
                continue
            if "error" in message:
                answer.set_exception(RuntimeError(message["error"]["message"]))
            else:
                answer.set_result(message["result"])
        for answer in self._waiting.values():
            answer.set_exception(RuntimeError("the MCP server ended"))


class Agent:
    """What both agents can do: call a tool, and tell the director of the demo about it."""

    def __init__(self, client: McpClient) -> None:
        self._client = client
        self._calls = 0
        # Set once the director has seen to it that no note gets its receipt before the kill.
        self.released = asyncio.Event()

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its structured answer, errors included."""
        self._calls += 1
        number = self._calls
        tell(event="called", call=number, tool=tool, arguments=arguments)
        result = await self._client.request("tools/call", {"name": tool, "arguments": arguments})
        answer: dict[str, Any] = result["structuredContent"]
        tell(event="answered", call=number, tool=tool, answer=answer, is_error=result["isError"])
        return answer

    async def read_mail(self, seen: Callable[[dict[str, Any]], Awaitable[bool]]) -> None:
        """Wait, then receive page after page, each acknowledging the one before, until `seen` has had enough."""
        await self.call("wait_agent", timeout_ms=WAIT_MS)
        enough = False
        ack: dict[str, str] = {}
        while not enough:
            page = await self.call("receive_messages", timeout_ms=WAIT_MS, **ack)
            if page.get("ack_cursor"):
                ack = {"ack_cursor": page["ack_cursor"]}
            for message in page.get("messages", []):
                enough = await seen(message) or enough
            if "code" in page:
                await asyncio.sleep(PAUSE_S)
        await self.call("receive_messages", limit=1, **ack)

    async def read_reply(self, request_id: str) -> dict[str, Any]:
        """Return the reply to a request of ours."""
        found: list[dict[str, Any]] = []

        async def seen(message: dict[str, Any]) -> bool:
            if message["kind"] == "reply" and message["request_id"] == request_id:
                found.append(message)
            return bool(found)

        await self.read_mail(seen)
        return found[0]

    async def note(self, number: int) -> None:
        """Send one note. What is known not to be written is sent again; what is not known never is."""
        for _ in range(SENDS_A_NOTE_MAX):
            answer = await self.call("send_message", target=WORKER, message=f"note {number}")
            if answer.get("written") is not False:
                return


async def assign_one(agent: Agent) -> None:
    """Round one, as the assigner: tell something, ask something, read the answer."""
    await agent.call("send_message", target=WORKER, message="The parser is merged: Ünïcödé, 日本語 and 🎉 included.")
    request = await agent.call("followup_task", target=WORKER, message="How many words has your last information?")
    await agent.read_reply(request["request_id"])


async def work_one(agent: Agent) -> None:
    """Round one, as the worker: wait, read, answer the request."""
    words = 0

    async def seen(message: dict[str, Any]) -> bool:
        nonlocal words
        if message["kind"] == "request":
            await agent.call("reply", request_id=message["request_id"], status="done", message=f"{words} words.")
            return True
        words = len(message["message"].split())
        return False

    await agent.read_mail(seen)


async def assign_many(agent: Agent) -> None:
    """Round two, as the assigner: ask for a count, then send what is to be counted, several notes at a time."""
    request = await agent.call("followup_task", target=WORKER, message=f"Count the {NOTES} notes that I send now.")
    last = range(NOTES - NOTES_AT_ONCE + 1, NOTES + 1)
    numbers = iter(range(1, last.start))

    async def lane(last_one: int) -> None:
        for number in numbers:
            await agent.note(number)
        # However late the director looks, there is a note left whose call it can cut.
        await agent.released.wait()
        await agent.note(last_one)

    await asyncio.gather(*map(lane, last))
    await agent.read_reply(request["request_id"])


async def work_many(agent: Agent) -> None:
    """Round two, as the worker: count the notes, each by its id, and answer when all are there."""
    notes: dict[str, str] = {}
    requests: list[str] = []

    async def seen(message: dict[str, Any]) -> bool:
        if message["kind"] == "request":
            requests.append(message["request_id"])
        else:
            notes[message["interaction_id"]] = message["message"]
        return bool(requests) and len(set(notes.values())) >= NOTES

    await agent.read_mail(seen)
    counted = f"{len(notes)} notes, {len(set(notes.values()))} different ones."
    await agent.call("reply", request_id=requests[0], status="done", message=counted)


ROUNDS: Final = {(ASSIGNER, 1): assign_one, (WORKER, 1): work_one, (ASSIGNER, 2): assign_many, (WORKER, 2): work_many}


def tell(**event: Any) -> None:
    """Tell the director what just happened: one JSON line on standard output."""
    sys.stdout.write(json.dumps({"at": time.time(), **event}) + "\n")
    sys.stdout.flush()


async def be_agent(name: str, server: dict[str, Any]) -> int:
    """Be an agent program: play the rounds that standard input names, one a line, in their order; end with it."""
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    client = await McpClient.spawn(server)
    try:
        tools = (await client.request("tools/list", {}))["tools"]
        tell(event="connected", server_pid=client.process.pid, tools=len(tools))
        agent = Agent(client)
        rounds: asyncio.Queue[int] = asyncio.Queue()
        listening = asyncio.create_task(obey(orders, agent, rounds))
        while number := await rounds.get():
            await ROUNDS[name, number](agent)
            tell(event="played", round=number)
        await listening
    finally:
        code = await client.close()
    return code


async def obey(orders: asyncio.StreamReader, agent: Agent, rounds: asyncio.Queue[int]) -> None:
    """Pass orders on until there are no more; 0 for their end."""
    async for order in orders:
        if order.strip() == RELEASE:
            agent.released.set()
        else:
            rounds.put_nowait(int(order))
    rounds.put_nowait(0)


# ---------------------------------------------------------------------------------------------------------------------
# The director: starts everything, watches, kills, asks Fencepost what it knows, and judges.
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call of an agent, answered or not."""

    agent: str
    tool: str
    arguments: dict[str, Any]
    called_at: float
    answered_at: float | None = None
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def record_id(self) -> str:
        """The record that its receipt names, or nothing."""
        return str(self.answer.get("interaction_id", ""))

    @property
    def took_ms(self) -> float:
        """How long its answer took."""
        return ((self.answered_at or self.called_at) - self.called_at) * 1000

    def open_at(self, moment: float) -> bool:
        """Tell whether it had been made and not been answered then."""
        return self.called_at < moment and (self.answered_at is None or self.answered_at > moment)


@dataclass
class Player:
    """An agent program as the director sees it."""

    name: str
    agent_id: str
    process: asyncio.subprocess.Process
    changed: asyncio.Condition
    connected: dict[str, Any] = field(default_factory=dict)
    played: set[int] = field(default_factory=set)
    calls: dict[int, Call] = field(default_factory=dict)

    async def listen(self) -> None:
        """Keep what the agent tells until its output ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            async with self.changed:
                self._keep(json.loads(line))
                self.changed.notify_all()
        async with self.changed:
            self.changed.notify_all()

    def _keep(self, told: dict[str, Any]) -> None:
        if told["event"] == "connected":
            self.connected = told
        elif told["event"] == "played":
            self.played.add(told["round"])
        elif told["event"] == "called":
            call = Call(agent=self.name, tool=told["tool"], arguments=told["arguments"], called_at=told["at"])
            self.calls[told["call"]] = call
        else:
            made = self.calls[told["call"]]
            self.calls[told["call"]] = Call(
                agent=self.name,
                tool=made.tool,
                arguments=made.arguments,
                called_at=made.called_at,
                answered_at=told["at"],
                answer=told["answer"],
            )

    def order(self, number: int) -> None:
        """Have the agent play a round."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n".encode())

    def release(self) -> None:
        """Have the agent go on with what it holds back."""
        assert self.process.stdin is not None
        self.process.stdin.write(RELEASE + b"\n")


class Director:
    """Everything that the demo has started, and the claims that it checks."""

    def __init__(self, home: Home) -> None:
        self.home: Final = home
        self.project: Final = home.path.parent / "project"
        self.up_log: Final = home.path.parent / "up.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        self._env: Final = {**kept, HOME_VARIABLE: home.text}
        self._up: asyncio.subprocess.Process | None = None
        self.players: Final[dict[str, Player]] = {}
        self._listeners: Final[list[asyncio.Task[None]]] = []
        self._changed: Final = asyncio.Condition()
        self._channels: Final = Channels(home)
        self.failures: Final[list[str]] = []
        self.joined = 0
        # Processes that our children started, and join.
        self.below: Final[set[int]] = set()

    async def start_services(self) -> Status:
        """Run `fencepost up` as a child, and return its status once everything is ready."""
        self.project.mkdir()
        with self.up_log.open("ab") as log:
            self._up = await self._child("-m", "fencepost", "up", stdout=log, stderr=log)
        return await self.until_up(lambda found: found.overall is Overall.READY)

    async def until_up(self, enough: Callable[[Status], bool]) -> Status:
        """Return the supervisor's status once it is `enough`."""
        assert self._up is not None
        until = time.monotonic() + READY_S_MAX
        while not enough(found := status(self.home)):
            if self._up.returncode is not None or time.monotonic() > until:
                raise RuntimeError(f"the services did not become ready within {READY_S_MAX:g} s")
            await asyncio.sleep(0.02)
        self.below.update(service.pid for service in found.services if service.pid is not None)
        return found

    async def start_player(self, name: str) -> Player:
        """Create an agent, and start its program with the MCP configuration that the command prints."""
        created = json.loads(await self.fencepost("agent", "create", name, "--project", str(self.project), "--json"))
        server = json.dumps(created["connect"]["mcp"]["mcpServers"]["fencepost"])
        pipe = asyncio.subprocess.PIPE
        process = await self._child(__file__, name, server, stdin=pipe, stdout=pipe)
        player = Player(name=name, agent_id=created["agent"]["agent_id"], process=process, changed=self._changed)
        self.players[name] = player
        self._listeners.append(asyncio.create_task(player.listen()))
        await self.until(lambda: bool(player.connected))
        self.below.add(player.connected["server_pid"])
        return player

    async def fencepost(self, *arguments: str) -> str:
        """Run the command line as the person who owns the home, and return what it prints."""
        pipe = asyncio.subprocess.PIPE
        process = await self._child("-m", "fencepost", *arguments, stdout=pipe, stderr=pipe)
        out, err = await process.communicate()
        self.joined += 1
        if process.returncode != 0:
            raise RuntimeError(f"fencepost {' '.join(arguments)} ended with {process.returncode}: {err.decode()}")
        return out.decode()

    async def _child(self, *arguments: str, **pipes: Any) -> asyncio.subprocess.Process:
        # A session of its own: Ctrl-C reaches this process alone, which then ends everything in order. And should this
        # process be killed, the launcher sees to it that its children end too.
        program = [sys.executable, "-IS", str(launch.__file__), str(os.getpid()), "--", sys.executable, *arguments]
        pipes = {"stdin": asyncio.subprocess.DEVNULL, "limit": LINE_BYTES_MAX, **pipes}
        return await asyncio.create_subprocess_exec(*program, env=self._env, start_new_session=True, **pipes)

    async def until(self, enough: Callable[[], bool]) -> None:
        """Wait until what the agents told is `enough`; an agent that ended before is an error."""
        async with asyncio.timeout(ROUND_S_MAX), self._changed:
            while not enough():
                if any(task.done() for task in self._listeners):
                    raise RuntimeError("an agent program ended before its time")
                await self._changed.wait()

    def calls(self) -> list[Call]:
        """Return every call of both agents, in the order in which they were made."""
        return sorted((call for player in self.players.values() for call in player.calls.values()), key=_called_at)

    async def play(self, number: int) -> list[Call]:
        """Have both agents play a round, and return the calls that they made in it."""
        before = len(self.calls())
        for player in self.players.values():
            player.order(number)
        await self.until(lambda: all(number in player.played for player in self.players.values()))
        return self.calls()[before:]

    def _mailbox(self) -> Mailbox:
        return Mailbox(self._channels, Identity.operator(self.home).token)

    async def why(self, record_ids: Sequence[str]) -> list[pb.ExplainResponse]:
        """Return what `fencepost why` tells of records."""
        mailbox = self._mailbox()
        return [await mailbox.explain(record_id) for record_id in record_ids]

    async def inbox(self, player: Player) -> list[pb.Record]:
        """Return every record in an agent's inbox; looking exposes nothing."""
        found: list[pb.Record] = []
        ask = pb.ListRecordsRequest(agent_id=player.agent_id, direction=pb.DIRECTION_INBOX, page_size=100)
        while True:
            page = await self._mailbox().list_records(ask)
            found += page.records
            ask.page_token = page.next_page_token
            if not ask.page_token:
                return found

    def check(self, claim: str, *, holds: bool) -> None:
        """Say whether a claim holds; one that does not makes the demo fail."""
        say(f"  {'ok    ' if holds else 'FAILED'}  {claim}")
        if not holds:
            self.failures.append(claim)

    async def end(self) -> None:
        """End every child in order and join it: the agents by the end of their input, the services by SIGTERM."""
        await self._channels.aclose()
        for player in self.players.values():
            assert player.process.stdin is not None
            player.process.stdin.close()
        for player in self.players.values():
            await self._join(player.process)
        await asyncio.gather(*self._listeners, return_exceptions=True)
        if self._up is not None:
            with contextlib.suppress(ProcessLookupError):
                self._up.terminate()
            await self._join(self._up)

        left = {pid for pid in self.below if is_alive(pid)}
        self.failures.extend(f"process {pid} is left" for pid in sorted(left))

    async def _join(self, process: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(END_S_MAX):
                await process.wait()
        except TimeoutError:
            self.failures.append(f"process {process.pid} had to be killed")
            process.kill()
            await process.wait()
        self.joined += 1


def is_alive(pid: int) -> bool:
    """Tell whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _called_at(call: Call) -> float:
    return call.called_at


def say(text: str = "") -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# What people see of round one: the calls of both agents, and under each answer the facts that the call made.


def shown_call(call: Call) -> str:
    """Return a call as a line of the timeline."""
    if "ack_cursor" in call.arguments:
        return f"{call.tool}, acknowledging the page before"
    to = [f"to {call.arguments['target']}"] if "target" in call.arguments else []
    words = [f'"{call.arguments["message"]}"'] if "message" in call.arguments else []
    return " ".join([call.tool, *to, *words])


def shown_answer(answer: dict[str, Any]) -> str:
    """Return an answer as a line of the timeline."""
    if "messages" in answer:
        shown = [f"{message['kind']} {message['interaction_id']}" for message in answer["messages"]]
        return ", ".join(shown) or "nothing new"
    if "timed_out" in answer:
        return "nothing came" if answer["timed_out"] else "there is something to read"
    return f"receipt for {answer['interaction_id']}" if "interaction_id" in answer else f"error {answer['code']}"


def made(call: Call, record: pb.Record, fact: str) -> bool:
    """Tell whether `call` made this fact of this record."""
    if call.tool != "receive_messages":
        replied = call.answer.get("request_id") if call.tool == "reply" else None
        return {"admitted": call.record_id, "replied": replied}.get(fact) == record.record_id
    if call.agent != record.recipient.name:
        return False
    shown = any(message["interaction_id"] == record.record_id for message in call.answer.get("messages", []))
    return fact == "exposed" if shown else fact == "acknowledged" and "ack_cursor" in call.arguments


def timeline(calls: Sequence[Call], told: Sequence[pb.ExplainResponse]) -> list[str]:
    """Return the lines of a round: who called what when, how long it took, and the facts that stand since."""
    start = calls[0].called_at
    facts = [
        (why.record, fact, fact.at_ms - why.facts[at - 1].at_ms if at else None)
        for why in told
        for at, fact in enumerate(why.facts)
    ]
    lines = [(call.called_at, [shown_call(call)], call.agent) for call in calls]
    for call in sorted(calls, key=lambda call: call.answered_at or 0):
        under = [f"   {shown_answer(call.answer)}  ({call.took_ms:.1f} ms)"]
        for entry in [entry for entry in facts if made(call, entry[0], entry[1].fact)]:
            facts.remove(entry)
            record, fact, after_ms = entry
            # The first fact of a record has none before it: it is counted from the call that made it.
            first_ms = fact.at_ms - int(call.called_at * 1000)
            after = f"{first_ms} ms after the call" if after_ms is None else f"{after_ms} ms after the fact before"
            under.append(f"      * {fact.fact:<13}{record.record_id}  {after}")
        lines.append((call.answered_at or 0, under, call.agent))
    return [
        f"{(at - start) * 1000:7.1f}  {agent}  {text}" if place == 0 else f"{'':14}{text}"
        for at, texts, agent in sorted(lines, key=lambda line: line[0])
        for place, text in enumerate(texts)
    ]


async def round_one(director: Director) -> None:
    """An exchange: information, a request, its reply."""
    say(f"\nROUND 1   {ASSIGNER} tells {WORKER} something and asks for an answer\n")
    calls = await director.play(1)
    told = await director.why([call.record_id for call in calls if call.record_id])
    say("     ms  who  calls, answers, and the facts (*) that are durable since, with their latency")
    for line in timeline(calls, told):
        say(line)
    say()
    _, request, reply = told
    correlated = request.reply_id == reply.record.record_id and reply.record.parent_id == request.record.record_id
    director.check(f"{reply.record.record_id} answers {request.record.record_id}", holds=correlated)
    read = {
        message["interaction_id"]
        for call in calls
        if call.agent == ASSIGNER
        for message in call.answer.get("messages", [])
    }
    director.check(f"{ASSIGNER} has read that reply, and nothing else", holds=read == {reply.record.record_id})


@dataclass(frozen=True, kw_only=True)
class Kill:
    """The mailbox was killed at `at`, and was ready again, as another process, at `ready_at`."""

    at: float
    ready_at: float
    pid: int
    new_pid: int


def mailbox_of(found: Status) -> ServiceStatus:
    """Return the mailbox's line of a status."""
    return next(service for service in found.services if service.name == MAILBOX)


async def kill_mailbox(director: Director, earlier: int) -> Kill:
    """SIGKILL the mailbox in the middle of its work, with NOTES_AT_ONCE calls open; see it come back."""

    def sends() -> list[Call]:
        return [call for call in director.calls() if call.tool == "send_message"][earlier:]

    pid = mailbox_of(status(director.home)).pid
    assert pid is not None
    await director.until(lambda: sum(bool(call.record_id) for call in sends()) >= KILL_AFTER_RECEIPTS)
    # At no particular moment of the work on a batch. From there on it is held still, so that what is open stays open
    # until all of it has been told of, on however slow a machine.
    await asyncio.sleep(random.uniform(0, KILL_JITTER_S_MAX))
    os.kill(pid, signal.SIGSTOP)
    try:
        director.players[ASSIGNER].release()
        await director.until(lambda: sum(call.answered_at is None for call in sends()) == NOTES_AT_ONCE)
    finally:
        at = time.time()
        os.kill(pid, signal.SIGKILL)
    after = await director.until_up(
        lambda found: found.overall is Overall.READY and mailbox_of(found).pid not in {None, pid}
    )
    return Kill(at=at, ready_at=time.time(), pid=pid, new_pid=mailbox_of(after).pid or 0)


async def round_two(director: Director) -> None:
    """The same under fire: the mailbox is killed while calls are open."""
    say(f"\nROUND 2   {ASSIGNER} asks {WORKER} to count {NOTES} notes and sends them, {NOTES_AT_ONCE} at a time;")
    say("          the mailbox is killed under way\n")
    earlier = sum(1 for call in director.calls() if call.tool == "send_message")
    killing = asyncio.create_task(kill_mailbox(director, earlier))
    try:
        calls = await director.play(2)
        kill = await killing
    finally:
        killing.cancel()
    start = calls[0].called_at
    lost = [call for call in calls if call.open_at(kill.at)]
    tools = Counter(f"{call.tool} of {call.agent}" for call in lost)
    say(f"{(kill.at - start) * 1000:7.1f}  SIGKILL to the mailbox, process {kill.pid}")
    say(f"{'':9}open calls: {', '.join(f'{count} {what}' for what, count in tools.items()) or 'none'}")
    say(f"{(kill.ready_at - start) * 1000:7.1f}  it is ready again over the same store, as process {kill.new_pid};")
    say(f"{'':9}both agents and their MCP servers have outlived it\n")
    await show_lost(director, calls, [call for call in lost if call.tool == "send_message"], kill)
    await judge(director, calls, lost)


async def show_lost(director: Director, calls: Sequence[Call], lost: Sequence[Call], kill: Kill) -> None:
    """Say what became of each note whose call was open at the kill."""
    say("What became of the notes whose calls were open:")
    for call in lost:
        note = call.arguments["message"]
        took = f"({call.took_ms:.0f} ms)"
        if call.record_id:
            (told,) = await director.why([call.record_id])
            if (call.answered_at or 0) < kill.ready_at:
                became = "written, and its receipt was on its way"
            elif told.facts[0].at_ms <= kill.at * 1000:
                became = "written before the kill; the lost receipt was recovered"
            else:
                became = "had not reached the mailbox; written after the restart"
            say(f"  {note:<8} {became}: {call.record_id} {took}")
        elif call.answer.get("written") is False:
            again = [later for later in calls if later.record_id and later.arguments.get("message") == note]
            ids = ", ".join(later.record_id for later in again)
            say(f"  {note:<8} proved not written {took}, so {ASSIGNER} sent it again: {ids}")
        else:
            say(f"  {note:<8} NOT KNOWN: {call.answer}")
    say()


async def judge(director: Director, calls: Sequence[Call], lost: Sequence[Call]) -> None:
    """Hold what the agents were told against what the mailbox has."""
    receipts = [call.record_id for call in calls if call.tool == "send_message" and call.record_id]
    stored = [record for record in await director.inbox(director.players[WORKER]) if record.body.startswith("note ")]
    (request_id,) = (call.record_id for call in calls if call.tool == "followup_task")
    (request,) = await director.why([request_id])
    replies = [
        message
        for call in calls
        if call.agent == ASSIGNER
        for message in call.answer.get("messages", [])
        if message["kind"] == "reply"
    ]
    say(f"`fencepost why {request_id}`:\n")
    say("  " + (await director.fencepost("why", request_id)).strip().replace("\n", "\n  ") + "\n")
    times = Counter(record.body for record in stored)
    expected = {f"note {number}" for number in range(1, NOTES + 1)}
    director.check(f"calls were open when the mailbox was killed: {len(lost)}", holds=bool(lost))
    director.check("each of them ended in a receipt, or in the proof that nothing was written", holds=all(known(lost)))
    director.check(f"nothing is lost: {WORKER} has all {NOTES} notes", holds=set(times) == expected)
    director.check("nothing is doubled: each of them is there once", holds=set(times.values()) == {1})
    same = sorted(receipts) == sorted(record.record_id for record in stored)
    director.check(f"the ids of {ASSIGNER}'s {len(receipts)} receipts are the ids of {WORKER}'s notes", holds=same)
    facts = Counter(fact.fact for fact in request.facts)
    answered = len(replies) == 1 and replies[0]["interaction_id"] == request.reply_id and facts["replied"] == 1
    director.check(f'the request has one reply, and {ASSIGNER} has it: "{replies[0]["message"]}"', holds=answered)


def known(calls: Sequence[Call]) -> list[bool]:
    """Tell of each call whether its outcome is known; a call that only reads was answered, or simply asked again."""
    return ["code" not in call.answer or call.answer.get("written") is False for call in calls]


async def direct(director: Director) -> None:
    """Play the whole demo."""
    began = time.monotonic()
    say("Fencepost demo: two agents exchange messages through durable services, one of which is killed under way.\n")
    found = await director.start_services()
    say(f"home      {director.home.text}  (removed at the end)")
    pids = ", ".join(f"{service.name} {service.pid}" for service in found.services)
    say(f"services  {pids}  (processes; ready in {time.monotonic() - began:.1f} s)")
    for player in await asyncio.gather(*(director.start_player(name) for name in (ASSIGNER, WORKER))):
        server, tools = player.connected["server_pid"], player.connected["tools"]
        pids = f"program {player.process.pid}, its MCP server {server} with {tools} tools"
        say(f"agent     {player.name} {player.agent_id}: {pids}")
    await round_one(director)
    await round_two(director)


def short_folder() -> Path:
    """Return a new temporary folder whose path leaves room for the names of sockets."""
    for parent in (None, "/tmp"):
        folder = Path(tempfile.mkdtemp(prefix="fp-", dir=parent)).resolve()
        try:
            Home(folder / "home").check_socket_paths()
        except Refused:
            folder.rmdir()
        else:
            return folder
    raise RuntimeError("no temporary folder with a short path")


async def run_demo(folder: Path) -> int:
    """Run the demo, end everything that it started, and return the exit code."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def interrupt(number: int) -> None:
        task.cancel()
        # A second signal of this kind ends us at once; the launcher then sees to it that our children end too.
        loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt, number)
    began = time.monotonic()
    director = Director(Home(folder / "home"))
    try:
        async with asyncio.timeout(DEMO_S_MAX):
            await direct(director)
    except (RuntimeError, TimeoutError) as error:
        director.failures.append(f"the demo could not go on: {str(error) or type(error).__name__}")
        for log in [director.up_log, *sorted(director.home.logs.glob("*.log"))]:
            if log.exists():
                say(f"\n{log.name}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]))
    finally:
        await director.end()
    say(f"\n{director.joined} child processes were joined, and {len(director.below)} below them by their own parents.")
    say(f"{time.monotonic() - began:.1f} s in all; the home is removed.")
    for failure in director.failures:
        say(f"FAILED: {failure}")
    return 1 if director.failures else 0


def main() -> int:
    """Be the director, or with arguments an agent program of the demo."""
    if len(sys.argv) == 3:
        return asyncio.run(be_agent(sys.argv[1], json.loads(sys.argv[2])))
    folder = short_folder()
    try:
        return asyncio.run(run_demo(folder))
    except (KeyboardInterrupt, asyncio.CancelledError):
        say("\nInterrupted; every child process has ended.")
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
