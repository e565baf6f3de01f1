"""A service as a program: python -m fencepost_<service> [--home PATH] [--FIELD VALUE ...]."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from fencepost.errors import Refused
from fencepost.home import Home
from fencepost_kit.refusal import Refusal, StartRefused
from fencepost_kit.serve import EXIT_REFUSED, run
from fencepost_kit.settings import load

SettingsT = TypeVar("SettingsT", bound="Logged")
_HOME: Final = "--home"


class Logged(Protocol):
    """Settings that say how much is logged."""

    @property
    def log_level(self) -> str:
        """debug, info, warning or error."""
        ...


def home_of(argv: Sequence[str]) -> tuple[Home, list[str]]:
    """Return the home that --home names, else the environment's, and the other flags in their order.

    Raises:
        StartRefused: --home without a value, or twice.
    """
    rest: list[str] = []
    named: str | None = None
    words = iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag != _HOME:
            rest.append(word)
            continue
        found = value if equals else next(words, "")
        if not found or named is not None:
            raise StartRefused(f"{_HOME} takes one path and is given once", hint=f"Write {_HOME} PATH.")
        named = found
    return (Home.from_environment() if named is None else Home(named)), rest


def main(
    service: str,
    kind: type[SettingsT],
    start: Callable[[Home, SettingsT, asyncio.Event], Coroutine[Any, Any, int]],
    argv: Sequence[str] | None = None,
) -> int:
    """Load the settings and run `start` until it returns; returns the exit code.

    Wrong settings are told on standard error with EXIT_REFUSED before anything is created.
    """
    try:
        home, flags = home_of(list(sys.argv[1:] if argv is None else argv))
        settings: Any = load(kind, service=service, home=home, argv=flags).value
    except (Refusal, Refused) as refusal:
        sys.stderr.write(f"{service}: {refusal.message}. {refusal.hint}\n")
        return EXIT_REFUSED
    # What is loaded now stays for the life of the process. A full collection that walks over it stops every call for
    # 10 ms and more, once in some thousand calls; without it, for less than one.
    gc.collect()
    gc.freeze()
    return run(lambda stop: start(home, settings, stop), service=service, level=settings.log_level)
