"""What an HTTP request must be before it is a message: pure checks of its head, and of its head against its body.

A page in a browser must not reach the face through a name of its own (DNS rebinding): the host that is asked for is
this machine, and an origin, where one is named, is too.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from fencepost.home import is_token
from fencepost.mcp import answers, profiles, wire
from fencepost.mcp.session import id_text_of, missing_meta

PATH: Final = "/mcp"
# What a request without a version header speaks; the header came with 2025-06-18.
VERSION_ASSUMED: Final = "2025-03-26"
# Headers that say again what the body says.
_ROUTING: Final = ("mcp-protocol-version", "mcp-method", "mcp-name")
_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:]{2,39}\]|[a-z0-9.-]{1,253})(?::[0-9]{1,5})?")
_ENCODED: Final = re.compile(r"=\?base64\?(.*)\?=")
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
# The HTTP status of an error of the protocol where the request named its version; every other one has 200.
_STATUS: Final = {
    wire.PARSE_ERROR: 400,
    wire.INVALID_REQUEST: 400,
    wire.INVALID_PARAMS: 400,
    wire.HEADER_MISMATCH: 400,
    wire.UNSUPPORTED_VERSION: 400,
    wire.METHOD_NOT_FOUND: 404,
}
_CODE: Final = re.compile(rb'"error":\{"code":(-\d{1,6}),')


class Turned(Exception):
    """The request is answered by an HTTP status; nothing of it was carried out."""

    def __init__(self, status: int, message: str, *, line: bytes | None = None, headers: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        code = wire.INVALID_REQUEST if status < 500 else wire.INTERNAL_ERROR
        # The body: an error of the protocol.
        self.line = wire.failure("null", code, message) if line is None else line
        # Names and values in turn.
        self.headers = headers


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """The first lines of an HTTP request, as far as they matter. Names of headers are in lower case."""

    method: str
    path: str
    headers: Sequence[tuple[str, str]]
    query: str = ""

    def all(self, name: str) -> list[str]:
        """Return every value of a header."""
        return [value for key, value in self.headers if key == name]

    def one(self, name: str) -> str | None:
        """Return a header's only value, or None where it is not there or there several times."""
        values = self.all(name)
        return values[0] if len(values) == 1 else None

    def media(self, name: str) -> set[str]:
        """Return the media types that a header lists, without their parameters."""
        listed = ",".join(self.all(name)).lower().split(",")
        return {entry.partition(";")[0].strip() for entry in listed}

    @property
    def takes_events(self) -> bool:
        """True where the answer may come as a stream of events."""
        return bool(self.media("accept") & {_EVENTS, "text/*", "*/*"})


def admitted(head: Head) -> str:
    """Return the credential of a request whose head is as it must be.

    Raises:
        Turned: it is not.
    """
    host, origins = head.one("host"), head.all("origin")
    if host is None or not _is_here(host):
        raise Turned(403, "the Host header names another machine than this one; nothing was done")
    if any(not _is_here(origin.partition("://")[2]) for origin in origins):
        raise Turned(403, "requests of web pages of other machines are refused; nothing was done")
    if head.path != PATH:
        raise Turned(404, f"there is only {PATH} here; nothing was done")
    if head.method != "POST":
        raise Turned(405, "only POST is answered here: no stream and no session is kept", headers=("allow", "POST"))
    token = _token(head)
    if head.media("content-type") != {_JSON}:
        raise Turned(415, f"the body must be {_JSON}; nothing was done")
    if not head.media("accept") & {_JSON, "application/*", "*/*"}:
        raise Turned(406, f"the answer is {_JSON} or {_EVENTS}, and Accept must list both; nothing was done")
    return token


