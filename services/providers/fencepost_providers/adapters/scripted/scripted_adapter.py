"""Finds, starts and describes the scripted program. Source: the contract in `fencepost_providers.adapters.base`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from fencepost_kit.files import write_private
from fencepost_providers.adapters.base import PROBE_MS_MAX, SUBMIT_MS_MAX, Listener, Runtime, StartFailed
from fencepost_providers.adapters.scripted import program as scripted_program
from fencepost_providers.adapters.scripted.connection import Json, Lost, Malformed, Rejected, Silent
from fencepost_providers.adapters.scripted.runtime import PROVIDER, ScriptedRuntime
from fencepost_providers.domain.runtimes import (
    Capability,
    CapabilityKind,
    Catalogue,
    Finding,
    Gravity,
    Installation,
    LaunchPlan,
    Model,
    Support,
)
from fencepost_providers.processes.child import Child, InputRefused, Line, NotStarted, Program

HELLO_MS_MAX: Final = 10_000
APPROVED_TOOLS_MAX: Final = 200
VERSION_MIN: Final = (1, 0)
MID_TURN_VERSION_MIN: Final = (1, 1)
MODELS: Final = (Model(model="script", title="Whatever the script says", efforts=("none",), is_default=True),)

# What of our own environment the program needs to run at all; everything else it gets stands in the plan.
_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the custom arguments of the plan say."""

    script: str
    answer_ms: int


