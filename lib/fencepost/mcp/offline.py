"""What the first tool call needs: an identity, a home, and answers where there is neither. Imported at that call."""

from __future__ import annotations

import os

from fencepost.errors import Refused
from fencepost.home import Home
from fencepost.mcp import wire
from fencepost.mcp.calls import UNREADABLE, Calls
from fencepost.mcp.link import Identity, Link, new_nonce

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fencepost.mcp.arguments import Asked
    from fencepost.mcp.offers import Wish
    from fencepost.mcp.session import Call

# A sender that is named but does not exist is as little managed as one that is not named.
_NO_SENDER = ("missing_managed_sender", "credential_missing")


def open_link(
    call: Call,
    *,
    emit: Callable[[bytes], None],
    env: Mapping[str, str] | None = None,
    asked: Asked | None = None,
    wish: Wish | None = None,
) -> tuple[Calls, Link] | None:
    """Return the table of calls and the connection, for the agent that `asked` or the environment names.

    Where neither can be used the call is answered. The token is read here, or once `asked` is resolved, and only once:
    a later life's credential is not picked up by this process.
    """
    env = os.environ if env is None else env

    def examined(call: Call) -> bytes | None:
        return examine(call, wish)

    try:
        home = Home.from_environment(env)
        if asked is not None:
            from fencepost.mcp.naming import NamedCalls, NamedLink  # noqa: PLC0415 (the environment names most agents)

            named = NamedCalls(emit=emit, examine=examined)
            return named, NamedLink(home=home, asked=asked, calls=named, nonce=new_nonce(), env=env, wish=wish)
        identity = Identity.from_environment(home, env)
    except Refused as refused:
        # Wrong arguments are told first: they stay wrong when the identity is put right.
        call.sink(examine(call, wish) or _no_identity(call, refused))
        return None
    calls = Calls(emit=emit, examine=examined)
    return calls, Link(home=home, identity=identity, calls=calls, nonce=new_nonce(), wish=wish)


def _no_identity(call: Call, refused: Refused) -> bytes:
    code = _NO_SENDER[0] if refused.reason in _NO_SENDER else refused.reason
    message = f"{refused.message[:1].upper()}{refused.message[1:]}."
    return wire.tool_error(call.id_text, code=code, message=message, hint=refused.hint)


def examine(call: Call, wish: Wish | None = None) -> bytes | None:
    """Return the answer to a call whose arguments are wrong, else None. Where an edge is there, the edge does this.

    What is stored for the agent is the edge's to say: where nothing is wished, any tool of the table passes.
    """
    # Needed only where no edge is.
    from fencepost.mcp import profiles, registry  # noqa: PLC0415

    try:
        params = wire.decode(call.line)["params"]
    except wire.NotJson:
        # It was read once, so it is nested so deeply that a few calls more on the stack make the difference.
        return wire.failure(call.id_text, wire.INVALID_REQUEST, UNREADABLE)
    families = frozenset(profiles.FAMILIES) if wish is None or wish.tools is None else wish.tools
    verdict = registry.examine(params, registry.menu(families, warp=wish is not None and wish.warp))
    return verdict.line(call.id_text) if isinstance(verdict, registry.Malformed) else None
