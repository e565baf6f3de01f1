"""One client's JSON-RPC session, over both eras of MCP: lines in, answers out.

A request whose `_meta` names a version of the protocol is answered for itself alone; every other one belongs to the era
that begins with `initialize`. Both may come over one connection, in any order. Knows no file descriptor and no clock.
Discovery is answered here, from constants; a tool call is handed on unread. In the era of `initialize` the id of a tool
call is never used again on its connection, because it is part of the idempotency key; in the other era it is free again
when it is answered, and the key is made of the number of the call.
"""

from __future__ import annotations

from fencepost.mcp import answers, wire

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final, Protocol

    Sink = Callable[[bytes | None], None]

    class Desk(Protocol):
        """Where tool calls go."""

        def admit(self, call: Call) -> None:
            """Take over a call; its sink is called once, with None where the call is cancelled."""

        def cancel(self, id_text: str) -> None:
            """Send nothing further for a call in progress. Unknown ids are ignored."""


LINE_BYTES_MAX: Final = 1024 * 1024
IDEMPOTENCY_KEY_BYTES_MAX: Final = 256
# "mcp-", 32 hexadecimal digits and a colon stand before the id in the key.
ID_BYTES_MAX: Final = IDEMPOTENCY_KEY_BYTES_MAX - 37
# Strings, and ranges of integers: a client that counts takes one range, whatever the number of its calls.
IDS_REMEMBERED_MAX: Final = 65_536
BATCH_MESSAGES_MAX: Final = 64

_TOO_LONG: Final = f"the line is longer than {LINE_BYTES_MAX} bytes; it was skipped and nothing was done"
_UNTERMINATED: Final = "the input ended inside a line; nothing was done about that line"
_NOT_JSON: Final = "the line is not one JSON value in UTF-8; nothing was done"
_REUSED: Final = (
    "this id belongs to an earlier tool call of this connection; nothing was done: give each request its own"
)
_UNWIELDY: Final = "the message is nested too deeply or too long for a line of its own; nothing was done"
_NOT_READY: Final = (
    "send initialize and then notifications/initialized first, or name a protocol version in params._meta; nothing was"
    " done"
)
_OPEN: Final = "this id belongs to a call that is still in progress; nothing was done: give each request its own"
_NO_METHOD: Final = "no such method; tools are called by tools/call"
_ONE_PAGE: Final = "tools/list has one page and takes no parameters"
# More of a version is not repeated in the error about it.
VERSION_CHARS_MAX: Final = 64


