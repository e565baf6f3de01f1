"""python -m fencepost_sessions [--home PATH] [--SETTING VALUE ...]: the service alone, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from fencepost.home import SESSIONS, Home
from fencepost_kit.refusal import StartRefused
from fencepost_kit.serve import EXIT_REFUSED, run
from fencepost_kit.settings import load
from fencepost_sessions.settings import Settings
from fencepost_sessions.wiring import serve

_HOME = "--home"


def split_home(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the value of --home, if it is given, and the other flags.

    Raises:
        StartRefused: --home without a value, or twice.
    """
    home: str | None = None
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag != _HOME:
            rest.append(word)
            continue
        found = value if equals else next(words, "")
        if not found or home is not None:
            raise StartRefused(f"{_HOME} takes one path and is given once", hint=f"Write {_HOME} PATH.")
        home = found
    return home, rest


def main(argv: Sequence[str] | None = None) -> int:
    """Run the service; return its exit code."""
    try:
        path, flags = split_home(sys.argv[1:] if argv is None else argv)
        home = Home.from_environment() if path is None else Home(path)
        settings = load(Settings, service=SESSIONS, home=home, argv=flags).value
    except StartRefused as refusal:
        sys.stderr.write(f"{SESSIONS}: {refusal.message}. {refusal.hint}\n")
        return EXIT_REFUSED

    async def until(stop: asyncio.Event) -> int:
        return await serve(home, settings, stop)

    return run(until, service=SESSIONS, level=settings.log_level)


if __name__ == "__main__":
    raise SystemExit(main())
