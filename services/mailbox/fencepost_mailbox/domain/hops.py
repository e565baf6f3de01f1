"""How long a chain of requests may become: agents that ask each other in a circle come to an end."""

from __future__ import annotations

from fencepost_mailbox.domain.refusals import HopLimit
from fencepost_mailbox.domain.values import HOPS_MAX


def check_hops(most: int) -> int:
    """Return the hops of a request whose sender works on requests with at most `most` hops; -1 for on none.

    Raises:
        HopLimit: the chain has HOPS_MAX requests behind it already.
    """
    hops = most + 1
    if hops > HOPS_MAX:
        raise HopLimit(
            f"{HOPS_MAX} requests of agents led to this one already, each made while its sender worked on the one "
            "before; nothing was written",
            hint="Answer the request that you work on (reply, blocked says why): a person decides how it goes on.",
            state={"hops": str(hops), "hops_max": str(HOPS_MAX)},
        )
    return hops