def wished(head: Head) -> tuple[frozenset[str] | None, bool]:
    """Return what the address asks for: `?tools=tasks,files&names=warp`; None where it names no families.

    Raises:
        Turned: it says something else, or something twice.
    """
    try:
        asked = parse_qs(head.query, keep_blank_values=True, strict_parsing=True) if head.query else {}
        if set(asked) - {"tools", "names"} or any(len(values) != 1 for values in asked.values()):
            raise ValueError("takes tools and names, each once")
        tools = profiles.parse(asked["tools"][0]) if "tools" in asked else None
        return tools, "names" in asked and profiles.parse_names(asked["names"][0])
    except ValueError as error:
        raise Turned(400, f"the query {error}; nothing was done") from None


def _is_here(authority: str) -> bool:
    parts = _AUTHORITY.fullmatch(authority.lower())
    return parts is not None and parts[1] in _HOSTS


def _token(head: Head) -> str:
    scheme, _, token = (head.one("authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not is_token(token):
        raise Turned(
            401,
            "an agent's credential must be sent as Authorization: Bearer; nothing was done",
            headers=("www-authenticate", 'Bearer realm="fencepost"'),
        )
    return token


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """A body that may be acted upon."""

    # The version under which it was initialized somewhere, or None where it names its version itself.
    assumed: str | None

    def status(self, line: bytes) -> int:
        """Return the HTTP status of this answer."""
        code = _CODE.search(line, 0, 512) if line.startswith(b'{"jsonrpc":"2.0","id":') else None
        if code is None:
            return 200
        unread = line.startswith(b'{"jsonrpc":"2.0","id":null,')
        return _STATUS.get(int(code[1]), 200) if self.assumed is None or unread else 200


def read(head: Head, message: Any) -> Read:
    """Return how a message is to be taken.

    Raises:
        Turned: head and body contradict each other, or it lacks what it must say of itself.
    """
    versions = head.all("mcp-protocol-version")
    version = versions[0] if versions else None
    method = message.get("method") if isinstance(message, dict) else None
    params = message.get("params") if isinstance(message, dict) else None
    if method == "initialize" and _is_settled(version, params):
        # Every part of it says that it belongs to the era that has no such method.
        id_text = id_text_of(message.get("id")) or "null"
        raise Turned(
            404, "", line=wire.failure(id_text, wire.METHOD_NOT_FOUND, "there is no handshake in this version")
        )
    modern = method == "server/discover" or wire.names_version(params) or version not in (None, *answers.VERSIONS)
    if method == "initialize" or not modern:
        return Read(assumed=version if version in answers.VERSIONS else VERSION_ASSUMED)
    if isinstance(message, dict) and "id" in message:
        id_text = id_text_of(message["id"]) or "null"
        if not wire.names_version(params):
            raise Turned(400, "", line=missing_meta(id_text))
        problem = _mismatch(head, str(method), params)
        if problem is not None:
            told = f"header mismatch: {problem}; nothing was done"
            raise Turned(400, "", line=wire.failure(id_text, wire.HEADER_MISMATCH, told))
    elif version not in answers.MODERN_VERSIONS:
        raise Turned(400, "mcp-protocol-version names no version that is served; nothing was done")
    return Read(assumed=None)


def _is_settled(version: str | None, params: Any) -> bool:
    return (
        version in answers.MODERN_VERSIONS
        and wire.names_version(params)
        and params["_meta"][wire.VERSION_KEY] == version
    )


def _mismatch(head: Head, method: str, params: Any) -> str | None:
    for name in _ROUTING:
        if len(head.all(name)) > 1:
            return f"{name} is there more than once"
    wanted = [("mcp-protocol-version", params["_meta"][wire.VERSION_KEY]), ("mcp-method", method)]
    if method == "tools/call" and isinstance(params.get("name"), str):
        wanted.append(("mcp-name", params["name"]))
    for name, value in wanted:
        told = head.one(name)
        if told is None:
            return f"{name} is missing"
        if (_decoded(told) if name == "mcp-name" else told) != value:
            return f"{name} does not say what the body says"
    return None


def _decoded(value: str) -> str | None:
    """Return a header's value; one that no header can hold comes as base64. None where that is malformed."""
    packed = _ENCODED.fullmatch(value)
    if packed is None:
        return value
    try:
        raw = base64.b64decode(packed[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == packed[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None
