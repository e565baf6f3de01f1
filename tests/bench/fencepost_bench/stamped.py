"""The carrier as it is, with a scripted program that notes when it speaks: run in the place of fencepost_providers."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Final

from fencepost_providers import forking
from fencepost_providers.adapters.scripted import program

STAMPED: Final = Path(__file__).with_name("stamped_program.py")


def words() -> tuple[str, ...]:
    """Return the words that start the scripted program with a clock on what it says."""
    return (sys.executable, "-IS", str(STAMPED), "--program", str(Path(program.__file__)))


def main() -> None:
    # First of all, as the service itself does: nothing may have brought gRPC in before.
    assert forking.__name__
    from fencepost_providers.adapters.scripted import scripted_adapter

    scripted_adapter._python = words
    runpy.run_module("fencepost_providers", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
