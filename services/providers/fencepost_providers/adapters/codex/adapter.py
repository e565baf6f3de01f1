"""Codex: finding it, starting it, describing it. See the contract in `fencepost_providers.adapters.base`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fencepost_providers.adapters.base import Listener, Runtime, StartFailed
from fencepost_providers.adapters.codex import home, launch, versions
from fencepost_providers.adapters.codex.home import Prepared, location
from fencepost_providers.adapters.codex.launch import Order, Server
from fencepost_providers.adapters.codex.models import ASK_MS_MAX, Models
from fencepost_providers.adapters.codex.rpc import Hear, Json, Refused
from fencepost_providers.adapters.codex.runtime import PROVIDER, CodexRuntime, Terms
from fencepost_providers.domain.runtimes import (
    Capability,
    CapabilityKind,
    Catalogue,
    Finding,
    Gravity,
    Installation,
    LaunchPlan,
    Permits,
)
from fencepost_providers.processes.child import NotStarted

_LOG: Final = logging.getLogger(__name__)
NAME_CHARS_MAX: Final = 100
# What a stop waits for the history to be published; what is not by then is at the next start.
PUBLISH_MS_MAX: Final = 5_000
LOGIN_HINT: Final = (
    "Log in with `codex login` as the user whose Codex home this is; the login is copied at the agent's next start."
)


class CodexAdapter:
    """See `fencepost_providers.adapters.base.Adapter`.

    `environment` is ours: where programs are found, and what they inherit. `native` is the user's own Codex home.
    """

    name: str = PROVIDER
    title: str = "Codex"

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        native: Path | None = None,
        compact_roots: Sequence[Path] | None = None,
    ) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        given = self._environment.get("CODEX_HOME")
        person = Path(self._environment.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 (may be no path)
        self._native = native or (Path(given) if given else person / ".codex")
        self._compact_roots = compact_roots
        self._models = Models(self._listed)

    async def probe(self) -> Installation:
        """Find the program and learn its version."""
        return await launch.probe(launch.find(self._environment), self._environment)

    def capabilities(self, version: str) -> Mapping[CapabilityKind, Capability]:
        """See versions."""
        return versions.capabilities(version)

    async def models(self, *, refresh: bool) -> Catalogue:
        """Return what `codex debug models` lists for the user's own home."""
        return await self._models.get(refresh=refresh)

    async def start(self, plan: LaunchPlan, listener: Listener) -> CodexRuntime:
        """Prepare the private home, start an app-server in it, open exactly the planned conversation or a new one."""
        found = await self.probe()
        if found.problem:
            code = "codex_version_unsupported" if found.version else "codex_not_found"
            raise StartFailed(code, f"{found.problem} Nothing was started.", hint=launch.INSTALL_HINT)
        prepared = await home.prepare(plan, native=self._native, compact_roots=self._compact_roots)
        for note in prepared.notes:
            _LOG.info("%s: %s", plan.agent_id, note.text)
        default_model = await self._default_model(plan)
        arguments = await home.background_arguments(plan, default_model=default_model)
        terms = self._terms(plan, found, prepared, arguments, default_model)
        runtime = CodexRuntime(terms=terms, version=found.version, listener=listener)
        try:
            runtime.take(await terms.launch(prepared.socket.name, runtime.hear))
            await _logged_in(runtime)
            await _opened(runtime, plan)
        except BaseException:
            await runtime.stop()
            raise
        runtime.speak()
        return runtime

    async def inspect(self, plan: LaunchPlan, runtime: Runtime | None) -> Sequence[Finding]:
        """Tell what is wrong with the program and with the agent's home."""
        found = await self.probe()
        findings: list[Finding] = []
        if found.problem:
            findings.append(Finding(code="codex_program", gravity=Gravity.ERROR, text=found.problem))
        elif runtime is not None and runtime.version != found.version:
            text = f"The agent's app-server is {runtime.version}, and {found.program} is {found.version} by now."
            hint = "Restart the agent to use the new one."
            findings.append(Finding(code="codex_upgraded", gravity=Gravity.WARNING, text=text, hint=hint))
        if runtime is not None and not versions.steers(runtime.version):
            reason = versions.capabilities(runtime.version)[CapabilityKind.MID_TURN].reason
            findings.append(Finding(code="codex_not_steered", gravity=Gravity.FACT, text=reason))
        prepared = Path(self.private_home(plan)).is_dir()  # noqa: ASYNC240 (one look)

        async def plugins() -> bytes:
            environment = {**launch.inherited(self._environment), "CODEX_HOME": self.private_home(plan)}
            words = [found.program, "plugin", "list", "--json"]
            return (await launch.command(words, environment, timeout_ms=ASK_MS_MAX))[1]

        try:
            findings += await home.findings(
                plan, native=self._native, plugins=plugins if prepared and not found.problem else None
            )
        except (StartFailed, NotStarted) as error:
            hint = getattr(error, "hint", "")
            findings.append(Finding(code="codex_home_unknown", gravity=Gravity.WARNING, text=str(error), hint=hint))
        return findings

    async def launch_arguments(self, plan: LaunchPlan) -> Sequence[str]:
        """Return the words that start the app-server; settings that cannot be used are left out."""
        program = launch.find(self._environment) or launch.PROGRAM
        arguments: Sequence[str] = ()
        with contextlib.suppress(StartFailed):
            arguments = await home.background_arguments(plan, default_model=await self._default_model(plan))
        return launch.words(program, str(Path(self.private_home(plan), location.SOCKET)), arguments)

    async def approve_tools(self, plan: LaunchPlan, tools: Sequence[str]) -> Sequence[str]:
        """Approve tools of our MCP server in the private home."""
        return await home.approve_tools(plan, tools, native=self._native, compact_roots=self._compact_roots)

    async def forget(self, agent_id: str, folder: str) -> None:
        """Leave nothing of a deleted agent outside its own folder."""
        try:
            for note in await home.forget(agent_id, folder, native=self._native):
                _LOG.warning("%s: %s", agent_id, note.text)
        except StartFailed as error:
            _LOG.warning("%s: its Codex home was left where it is until the next start: %s", agent_id, error)

    def private_home(self, plan: LaunchPlan) -> str:
        """Return the agent's Codex home."""
        return str(home.codex_home(plan))

    def log_file(self, plan: LaunchPlan) -> str:
        """Return where the app-server's own output goes."""
        return str(Path(plan.folder, "logs", launch.LOG_NAME))

    async def _default_model(self, plan: LaunchPlan) -> str:
        """Return the catalogue's default, which an effort without a model needs; empty where none is needed or told."""
        if plan.settings.model or not plan.settings.effort:
            return ""
        offered = (await self._models.get(refresh=False)).models
        return next((model.model for model in offered if model.is_default), "")

    def _terms(
        self,
        plan: LaunchPlan,
        found: Installation,
        prepared: Prepared,
        arguments: Sequence[str],
        default_model: str,
    ) -> Terms:
        environment = launch.environment_of(plan, str(prepared.codex_home), self._environment)
        environment = {name: value for name, value in environment.items() if name not in prepared.unset}
        environment.update(prepared.environment)

        async def start(name: str, hear: Hear) -> Server:
            socket = str(prepared.socket.with_name(name))
            order = Order(
                argv=launch.words(found.program, socket, arguments),
                environment=environment,
                working_directory=plan.workspace,
                log=self.log_file(plan),
                socket=socket,
                codex_home=str(prepared.codex_home),
                version=found.version,
            )
            return await launch.launch(order, hear)

        async def project(permits: Permits) -> None:
            await home.project(
                plan,
                native=self._native,
                trust_workspace=permits.trust_workspace,
                quiet_updates=permits.skip_update_check,
                default_model=default_model,
            )

        async def restore() -> None:
            try:
                await home.restore(plan, native=self._native)
            except StartFailed as error:
                _LOG.warning("%s: settings for a terminal were not taken back yet: %s", plan.agent_id, error)

        async def publish() -> None:
            try:
                async with asyncio.timeout(PUBLISH_MS_MAX / 1000):
                    notes = await home.publish_history(plan, native=self._native)
            except (StartFailed, TimeoutError) as error:
                _LOG.warning("%s: history was not published yet: %s", plan.agent_id, str(error) or "it took too long")
            else:
                for note in notes:
                    _LOG.info("%s: %s", plan.agent_id, note.text)

        return Terms(
            program=found.program,
            workspace=plan.workspace,
            parameters=launch.thread_parameters(plan, prepared.developer_instructions),
            environment={**plan.environment, **prepared.environment},
            launch=start,
            project=project,
            restore=restore,
            publish=publish,
        )

    async def _listed(self) -> bytes:
        program = launch.find(self._environment)
        if not program:
            raise NotStarted("no codex is on PATH")
        words = [program, "debug", "models"]
        end, output = await launch.command(words, launch.inherited(self._environment), timeout_ms=ASK_MS_MAX)
        if end.exit_code != 0:
            raise ValueError(f"it {end}")
        return output