class ScriptedAdapter:
    """See `fencepost_providers.adapters.base.Adapter`.

    Custom arguments: `--script FILE`, by default `scripted/script.json` in the agent's folder where there is one;
    `--answer-ms N`, how long an answer may take, at most SUBMIT_MS_MAX.
    """

    name: str = PROVIDER
    title: str = "Scripted program"

    async def probe(self) -> Installation:
        """Ask the program for its version."""
        lines: list[Line] = []
        argv = (*_python(), "--version")
        try:
            child = await Child.start(_program(argv, {}, str(Path.cwd())), on_line=lines.append)
        except NotStarted as error:
            return Installation(problem=str(error))
        try:
            async with asyncio.timeout(PROBE_MS_MAX / 1000):
                await child.gone()
        except TimeoutError:
            return Installation(program=argv[0], problem=f"it did not say its version within {PROBE_MS_MAX} ms")
        finally:
            end = await child.stop(grace_ms=0)
        words = lines[0].text.decode("utf-8", "replace").split() if lines else []
        if len(words) != 2:
            return Installation(program=argv[0], problem=f"it did not say its version: it {end}")
        return Installation(program=argv[0], version=words[1])

    def capabilities(self, version: str) -> Mapping[CapabilityKind, Capability]:
        """Everything but a terminal; work into a running turn from MID_TURN_VERSION_MIN."""
        number = parse_version(version)
        if number is None or number < VERSION_MIN:
            reason = "there is no program" if not version else f"version {version} is not supported"
            return {kind: Capability(support=Support.NONE, reason=reason) for kind in CapabilityKind}
        able = dict.fromkeys(CapabilityKind, Capability(support=Support.CERTIFIED))
        able[CapabilityKind.ATTACH] = Capability(support=Support.NONE, reason="the program has no terminal")
        if number < MID_TURN_VERSION_MIN:
            reason = f"version {version} takes no work into a running turn"
            able[CapabilityKind.MID_TURN] = Capability(support=Support.NONE, reason=reason)
        return able

    async def models(self, *, refresh: bool) -> Catalogue:  # noqa: ARG002 - there is nothing to ask
        """Return the one model."""
        return Catalogue(models=MODELS, source="live", asked_at_ms=time.time_ns() // 1_000_000)

    async def start(self, plan: LaunchPlan, listener: Listener) -> Runtime:
        """See Adapter.start."""
        options = _options(plan)
        runtime = ScriptedRuntime(plan.generation, listener, options.answer_ms)
        try:
            private = _private(plan)
            program = _program(_argv(plan, options, private), plan.environment, plan.workspace, self.log_file(plan))
            child = await Child.start(program, on_line=runtime.hear)
        except (OSError, NotStarted) as error:
            raise StartFailed("program_not_started", f"{error}. Nothing was submitted.") from error
        runtime.own(child)
        try:
            await _greet(runtime)
            await _open(runtime, plan)
        except BaseException:
            await child.stop(grace_ms=0)
            raise
        runtime.begin_telling()
        return runtime

    async def inspect(self, plan: LaunchPlan, runtime: Runtime | None) -> Sequence[Finding]:  # noqa: ARG002
        """Tell of arguments, a script and a conversation that cannot be used."""
        findings: list[Finding] = []
        try:
            options = _options(plan)
            scripted_program.read_script(options.script)
        except StartFailed as error:
            findings.append(_error(error.code, str(error), error.hint))
        except (OSError, ValueError, TypeError) as error:
            findings.append(_error("script_unreadable", f"The script cannot be read: {error}", "Repair or remove it."))
        if plan.conversation_id and not _has_conversation(plan):
            text = f"Conversation {plan.conversation_id} is not in the agent's folder."
            hint = "Restore the folder, or begin a new one: `fencepost agent new-session`."
            findings.append(_error("unknown_conversation", text, hint))
        return findings

    async def launch_arguments(self, plan: LaunchPlan) -> Sequence[str]:
        """See Adapter.launch_arguments."""
        return _argv(plan, _options(plan), Path(plan.folder, "scripted"))

    async def approve_tools(self, plan: LaunchPlan, tools: Sequence[str]) -> Sequence[str]:
        """Write the tools down; this program asks nobody in any case."""
        try:
            return _approve(_private(plan) / "approved.json", tools)
        except (OSError, ValueError) as error:
            raise StartFailed("approval_not_written", f"No tool was approved: {error}") from error

    def private_home(self, plan: LaunchPlan) -> str:
        """See Adapter.private_home."""
        return str(Path(plan.folder, "scripted"))

    def log_file(self, plan: LaunchPlan) -> str:
        """See Adapter.log_file."""
        return str(Path(plan.folder, "logs", "scripted.log"))


def parse_version(version: str) -> tuple[int, int] | None:
    """Return major and minor of a version, or None where it is none."""
    found = re.fullmatch(r"(\d{1,6})\.(\d{1,6})(?:\.\d{1,6})?", version)
    return (int(found[1]), int(found[2])) if found else None


def _private(plan: LaunchPlan) -> Path:
    """Return the program's folder, made where there is none."""
    private = Path(plan.folder, "scripted")
    private.mkdir(mode=0o700, parents=True, exist_ok=True)
    return private


def _has_conversation(plan: LaunchPlan) -> bool:
    return Path(plan.folder, "scripted", "conversations", f"{plan.conversation_id}.jsonl").exists()


def _approve(place: Path, tools: Sequence[str]) -> list[str]:
    before = json.loads(place.read_text(encoding="utf-8")) if place.exists() else []
    approved = sorted({*before, *tools})
    if len(approved) > APPROVED_TOOLS_MAX:
        raise ValueError(f"{len(approved)} tools are more than {APPROVED_TOOLS_MAX}")
    write_private(place, json.dumps(approved).encode())
    return approved


def _python() -> tuple[str, ...]:
    return (sys.executable, "-IS", str(Path(scripted_program.__file__)))


def _argv(plan: LaunchPlan, options: Options, private: Path) -> tuple[str, ...]:
    script = ("--script", options.script) if options.script else ()
    return (*_python(), "--folder", str(private), "--generation", str(plan.generation), *script)


def _program(argv: tuple[str, ...], environment: Mapping[str, str], workspace: str, log: str = "") -> Program:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return Program(
        argv=argv,
        environment=MappingProxyType({**inherited, **environment}),
        working_directory=workspace,
        log=Path(log) if log else None,
        takes_input=True,
    )


def _options(plan: LaunchPlan) -> Options:
    """Read the custom arguments.

    Raises:
        StartFailed: there is one that we do not know, or that has no such value.
    """
    given = plan.settings.custom_arguments
    pairs = dict(zip(given[::2], given[1::2], strict=False))
    answer_ms = pairs.pop("--answer-ms", str(SUBMIT_MS_MAX))
    own = Path(plan.folder, "scripted", "script.json")
    script = pairs.pop("--script", str(own) if own.exists() else "")
    if pairs or len(given) % 2 or not re.fullmatch(r"[1-9]\d{0,8}", answer_ms):
        raise StartFailed(
            "arguments_invalid",
            f"The custom arguments {' '.join(given)} mean nothing to the scripted program; nothing was started.",
            hint="Known are `--script FILE` and `--answer-ms N`.",
        )
    return Options(script=script, answer_ms=min(int(answer_ms), SUBMIT_MS_MAX))


async def _ask(runtime: ScriptedRuntime, method: str, params: Json, ms: int | None) -> Json:
    """Ask something while starting.

    Raises:
        StartFailed: the program gave no good answer; Rejected: it refused.
    """
    try:
        return await runtime.ask(method, params, ms)
    except (InputRefused, Lost) as error:
        raise StartFailed(
            "program_exited",
            f"The program was started and did not stay: {error}. Nothing was submitted.",
            hint="Its log is in the agent's folder under logs.",
        ) from error
    except Silent as error:
        raise StartFailed(
            "program_silent", f"The program was started, and: {error}. It was ended; nothing was submitted.", again=True
        ) from error
    except Malformed as error:
        raise StartFailed("program_unknown", f"This is no scripted program: {error}.") from error


async def _greet(runtime: ScriptedRuntime) -> None:
    try:
        version = str((await _ask(runtime, "hello", {}, HELLO_MS_MAX)).get("version"))
    except Rejected as error:
        raise StartFailed("program_unknown", f"The program refused the greeting: {error}") from error
    number = parse_version(version)
    if number is None or number < VERSION_MIN:
        least = ".".join(str(part) for part in VERSION_MIN)
        raise StartFailed(
            "version_unsupported",
            f"The program is version {version}; nothing was submitted.",
            hint=f"It takes version {least} or later.",
        )
    runtime.version = version
    runtime.steers = number >= MID_TURN_VERSION_MIN


async def _open(runtime: ScriptedRuntime, plan: LaunchPlan) -> None:
    mcp = {
        "command": plan.mcp.command,
        "arguments": list(plan.mcp.arguments),
        "environment": {**plan.environment, **plan.mcp.environment},
    }
    try:
        # Without a limit: a program may have to index its history first. Whoever gives up cancels.
        opened = await _ask(runtime, "open", {"conversation": plan.conversation_id, "mcp": mcp}, None)
    except Rejected as error:
        raise _not_opened(error, plan) from error
    conversation = opened.get("conversation")
    if not isinstance(conversation, str) or not conversation or conversation == plan.agent_id:
        raise StartFailed("program_unknown", "The program opened a conversation and did not say which.")
    if plan.conversation_id and conversation != plan.conversation_id:
        raise StartFailed(
            "conversation_conflict",
            f"The program opened conversation {conversation} for {plan.conversation_id}; nothing was submitted.",
        )
    runtime.conversation_id = conversation


def _not_opened(error: Rejected, plan: LaunchPlan) -> StartFailed:
    if error.code == "active_writer":
        return StartFailed(
            "active_writer",
            f"Another program writes this conversation just now ({error}); nothing was submitted.",
            hint="End the other program; it is tried again.",
            again=True,
        )
    if error.code == "unknown_conversation":
        return StartFailed(
            "unknown_conversation",
            f"The program does not know conversation {plan.conversation_id}; nothing was submitted.",
            hint="Restore the agent's folder, or begin a new one: `fencepost agent new-session`.",
        )
    return StartFailed("open_refused", f"The program refused to open the conversation: {error.code}: {error}")


def _error(code: str, text: str, hint: str) -> Finding:
    return Finding(code=code, gravity=Gravity.ERROR, text=text, hint=hint)
