"""Kills services under load and judges what clients saw: python tests/chaos/run.py --kills N [--seed S].

A throw-away home, the real services, eight agents (six through the client library, two through their MCP shims) that
send, ask, read, acknowledge and answer, three that give, take and do tasks, a dispatcher that races the others for
requests, and two people who work on the directory. Every process writes down what it did; when all is quiet again an
auditor holds that to what is on disk. Exits with 0 only where every promise held. How to read it: docs/howto/chaos.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from fencepost_chaos import auditor, directory, history, laborers, plan, state, task_audit  # noqa: E402
from fencepost_chaos.client import Configuration  # noqa: E402
from fencepost_chaos.keeper import Ended, Keeper, Service  # noqa: E402
from fencepost_chaos.report import OPEN_SHARE_MIN, Report  # noqa: E402
from fencepost_chaos.workload import Peer  # noqa: E402

from fencepost.client import Channels, Mailbox, Sessions, Tasks  # noqa: E402
from fencepost.common.v1 import common_pb2  # noqa: E402
from fencepost.errors import FencepostError, Refused  # noqa: E402
from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS, Home, read_credential  # noqa: E402
from fencepost.sessions.v1 import sessions_pb2  # noqa: E402
from fencepost_mailbox.domain.values import Origin  # noqa: E402
from fencepost_testing.processes import dying_with_us, environment  # noqa: E402

ROOT: Final = HERE.parents[1]
AGENTS: Final = ("ann", "bob", "cy", "dee", "eve", "fay", "gus", "hal")
OVER_MCP: Final = frozenset({"gus", "hal"})
# Gives up on answers that are only slow, and settles while its call may still be on its way.
IMPATIENT: Final = "fay"
IMPATIENT_CALL_MS: Final = 25
CLAIMABLE: Final = ("ann", "bob")
VICTIMS: Final = ("vic", "wim")
SECONDS_BASE: Final = 60
SECONDS_A_KILL: Final = 2.0
KILLS_MAX: Final = 10_000
READY_S_MAX: Final = 60.0
# What comes after the last kill: senders end, everything is read and answered, the services stop.
STOP_S_MAX: Final = 100.0
DRAIN_S_MAX: Final = 60.0
END_S_MAX: Final = 20.0
# How many of the acknowledged records are asked for by API; all of them are looked up in the database.
SHOWN: Final = 100
# The first round reads and answers the requests, the second reads those answers.
DRAINS: Final = 2


@dataclass(kw_only=True)
class Client:
    """A client process."""

    name: str
    process: asyncio.subprocess.Process
    history: Path
    errors: Path

    async def hears(self, word: str, within_s: float) -> None:
        """Tell it something, and return when it says that it is done.

        Raises:
            Ended: it ended, or did not answer in time.
        """
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(f"{word}\n".encode())
            await self.process.stdin.drain()
        await self.says(word, within_s)

    async def says(self, word: str, within_s: float) -> None:
        """Return when it says so; see hears()."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(within_s):
                said = (await self.process.stdout.readline()).decode().strip()
        except TimeoutError:
            raise Ended(f"client {self.name} did not get to {word!r} within {within_s} s\n{self._tail()}") from None
        if said != word:
            raise Ended(f"client {self.name} ended before {word!r}\n{self._tail()}")

    async def close(self) -> None:
        """Close its input, which ends it, and join it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(END_S_MAX):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    def _tail(self) -> str:
        return self.errors.read_text(errors="replace")[-3000:]


@dataclass(kw_only=True)
class Run:
    """One run and everything that it has started."""

    home: Home
    folder: Path
    seed: str
    kills: int
    until: float
    services: dict[str, Service] = field(default_factory=dict)
    clients: list[Client] = field(default_factory=list)
    agents: dict[str, Peer] = field(default_factory=dict)
    project_id: str = ""
    first_tokens: dict[str, str] = field(default_factory=dict)
    tasks: list[task_audit.Seen] = field(default_factory=list)
    shortcomings: list[str] = field(default_factory=list)

    # --- before ----------------------------------------------------------------------------------------------------

    async def start(self) -> dict[str, list[plan.Planned]]:
        """Start the services, learn their fault points, create the agents; returns the plan."""
        self.services = {name: Service(self.home, name) for name in (SESSIONS, MAILBOX, MCP_EDGE)}
        # The others need what sessions makes when it starts for the first time.
        await self._started(self.services[SESSIONS])
        found = await asyncio.gather(
            *(service.points() for service in self.services.values()),
            *(self._started(self.services[name]) for name in (MAILBOX, MCP_EDGE)),
        )
        points = dict(zip(self.services, found, strict=False))
        await self._create_agents()
        return plan.plan(kills=self.kills, seed=self.seed, points=points)

    @staticmethod
    async def _started(service: Service) -> list[str]:
        await service.spawn()
        if not await service.ready():
            raise Ended(f"{service.name} ended by itself\n{service.tail()}")
        return []

    async def _create_agents(self) -> None:
        person = read_credential(self.home.operator_credential)
        location = self.folder / "project"
        location.mkdir()
        async with Channels(self.home) as channels:
            sessions = Sessions(channels, person)
            ensured = await sessions.ensure_project(
                sessions_pb2.EnsureProjectRequest(
                    idempotency_key=uuid.uuid4().hex,
                    kind=sessions_pb2.PROJECT_KIND_FOLDER,
                    location=str(location.resolve()),
                )
            )
            self.project_id = ensured.project.project_id
            for name in (*AGENTS, *laborers.STEPS, *VICTIMS):
                created = await sessions.create_agent(
                    sessions_pb2.CreateAgentRequest(
                        idempotency_key=uuid.uuid4().hex,
                        project_id=self.project_id,
                        name=name,
                        role=common_pb2.ROLE_AGENT,
                    )
                )
                agent_id = created.agent.agent_id
                self.agents[name] = Peer(name=name, agent_id=agent_id)
                self.first_tokens[agent_id] = read_credential(self.home.agent_credential(agent_id))

    async def connect(self) -> None:
        """Start the client processes."""
        for name in AGENTS:
            others = [self.agents[other] for other in AGENTS if other != name]
            kind = "mcp" if name in OVER_MCP else "grpc"
            await self._client(kind, name, agents=(self.agents[name], *others))
        await self._client("tasks", "tasks", agents=tuple(self.agents[name] for name in laborers.STEPS))
        await self._client(
            "hosts",
            "hosts",
            claimable=tuple(self.agents[name] for name in CLAIMABLE),
            victims=tuple(self.agents[name] for name in VICTIMS),
        )
        await asyncio.gather(*(client.says("ready", READY_S_MAX) for client in self.clients))

    async def _client(
        self,
        kind: str,
        name: str,
        *,
        agents: tuple[Peer, ...] = (),
        claimable: tuple[Peer, ...] = (),
        victims: tuple[Peer, ...] = (),
    ) -> None:
        configuration = Configuration(
            kind=kind,
            name=name,
            home=str(self.home.path),
            history=str(self.folder / f"{name}.jsonl"),
            seed=self.seed,
            agents=agents,
            claimable=claimable,
            victims=victims,
            project_id=self.project_id,
            call_ms=IMPATIENT_CALL_MS if name == IMPATIENT else 0,
        )
        given = filter(None, (os.environ.get("PYTHONPATH", ""),))
        paths = os.pathsep.join((str(HERE), str(HERE.parent / "support"), *given))
        errors = self.folder / f"{name}.err"
        with errors.open("wb") as written:
            process = await asyncio.create_subprocess_exec(
                *dying_with_us(sys.executable, "-m", "fencepost_chaos.client", configuration.text()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=written,
                env=environment(self.home, {"PYTHONPATH": paths}),
                start_new_session=True,
            )
        self.clients.append(Client(name=name, process=process, history=Path(configuration.history), errors=errors))

    # --- the kills ---------------------------------------------------------------------------------------------------

    async def chaos(self, planned: dict[str, list[plan.Planned]]) -> None:
        """Carry out the plan while the clients work, then have every service running again."""
        await self._all("go", READY_S_MAX)
        with (self.folder / "kills.jsonl").open("w", encoding="utf-8") as file:
            log = history.Log(file)
            keepers = [Keeper(self.services[name], items, log) for name, items in planned.items()]
            running = asyncio.gather(*(keeper.run() for keeper in keepers))
            try:
                async with asyncio.timeout_at(self.until):
                    await running
            except TimeoutError:
                self.shortcomings.append("the time was over before the last kill")
                for service in self.services.values():
                    await service.kill()
                await asyncio.gather(*(keeper.restore() for keeper in keepers))
            for keeper in keepers:
                self.shortcomings += [
                    f"the fault point {point} was not reached by {plan.REACHED[point].by}" for point in keeper.missed
                ]
                self.shortcomings += [
                    f"the fault point {point} was not tried to the end: too long was waited for others"
                    for point in sorted(keeper.untried)
                ]

    async def _all(self, word: str, within_s: float) -> None:
        await asyncio.gather(*(client.hears(word, within_s) for client in self.clients))

    # --- after -------------------------------------------------------------------------------------------------------

    async def settle_down(self) -> list[auditor.Violation]:
        """Let everybody finish; ask the services what they know; stop them."""
        await self._all("stop", STOP_S_MAX)
        violations = await self._deletions_end()
        for _ in range(DRAINS):
            await self._all("drain", DRAIN_S_MAX)
        for client in self.clients:
            await client.close()
        # What was deleted stays so over a start that nobody forced.
        for name in (MAILBOX, SESSIONS):
            await self.services[name].stop()
            await self._started(self.services[name])
        seen = self._written_down()
        async with Channels(self.home) as channels:
            sessions = Sessions(channels, read_credential(self.home.operator_credential))
            agents = await directory.listed(sessions, self.project_id)
            violations += await directory.audit_credentials(channels, agents, self.first_tokens)
            violations += directory.audit_directory(seen.directed, agents)
            living = read_credential(self.home.agent_credential(self.agents[AGENTS[0]].agent_id))
            asked = [await directory.ask_deleted(channels, sessions, doomed, living) for doomed in seen.doomed]
            violations += directory.audit_deleted(asked)
            violations += await self._shown(channels, seen)
            person = Tasks(channels, read_credential(self.home.operator_credential))
            self.tasks = await task_audit.all_tasks(person, self.project_id)
            violations += task_audit.audit_tasks(seen.tasked, self.tasks)
        for name in (MCP_EDGE, MAILBOX, SESSIONS):
            await self.services[name].stop()
        return violations

    def _written_down(self) -> history.History:
        return history.History.of(history.read(client.history for client in self.clients))

    async def _deletions_end(self) -> list[auditor.Violation]:
        """Wait for the end of every deletion that was begun, which comes by itself; all have the same time for it."""
        until = time.monotonic() + directory.DELETION_ENDS_S_MAX
        violations: list[auditor.Violation] = []
        async with Channels(self.home) as channels:
            sessions = Sessions(channels, read_credential(self.home.operator_credential))
            for doomed in self._written_down().doomed:
                if not await directory.ends(sessions, doomed, within_s=max(0.0, until - time.monotonic())):
                    text = f"{doomed.agent} is not deleted {directory.DELETION_ENDS_S_MAX} s after it was asked for"
                    violations.append(auditor.Violation(broken=auditor.Broken.UNDEAD, text=text))
        return violations

    async def _shown(self, channels: Channels, seen: history.History) -> list[auditor.Violation]:
        """Ask for some of the acknowledged records as a person would, whatever the database holds."""
        mailbox = Mailbox(channels, read_credential(self.home.operator_credential))
        erased = {doomed.agent for doomed in seen.doomed}
        done = [
            mutation
            for mutation in seen.mutations
            if mutation.outcome is history.Outcome.DONE and mutation.recipient not in erased
        ]
        violations: list[auditor.Violation] = []
        for mutation in random.Random(f"{self.seed} shown").sample(done, min(SHOWN, len(done))):
            try:
                record = (await mailbox.get_record(mutation.record_id)).record
            except Refused as refused:
                text = f"{mutation.record_id} is refused as {refused.reason}"
                violations.append(auditor.Violation(broken=auditor.Broken.LOST, text=text))
                continue
            if (history.digest(record.body), record.sender.agent_id) != (mutation.body, mutation.sender):
                text = f"{mutation.record_id} is shown as another"
                violations.append(auditor.Violation(broken=auditor.Broken.CHANGED, text=text))
        return violations

    async def close(self) -> None:
        """End and join everything that still runs."""
        for client in self.clients:
            if client.process.returncode is None:
                await client.close()
        for service in self.services.values():
            with contextlib.suppress(AssertionError):
                if service.process.returncode is None:
                    await service.kill()

    def judged(self, violations: Sequence[auditor.Violation], seconds: float) -> Report:
        """Hold the history to the database."""
        paths = [client.history for client in self.clients]
        seen = history.History.of(history.read([*paths, self.folder / "kills.jsonl"]))
        kept = state.load(self.home.database(MAILBOX))
        found = [*auditor.audit(seen, kept), *violations]
        counts = auditor.count(seen, kept, found)
        shortcomings = list(self.shortcomings)
        if counts.kills < self.kills:
            shortcomings.append(f"{counts.kills} kills instead of {self.kills}")
        if counts.kills_while_a_call_was_open < counts.kills * OPEN_SHARE_MIN:
            shortcomings.append("fewer than half of the kills came while a call was open")
        return Report(
            seed=self.seed,
            seconds=seconds,
            wanted_kills=self.kills,
            clients=[client.name for client in self.clients],
            counts=counts,
            tasks=task_audit.count_tasks(seen.tasked, self.tasks),
            hits=auditor.hits(seen),
            violations=found,
            shortcomings=shortcomings,
            repeats_of_a_key=sum(bool(mutation.again) for mutation in seen.mutations),
            pages=len(seen.pages),
            claimed=len(seen.claims),
            directory_calls=len(seen.directed),
            answered_by_the_host=sum(record.origin is Origin.HOST for record in kept.records),
        )


@contextlib.asynccontextmanager
async def running(run: Run) -> AsyncIterator[Run]:
    """Whatever happens, nothing of the run stays behind."""
    try:
        yield run
    finally:
        await run.close()


async def carried_out(run: Run) -> Report:
    """Do it all."""
    began = time.monotonic()
    async with running(run):
        planned = await run.start()
        await run.connect()
        await run.chaos(planned)
        violations = await run.settle_down()
        return run.judged(violations, time.monotonic() - began)


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--seed", default="", help="what decides every choice (default: a new one, printed)")
    parser.add_argument("--seconds-max", type=float, default=0.0, help="time for the kills (default: grows with them)")
    parser.add_argument("--keep", action="store_true", help="keep the home, logs and histories, and say where")
    arguments = parser.parse_args(argv)
    if not 1 <= arguments.kills <= KILLS_MAX:
        parser.error(f"--kills is 1 to {KILLS_MAX}")
    return arguments


async def main(arguments: argparse.Namespace, folder: Path) -> int:
    """Run and report; returns the exit code."""
    task = asyncio.current_task()
    assert task is not None
    # Whoever runs out of patience first says TERM: what was started is ended then too.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    seed = arguments.seed or secrets.token_hex(4)
    print(f"chaos: seed {seed}, {arguments.kills} kills", flush=True)
    seconds = arguments.seconds_max or SECONDS_BASE + SECONDS_A_KILL * arguments.kills
    run = Run(
        home=Home(folder / "h"),
        folder=folder,
        seed=seed,
        kills=arguments.kills,
        until=asyncio.get_running_loop().time() + seconds,
    )
    try:
        report = await carried_out(run)
    except (Ended, FencepostError, plan.Unreachable) as ended:
        print(f"chaos: FAILED, seed {seed}: {ended}", flush=True)
        return 1
    report.write(ROOT / "build" / "chaos.json")
    print(report.text(), flush=True)
    return 0 if report.good else 1


if __name__ == "__main__":
    asked = parsed(sys.argv[1:])
    # Short: socket paths have a limit.
    place = Path(tempfile.mkdtemp(prefix="fpc"))
    code = 1
    try:
        code = asyncio.run(main(asked, place))
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("chaos: stopped before its end", flush=True)
    finally:
        if asked.keep or code:
            print(f"chaos: kept in {place}", flush=True)
        else:
            shutil.rmtree(place, ignore_errors=True)
    raise SystemExit(code)
