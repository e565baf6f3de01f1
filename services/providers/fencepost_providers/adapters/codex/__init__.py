"""Codex, by its app-server: one for each agent, started by us in a home of its own.

Promises: work is accepted only with Codex's own receipt, in exactly one turn; information starts no turn; what cannot
be told is uncertain.
Refuses: versions that were never tried with a shared conversation; a second writer of a conversation.
Never: answers a question of Codex's for a person, writes the user's own Codex home, starts Codex's own daemon.
"""

from fencepost_providers.adapters.codex.adapter import CodexAdapter


def adapter() -> CodexAdapter:
    """Return the adapter, as the entry point asks for it."""
    return CodexAdapter()
