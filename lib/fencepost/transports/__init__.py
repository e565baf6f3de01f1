"""What carries the calls of the client: grpcio, or grpclib where that extra is installed.

The seam is `grpc.aio.Channel`, which is a public abstract class: a transport opens one for an address. Stubs, outcomes
and budgets know nothing else, so one set of generated stubs and one client serve every transport.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import grpc.aio

from fencepost.errors import Refused

MESSAGE_BYTES_MAX: Final = 2 * 1024 * 1024
RECONNECT_MS_MIN: Final = 50
RECONNECT_MS_MAX: Final = 500

TransportName = Literal["grpcio", "grpclib"]
GRPCIO: Final = "grpcio"
GRPCLIB: Final = "grpclib"
TRANSPORTS: Final = (GRPCIO, GRPCLIB)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCertificates:
    """The PEM files by which a client shows who it is over TCP, and knows the service."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def in_folder(cls, folder: str | os.PathLike[str]) -> ClientCertificates:
        """Return those of a folder as `fencepost certs issue NAME` makes it."""
        path = Path(folder)
        return cls(authority=path / "authority.crt", certificate=path / "client.crt", key=path / "client.key")


@dataclass(frozen=True, kw_only=True, slots=True)
class Remote:
    """Services that are reached over TCP with mutual TLS: the address of each, `host:port`, and the certificates."""

    addresses: Mapping[str, str]
    certificates: ClientCertificates


# Opens a channel to an address: `unix:/path`, or `host:port` with certificates. Connects to nothing by itself. Raises
# OSError where a certificate cannot be read, and ValueError where it is none.
Open = Callable[[str, ClientCertificates | None], grpc.aio.Channel]


def opener(name: str) -> Open:
    """Return what opens channels of a transport.

    Raises:
        Refused: invalid_transport, or missing_extra where its package is not installed. Nothing was sent.
    """
    if name == GRPCIO:
        from fencepost.transports.over_grpcio import open_channel  # noqa: PLC0415 (one of them is loaded)

        return open_channel
    if name == GRPCLIB:
        try:
            from fencepost.transports.over_grpclib import open_channel as open_grpclib  # noqa: PLC0415 (an extra)
        except ModuleNotFoundError as error:
            # Only a missing package of the extra is answered so; anything else is a fault of ours.
            if not (error.name or "").startswith(("grpclib", "h2", "multidict")):
                raise
            raise Refused(
                "missing_extra",
                f"the transport grpclib is not installed ({error.name} is missing); nothing was sent",
                hint="Install it with: pip install 'fencepost[grpclib]'",
            ) from error
        return open_grpclib
    raise Refused(
        "invalid_transport",
        f"there is no transport named {name!r}; nothing was sent",
        hint=f"Known are: {', '.join(TRANSPORTS)}.",
    )