async def _logged_in(runtime: CodexRuntime) -> None:
    server = runtime.server
    assert server is not None
    try:
        answer = await launch.asked(server.connection, server.child, "account/read", {})
    except Refused:
        return  # a version that cannot say it says it in the first turn
    if answer.get("requiresOpenaiAuth") is True and answer.get("account") is None:
        raise StartFailed(
            "codex_not_logged_in",
            "nobody is logged in to Codex in this agent's home, and its model needs it; nothing was started",
            hint=LOGIN_HINT,
        )


async def _opened(runtime: CodexRuntime, plan: LaunchPlan) -> None:
    """Open the planned conversation, or a new one that survives a restart although no turn has run yet."""
    server = runtime.server
    assert server is not None

    async def ask(method: str, parameters: Json) -> Json:
        try:
            return await launch.asked(server.connection, server.child, method, parameters)
        except Refused as error:
            raise launch.refused(method, plan.conversation_id, error) from None

    parameters = dict(runtime.terms.parameters)
    if plan.conversation_id:
        runtime.open(plan.conversation_id, {})
        if plan.settings.effort and not plan.settings.model:
            # An effort alone must not exchange the model that the conversation has.
            known = (await ask("thread/read", {"threadId": plan.conversation_id})).get("thread")
            if isinstance(known, dict) and known.get("model"):
                parameters["model"] = known["model"]
        asked = {**parameters, "threadId": plan.conversation_id, "excludeTurns": True}
        thread = (await ask("thread/resume", asked)).get("thread")
    else:
        thread = (await ask("thread/start", parameters)).get("thread")
    if not isinstance(thread, dict) or not thread.get("id"):
        raise StartFailed("codex_refused", "codex opened a conversation and did not say which", again=True)
    if plan.conversation_id and thread["id"] != plan.conversation_id:
        raise StartFailed(
            "conversation_other",
            f"codex opened conversation {thread['id']} instead of {plan.conversation_id}; it was ended again",
        )
    if thread.get("canAcceptDirectInput") is False:
        raise StartFailed(
            "conversation_closed_to_input",
            f"conversation {thread['id']} takes no input of ours: it belongs to another one, a sub-agent's perhaps",
            hint="Begin a new conversation for the agent.",
        )
    if plan.conversation_id:
        runtime.observe(thread)
        return
    runtime.open(str(thread["id"]), thread)
    # A session's file is what a restart resumes, and it is not written yet. A name makes Codex write it without a turn;
    # 0.159.2 keeps the name elsewhere and writes it with the first item (0.169.0 and 0.171.0 do with the name).
    name = plan.name[:NAME_CHARS_MAX] or plan.agent_id
    await ask("thread/name/set", {"threadId": runtime.conversation_id, "name": name})
    if isinstance(thread.get("path"), str) and not Path(thread["path"]).exists():  # noqa: ASYNC240 (one look)
        item = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": f"You are {name}."}]}
        await ask("thread/inject_items", {"threadId": runtime.conversation_id, "items": [item]})
