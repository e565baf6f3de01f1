"""`fencepost certs`: certificates for calls over TCP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli import acting, screen
from fencepost.cli.options import AsJson
from fencepost.home import Home

if TYPE_CHECKING:
    from fencepost.certs import Certificate

certs = typer.Typer(help="Certificates for calls over TCP with mutual TLS.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The client's name.")]


def _home() -> Home:
    acting.refuse_agents()
    return Home.from_environment()


def _fields(certificate: Certificate) -> dict[str, Any]:
    from fencepost.certs import days_left  # noqa: PLC0415 (what only sends loads none of it)

    return {
        "kind": certificate.kind,
        "name": certificate.name,
        "path": str(certificate.path),
        "serial": certificate.serial,
        "fingerprint": certificate.fingerprint,
        "expires_at_ms": certificate.expires_at_ms,
        "days_left": days_left(certificate),
    }


def _put(found: list[Certificate]) -> None:
    for fields in map(_fields, found):
        left = fields["days_left"]
        life = f"{left} days left" if left >= 0 else "expired"
        screen.put(f"{fields['kind']} {fields['name']}: {life}, sha256 {fields['fingerprint']}, {fields['path']}")


@certs.command("init")
def init(
    *,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="Another name or address that clients will use; repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the private authority of the home and the certificate of its services."""
    from fencepost import certs as made  # noqa: PLC0415 (what only sends loads none of it)

    found = made.init(_home(), hosts=host or ())
    if as_json:
        screen.put_json({"certificates": [_fields(one) for one in found]})
        return
    _put(found)
    screen.put("Next: fencepost certs issue NAME, and listen in fencepost.toml.")


@certs.command("issue")
def issue(
    name: Name,
    *,
    days: Annotated[int | None, typer.Option("--days", metavar="N", help="Lifetime; default 90, at most 398.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a client's key and certificate."""
    from fencepost import certs as made  # noqa: PLC0415 (what only sends loads none of it)

    found = made.issue(_home(), name, days=made.CLIENT_DAYS if days is None else days)
    if as_json:
        screen.put_json(_fields(found))
        return
    _put([found])
    screen.put(f"Copy the folder {found.path.parent} to where the client runs, by a way that nobody else can read.")


@certs.command("show")
def show(*, as_json: AsJson = False) -> None:
    """Show every certificate in force."""
    from fencepost import certs as made  # noqa: PLC0415 (what only sends loads none of it)

    found = made.show(_home())
    if as_json:
        screen.put_json({"certificates": [_fields(one) for one in found]})
    else:
        _put(found)


@certs.command("revoke")
def revoke(name: Name, *, as_json: AsJson = False) -> None:
    """Take a client's certificate back; its open connections end within a second."""
    from fencepost import certs as made  # noqa: PLC0415 (what only sends loads none of it)

    found = made.revoke(_home(), name)
    if as_json:
        screen.put_json({"name": name, "serial": found.serial, "fingerprint": found.fingerprint})
    else:
        screen.put(f"Taken back: {name}, serial {found.serial}.")
