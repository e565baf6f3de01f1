"""Starting a home's services at login: a systemd user unit, a launchd agent. Pure text, and one writer of files."""

from __future__ import annotations

import enum
import hashlib
import os
import plistlib
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost.errors import Refused
from fencepost.home import HOME_VARIABLE, Home

STOP_S: Final = 90
RESTART_S: Final = 5
RESTARTS_MAX: Final = 10
RESTARTS_WITHIN_S: Final = 300
FILE_BYTES_MAX: Final = 64 * 1024
MARK: Final = "Written by `fencepost service install`"
_HASH_CHARS: Final = 8


class Kind(enum.StrEnum):
    """What starts it."""

    SYSTEMD = "systemd"
    LAUNCHD = "launchd"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A file that starts a home at login, where it belongs, and the commands that make it count, in their order."""

    kind: Kind
    path: Path
    content: str
    enable: tuple[str, ...]
    disable: tuple[str, ...]


def kind_of_system(platform: str = sys.platform) -> Kind:
    """Return what this system has."""
    return Kind.LAUNCHD if platform == "darwin" else Kind.SYSTEMD


def unit_of(home: Home, kind: Kind, *, env: Mapping[str, str], python: str = sys.executable) -> Unit:
    """Return the file for a home. That of ~/.fencepost is named `fencepost`, others have names of their own.

    Raises:
        Refused: a path that no such file can hold; nothing was written.
    """
    for text in (home.text, python):
        if not text.isprintable():
            raise Refused(
                "invalid_home",
                "the path of the home or of Python holds a line end or another control character; nothing was written",
                hint=f"Choose another {HOME_VARIABLE}.",
            )
    user = Path(env.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - the same rule as Home's
    name = "fencepost"
    if home != Home(user / ".fencepost"):
        name += "-" + hashlib.sha256(os.fsencode(home.text)).hexdigest()[:_HASH_CHARS]
    command = (python, "-P", "-m", "fencepost.up", "--home", home.text)
    return _systemd(name, command, user, env) if kind is Kind.SYSTEMD else _launchd(name, command, user, home)


def _systemd(name: str, command: tuple[str, ...], user: Path, env: Mapping[str, str]) -> Unit:
    file = f"{name}.service"
    configuration = env.get("XDG_CONFIG_HOME", "")
    base = Path(configuration) if configuration.startswith("/") else user / ".config"
    content = f"""# {MARK}. Change fencepost.toml of the home instead of this file.
[Unit]
Description=Fencepost, a durable mailbox between coding agents
StartLimitIntervalSec={RESTARTS_WITHIN_S}
StartLimitBurst={RESTARTS_MAX}

[Service]
Type=exec
ExecStart={_systemd_quoted(command[0])} {" ".join(_systemd_word(word) for word in command[1:])}
Restart=on-failure
RestartSec={RESTART_S}
KillMode=mixed
TimeoutStopSec={STOP_S}
UMask=0077
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""
    return Unit(
        kind=Kind.SYSTEMD,
        path=base / "systemd" / "user" / file,
        content=content,
        enable=("systemctl --user daemon-reload", f"systemctl --user enable --now {file}"),
        disable=(f"systemctl --user disable --now {file}",),
    )


def _systemd_quoted(word: str) -> str:
    """Quote a word for ExecStart: its backslashes and quotes, and the sign of systemd's own specifiers."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _systemd_word(word: str) -> str:
    """Quote an argument: variables are replaced in all of them, and not in the program."""
    return _systemd_quoted(word).replace("$", "$$")


def _launchd(name: str, command: tuple[str, ...], user: Path, home: Home) -> Unit:
    label = f"org.{name}"
    plain = {
        "Label": label,
        "ProgramArguments": list(command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_S,
        "ExitTimeOut": STOP_S,
        "ProcessType": "Background",
        "Umask": 0o077,
        "StandardOutPath": str(home.log("launchd")),
        "StandardErrorPath": str(home.log("launchd")),
    }
    text = plistlib.dumps(plain).decode()
    head, doctype, rest = text.partition("<plist")
    path = user / "Library" / "LaunchAgents" / f"{label}.plist"
    return Unit(
        kind=Kind.LAUNCHD,
        path=path,
        content=f"{head}<!-- {MARK}. -->\n{doctype}{rest}",
        enable=(f"launchctl bootstrap gui/$(id -u) {shlex.quote(str(path))}",),
        disable=(f"launchctl bootout gui/$(id -u)/{label}",),
    )


def install(unit: Unit) -> bool:
    """Write the file where it belongs; tell whether that changed anything. It is not enabled.

    A file of that name that was not written here is left alone. A link is followed by nobody: it is refused.

    Raises:
        Refused: such a file, or a folder that cannot be written; nothing was changed.
    """
    try:
        if os.path.lexists(unit.path):
            with open(os.open(unit.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), encoding="utf-8") as file:  # noqa: PTH123
                present = file.read(FILE_BYTES_MAX)
            if present == unit.content:
                return False
            if MARK not in present:
                raise Refused(
                    "service_file_taken",
                    f"{unit.path} was not written by fencepost; nothing was changed",
                    hint="Move it away, or take the text of `fencepost service show` into it.",
                )
        unit.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = unit.path.with_name(f".{unit.path.name}.{os.getpid()}")
        temporary.write_text(unit.content, encoding="utf-8")
        temporary.replace(unit.path)
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(
            "service_file_not_written",
            f"{unit.path} cannot be read and written: {error}; nothing was changed",
            hint="Take the text of `fencepost service show` and put it where your system wants it.",
        ) from error
    return True
