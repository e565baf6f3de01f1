"""Channels of grpcio: the default."""

from __future__ import annotations

from typing import Final

import grpc
import grpc.aio

from fencepost.transports import MESSAGE_BYTES_MAX, RECONNECT_MS_MAX, RECONNECT_MS_MIN, ClientCertificates

CHANNEL_OPTIONS: Final = (
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS_MIN),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_MS_MIN),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
)


def open_channel(address: str, certificates: ClientCertificates | None) -> grpc.aio.Channel:
    """Return a channel that connects when it is asked to. Reads the certificates, where there are some, once."""
    if certificates is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=certificates.authority.read_bytes(),
        private_key=certificates.key.read_bytes(),
        certificate_chain=certificates.certificate.read_bytes(),
    )
    return grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)
