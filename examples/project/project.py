"""A project of four agents, from the first assignment to the last merge: `python examples/project/project.py`.

Read STEPS first, then the steps from top to bottom. Every line of the timeline that it prints is a call of an agent's
MCP tool, or a command of the person who owns the home. Ends by itself, within a minute or the number of seconds given;
the exit status says whether every claim held.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import work
from agents import Agent, Refused, git, run, say, tell
from house import House, without_ours

RUN_S_MAX: Final = 57
COORDINATOR: Final = "lea"


class Project:
    """The agents, the tasks by their titles, and what was claimed."""

    def __init__(self, house: House) -> None:
        self.house: Final = house
        self.agents: Final[dict[str, Agent]] = {}
        self.tasks: Final[dict[str, str]] = {}
        self.claims = 0
        self.failures: Final[list[str]] = []
        # Who wins the pool task that two agents want, and who loses it, and is killed later.
        self.winner = self.loser = ""
        self.histories: dict[str, list[dict[str, Any]]] = {}

    def check(self, claim: str, *, holds: bool) -> None:
        """Say whether a claim holds; one that does not makes the run fail."""
        say(f"{'':8}{'ok    ' if holds else 'FAILED'}    {claim}")
        self.claims += 1
        if not holds:
            self.failures.append(claim)

    def person(self, *words: str) -> str:
        """Run a command of the person who owns the home, and show it."""
        tell("person", f"$ fencepost {shlex.join(words)}")
        return self.house.fencepost(*words)

    def named(self, title: str, answer: dict[str, Any]) -> None:
        """Remember a new task by its title."""
        self.tasks[title] = answer["id"]
        Agent.titles[answer["id"]] = title

    def words(self, title: str) -> dict[str, Any]:
        """Return what a task is about."""
        return {"description": work.DESCRIPTIONS[title], "acceptance": work.ACCEPTANCE[title]}


# What workers and the coordinator do again and again.


async def start(agent: Agent, task_id: str, *files: str, kind: str = "assigned") -> dict[str, Any]:
    """Start a task once it may be, and reserve its files for as long as it is worked on."""
    task = await agent.told(kind, task_id)
    started = await agent.call("task_start", task_id=task_id, revision=task["revision"])
    await reserve(agent, started, *files)
    return started


async def reserve(agent: Agent, started: dict[str, Any], *files: str) -> None:
    """Reserve files, bound to an attempt: they are released when it is submitted, or when it ends otherwise."""
    first, *more = files
    named: dict[str, Any] = {"file_path": first} | ({"more_paths": more} if more else {})
    answer = await agent.call("file_reserve", **named, attempt_id=started["attempt_id"])
    assert answer["reserved"], answer


async def submit(agent: Agent, started: dict[str, Any], files: dict[str, str], result: str) -> None:
    """Commit in the agent's own checkout, report that commit as evidence, and submit: the next task may be started."""
    commit = agent.commit(files, result)
    reported = await agent.call("evidence_add", task_id=started["id"], kind="commit", commit=commit)
    await agent.call(
        "task_submit",
        task_id=started["id"],
        revision=started["revision"],
        result=result,
        evidence=f"{', '.join(files)} in {commit}",
        evidence_ids=[reported["evidence_id"]],
    )


async def review(project: Project, title: str) -> bool:
    """As the coordinator: run the acceptance in the worker's checkout, and record the verdict."""
    lea, task_id = project.agents[COORDINATOR], project.tasks[title]
    task = await lea.told("review", task_id)
    accepted = project.agents[task["assignee"]["name"]].check(work.ACCEPTANCE[title])
    feedback = "It does what was asked." if accepted else "The acceptance fails: numbers like 1e1."
    verdict = {"accepted": accepted, "feedback": feedback}
    await lea.call("task_review", task_id=task_id, revision=task["revision"], **verdict)
    return accepted


async def integrate(project: Project, title: str) -> None:
    """As the coordinator: have the commit of accepted work merged into the main checkout."""
    lea, task_id = project.agents[COORDINATOR], project.tasks[title]
    accepted = (await lea.call("task_get", task_id=task_id))["task"]
    (evidence,), _ = await lea.pages(
        "evidence_list", "evidence", task_id=task_id, evidence_ids=accepted["evidence_ids"]
    )
    told = await lea.call("task_integrate", task_id=task_id, commit=evidence["commit"])
    contained = run(
        project.house.main, "git", "merge-base", "--is-ancestor", evidence["commit"], "main", check=False
    ).returncode
    project.check(f"{title} is in the main checkout: {told['integration']}", holds=contained == 0)


