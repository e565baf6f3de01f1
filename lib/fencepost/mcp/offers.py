"""What one server offers: asked for by its arguments or environment, bounded by what is stored for its agent.

Imported only where one of these says something; a server of which nobody said anything tells constants.
"""

from __future__ import annotations

from fencepost.mcp import names, profiles
from fencepost.mcp.session import Told

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

# In an agent's folder of the home: what is stored for it, written by sessions.
STORED: Final = "tools"
STORED_BYTES_MAX: Final = 256


class Wish:
    """What the arguments and the environment of a server say; None where they say nothing."""

    __slots__ = ("name", "tools", "warp")

    def __init__(self, *, tools: frozenset[str] | None = None, warp: bool = False, name: str = names.LOCAL) -> None:
        self.tools = tools
        self.warp = warp
        self.name = name


def wish_of(
    env: Mapping[str, str], *, tools: str | None = None, called: str | None = None, name: str | None = None
) -> Wish:
    """Return what is wished: an argument comes before the environment, an empty variable says nothing.

    Raises:
        ValueError: one of them cannot be understood. Its text says which.
    """
    wanted = env.get(profiles.TOOLS_VARIABLE, "") if tools is None else tools
    called = env.get(profiles.NAMES_VARIABLE, "") if called is None else called
    name = env.get(names.SERVER_VARIABLE, "") if name is None else name
    wish = Wish()
    try:
        where = "--tools" if tools is not None else profiles.TOOLS_VARIABLE
        wish.tools = profiles.parse(wanted) if wanted or tools is not None else None
        where = profiles.NAMES_VARIABLE + " or --names"
        wish.warp = bool(called) and profiles.parse_names(called)
        where = names.SERVER_VARIABLE + " or --server-name"
        wish.name = names.parse(name) if name else names.detected(env)
    except ValueError as error:
        raise ValueError(f"{where} {error}") from None
    return wish


def stored_in(folder: str) -> frozenset[str] | None:
    """Return the families that an agent's folder allows, or None where nothing is stored there.

    A word of a later version is passed over, so that a newer setting never offers more than it says.
    """
    try:
        with open(f"{folder}/{STORED}", "rb") as file:  # noqa: PTH123 (the shim has no pathlib)
            words = file.read(STORED_BYTES_MAX).decode("ascii", "replace").strip().split(",")
    except OSError:
        return None
    if words == [profiles.ALL]:
        return frozenset(profiles.FAMILIES)
    return frozenset(words) & frozenset(profiles.FAMILIES)


def told(wish: Wish, folder: str | None) -> Told:
    """Return what a client is told under a wish, where the agent's folder is this; None where it is not known."""
    stored = None if folder is None else stored_in(folder)
    return telling(wish.name, profiles.allowed(wish.tools, stored), warp=wish.warp)


def telling(name: str, families: frozenset[str], *, warp: bool) -> Told:
    """Return what a client is told of a server of this name that offers these families."""
    if families == profiles.DEFAULT:
        return Told(name=name.encode())
    from fencepost.mcp import offered  # noqa: PLC0415 (a name alone needs none of it)

    table = offered.WARPED if warp else offered.TOLD
    parts = [table[family] for family in profiles.FAMILIES if family in families]
    words = b" ".join(part for part, _ in parts if part)
    tools = b",".join(part for _, part in parts if part)
    return Told(name=name.encode(), instructions=b'"%b"' % words, tools_list=b'{"tools":[%b]}' % tools)
