"""What the facts mean: one function per finding, in the order in which a person would put them right. Pure."""

from __future__ import annotations

import enum
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from fencepost.connect.entry import SERVER_NAME
from fencepost.connect.trial import Trial
from fencepost.doctor.entries import Entry, Unreadable, is_ours
from fencepost.doctor.processes import Process
from fencepost.home import CREDENTIAL_VARIABLE, HOME_VARIABLE, SESSION_VARIABLE

# Mail that waits for less than this is not worth a word.
UNREAD_MS_MIN: Final = 10 * 60 * 1000
# Agents that one finding names.
NAMED_MAX: Final = 5


class Severity(enum.StrEnum):
    """How bad it is: a problem stops messages, a warning will, a note is only said."""

    PROBLEM = "problem"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is wrong: a stable code, what it is, and what to do."""

    code: str
    severity: Severity
    what: str
    do: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """The version of a part, and the fingerprint of what it tells clients."""

    version: str
    registry: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """Mail of an agent that nobody has looked at."""

    agent: str
    records: int
    oldest_ms: int
    last_read_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program that agents are to run in, and why it cannot be used."""

    name: str
    problem: str
    agents: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ailment:
    """What providers found of one agent that is to run: their own code, text and remedy."""

    agent: str
    severity: Severity
    code: str
    text: str
    hint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Everything that was seen. What could not be looked at is empty or None."""

    home: str
    default_home: str
    # Paths whose owner or mode is wrong, with what is wrong and the mode they should have.
    unsafe: Sequence[tuple[str, str, str]] = ()
    supervised: bool = False
    # Services that are not ready, with their phase.
    unready: Mapping[str, str] = field(default_factory=dict)
    own: Version | None = None
    edge: Version | None = None
    # Why the edge could not be greeted, where its address is published.
    edge_problem: str = ""
    entries: Sequence[Entry] = ()
    unreadable: Sequence[Unreadable] = ()
    # What is wrong with our own records of configurations.
    records_problem: str = ""
    # Commands that are not there.
    missing_commands: Sequence[tuple[str, ...]] = ()
    trials: Mapping[tuple[str, ...], Trial] = field(default_factory=dict)
    # The tools as this installation lists them.
    # Every tool of this installation, under each of its names, as a server shows it.
    listing: Sequence[object] | None = None
    # Session ids of configurations for which the home has no usable credential, with the reason.
    unusable_ids: Mapping[str, str] = field(default_factory=dict)
    processes: Sequence[Process] = ()
    installed_s: float = 0.0
    own_commands: Sequence[str] = ()
    waiting: Sequence[Waiting] = ()
    # True where agents are to run here: their programs are configured by those who run them.
    runs_agents: bool = False
    # Agents that are to run while nobody can be asked about their programs, and why.
    unattended: Sequence[str] = ()
    providers_problem: str = ""
    programs: Sequence[Program] = ()
    ailments: Sequence[Ailment] = ()
    # Agents that are to run and could not be looked at, with the reason.
    uninspected: Mapping[str, str] = field(default_factory=dict)
    identity_problem: str = ""
    now_ms: int = 0


Judge = Callable[[Facts], Iterator[Finding]]


def judge(facts: Facts) -> list[Finding]:
    """Return every finding, the first to be put right first."""
    return [finding for found in JUDGES for finding in found(facts)]


def _problem(code: str, what: str, do: str) -> Finding:
    return Finding(code=code, severity=Severity.PROBLEM, what=what, do=do)


def _warning(code: str, what: str, do: str) -> Finding:
    return Finding(code=code, severity=Severity.WARNING, what=what, do=do)


def _unsafe(facts: Facts) -> Iterator[Finding]:
    for path, wrong, mode in facts.unsafe:
        do = f"Run: chmod {mode} {shlex.quote(path)}" if mode else f"Find out who made {path}; choose another home."
        yield _problem("unsafe_mode", f"{path} {wrong}", do)


def _identity(facts: Facts) -> Iterator[Finding]:
    if facts.identity_problem:
        yield _problem("identity_unusable", facts.identity_problem, "Put right what this shell's environment names.")


def _services(facts: Facts) -> Iterator[Finding]:
    if not facts.supervised and facts.edge is None:
        yield _problem(
            "services_not_running", f"no services run in the home {facts.home}", "Run: fencepost up --detach"
        )
        return
    for name, phase in facts.unready.items():
        what = f"the service {name} is {phase.replace('_', ' ')}"
        yield _problem("service_not_ready", what, f"Look into {facts.home}/logs/{name}.log, and at `fencepost status`.")
    if facts.edge is None and "mcp_edge" not in facts.unready:
        what = f"mcp_edge does not greet: {facts.edge_problem or 'it publishes no address'}"
        yield _problem("edge_unreachable", what, "Run: fencepost down && fencepost up --detach")


def _versions(facts: Facts) -> Iterator[Finding]:
    if facts.own is not None and facts.edge is not None and facts.own != facts.edge:
        yield _warning(
            "edge_version",
            f"the running mcp_edge is version {facts.edge.version}, and this installation is {facts.own.version}"
            + ("" if facts.own.version != facts.edge.version else ", with other tools"),
            "Run: fencepost down && fencepost up --detach",
        )


def _configurations(facts: Facts) -> Iterator[Finding]:
    for unreadable in facts.unreadable:
        what = f"the configuration of {unreadable.title}, {unreadable.file}, cannot be read: {unreadable.why}"
        yield _problem("configuration_unreadable", what, f"Put it right; {unreadable.title} cannot read it either.")
    if facts.records_problem:
        yield _warning("record_unreadable", facts.records_problem, "Move it away; take the entry out by hand.")
    if not facts.entries and not facts.unreadable and not facts.runs_agents:
        what = "no agent program that is known here has this MCP server in its configuration"
        yield Finding(
            code="not_configured", severity=Severity.NOTE, what=what, do="Run: fencepost connect PROGRAM --agent NAME"
        )
    for entry in facts.entries:
        if not is_ours(entry.command):
            what = f"{_place(entry)} starts something else than Fencepost"
            yield _warning("name_occupied", what, "Rename that entry, if the program is to have a mailbox.")
        elif not entry.enabled:
            yield Finding(
                code="entry_disabled",
                severity=Severity.NOTE,
                what=f"{_place(entry)} is switched off",
                do=f"Switch it on in {entry.file}, if that was not meant.",
            )


def _commands(facts: Facts) -> Iterator[Finding]:
    for entry in _live(facts):
        trial = facts.trials.get(entry.command)
        if entry.command in facts.missing_commands:
            what = f"{_place(entry)} names {entry.command[0]}, which is not there or cannot be run"
            yield _problem("stale_command", what, _anew(entry))
        elif trial is not None and trial.problem:
            what = f"the server of {_place(entry)} does not work: {trial.problem}"
            yield _problem("handshake_failed", what, _anew(entry))
        elif trial is not None and _older(facts, trial):
            what = f"{_place(entry)} starts version {trial.version}, and mcp_edge is another"
            yield _warning("old_shim", what, _anew(entry))


def _older(facts: Facts, trial: Trial) -> bool:
    """Tell whether a server tells clients something else than the running edge serves."""
    if facts.edge is None or facts.own is None:
        return False
    if trial.version != facts.edge.version:
        return True
    return (
        facts.own == facts.edge
        and facts.listing is not None
        and any(tool not in facts.listing for tool in trial.listing or ())
    )


def _homes(facts: Facts) -> Iterator[Finding]:
    for entry in _live(facts):
        named = entry.environment.get(HOME_VARIABLE, "")
        if (named or facts.default_home) != facts.home:
            what = f"{_place(entry)} speaks to the home {named or facts.default_home}, not to {facts.home}"
            yield _warning("home_mismatch", what, f"Set {HOME_VARIABLE} there or here, so that both are the same.")


def _approvals(facts: Facts) -> Iterator[Finding]:
    for entry in _live(facts):
        if entry.refused_tools:
            tools = " ".join(f"--approve {tool}" for tool in entry.refused_tools)
            what = (
                f'{entry.title} has approval_policy = "never" in {entry.file} and refuses by itself:'
                f" {', '.join(entry.refused_tools)}"
            )
            yield _problem("approval_missing", what, f"For the tools that it may call: {_connect(entry)} {tools}")


def _identities(facts: Facts) -> Iterator[Finding]:
    for entry in _live(facts):
        session = entry.environment.get(SESSION_VARIABLE, "").lower()
        if session in facts.unusable_ids:
            what = f"{_place(entry)} names an agent that cannot act: {facts.unusable_ids[session]}"
            yield _problem("unknown_agent", what, "Take an agent that `fencepost agent list` shows.")
        elif entry.asked is None and not session and not entry.environment.get(CREDENTIAL_VARIABLE):
            yield Finding(
                code="missing_identity",
                severity=Severity.NOTE,
                what=f"{_place(entry)} names no agent: whoever starts {entry.title} has to, by {SESSION_VARIABLE}",
                do=f"Where a person starts it: {_connect(entry)} --agent NAME",
            )


def _twice(facts: Facts) -> Iterator[Finding]:
    users: dict[str, list[Entry]] = defaultdict(list)
    for entry in _live(facts):
        asked, session = entry.asked, entry.environment.get(SESSION_VARIABLE, "").lower()
        if asked is not None:
            users[f"{asked.name} of {asked.project or 'the folder where it runs'}"].append(entry)
        elif session:
            users[session].append(entry)
    for agent, entries in users.items():
        if len(entries) > 1:
            places = " and ".join(_place(entry) for entry in entries)
            what = f"the same agent, {agent}, is configured for {places}"
            yield _warning("agent_configured_twice", what, "Give each program an agent of its own.")


def _shims(facts: Facts) -> Iterator[Finding]:
    for process in facts.processes:
        if process.home not in (None, facts.home):
            continue
        if process.orphan:
            what = f"the server process {process.pid} runs on although the program that started it has ended"
            yield _warning("orphan_shim", what, f"End it: kill {process.pid}")
        elif process.started_s < facts.installed_s and any(
            word in facts.own_commands for word in process.arguments[:2]
        ):
            what = f"the server process {process.pid} was started before this version was installed"
            yield _warning("old_shim", what, "Start the agent program that it belongs to anew.")


def _mail(facts: Facts) -> Iterator[Finding]:
    for waiting in facts.waiting:
        age_ms = facts.now_ms - waiting.oldest_ms
        if age_ms < UNREAD_MS_MIN:
            continue
        minutes = age_ms // 60_000
        read = "it never read its mailbox" if not waiting.last_read_ms else "nobody has read its mailbox since"
        many = "a record waits" if waiting.records == 1 else f"{waiting.records} records wait"
        yield _warning(
            "mail_unread",
            f"for {waiting.agent} {many}, the oldest for {minutes} min, and {read}",
            "Start its program and let it call receive_messages; `fencepost message list --agent NAME` shows them.",
        )


def _programs(facts: Facts) -> Iterator[Finding]:
    if facts.unattended and "providers" not in facts.unready:
        what = f"{_names(facts.unattended)} {_is(facts.unattended)} to run, and providers does not answer"
        why = f": {facts.providers_problem}" if facts.providers_problem else ""
        do = f"Look into {facts.home}/logs/providers.log, then run: fencepost down && fencepost up --detach"
        yield _problem("providers_unreachable", what + why, do)
    for program in facts.programs:
        what = f"{program.name} cannot be used, and {_names(program.agents)} {_is(program.agents)} to run in it"
        do = f"Put that right, then run: fencepost agent start {shlex.quote(program.agents[0])}"
        yield _problem("program_unusable", f"{what}: {program.problem}", do)
    for ailment in facts.ailments:
        yield Finding(
            code="agent_ails" if ailment.severity is Severity.PROBLEM else "agent_may_ail",
            severity=ailment.severity,
            what=f"{ailment.agent}: {ailment.text} [{ailment.code}]",
            do=ailment.hint or f"Run: fencepost agent doctor {shlex.quote(ailment.agent)}",
        )
    for agent, why in facts.uninspected.items():
        do = f"Run: fencepost agent doctor {shlex.quote(agent)}"
        yield _warning("agent_not_inspected", f"{agent} is to run and could not be looked at: {why}", do)


def _names(agents: Sequence[str]) -> str:
    shown = ", ".join(agents[:NAMED_MAX])
    return shown if len(agents) <= NAMED_MAX else f"{shown} and {len(agents) - NAMED_MAX} more"


def _is(agents: Sequence[str]) -> str:
    return "is" if len(agents) == 1 else "are"


JUDGES: Final[tuple[Judge, ...]] = (
    _unsafe,
    _identity,
    _services,
    _versions,
    _configurations,
    _commands,
    _homes,
    _approvals,
    _identities,
    _twice,
    _shims,
    _mail,
    _programs,
)

# Every code that a finding can have, and what it says: the reference is held to it.
CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "unsafe_mode": "a file or folder of the home is open to others, or not yours",
        "identity_unusable": "what the environment names is no usable identity",
        "services_not_running": "nothing runs in this home",
        "service_not_ready": "a service is starting, waiting to be started again, or has given up",
        "edge_unreachable": "mcp_edge runs and does not greet",
        "edge_version": "the running services are of another version than this installation",
        "configuration_unreadable": "a program's configuration is malformed",
        "record_unreadable": "what says what is ours in a configuration is damaged",
        "not_configured": "no known program has the server",
        "name_occupied": "an entry of our name is something else",
        "entry_disabled": "the entry is switched off",
        "stale_command": "the configured command is not there",
        "handshake_failed": "the configured command is no working server",
        "old_shim": "a configured or running server is of another version than the services",
        "home_mismatch": "an entry speaks to another home",
        "approval_missing": 'Codex refuses tools by itself under approval_policy = "never"',
        "unknown_agent": "an entry names an agent without a usable credential",
        "missing_identity": "an entry names no agent",
        "agent_configured_twice": "two entries name one agent",
        "orphan_shim": "a server runs on without its program",
        "mail_unread": "mail waits for an agent whose mailbox nobody reads",
        "providers_unreachable": "agents are to run, and the service that runs them does not answer",
        "program_unusable": "the program of agents that are to run is not there, or not in a version that can be used",
        "agent_ails": "an agent that is to run does not work: its settings, private home or registration",
        "agent_may_ail": "something of an agent that is to run may not work, for example tools that are not approved",
        "agent_not_inspected": "an agent that is to run could not be looked at",
    }
)


def _live(facts: Facts) -> Iterator[Entry]:
    return (entry for entry in facts.entries if entry.enabled and is_ours(entry.command))


def _place(entry: Entry) -> str:
    return f"the entry {entry.name} of {entry.title} in {entry.file}"


def _connect(entry: Entry) -> str:
    return f"fencepost connect {entry.program}"


def _anew(entry: Entry) -> str:
    """Return how an entry is made anew: ours by a command, somebody's own by hand."""
    return (
        f"Run again: {_connect(entry)}{_arguments(entry)}"
        if entry.name == SERVER_NAME
        else f"Put it right in {entry.file}; `fencepost mcp config {entry.program}` prints it."
    )


def _arguments(entry: Entry) -> str:
    return "".join(f" {shlex.quote(word)}" for word in (entry.asked.words() if entry.asked else ()))
