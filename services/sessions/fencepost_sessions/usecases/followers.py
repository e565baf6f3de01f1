"""What each follower has confirmed.

Kept in memory only. A confirmation is the follower's word that a revision is durable with it, and it gives that word
again after every reconnect; kept on our disk it could outlive a follower's disk that was put back. So "enforced" is
never older than this process: after a restart of sessions a removal reads "not enforced" until the follower has
confirmed anew.
"""

from __future__ import annotations


class Followers:
    """The newest confirmed revision of each follower. Names are labels of service credentials: there are only a few."""

    def __init__(self) -> None:
        self._confirmed: dict[str, int] = {}

    def confirm(self, follower: str, revision: int) -> None:
        """Note a confirmation; one that comes late never takes back a later one."""
        self._confirmed[follower] = max(revision, self._confirmed.get(follower, 0))

    def begins_at(self, follower: str, revision: int) -> None:
        """Note what a follower says it holds when it begins to watch: whatever it confirmed beyond that it has lost."""
        if follower in self._confirmed:
            self._confirmed[follower] = min(revision, self._confirmed[follower])

    def has_confirmed(self, follower: str, revision: int) -> bool:
        """Tell whether everything up to `revision` is durable with a follower."""
        return self._confirmed.get(follower, 0) >= revision