async def answer(project: Project) -> None:
    """Ann answers what she was asked; whoever asked supervises that until the answer is acknowledged."""
    ann, winner = project.agents["ann"], project.agents[project.winner]
    await ann.told("messages")
    (asked,) = (await ann.call("agent_inbox"))["messages"]
    await ann.call("agent_reply", request_id=asked["message_id"], outcome="succeeded", body="It is free now.")
    await ann.call("agent_ack", ids=[asked["message_id"]])
    await winner.told("messages")
    (replied,) = (await winner.call("agent_inbox"))["messages"]
    left = await winner.call("agent_ack", ids=[replied["message_id"]])
    project.check(f"{winner.name} supervises no question any more", holds=left["pending_count"] == 0)


# The steps.


async def gather(project: Project) -> None:
    """Services, a repository, a coordinator in the main checkout, three workers each in their own."""
    house = project.house
    house.found(work.FOUNDED)
    began = time.monotonic()
    house.up()
    tell("person", f"$ fencepost up: the services are ready in {time.monotonic() - began:.1f} s")
    checkouts = {
        COORDINATOR: house.main,
        "ann": house.worktree("ann"),
        "bob": house.worktree("bob"),
        "cy": house.clone("cy"),
    }
    for name, checkout in checkouts.items():
        role = "coordinator" if name == COORDINATOR else "agent"
        project.agents[name] = await Agent.begin(name, checkout, house.agent(name, checkout, role=role))
        kind = {COORDINATOR: "main checkout", "cy": "clone"}.get(name, "worktree")
        tell("person", f"$ fencepost agent create {name} --role {role}: in its {kind}")


async def plan(project: Project) -> None:
    """The coordinator publishes what everybody needs, queues work and yields; nothing of it waits for anybody."""
    lea = project.agents[COORDINATOR]
    listed = (await lea.call("agent_list"))["agents"]
    found = {agent["name"]: agent["checkout_root"] for agent in listed}
    where = {name: str(agent.checkout) for name, agent in project.agents.items()}
    project.check("lea finds the others, and where each works", holds=found == where)
    await lea.call("project_memory_update", content=work.MEMORY, expected_version=0)
    published = await lea.call("context_publish", key="grammar", content=work.GRAMMAR, pinned=True)
    refs = {"context_refs": [{"key": "grammar", "version": published["version"]}]}
    for title, after, more in (("lexer", [], refs), ("benchmark", [], {}), ("parser", ["lexer"], refs)):
        dependencies = [project.tasks[one] for one in after]
        task = {"to": "ann", "dependencies": dependencies, **project.words(title), **more}
        project.named(title, await lea.call("task_assign", **task))
    for title in ("tests", "command"):
        pool = {"eligible": ["bob", "cy"]}
        project.named(title, await lea.call("task_create_pool", **project.words(title), **pool))
    parser = await lea.call("task_get", task_id=project.tasks["parser"])
    project.check("the parser is blocked until the lexer is accepted", holds=parser["task"]["state"] == "blocked")
    project.check("lea yields, and goes on supervising all five", holds=await lea.yields() == 5)


