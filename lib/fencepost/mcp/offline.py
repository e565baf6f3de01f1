"""What the first tool call needs: an identity, a home, and answers where there is neither. Imported at that call."""

from __future__ import annotations

import os

from fencepost.errors import Refused
from fencepost.home import CREDENTIAL_VARIABLE, SESSION_VARIABLE, Home
from fencepost.mcp import profiles, wire
from fencepost.mcp.calls import UNREADABLE, Calls
from fencepost.mcp.link import Identity, Link, new_nonce

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final

    from fencepost.mcp.arguments import Asked
    from fencepost.mcp.offers import Wish
    from fencepost.mcp.session import Call

# The call by which a process that speaks for nobody takes a name.
REGISTER: Final = "agent_register"
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

    Where neither names one, agent_register does, and the process is that agent from then on, as with `--agent NAME`.
    Where none can be used the call is answered. The token is read here, or once `asked` is resolved, and only once:
    a later life's credential is not picked up by this process.
    """
    env = os.environ if env is None else env

    def examined(call: Call) -> bytes | None:
        return examine(call, wish)

    try:
        home = Home.from_environment(env)
        asked = asked or registering(call, env, wish)
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


def registering(call: Call, env: Mapping[str, str], wish: Wish | None) -> Asked | None:
    """Return the agent that a call of agent_register names, where that is offered and the environment names none."""
    offered = wish is not None and wish.tools is not None and profiles.TASKS in wish.tools
    if call.name != REGISTER or not offered or env.get(CREDENTIAL_VARIABLE) or env.get(SESSION_VARIABLE):
        return None
    if examine(call, wish) is not None:
        # What is wrong with its arguments is told where they are looked at.
        return None
    from fencepost.mcp.arguments import AGENT, parse  # noqa: PLC0415 (hardly any process comes here)

    try:
        return parse([AGENT, wire.decode(call.line)["params"]["arguments"]["name"]])
    except ValueError as error:
        raise Refused("invalid_arguments", f"{error}; nothing was sent", hint="Give the name of one agent.") from None


def _no_identity(call: Call, refused: Refused) -> bytes:
    code = _NO_SENDER[0] if refused.reason in _NO_SENDER else refused.reason
    message = f"{refused.message[:1].upper()}{refused.message[1:]}."
    return wire.tool_error(call.id_text, code=code, message=message, hint=refused.hint)


def examine(call: Call, wish: Wish | None = None) -> bytes | None:
    """Return the answer to a call whose arguments are wrong, else None. Where an edge is there, the edge does this.

    What is stored for the agent is the edge's to say: where nothing is wished, any tool of the table passes.
    """
    # Needed only where no edge is.
    from fencepost.mcp import registry  # noqa: PLC0415

    try:
        params = wire.decode(call.line)["params"]
    except wire.NotJson:
        # It was read once, so it is nested so deeply that a few calls more on the stack make the difference.
        return wire.failure(call.id_text, wire.INVALID_REQUEST, UNREADABLE)
    families = frozenset(profiles.FAMILIES) if wish is None or wish.tools is None else wish.tools
    verdict = registry.examine(params, registry.menu(families, warp=wish is not None and wish.warp))
    return verdict.line(call.id_text) if isinstance(verdict, registry.Malformed) else None
