"""Runs the supervisor in the foreground: python -m fencepost.up."""

from __future__ import annotations

import argparse
import sys

from fencepost.errors import Refused
from fencepost.home import Home
from fencepost.up import TABLE, run
from fencepost.up.start import EXIT_FAILED, say
from fencepost.up.table import table_from_json


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m fencepost.up", description="Keep the services of a home up.")
    parser.add_argument("--home", help="the home (FENCEPOST_HOME, else ~/.fencepost)")
    parser.add_argument("--services", help="names of services, separated by commas; each brings what it needs")
    parser.add_argument("--table", type=table_from_json, default=TABLE, help="a table of other services, as JSON")
    parser.add_argument("--detach", action="store_true", help="return once everything is ready")
    arguments = parser.parse_args()
    try:
        home = Home(arguments.home) if arguments.home else Home.from_environment()
    except Refused as refused:
        say(f"{refused.message}. {refused.hint}".rstrip())
        return EXIT_FAILED
    services = arguments.services.split(",") if arguments.services is not None else None
    return run(home, detach=arguments.detach, services=services, table=arguments.table)


if __name__ == "__main__":
    sys.exit(main())