async def begin(project: Project) -> None:
    """Ann starts the first of her queue; Bob and Cy want the same task of the pool, and one of them has it."""
    ann = project.agents["ann"]
    known = await ann.call("project_bootstrap")
    grammar = await ann.call("context_get", key=known["pinned"][0]["key"])
    project.check("ann reads what lea published", holds=grammar["content"] == work.GRAMMAR)
    await start(ann, project.tasks["lexer"], "lexer.py")
    busy = await ann.refused("task_start", task_id=project.tasks["benchmark"], revision=1)
    project.check(
        f"one task at a time ({busy['code']})", holds="An assigned task is already running" in busy["message"]
    )

    async def claim(name: str) -> tuple[str, dict[str, Any]]:
        try:
            return name, await project.agents[name].call("task_claim", task_id=project.tasks["tests"])
        except Refused as refused:
            return name, refused.answer

    for name in ("bob", "cy"):
        await project.agents[name].told("pool", project.tasks["tests"])
    claims = sorted(await asyncio.gather(claim("bob"), claim("cy")), key=lambda one: "code" in one[1])
    (project.winner, won), (project.loser, lost) = claims
    project.check(f"{project.winner} alone has the task", holds="code" not in won and lost.get("written") is False)
    winner, loser = project.agents[project.winner], project.agents[project.loser]
    await reserve(winner, won, "test_calc.py")
    asked = await winner.call("file_reserve", file_path="lexer.py", reason="a hook for the tests")
    refused = not asked["reserved"] and asked["holder"]["name"] == "ann"
    project.check("lexer.py is not reserved for two: ann holds it", holds=refused)
    listed = (await winner.call("agent_list"))["agents"]
    working = {agent["name"]: agent["status"] for agent in listed}["ann"] == "working"
    project.check("ann is seen to be working", holds=working)
    question = {"to": "ann", "body": "Tell me when lexer.py is free, please.", "expects_result": True}
    await winner.call("agent_send", **question)
    await loser.told("pool", project.tasks["command"])
    claimed = await loser.call("task_claim", task_id=project.tasks["command"])
    await reserve(loser, claimed, "calc.py")
    await submit(winner, won, {"test_calc.py": work.TESTS}, "A table of tests")


async def kill(project: Project) -> None:
    """An agent is killed in the middle of its work: nobody else is given it before the person has decided."""
    lea, winner, loser = (project.agents[name] for name in (COORDINATOR, project.winner, project.loser))
    command = project.tasks["command"]
    await loser.call("task_progress", task_id=command, revision=1, note="half of it", percent=50)
    (loser.checkout / "calc.py").write_text(work.HALF_A_COMMAND, encoding="utf-8")
    old = (await loser.call("task_get", task_id=command))["task"]["attempt"]["attempt_id"]
    stale = project.house.keep_credential(loser.server)
    await loser.client.kill()
    tell(loser.name, "KILLED")
    project.person("agent", "renew", loser.name)
    shown = await lea.told("unknown", command)
    unknown = (shown["state"], shown["attempt"]["certainty"]) == ("running", "unknown")
    project.check(f"whether {loser.name}'s attempt still runs is unknown, and said so", holds=unknown)

    told = await winner.refused("task_claim", task_id=command)
    project.check(f"{winner.name} is not given the work ({told['code']})", holds=told["written"] is False)
    told = await lea.refused("task_reassign", task_id=command, to=winner.name)
    project.check(f"lea cannot give it away either ({told['code']})", holds=told["written"] is False)

    # Had it not been killed, it could do nothing either: its credential was of the life before.
    ghost = await Agent.begin(loser.name, loser.checkout, stale)
    try:
        told = await ghost.refused("task_submit", task_id=command, revision=1, result="Done.", evidence="None.")
        project.check(f"the life before is fenced ({told['code']})", holds=told["written"] is False)
    finally:
        await ghost.client.close()

    # A new life of the same agent, with the credential that `renew` made.
    loser = project.agents[loser.name] = await Agent.begin(loser.name, loser.checkout, loser.server)
    reason = "Its process was seen to end."
    decided = ("--reassign", winner.name, "--previous-stopped")
    project.person("task", "override", command, reason, *decided)
    late = await loser.refused("task_progress", task_id=command, revision=1, note="still here", attempt_id=old)
    project.check(f"what the old attempt says counts no more ({late['code']})", holds=late["written"] is False)
    memory = (await loser.call("project_bootstrap"))["memory"]
    project.check(f"{loser.name}'s next life knows what the project knows", holds=memory["content"] == work.MEMORY)

    # Its reservation ended with its life, or this would be refused.
    started = await start(winner, command, "calc.py")
    await submit(winner, started, {"calc.py": work.COMMAND}, "The command")
    git(loser.checkout, loser.name, "clean", "-q", "-f")
    notes = {"to": loser.name, "dependencies": [project.tasks[title] for title in ("parser", "tests", "command")]}
    project.named("notes", await lea.call("task_assign", **project.words("notes"), **notes))


