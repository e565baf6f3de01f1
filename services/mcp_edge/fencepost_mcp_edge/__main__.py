"""Runs the MCP edge alone: `python -m fencepost_mcp_edge`."""

from __future__ import annotations

import asyncio
import sys

from fencepost.home import MCP_EDGE, Home
from fencepost_kit import logs
from fencepost_kit.serve import run
from fencepost_kit.settings import load
from fencepost_mcp_edge.settings import Settings
from fencepost_mcp_edge.wiring import serve


async def _main(stop: asyncio.Event) -> int:
    home = Home.from_environment()
    settings = load(Settings, service=MCP_EDGE, home=home, argv=sys.argv[1:]).value
    logs.configure(MCP_EDGE, settings.log_level)
    return await serve(home, settings, stop)


def main() -> int:
    """Run the service and return its exit status."""
    return run(_main, service=MCP_EDGE)


if __name__ == "__main__":
    sys.exit(main())
