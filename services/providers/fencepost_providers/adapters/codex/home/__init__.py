"""The private Codex home of a managed agent: everything that Codex keeps for it, apart from the user's own.

Promises: the user's own configuration and login are read and never written; what a person edits in the private home
stays; every preparation may be repeated, and a crash at any moment is mended by the next one.
Refuses: a home that is not this user's alone, a configuration that is not TOML, a path in which no socket fits.
Never: shares a database, filters a plugin, approves a tool that nobody asked for, or touches the workspace.
"""

from fencepost_providers.adapters.codex.home.preparation import (
    Prepared,
    approve_tools,
    background_arguments,
    codex_home,
    findings,
    forget,
    prepare,
    project,
    publish_history,
    restore,
)

__all__ = [
    "Prepared",
    "approve_tools",
    "background_arguments",
    "codex_home",
    "findings",
    "forget",
    "prepare",
    "project",
    "publish_history",
    "restore",
]
