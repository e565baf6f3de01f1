"""Git commands in repositories that others own: each a child with a deadline, in an environment that runs nothing else.

Of the person's own configuration nothing is read, of the repository's what names a program is taken away: no hook,
filter, merge driver, monitor, pager, prompt or remote helper is ever run. Only paths of this machine are fetched from.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fencepost_providers.domain.integration import programs_off
from fencepost_providers.domain.refusals import GitFailed, GitUnavailable
from fencepost_providers.processes.child import Child, End, InputRefused, NotStarted, Program

PROGRAM: Final = "git"
# `git merge-tree --write-tree` merges without a checkout from this version on.
VERSION_LEAST: Final = (2, 38)
LOOK_MS_MAX: Final = 10_000
WORK_MS_MAX: Final = 60_000
# Writing files is never given up half-way as long as there is hope.
FOLLOW_MS_MAX: Final = 300_000
# A command that writes gets this long to end by itself: it removes its own locks then.
STOP_GRACE_MS: Final = 2_000
OUTPUT_BYTES_MAX: Final = 4 * 1024 * 1024
INPUT_BYTES_MAX: Final = 3 * 1024 * 1024
TAIL_CHARACTERS_MAX: Final = 200
EXIT_UNKNOWN: Final = -1

_KEPT: Final = ("HOME", "PATH", "TMPDIR")
_ENVIRONMENT: Final[Mapping[str, str]] = {
    # None: a git before 2.45 does not know GIT_NO_LAZY_FETCH, and would fetch by what a remote names as its program.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_ASKPASS": "false",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_EDITOR": "false",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_SSH_COMMAND": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
    "SSH_ASKPASS": "false",
}
_SETTINGS: Final = (
    f"core.attributesFile={os.devnull}",
    f"core.excludesFile={os.devnull}",
    f"core.hooksPath={os.devnull}",
    "core.alternateRefsCommand=true",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "credential.helper=",
    "commit.gpgSign=false",
    "fetch.fsckObjects=true",
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "i18n.commitEncoding=UTF-8",
    "maintenance.auto=false",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "protocol.version=2",
    "safe.bareRepository=explicit",
    "submodule.recurse=false",
)
# For the one command that fetches. What it starts at the other end is let fetch nothing in its turn.
FETCHING: Final[Mapping[str, str]] = {"GIT_ALLOW_PROTOCOL": "file"}
UPLOAD_PACK: Final = "env GIT_ALLOW_PROTOCOL=none git-upload-pack"
_PROGRAMS: Final = r"^(filter|merge|diff)\."
_VERSION: Final = re.compile(r"git version (\d+)\.(\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What a command said. Its exit code is EXIT_UNKNOWN where a signal ended it."""

    code: int
    out: bytes
    error: str

    @property
    def text(self) -> str:
        """Standard output without the white space around it."""
        return self.out.decode("utf-8", "surrogateescape").strip()

    @property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.out.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")


def failed(what: str, output: Output) -> GitFailed:
    """Return the refusal of a command that failed before anything was changed."""
    return GitFailed(
        f"git could not {what}; no branch and no checkout was changed",
        hint="`git fsck` in the repository tells whether it is sound.",
        state={"exit_code": str(output.code), "said": output.error[-TAIL_CHARACTERS_MAX:]},
    )


class Git:
    """Git in one folder. `environ` is this process's own, of which little is kept.

    `taken_away` are settings of the repository that name programs, with what stands in their place; None before they
    are known.
    """

    def __init__(
        self, folder: str, environ: Mapping[str, str], taken_away: Sequence[tuple[str, str]] | None = None
    ) -> None:
        self.folder: Final = folder
        self._environ = environ
        self._environment = {
            **{name: environ[name] for name in _KEPT if name in environ},
            **_ENVIRONMENT,
        }
        if taken_away is not None:
            # As variables: a name may hold what the option -c would take for the end of it.
            self._environment["GIT_CONFIG_COUNT"] = str(len(taken_away))
            for number, (name, value) in enumerate(taken_away):
                self._environment[f"GIT_CONFIG_KEY_{number}"] = name
                self._environment[f"GIT_CONFIG_VALUE_{number}"] = value
            # Whatever the repository's configuration names as its working tree, now or in a moment.
            self._environment["GIT_WORK_TREE"] = folder

    async def tamed(self) -> Git:
        """Return git in the same folder, the top of a checkout, without the programs that its configuration names.

        Raises:
            GitFailed: the configuration cannot be read.
        """
        found = await self.run("config", "--null", "--name-only", "--get-regexp", _PROGRAMS)
        if found.code not in (0, 1):
            raise failed("read the repository's configuration", found)
        names = [name.decode("utf-8", "surrogateescape") for name in found.out.split(b"\0") if name]
        return Git(self.folder, self._environ, programs_off(names))

    async def run(
        self,
        *arguments: str,
        within_ms: int = LOOK_MS_MAX,
        given: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        sink: Callable[[bytes], None] | None = None,
    ) -> Output:
        """Run a command to its end and return what it said, whatever its exit code.

        What it says goes to `sink` as it comes, where there is one, and is then no part of the result.

        Raises:
            GitUnavailable: no git can be started in that folder.
            GitFailed: it did not end in time, or said more than OUTPUT_BYTES_MAX; it was ended and joined.
        """
        path = shutil.which(PROGRAM, path=self._environment.get("PATH", ""))
        if path is None:
            raise _unavailable("no git is on PATH")
        said, room = bytearray(), OUTPUT_BYTES_MAX

        def take(data: bytes) -> None:
            nonlocal room
            room -= len(data)
            if room >= 0:
                said.extend(data)

        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        program = Program(
            argv=(path, *settings, *arguments),
            environment={**self._environment, **(environment or {})},
            working_directory=self.folder,
            takes_input=given is not None,
        )
        try:
            child = await Child.start(program, on_bytes=take if sink is None else sink)
        except NotStarted as error:
            raise _unavailable(str(error)) from None
        end: End | None = None
        try:
            if given is not None:
                # One that has ended already says so by its exit code.
                with contextlib.suppress(InputRefused):
                    child.write(given)
                child.close_input()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_ms / 1000):
                    end = await child.gone()
        finally:
            await child.stop(grace_ms=STOP_GRACE_MS)
        if end is None or room < 0:
            why = f"did not end within {within_ms} ms" if end is None else f"said more than {OUTPUT_BYTES_MAX} bytes"
            raise GitFailed(
                f"git {arguments[0]} {why} and was ended; no branch was moved by it",
                hint="Look at the repository with git yourself, then call again.",
            )
        code = EXIT_UNKNOWN if end.exit_code is None or end.exit_code < 0 else end.exit_code
        return Output(code=code, out=bytes(said), error=end.tail)

    async def type_of(self, identifier: str) -> str:
        """Return what kind of object has this full id, empty where there is none. Raises what run() does."""
        said = await self.run("cat-file", "-t", identifier)
        return said.text if said.code == 0 else ""


def _unavailable(why: str) -> GitUnavailable:
    least = ".".join(map(str, VERSION_LEAST))
    return GitUnavailable(f"git cannot be used here: {why}; nothing was changed", hint=f"Install git {least} or newer.")


async def check_version(git: Git) -> None:
    """Refuse a git that cannot merge without a checkout.

    Raises:
        GitUnavailable: it is too old, or none at all.
    """
    said = await git.run("version")
    found = _VERSION.match(said.text)
    if found is None or (int(found[1]), int(found[2])) < VERSION_LEAST:
        raise _unavailable(f"it says {said.text[:64]!r}")
