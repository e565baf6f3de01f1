"""`fencepost backup` and `restore`: the data of a home."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fencepost.cli import acting, screen
from fencepost.cli.options import AsJson
from fencepost.errors import Refused
from fencepost.home import Home

KEEP_MAX = 1000
KEEP_DAYS_MAX = 3650


def backup(
    *,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="A new folder; default: one in <home>/backups.")
    ] = None,
    keep: Annotated[int, typer.Option("--keep", metavar="N", help="Backups kept in <home>/backups.")] = 10,
    keep_days: Annotated[int, typer.Option("--keep-days", metavar="N", help="And how long.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Copy the databases of the home, while its services run or not, and verify the copies."""
    from fencepost import care  # noqa: PLC0415 (what only sends loads no database)

    acting.refuse_agents()
    if not 1 <= keep <= KEEP_MAX or not 1 <= keep_days <= KEEP_DAYS_MAX:
        raise Refused(
            "invalid_limit",
            f"--keep takes 1 to {KEEP_MAX} and --keep-days 1 to {KEEP_DAYS_MAX}; nothing was written",
        )
    made = care.back_up(Home.from_environment(), to=to, keep=keep, keep_days=keep_days)
    if as_json:
        stores = [
            {"service": store.service, "epoch": store.epoch, "schema": store.schema, "size_bytes": store.size_bytes}
            for store in made.manifest.stores
        ]
        removed = [str(path) for path in made.removed]
        left_out = [str(path) for path in made.left_out]
        screen.put_json({"folder": str(made.folder), "stores": stores, "removed": removed, "left_out": left_out})
        return
    sizes = ", ".join(f"{store.service} {store.size_bytes} bytes" for store in made.manifest.stores)
    screen.put(f"Backed up and verified: {made.folder} ({sizes}).")
    if made.removed:
        screen.put(f"Removed {len(made.removed)} older: {', '.join(path.name for path in made.removed)}.")
    if made.left_out:
        places = ", ".join(map(str, made.left_out))
        screen.put(f"Not in it, since programs write and keep logins there: {places}. Copy them while nothing runs.")


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a backup.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Put a backup in the place of the home's databases, which are moved aside. Only while nothing runs."""
    from fencepost import care  # noqa: PLC0415 (what only sends loads no database)

    acting.refuse_agents()
    home = Home.from_environment()
    done = care.restore(home, folder)
    if as_json:
        aside = str(done.aside) if done.aside is not None else None
        screen.put_json({"home": home.text, "restored": str(folder), "aside": aside})
        return
    screen.put(f"Restored {folder} into {home.text}.")
    if done.aside is not None:
        screen.put(f"What stood there is in {done.aside}.")
    screen.put(
        "At their next start the stores take new epochs: receipts and cursors from before are refused, claims that were"
        " held become uncertain. An agent whose credential is newer than the backup needs: fencepost agent renew NAME"
    )
    screen.put("Next: fencepost up")
