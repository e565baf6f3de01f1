"""The `fencepost` command. `fencepost mcp serve` becomes the stdio shim before anything else is loaded."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit code."""
    if sys.argv[1:3] == ["mcp", "serve"]:
        # An agent program starts this over and over: nothing of the command line may be loaded for it.
        from fencepost.mcp import shim  # noqa: PLC0415

        del sys.argv[1:3]
        return int(shim.main() or 0)
    from fencepost.cli.app import main as command_line  # noqa: PLC0415

    return command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
