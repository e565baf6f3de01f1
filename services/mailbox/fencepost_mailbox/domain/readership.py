"""Who looks at a mailbox, for receipts: so that a sender knows whether anybody will."""

from __future__ import annotations

from fencepost_mailbox.domain.values import Desired, Reader


def reader_of(*, desired: Desired, owned: bool, seen: bool) -> Reader:
    """Return who looks.

    A person's word stands over everything: an agent that is to be off is read by nobody. `owned`: a dispatcher carries
    for the agent's current life; into a paused one it carries nothing. `seen`: the agent has read by itself, or waits.
    """
    if desired is Desired.OFF:
        return Reader.OFF
    if owned and desired is not Desired.PAUSED:
        return Reader.NATIVE
    return Reader.MANUAL if seen else Reader.NONE