async def rework(project: Project) -> None:
    """A review sends work back; what was queued before it comes first, and is cancelled while it runs."""
    lea, ann = project.agents[COORDINATOR], project.agents["ann"]
    lexer, benchmark = project.tasks["lexer"], project.tasks["benchmark"]
    running = (await ann.call("task_get", task_id=lexer))["task"]
    await submit(
        ann,
        {"id": lexer, "revision": running["revision"]},
        {"lexer.py": work.LEXER},
        "The lexer",
    )
    await answer(project)
    freed = await project.agents[project.winner].call("file_check", file_path="lexer.py")
    project.check("lexer.py was released by submitting", holds=freed["free"])
    project.check("the review finds a defect, and rejects", holds=not await review(project, "lexer"))

    early = await ann.refused("task_start", task_id=lexer, revision=2)
    project.check(f"the rework waits behind the benchmark ({early['code']})", holds=early["written"] is False)
    await start(ann, benchmark, "bench.py")
    busy = await ann.refused("agent_ready")
    project.check(f"ann cannot yield while she runs it ({busy['code']})", holds=busy["written"] is False)
    asked = await lea.call("task_cancel", task_id=benchmark, reason="The lexer comes first.")
    project.check("a task that runs is asked to stop", holds=asked["state"] == "cancel_requested")
    await ann.told("stop", benchmark)
    late = await ann.refused("task_submit", task_id=benchmark, revision=1, result="Done.", evidence="None.")
    project.check(f"from then on it cannot be submitted ({late['code']})", holds=late["written"] is False)
    stopped = await ann.call("task_finish_cancel", task_id=benchmark, note="Nothing was kept.")
    project.check("and is cancelled when its agent says so", holds=stopped["state"] == "cancelled")

    started = await start(ann, lexer, "lexer.py", kind="rework")
    await submit(ann, started, {"lexer.py": work.LEXER_REWORKED}, "The lexer, with exponents")
    project.person("task", "verify", lexer)
    reports, _ = await lea.pages("evidence_list", "evidence", task_id=lexer)
    verdicts = [report["verdict"] for report in reports]
    project.check("both commits were looked for where ann works, and found", holds=verdicts == ["verified"] * 2)
    project.check("the second revision is accepted", holds=await review(project, "lexer"))
    await integrate(project, "lexer")


async def finish(project: Project) -> None:
    """What waited for the lexer goes on by itself; everything is reviewed and merged."""
    lea, ann, loser = (project.agents[name] for name in (COORDINATOR, "ann", project.loser))
    started = await start(ann, project.tasks["parser"], "parser.py")
    for title in ("tests", "command"):
        project.check(f"{title} is accepted", holds=await review(project, title))
        await integrate(project, title)
    await submit(ann, started, {"parser.py": work.PARSER}, "The parser")
    project.check("parser is accepted", holds=await review(project, "parser"))
    await integrate(project, "parser")

    memory = (await ann.call("project_bootstrap"))["memory"]
    await ann.call("project_memory_update", content=work.MEMORY_LATER, expected_version=memory["version"])
    started = await start(loser, project.tasks["notes"], "NOTES")
    loser.catch_up(project.house.main)
    await submit(loser, started, {"NOTES": work.NOTES}, "Notes")
    project.check("notes is accepted: everything works together", holds=await review(project, "notes"))
    await integrate(project, "notes")
    await lea.told("cancelled", project.tasks["benchmark"])


async def end(project: Project) -> None:
    """Nothing is left to do, for anybody."""
    lea = project.agents[COORDINATOR]
    tasks, page = await lea.pages("task_list", "tasks")
    states = {lea.title(task): task["state"] for task in tasks}
    ends = {title: "cancelled" if title == "benchmark" else "integrated" for title in project.tasks}
    project.check("five tasks are integrated, one is cancelled", holds=states == ends)
    project.check("nothing is supervised any more", holds=page["pending_count"] == 0)
    held, _ = await lea.pages("file_reservations", "reservations")
    project.check("no file is reserved", holds=not held)
    for agent in project.agents.values():
        project.check(f"{agent.name} yields with nothing pending", holds=await agent.yields() == 0)
    project.histories = await histories(project, lea)
    whole = all(
        [event["version"] for event in events] == list(range(1, len(events) + 1))
        for events in project.histories.values()
    )
    project.check("every version of every task has its event", holds=whole)
    actions = {title: [event["action"] for event in events] for title, events in project.histories.items()}
    project.check("the histories tell what happened", holds=actions == EXPECTED)
    printed = run(project.house.main, sys.executable, "calc.py", work.EXPRESSION).stdout.strip()
    project.check(f"calc.py in the main checkout: {work.EXPRESSION} = {printed}", holds=printed == work.VALUE)
    clean = git(project.house.main, COORDINATOR, "status", "--porcelain")
    project.check("the main checkout is clean", holds=not clean)


