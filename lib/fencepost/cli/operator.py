"""`fencepost credential`: the operator's view of who may act."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final

import typer

from fencepost.cli import acting, screen
from fencepost.cli.directory import resolve
from fencepost.cli.options import PAGES_MAX, AsJson
from fencepost.cli.plain import plain
from fencepost.cli.screen import Column
from fencepost.common.v1 import common_pb2
from fencepost.errors import Refused
from fencepost.home import is_uuid
from fencepost.sessions.v1 import sessions_pb2 as pb

# How long `revoke` waits for the mailbox to confirm.
ENFORCED_MS_MAX: Final = 2_000
ENFORCED_POLL_MS: Final = 50

credentials = typer.Typer(help="List and revoke credentials.", no_args_is_help=True)


@credentials.command("list")
def list_credentials(
    *,
    agent: Annotated[str | None, typer.Option(metavar="TARGET", help="Only this agent's.")] = None,
    as_json: AsJson = False,
) -> None:
    """List credentials, without their secrets."""

    async def work(services: acting.Services) -> list[pb.Credential]:
        wanted = "" if agent is None else (await resolve(services, agent)).agent.agent_id
        found: list[pb.Credential] = []
        token = ""
        for _ in range(PAGES_MAX):
            page = await services.sessions.list_credentials(
                pb.ListCredentialsRequest(agent_id=wanted, page_token=token)
            )
            found.extend(page.credentials)
            token = page.next_page_token
            if not token:
                break
        return found

    found = acting.call(acting.as_operator(), work)
    if as_json:
        screen.put_json({"credentials": [plain(item) for item in found]})
        return
    columns = [Column(title=title) for title in ("UUID", "ROLE", "FOR", "AGENT UUID", "GEN", "MINTED")]
    roles = {
        common_pb2.Role.Value(f"ROLE_{name.upper()}"): name for name in ("agent", "coordinator", "operator", "service")
    }
    rows = [
        [
            item.credential_id,
            roles.get(item.role, "?"),
            item.label,
            item.agent_id or "-",
            str(item.generation or "-"),
            screen.moment(item.created_at_ms),
        ]
        for item in found
    ]
    screen.put(screen.table(columns, rows))


@credentials.command("revoke")
def revoke(
    credential_id: Annotated[
        str, typer.Argument(metavar="UUID", help="The credential's UUID, from `credential list`.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Remove a credential; tell whether the mailbox enforces that already."""
    operator = acting.as_operator()
    if not is_uuid(credential_id):
        raise Refused(
            "invalid_arguments", "that is no UUID; nothing was written", hint="See `fencepost credential list`."
        )

    async def confirmed(services: acting.Services) -> pb.RevokeCredentialResponse:
        # The mailbox follows within milliseconds. Revoking what is revoked only asks whether it has.
        until_s = time.monotonic() + ENFORCED_MS_MAX / 1000
        while True:
            answer = await services.sessions.revoke_credential(credential_id)
            if answer.enforced or time.monotonic() >= until_s:
                return answer
            await asyncio.sleep(ENFORCED_POLL_MS / 1000)

    answer = acting.call(operator, lambda services: services.sessions.revoke_credential(credential_id))
    if not answer.enforced:
        # Read anew: it may have been the operator's own, which is replaced in its file before the answer.
        answer = acting.call(acting.as_operator(), confirmed)
    if as_json:
        screen.put_json(plain(answer))
    elif answer.enforced:
        screen.put(f"Credential {credential_id} is revoked, and the mailbox enforces it.")
    else:
        screen.put(
            f"Credential {credential_id} is revoked (directory revision {answer.revision}); the mailbox has not"
            " confirmed it yet. Run the same command again to see whether it has."
        )
