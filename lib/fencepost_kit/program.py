"""A service as a program: python -m fencepost_<service> [--home PATH] [--FIELD VALUE ...]."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from fencepost.errors import Refused
from fencepost.home import Home
from fencepost_kit.refusal import Refusal
from fencepost_kit.serve import EXIT_REFUSED, run
from fencepost_kit.settings import load

SettingsT = TypeVar("SettingsT", bound="Logged")


class Logged(Protocol):
    """Settings that say how much is logged."""

    @property
    def log_level(self) -> str:
        """debug, info, warning or error."""
        ...


def home_of(argv: Sequence[str]) -> tuple[Home, list[str]]:
    """Return the home that --home names, else the environment's, and the other flags in their order."""
    rest: list[str] = []
    named: str | None = None
    words = iter(argv)
    for word in words:
        if word == "--home":
            named = next(words, "")
        elif word.startswith("--home="):
            named = word.removeprefix("--home=")
        else:
            rest.append(word)
    return (Home(named) if named else Home.from_environment()), rest


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
    return run(lambda stop: start(home, settings, stop), service=service, level=settings.log_level)
