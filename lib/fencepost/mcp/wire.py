"""JSON-RPC lines: read one, tell its era, and write one without a JSON library.

Imports next to nothing, because the stdio shim pays for it at every start. The C scanner is private to CPython; where
it is missing, the public library takes its place.
"""

from __future__ import annotations

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022

# The fields of `_meta` that make a request speak for itself, from 2026-07-28 on.
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"

# What JSON counts as white space.
SPACE: Final = " \t\r\n"
SPACE_BYTES: Final = b" \t\r\n"

quote: Callable[[str], str]
quote_unicode: Callable[[str], str]


class NotJson(ValueError):
    """The bytes are not one JSON value in UTF-8."""


def _refuse_constant(_name: str) -> Any:
    # NaN and the infinities are Python's own additions to JSON.
    raise NotJson


class _Context:
    """What the C scanner asks of a decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_refuse_constant)
    memo: Final[dict[str, str]] = {}


try:
    from _json import encode_basestring as quote_unicode
    from _json import encode_basestring_ascii as quote
    from _json import make_scanner

    _scan: Callable[[str, int], tuple[Any, int]] = make_scanner(_Context())  # type: ignore[arg-type]
except ImportError:  # pragma: no cover (CPython has it)
    import json

    _scan = json.JSONDecoder(parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]
    quote = json.dumps
    quote_unicode = json.JSONEncoder(ensure_ascii=False).encode


def decode(line: bytes) -> Any:
    """Return the one JSON value of `line`.

    Raises:
        NotJson: not UTF-8, not JSON, more than one value, NaN or an infinity, or nested deeper or with longer numbers
            than Python takes.
    """
    try:
        text = line.decode().strip(SPACE)
        value, end = _scan(text, 0)
    # The C scanner reports malformed text as SystemError where json.decoder was never imported.
    except (ValueError, StopIteration, SystemError, RecursionError):
        raise NotJson from None
    if end != len(text):
        raise NotJson
    return value


def names_version(params: Any) -> bool:
    """Tell whether these params name the version of the protocol: their request is of the era without a handshake."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and VERSION_KEY in meta


def result(id_text: str, body: bytes) -> bytes:
    """Return the line, without its end, that answers a request with `body`, a JSON object."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_text.encode(), body)


def failure(id_text: str, code: int, message: str, *, data: str = "") -> bytes:
    """Return the line, without its end, that answers a request with a protocol error; `data` is JSON text."""
    more = f',"data":{data}' if data else ""
    text = f'{{"jsonrpc":"2.0","id":{id_text},"error":{{"code":{code},"message":{quote(message)}{more}}}}}'
    return text.encode()


def tool_result(id_text: str, payload: str, *, is_error: bool = False) -> bytes:
    """Return the line, without its end, that answers tools/call with `payload`, a JSON object without lone surrogates.

    It is encoded once by the caller, and stands in the answer as structured content and as text.
    """
    flag = "true" if is_error else "false"
    return (
        f'{{"jsonrpc":"2.0","id":{id_text},"result":{{"content":[{{"type":"text","text":{quote_unicode(payload)}}}],'
        f'"structuredContent":{payload},"isError":{flag}}}}}'
    ).encode()


def tool_error(
    id_text: str,
    *,
    code: str,
    message: str,
    hint: str = "",
    uncertain: bool = False,
    state: Mapping[str, str] | None = None,
) -> bytes:
    """Return the line, without its end, that answers tools/call with an error.

    Where `uncertain`, the error says that it is not known what was written; else that nothing was. `state` are safe
    facts of how things stand, as the task's own state where another version of it was expected.
    """
    written = '"unknown"' if uncertain else "false"
    facts = ",".join(f"{quote(name)}:{quote(value)}" for name, value in state.items()) if state else ""
    more = f',"state":{{{facts}}}' if facts else ""
    payload = f'{{"code":{quote(code)},"message":{quote(message)},"hint":{quote(hint)},"written":{written}{more}}}'
    return tool_result(id_text, payload, is_error=True)
