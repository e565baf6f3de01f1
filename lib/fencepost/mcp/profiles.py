"""Which tools a server offers, and under which names: the words of a setting, read strictly. Next to no imports."""

from __future__ import annotations

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

TOOLS_VARIABLE: Final = "FENCEPOST_TOOLS"
NAMES_VARIABLE: Final = "FENCEPOST_TOOL_NAMES"

MESSAGING: Final = "messaging"
TASKS: Final = "tasks"
CONTEXT: Final = "context"
FILES: Final = "files"
# In the order in which they are listed.
FAMILIES: Final = (MESSAGING, TASKS, CONTEXT, FILES)
ALL: Final = "all"
OFF: Final = "off"
DEFAULT: Final = frozenset({MESSAGING})

PLAIN: Final = "fencepost"
WARP: Final = "warp"
NAMES: Final = (PLAIN, WARP)
WARP_PREFIX: Final = "warp_"


def parse(text: str) -> frozenset[str]:
    """Return the families that a setting names: `all`, `off`, or families with commas between them.

    Raises:
        ValueError: it is none of these. Its text says what may stand there.
    """
    words = [word.strip() for word in text.split(",")]
    if words == [ALL]:
        return frozenset(FAMILIES)
    if words == [OFF]:
        return frozenset()
    if len(set(words)) != len(words) or any(word not in FAMILIES for word in words):
        raise ValueError(f"takes {ALL}, {OFF}, or of {', '.join(FAMILIES)} as many as wanted, with commas between them")
    return frozenset(words)


def text_of(families: frozenset[str]) -> str:
    """Return the setting that names these families, the same for the same ones."""
    if len(families) == len(FAMILIES):
        return ALL
    return ",".join(family for family in FAMILIES if family in families) or OFF


def parse_names(text: str) -> bool:
    """Return True where the names are to be those of the `warp_` tools.

    Raises:
        ValueError: it is no word for names. Its text says what may stand there.
    """
    if text not in NAMES:
        raise ValueError(f"takes {' or '.join(NAMES)}")
    return text == WARP


def allowed(asked: frozenset[str] | None, stored: frozenset[str] | None) -> frozenset[str]:
    """Return what is offered: what was asked for, as far as what is stored for the agent allows it.

    Either is None where nobody said anything; where neither says anything it is DEFAULT.
    """
    if asked is None:
        return DEFAULT if stored is None else stored
    return asked if stored is None else asked & stored
