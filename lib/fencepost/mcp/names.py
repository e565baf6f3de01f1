"""What a server calls itself: by the environment of its agent, unless it is told otherwise. Next to no imports."""

from __future__ import annotations

import os

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

SERVER_VARIABLE: Final = "FENCEPOST_SERVER_NAME"
LOCAL: Final = "fencepost-local"
SSH: Final = "fencepost-ssh"
WSL: Final = "fencepost-wsl"
SERVER_NAMES: Final = (LOCAL, SSH, WSL)
SERVER_NAME_CHARS_MAX: Final = 64
# Set by sshd in every session, and by WSL in every process.
SSH_VARIABLES: Final = ("SSH_CONNECTION",)
WSL_VARIABLES: Final = ("WSL_DISTRO_NAME", "WSL_INTEROP")
# There in every distribution of WSL, whatever its processes' environment.
WSL_MARK: Final = "/proc/sys/fs/binfmt_misc/WSLInterop"
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")


def detected(env: Mapping[str, str], *, mark: str = WSL_MARK) -> str:
    """Return the name for this environment. Who came over SSH is a remote account, inside WSL too."""
    if any(env.get(name) for name in SSH_VARIABLES):
        return SSH
    if any(env.get(name) for name in WSL_VARIABLES) or os.path.exists(mark):  # noqa: PTH110 (the shim has no pathlib)
        return WSL
    return LOCAL


def parse(text: str) -> str:
    """Return a name that was set.

    Raises:
        ValueError: programs could not take it. Its text says what they take.
    """
    if not 1 <= len(text) <= SERVER_NAME_CHARS_MAX or not _PLAIN.issuperset(text):
        raise ValueError(f"takes 1 to {SERVER_NAME_CHARS_MAX} of A-Z, a-z, 0-9, '_', '.' and '-'")
    return text


def server_name(env: Mapping[str, str]) -> str:
    """Return the name that the environment sets, else the one that fits it. Raises ValueError, see parse."""
    named = env.get(SERVER_VARIABLE, "")
    return parse(named) if named else detected(env)
