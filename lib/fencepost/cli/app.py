"""The command tree, and the one place where an outcome becomes an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from typer.main import get_command

from fencepost.cli import exits, screen
from fencepost.cli.agents import agents
from fencepost.cli.care import backup, restore
from fencepost.cli.certs import certs
from fencepost.cli.config import configuration
from fencepost.cli.connect import config, connect
from fencepost.cli.contexts import contexts, memory
from fencepost.cli.doctor import doctor
from fencepost.cli.files import files
from fencepost.cli.guard import guard
from fencepost.cli.login import login
from fencepost.cli.messages import messages
from fencepost.cli.operator import credentials
from fencepost.cli.projects import projects
from fencepost.cli.providing import agent_doctor, agent_models, delivery, provider, tools, withdraw
from fencepost.cli.release import release
from fencepost.cli.renew import renew
from fencepost.cli.running import clone, new_session, pause, restart, resume, start, stop
from fencepost.cli.services import down, status, up, version
from fencepost.cli.tail import tail
from fencepost.cli.task_views import list_tasks, show_task, task_history, verify_evidence, watch_tasks
from fencepost.cli.tasks import tasks
from fencepost.cli.tunnel import tunnel
from fencepost.cli.watching import attach, interrupt, prompt, watch
from fencepost.cli.why import why
from fencepost.errors import FencepostError, Refused, Uncertain

PROGRAM: Final = "fencepost"
HELP_COLUMNS_MAX: Final = 120
# Verbs of earlier systems of this kind, and what replaces them. They are refused, never emulated: what they promised
# (typing into a terminal, waiting for output) is not what a message is.
RETIRED: Final = {
    "send": "fencepost message send TARGET TEXT",
    "ask": "fencepost message followup TARGET TEXT",
    "reply": "fencepost message reply ID TEXT",
    "notify": "fencepost message send TARGET TEXT",
}
# Options of those verbs, and what to do instead.
_TARGET_FIRST: Final = "The target is the first argument: fencepost message send TARGET TEXT"
_NO_TERMINAL: Final = (
    "A message waits in its recipient's mailbox, is never typed into a terminal, and has no queue policy."
)
_ASK_AND_WAIT: Final = "Ask with fencepost message followup TARGET TEXT, then fencepost message wait and receive"
RETIRED_OPTIONS: Final = {
    "--to": _TARGET_FIRST,
    "--targets": _TARGET_FIRST,
    "--scope": _TARGET_FIRST,
    "--as-command": _NO_TERMINAL,
    "--queue-policy": _NO_TERMINAL,
    "--approval": _NO_TERMINAL,
    "--until": _ASK_AND_WAIT,
    "--wait-until": _ASK_AND_WAIT,
}

app = typer.Typer(
    name=PROGRAM,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    # Every command below has the same; a wide terminal shows whole sentences.
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_COLUMNS_MAX},
)


def _tell_version(asked: bool) -> None:  # noqa: FBT001 (typer's own convention)
    if asked:
        version()
        raise typer.Exit


@app.callback()
def _program(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version of this program."),
    ] = False,
) -> None:
    """A durable mailbox between coding agents."""


app.command("up")(up)
app.command("down")(down)
app.command("status")(status)
app.command("backup")(backup)
app.command("restore")(restore)
app.add_typer(login, name="service")
agents.command("release")(release)
agents.command("renew")(renew)
agents.command("start")(start)
agents.command("stop")(stop)
agents.command("pause")(pause)
agents.command("resume")(resume)
agents.command("restart")(restart)
agents.command("new-session")(new_session)
agents.command("clone")(clone)
agents.command("attach")(attach)
agents.command("watch")(watch)
agents.command("prompt")(prompt)
agents.command("interrupt")(interrupt)
agents.command("models")(agent_models)
agents.command("tools")(tools)
agents.command("doctor")(agent_doctor)
app.add_typer(agents, name="agent")
messages.command("tail")(tail)
messages.command("interrupt")(interrupt)
messages.command("withdraw")(withdraw)
app.add_typer(messages, name="message")
app.command("why")(why)
app.add_typer(provider, name="provider")
app.add_typer(delivery, name="delivery")
app.add_typer(projects, name="project")
tasks.command("list")(list_tasks)
tasks.command("show")(show_task)
tasks.command("history")(task_history)
tasks.command("watch")(watch_tasks)
tasks.command("verify")(verify_evidence)
app.add_typer(tasks, name="task")
app.add_typer(contexts, name="context")
app.add_typer(memory, name="memory")
app.add_typer(files, name="file")
app.add_typer(guard, name="guard")
app.add_typer(credentials, name="credential")
app.add_typer(configuration, name="config")
app.add_typer(certs, name="certs")
app.command("connect")(connect)
app.command("tunnel")(tunnel)
app.command("doctor")(doctor)
app.command("version")(version)


def _retired(name: str) -> None:
    def refuse(context: typer.Context) -> None:  # noqa: ARG001 (swallows every argument)
        raise Refused(
            "retired_command",
            f"`{PROGRAM} {name}` does not exist any more; nothing was sent",
            hint=f"Use: {RETIRED[name]}",
        )

    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(name, hidden=True, context_settings=anything)(refuse)


for _name in RETIRED:
    _retired(_name)


mcp = typer.Typer(help="The MCP server: serve it, print its configuration.", no_args_is_help=True)
mcp.command("config")(config)
app.add_typer(mcp, name="mcp")


@mcp.command("serve")
def serve() -> None:
    """Serve MCP on standard input and output; agent programs start this, or faster, fencepost-mcp."""
    # What follows `mcp serve` at once never comes here: it is the server's own.
    raise Refused(
        "invalid_arguments",
        f"`{PROGRAM} mcp serve` begins with these very words; nothing was started",
        hint="Leave out what stands before serve.",
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code. Nothing is raised but what is a bug."""
    as_json = "--json" in arguments
    try:
        result = get_command(app).main(args=list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except FencepostError as error:
        screen.put_error(error, as_json=as_json)
        return exits.exit_code(error)
    except typer.TyperException as error:
        return _usage(error, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        result = exits.INTERRUPTED
    except BrokenPipeError:
        # The reader has gone. Nothing more can be said, and the interpreter must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.FAILED
    if result == exits.INTERRUPTED:
        what = "interrupted; a call that was under way may still be carried out"
        screen.put_error(
            Uncertain("interrupted", what, hint="`fencepost message list --sent` shows it."), as_json=as_json
        )
    return result if isinstance(result, int) else exits.OK


def _usage(error: typer.TyperException, *, as_json: bool) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        screen.put(error.format_message())
        return exits.FAILED
    command = getattr(getattr(error, "ctx", None), "command_path", PROGRAM)
    what = f"{error.format_message().rstrip('.')}; nothing was done"
    instead = RETIRED_OPTIONS.get(getattr(error, "option_name", ""))
    if instead is not None:
        screen.put_error(Refused("retired_option", what, hint=instead), as_json=as_json)
        return exits.FAILED
    screen.put_error(Refused("invalid_arguments", what, hint=f"See: {command} --help"), as_json=as_json)
    return exits.FAILED
