"""An agent program of our own that follows a script, and misbehaves where the script says so: for tests and demos."""

from __future__ import annotations

from fencepost_providers.adapters.scripted.scripted_adapter import ScriptedAdapter

__all__ = ["ScriptedAdapter", "adapter"]


def adapter() -> ScriptedAdapter:
    """Return the adapter; the entry point `scripted`."""
    return ScriptedAdapter()