def id_text_of(value: object) -> str | None:
    """Return the JSON text of a request id, in which 7 and "7" differ; None where it is neither string nor integer."""
    if isinstance(value, str):
        return wire.quote(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return None


class Ids:
    """The ids that this connection has used for tool calls: exact, and bounded in memory.

    Integers are kept as ranges, so that a client that counts costs the same after a million calls.
    """

    def __init__(self, *, entries_max: int = IDS_REMEMBERED_MAX) -> None:
        self._entries_max: Final = entries_max
        self._texts: Final[set[str]] = set()
        # Ranges in ascending order, apart from each other by at least one: range i is _first[i] to _last[i].
        self._first: Final[list[int]] = []
        self._last: Final[list[int]] = []

    def __contains__(self, value: str | int) -> bool:
        if isinstance(value, str):
            return value in self._texts
        place = self._place(value)
        return place > 0 and value <= self._last[place - 1]

    @property
    def full(self) -> bool:
        """True where no further id can be remembered for certain."""
        return len(self._texts) + len(self._first) >= self._entries_max

    def add(self, value: str | int) -> None:
        """Remember an id that is not there yet."""
        if isinstance(value, str):
            self._texts.add(value)
            return
        place = self._place(value)
        touches_left = place > 0 and self._last[place - 1] == value - 1
        touches_right = place < len(self._first) and self._first[place] == value + 1
        if touches_left and touches_right:
            self._last[place - 1] = self._last[place]
            del self._first[place], self._last[place]
        elif touches_left:
            self._last[place - 1] = value
        elif touches_right:
            self._first[place] = value
        else:
            self._first.insert(place, value)
            self._last.insert(place, value)

    def _place(self, value: int) -> int:
        """Return how many ranges begin at or below `value`."""
        low, high = 0, len(self._first)
        while low < high:
            middle = (low + high) // 2
            if self._first[middle] <= value:
                low = middle + 1
            else:
                high = middle
        return low


class Call:
    """A tool call as it came in. Everything after `sink` belongs to the desk."""

    __slots__ = (
        "again",
        "begun_s",
        "deadline_s",
        "epoch",
        "examined",
        "give_up_s",
        "id_text",
        "line",
        "name",
        "number",
        "progress_s",
        "progress_token",
        "queued",
        "settling",
        "sink",
        "wait_ms",
        "written",
    )

    def __init__(
        self, *, id_text: str, name: str, line: bytes, wait_ms: int, progress_token: str | None, sink: Sink
    ) -> None:
        self.id_text = id_text
        self.name = name
        # The request, byte for byte as the client sent it; of a tool that names files, with their names in its _meta.
        self.line = line
        # How long the tool was asked to wait; 0 where it does not.
        self.wait_ms = wait_ms
        # JSON text of the token under which the client wants to hear of progress.
        self.progress_token = progress_token
        self.sink = sink
        self.number = 0
        self.begun_s = 0.0
        self.deadline_s = 0.0
        # When to stop looking for an edge; None while one has the call.
        self.give_up_s: float | None = None
        self.progress_s = 0.0
        # The store's epoch under which the call left; empty where no edge has told one yet.
        self.epoch = ""
        # True once its arguments were held to the registry here.
        self.examined = False
        # True while a frame of it waits for the socket, and once the socket has it all.
        self.queued = False
        self.written = False
        # True once an edge was lost that had the call, which is then asked again or settled.
        self.again = False
        self.settling = False


class Batch:
    """The answers to one line that held several requests: they go out as one line, when the last is there."""

    def __init__(self, count: int, emit: Sink) -> None:
        self._missing = count
        self._emit: Final = emit
        self._answers: Final[list[bytes]] = []

    def add(self, answer: bytes | None) -> None:
        """Take one answer, or None where none will come."""
        if answer is not None:
            self._answers.append(answer)
        self._missing -= 1
        if not self._missing and self._answers:
            self._emit(b"[%b]" % b",".join(self._answers))


class Told:
    """What a client is told of this server: its name, its instructions as JSON text, and its tools. All constants."""

    __slots__ = ("_instructions", "_name", "tools_list")

    def __init__(
        self,
        *,
        name: bytes = answers.SERVER_NAME,
        instructions: bytes = answers.INSTRUCTIONS,
        tools_list: bytes = answers.TOOLS_LIST,
    ) -> None:
        # A name for people and programs, which needs no escape.
        self._name: Final = name
        self._instructions: Final = instructions
        self.tools_list: Final = tools_list

    def initialize(self, version: str) -> bytes:
        """Return the result of initialize under a version of the protocol."""
        return b"%b%b%b%b%b%b}" % (
            answers.INITIALIZE_HEAD,
            version.encode(),
            answers.INITIALIZE_NAME,
            self._name,
            answers.INITIALIZE_TAIL,
            self._instructions,
        )

    def discover(self) -> bytes:
        """Return the result of server/discover, without what every result of its era begins with."""
        return b"%b%b}" % (answers.DISCOVER_HEAD, self._instructions)

    def modern_head(self) -> bytes:
        """Return what every result begins with where the request named its version."""
        return b"%b%b%b" % (answers.MODERN_HEAD, self._name, answers.MODERN_TAIL)


def _default_told() -> Told:
    return Told()


class Session:
    """The protocol's state for one client. `emit` gets every answer, without its line end."""

    def __init__(
        self,
        *,
        emit: Sink,
        desk: Desk,
        ids: Ids | None = None,
        assumed: str | None = None,
        told: Callable[[], Told] = _default_told,
    ) -> None:
        """Build the session.

        `assumed` is a version of VERSIONS under which every request is taken to have been initialized, for a transport
        that tells the version beside each request and keeps nothing between them. `told` is asked at each discovery.
        """
        self._told: Final = told
        self._emit: Final = emit
        self._desk: Final = desk
        self._ids: Final = Ids() if ids is None else ids
        # The ids of calls that are not answered yet.
        self._open: Final[set[str]] = set()
        self._assumed: Final = assumed
        self._ready = assumed is not None
        self.version: str | None = assumed

    def feed(self, line: bytes) -> None:
        """Act on one line, given without its end. White space alone is ignored."""
        if len(line) > LINE_BYTES_MAX:
            self.too_long()
            return
        line = line.strip(wire.SPACE_BYTES)
        if not line:
            return
        try:
            message = wire.decode(line)
        except wire.NotJson:
            self._emit(wire.failure("null", wire.PARSE_ERROR, _NOT_JSON))
            return
        self.take(message, line)

    def take(self, message: Any, line: bytes) -> None:
        """Act on one line that was decoded already."""
        if isinstance(message, list):
            self._batch(message)
        else:
            self._message(message, line, self._emit)

    def too_long(self) -> None:
        """Answer a line that was skipped for its length."""
        self._emit(wire.failure("null", wire.INVALID_REQUEST, _TOO_LONG))

    def unterminated(self) -> None:
        """Answer a last line that has no end: it may be half of what its sender meant, so it is not acted upon."""
        self._emit(wire.failure("null", wire.PARSE_ERROR, _UNTERMINATED))

    def _batch(self, messages: list[Any]) -> None:
        problem = None
        if self.version != answers.BATCH_VERSION:
            problem = f"batches exist only in protocol version {answers.BATCH_VERSION}"
        elif not messages:
            problem = "the batch is empty"
        elif len(messages) > BATCH_MESSAGES_MAX:
            problem = f"a batch holds at most {BATCH_MESSAGES_MAX} messages"
        if problem is not None:
            self._emit(wire.failure("null", wire.INVALID_REQUEST, f"{problem}; nothing was done"))
            return
        batch = Batch(len(messages), self._emit)
        for message in messages:
            line = _line_of(message)
            if line is None:
                batch.add(wire.failure(_echo(message), wire.INVALID_REQUEST, _UNWIELDY))
            elif isinstance(message, dict) and message.get("method") == "initialize":
                batch.add(wire.failure(_echo(message), wire.INVALID_REQUEST, "initialize cannot be part of a batch"))
            elif isinstance(message, dict) and wire.names_version(message.get("params")):
                problem = "a request that names its protocol version cannot be part of a batch"
                batch.add(wire.failure(_echo(message), wire.INVALID_REQUEST, problem))
            else:
                self._message(message, line, batch.add)

    def _message(self, message: Any, line: bytes, sink: Sink) -> None:
        if not isinstance(message, dict):
            sink(wire.failure("null", wire.INVALID_REQUEST, "a message must be a JSON object"))
            return
        if "method" not in message and ("result" in message or "error" in message):
            # An answer to nothing: this server never asks.
            sink(None)
            return
        id_text = id_text_of(message["id"]) if "id" in message else None
        method = message.get("method")
        modern = method == "server/discover" or (method != "initialize" and wire.names_version(message.get("params")))
        problem = None
        if "id" in message and id_text is None:
            problem = "id must be a string or an integer"
        elif message.get("jsonrpc") != "2.0":
            problem = 'jsonrpc must be "2.0"'
        elif not isinstance(method, str):
            problem = "method must be a string"
        elif id_text is not None and len(id_text) > ID_BYTES_MAX:
            problem = f"the id takes more than {ID_BYTES_MAX} bytes as JSON"
        elif id_text is not None and id_text in self._open:
            problem = _OPEN
        elif id_text is not None and not modern and message["id"] in self._ids:
            problem = _REUSED
        if problem is not None:
            sink(wire.failure(id_text or "null", wire.INVALID_REQUEST, problem))
        elif id_text is None:
            self._notification(str(method), message.get("params"))
            sink(None)
        elif modern:
            self._modern(str(method), id_text, message.get("params"), line, sink)
        else:
            self._request(str(method), id_text, message, line, sink)

    def _notification(self, method: str, params: Any) -> None:
        if method == "notifications/initialized":
            self._ready = self.version is not None
        elif method == "notifications/cancelled" and isinstance(params, dict):
            id_text = id_text_of(params.get("requestId"))
            if id_text is not None:
                self._desk.cancel(id_text)

    def _request(self, method: str, id_text: str, message: dict[str, Any], line: bytes, sink: Sink) -> None:
        params: Any = message.get("params", {})
        if method not in ("ping", "initialize", "tools/list", "tools/call"):
            sink(wire.failure(id_text, wire.METHOD_NOT_FOUND, _NO_METHOD))
        elif method.startswith("tools/") and not self._ready:
            sink(wire.failure(id_text, wire.INVALID_PARAMS, _NOT_READY))
        elif method == "tools/call":
            self._call(id_text, message["id"], params, line, sink)
        elif not isinstance(params, dict):
            sink(wire.failure(id_text, wire.INVALID_PARAMS, "params must be an object"))
        elif method == "initialize":
            sink(self._initialize(id_text, params))
        elif method == "ping":
            sink(wire.result(id_text, b"{}"))
        elif any(key != "_meta" for key in params):
            sink(wire.failure(id_text, wire.INVALID_PARAMS, _ONE_PAGE))
        else:
            sink(wire.result(id_text, self._told().tools_list))

    def _modern(self, method: str, id_text: str, params: Any, line: bytes, sink: Sink) -> None:
        """Act on a request of the era without a handshake. Nothing that came before it counts."""
        problem = _unfit(id_text, params)
        if problem is not None:
            sink(problem)
        elif method == "tools/call":
            self._admit(id_text, params, line, lambda answer: sink(answer and self._complete(id_text, answer)))
        elif method not in ("server/discover", "tools/list"):
            sink(wire.failure(id_text, wire.METHOD_NOT_FOUND, _NO_METHOD))
        elif any(key != "_meta" for key in params):
            problem_text = _ONE_PAGE if method == "tools/list" else "server/discover takes no parameters"
            sink(wire.failure(id_text, wire.INVALID_PARAMS, problem_text))
        else:
            told = self._told()
            body = told.tools_list if method == "tools/list" else told.discover()
            sink(complete(id_text, wire.result(id_text, b"{%b%b" % (answers.CACHE_HINTS, body[1:])), told))

    def _complete(self, id_text: str, answer: bytes) -> bytes:
        return complete(id_text, answer, self._told())

    def _initialize(self, id_text: str, params: dict[str, Any]) -> bytes:
        if self.version is not None and self._assumed is None:
            return wire.failure(id_text, wire.INVALID_REQUEST, "this connection is initialized already")
        asked, client = params.get("protocolVersion"), params.get("clientInfo")
        problem = None
        if not isinstance(asked, str):
            problem = "protocolVersion must be a string"
        elif not isinstance(params.get("capabilities"), dict):
            problem = "capabilities must be an object"
        elif not (
            isinstance(client, dict) and isinstance(client.get("name"), str) and isinstance(client.get("version"), str)
        ):
            problem = "clientInfo must be an object whose name and version are strings"
        if problem is not None:
            return wire.failure(id_text, wire.INVALID_PARAMS, problem)
        self.version = asked if asked in answers.VERSIONS else answers.VERSIONS[-1]
        return wire.result(id_text, self._told().initialize(self.version))

    def _call(self, id_text: str, raw_id: str | int, params: Any, line: bytes, sink: Sink) -> None:
        if self._ids.full:
            problem = f"this connection has used {IDS_REMEMBERED_MAX} unconnected ids; start the server again"
            sink(wire.failure(id_text, wire.INVALID_REQUEST, f"{problem}; nothing was done"))
            return
        self._ids.add(raw_id)
        self._admit(id_text, params, line, sink)

    def _admit(self, id_text: str, params: Any, line: bytes, sink: Sink) -> None:
        """Hand a tool call on."""
        if not isinstance(params, dict) or not isinstance(params.get("name"), str):
            problem = "params must be an object whose name is a string"
            sink(wire.failure(id_text, wire.INVALID_PARAMS, problem))
            return
        # By whichever name it was shown; who may call it is found where it is carried out.
        name = params["name"].removeprefix("warp_")

        def answered(answer: bytes | None) -> None:
            self._open.discard(id_text)
            sink(answer)

        self._open.add(id_text)
        self._desk.admit(
            Call(
                id_text=id_text,
                name=name,
                line=line,
                wait_ms=_wait_ms(name, params.get("arguments")),
                progress_token=_progress_token(params.get("_meta")),
                sink=answered,
            )
        )


def complete(id_text: str, answer: bytes, told: Told) -> bytes:
    """Return the answer as its client wants it where the request named its version: a result says that it is whole.

    An error is the same in both eras.
    """
    head = b'{"jsonrpc":"2.0","id":%b,"result":{' % id_text.encode()
    if not answer.startswith(head):
        return answer
    return b"%b%b%b" % (head, told.modern_head(), answer[len(head) :])


def missing_meta(id_text: str) -> bytes:
    """Return the error about a request that does not name its version where it must."""
    problem = f"params._meta must hold {wire.VERSION_KEY} and {wire.CAPABILITIES_KEY}; nothing was done"
    return wire.failure(id_text, wire.INVALID_PARAMS, problem)


def _unfit(id_text: str, params: Any) -> bytes | None:
    """Return the error about what a request says of itself in its `_meta`, or None where it can be served."""
    if not wire.names_version(params):
        return missing_meta(id_text)
    meta = params["_meta"]
    version = meta[wire.VERSION_KEY]
    if not isinstance(version, str):
        return wire.failure(id_text, wire.INVALID_PARAMS, f"{wire.VERSION_KEY} must be a string")
    if version not in answers.MODERN_VERSIONS:
        supported = ",".join(f'"{known}"' for known in answers.MODERN_VERSIONS)
        data = f'{{"supported":[{supported}],"requested":{wire.quote(version[:VERSION_CHARS_MAX])}}}'
        problem = "unsupported protocol version; earlier ones begin with initialize"
        return wire.failure(id_text, wire.UNSUPPORTED_VERSION, problem, data=data)
    if not isinstance(meta.get(wire.CAPABILITIES_KEY), dict):
        return wire.failure(id_text, wire.INVALID_PARAMS, f"{wire.CAPABILITIES_KEY} must be an object")
    return None


def _echo(message: Any) -> str:
    return (id_text_of(message.get("id")) if isinstance(message, dict) else None) or "null"


def _line_of(message: Any) -> bytes | None:
    """Return a message of a batch as a line of its own, or None where it makes none that is fit to be passed on."""
    # Only clients of that one version pay for the encoder.
    import json  # noqa: PLC0415 (see above)

    try:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return None
    try:
        line = text.encode()
    except UnicodeEncodeError:
        line = json.dumps(message, separators=(",", ":")).encode()
    return line if len(line) <= LINE_BYTES_MAX else None


def _wait_ms(name: str, arguments: Any) -> int:
    """Return how long the tool is asked to wait, as far as that can be told without its schema."""
    default = answers.WAIT_MS_DEFAULT.get(name)
    if default is None:
        return 0
    asked = arguments.get("timeout_ms", default) if isinstance(arguments, dict) else default
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not 0 <= asked <= answers.WAIT_MS_MAX:
        return 0
    return int(asked)


def _progress_token(meta: Any) -> str | None:
    token = id_text_of(meta.get("progressToken")) if isinstance(meta, dict) else None
    return token if token is not None and len(token) <= ID_BYTES_MAX else None