async def again(project: Project) -> None:
    """Everything ends; what other processes find afterwards is the same."""
    house = project.house
    servers = {name: agent.server for name, agent in project.agents.items()}
    for agent in project.agents.values():
        project.check(f"{agent.name}'s server ends with its input", holds=await agent.client.close() == 0)
    project.agents.clear()
    house.down()
    tell("person", "$ fencepost down")
    audit = __file__.replace("project.py", "audit.py")
    stored = json.loads(run(house.folder, sys.executable, audit, str(house.home)).stdout)
    tell("person", "$ python audit.py: the database, read-only, by another process")
    told = {
        project.tasks[title]: {
            "state": events[-1]["to"],
            "revision": events[-1]["revision"],
            "version": len(events),
            "events": [event["version"] for event in events],
        }
        for title, events in project.histories.items()
    }
    project.check("the database has those tasks and events", holds=stored["tasks"] == told)
    left = (stored["supervised"], stored["executed"], stored["integrity"])
    project.check("nothing in it is supervised or executed", holds=left == (0, 0, "ok"))

    house.up()
    tell("person", "$ fencepost up")
    lea = project.agents[COORDINATOR] = await Agent.begin(COORDINATOR, house.main, servers[COORDINATOR])
    _, page = await lea.pages("task_list", "tasks")
    same = page["pending_count"] == 0 and await histories(project, lea) == project.histories
    project.check("the restarted services tell the same", holds=same)
    memory = (await lea.call("project_bootstrap"))["memory"]
    project.check("and the project remembers", holds=memory["content"] == work.MEMORY_LATER)


async def histories(project: Project, agent: Agent) -> dict[str, list[dict[str, Any]]]:
    """Return every event of every task."""
    return {
        title: (await agent.pages("task_history", "events", task_id=id_))[0] for title, id_ in project.tasks.items()
    }


ONCE: Final = ["start", "submit", "accept", "integrate"]
EXPECTED: Final[dict[str, list[str]]] = {
    "lexer": ["assign", "start", "submit", "reject", *ONCE],
    "benchmark": ["assign", "start", "cancel", "finish_cancel"],
    "parser": ["assign", "unblock", *ONCE],
    "tests": ["create_pool", "claim", *ONCE[1:]],
    "command": ["create_pool", "claim", "progress", "lose_sight", "override_reassign", *ONCE],
    "notes": ["assign", "unblock", *ONCE],
}

STEPS: Final[Sequence[Callable[[Project], Awaitable[None]]]] = (gather, plan, begin, kill, rework, finish, end, again)


async def play(house: House, *, limit_s: int) -> int:
    """Play every step, end what was started, and return the exit status."""
    project = Project(house)
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit_s):
            for step in STEPS:
                say(f"\n{step.__name__.upper()}: {step.__doc__}\n")
                await step(project)
    except TimeoutError as error:
        project.failures.append(f"it did not end within {limit_s} s {error}".strip())
    except (AssertionError, Refused, RuntimeError, OSError) as error:
        project.failures.append(f"it could not go on: {type(error).__name__}: {error}")
    finally:
        for agent in project.agents.values():
            await agent.client.close()
    say(f"\n{project.claims} claims in {time.monotonic() - began:.1f} s, {len(project.failures)} failed.")
    for failure in project.failures:
        say(f"FAILED: {failure}")
    return 1 if project.failures else 0


def main() -> int:
    """Run the example in a throw-away folder."""
    without_ours()
    house = House()
    try:
        return asyncio.run(play(house, limit_s=int(sys.argv[1]) if len(sys.argv) > 1 else RUN_S_MAX))
    except (asyncio.CancelledError, KeyboardInterrupt):
        say("\nInterrupted.")
        return 130
    finally:
        house.remove()


if __name__ == "__main__":
    sys.exit(main())
