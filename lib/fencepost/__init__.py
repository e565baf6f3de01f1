"""Fencepost: a durable mailbox between coding agents.

Importing the package imports nothing else: the names below load at first use, because the stdio shim, which agent
programs start over and over, lives in this package too.
"""

from __future__ import annotations

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fencepost.client import Budgets, Channels, Client, Contexts, Files, Identity, Mailbox, Sessions, Tasks
    from fencepost.errors import FencepostError, NotWritten, Refused, Uncertain
    from fencepost.home import Home

__version__ = "0.1.0"

__all__ = [
    "Budgets",
    "Channels",
    "Client",
    "Contexts",
    "FencepostError",
    "Files",
    "Home",
    "Identity",
    "Mailbox",
    "NotWritten",
    "Refused",
    "Sessions",
    "Tasks",
    "Uncertain",
    "__version__",
]

_LIVES_IN = {
    "Budgets": "fencepost.client",
    "Channels": "fencepost.client",
    "Client": "fencepost.client",
    "Contexts": "fencepost.client",
    "FencepostError": "fencepost.errors",
    "Files": "fencepost.client",
    "Home": "fencepost.home",
    "Identity": "fencepost.client",
    "Mailbox": "fencepost.client",
    "NotWritten": "fencepost.errors",
    "Refused": "fencepost.errors",
    "Sessions": "fencepost.client",
    "Tasks": "fencepost.client",
    "Uncertain": "fencepost.errors",
}


def __getattr__(name: str) -> Any:
    module = _LIVES_IN.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 (nothing is loaded before it is asked for)

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
