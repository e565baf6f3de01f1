"""Files of a call, named on the machine of their checkout. Imported at the first call that names some.

The shim runs where the checkout is, also where the home is on another machine; the edge does it itself for clients that
come without a shim. What was made of the names travels in the request's `_meta`.
"""

from __future__ import annotations

import os
from pathlib import Path

from fencepost.errors import Refused
from fencepost.mcp import registry, wire
from fencepost.paths import Checkout

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

    from fencepost.mcp.session import Call

# In `_meta`: what was made of the names.
PLACE_KEY: Final = "fencepost/files"


def place(arguments: Mapping[str, Any], folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what the files that arguments name are called: those of the checkout that a folder lies in.

    Names are relative to the checkout's root, or absolute.

    Raises:
        Refused: outside_checkout, invalid_path, not_found. Nothing was sent.
    """
    checkout = Checkout.containing(folder)
    given = [arguments["file_path"]] if "file_path" in arguments else []
    given += arguments.get("more_paths", [])
    paths, globs = checkout.sorted_out(given)
    return {"root": checkout.root, "ignore_case": checkout.ignore_case, "paths": paths, "globs": globs}


def prepare(call: Call, folder: str | None) -> bytes | None:
    """Put the names of a call's files into its line, and return None; or return the answer to a call that has none.

    A call that is wrong is left as it is: whoever carries calls out says what is wrong with it.
    """
    try:
        message = wire.decode(call.line)
        tool = registry.EVERY_OF[call.name]
        arguments = tool.check(message["params"].get("arguments", {}))
    except (wire.NotJson, registry.Problem):
        return None
    try:
        placed = place(arguments, Path.cwd() if folder is None else folder)
    except Refused as refused:
        text = f"{refused.message[:1].upper()}{refused.message[1:]}."
        return wire.tool_error(
            call.id_text, code=refused.reason, message=text, hint=refused.hint, state=dict(refused.state)
        )
    except FileNotFoundError:
        text = "The folder that this server was started in is gone; nothing was sent."
        return wire.tool_error(call.id_text, code="not_found", message=text)
    import json  # noqa: PLC0415 (only calls that name files pay for the encoder)

    params = message["params"]
    meta = params.get("_meta")
    params["_meta"] = {**(meta if isinstance(meta, dict) else {}), PLACE_KEY: placed}
    # ASCII, so that whatever the client wrote, half of a surrogate pair too, is passed on as it was.
    call.line = json.dumps(message, separators=(",", ":")).encode()
    return None
