"""Logs as JSON lines on standard error: ts, level, service, event, and the fields of the event.

A body or a credential never gets in: fields of those names are withheld, anything shaped like a token is masked, and
the message of an exception is written only where its class speaks of the machine or the code, never of the data.
"""

from __future__ import annotations

import datetime
import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Final, TextIO

FIELD_CHARS_MAX: Final = 2048
TRACEBACK_FRAMES_MAX: Final = 40
FIELDS_MAX: Final = 32
CAUSES_MAX: Final = 4

WITHHELD_FIELDS: Final = frozenset({"body", "text", "token", "credential", "authorization", "secret", "password"})
WITHHELD: Final = "(withheld)"

LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
)

_TOKEN: Final = re.compile(r"fp_[A-Za-z0-9_-]{20,}")
_RESERVED: Final = frozenset({"ts", "level", "service", "event", "logger", "error", "frames", "causes"})
# Their messages are written by the runtime about files, locks, code and memory; ValueError and KeyError quote data.
_SPEAKS_OF_MACHINE: Final = (OSError, ImportError, AttributeError, NameError, TypeError, MemoryError, RuntimeError)


class Log:
    """Logs events of one module."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, /, **fields: object) -> None:
        """Log what helps to follow one call."""
        self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Log a change of the service's state."""
        self._emit(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Log what the service overcame and a person may want to know."""
        self._emit(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Log what the service could not do."""
        self._emit(logging.ERROR, event, fields)

    def exception(self, event: str, error: BaseException, /, **fields: object) -> None:
        """Log an error with its class and frames."""
        self._emit(logging.ERROR, event, fields, error)

    def _emit(self, level: int, event: str, fields: Mapping[str, object], error: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            info: tuple[type[BaseException], BaseException, TracebackType | None] | None = None
            if error is not None:
                info = (type(error), error, error.__traceback__)
            self._logger.log(level, "%s", event, exc_info=info, extra={"fencepost_fields": fields})


def get(name: str) -> Log:
    """Return the log of a module."""
    return Log(logging.getLogger(name))


def safe(value: object) -> Any:
    """Return a value that may be logged: short, JSON, without tokens; 16 bytes become the text of a UUID."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 32 else f"{len(value)} bytes"
    text = _TOKEN.sub("fp_(withheld)", str(value))
    return text if len(text) <= FIELD_CHARS_MAX else f"{text[:FIELD_CHARS_MAX]}... ({len(text)} characters)"


def _error_text(error: BaseException) -> str:
    kind = type(error)
    home = kind.__module__.partition(".")[0]
    speaks = isinstance(error, _SPEAKS_OF_MACHINE) or home in {"sqlite3", "fencepost", "fencepost_kit"}
    speaks = speaks or home.startswith("fencepost_")
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}: {safe(error)}" if speaks and not isinstance(error, UnicodeError) else name


def _frames(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)[-TRACEBACK_FRAMES_MAX:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def _causes(error: BaseException) -> list[BaseException]:
    """Return what led to an error, nearest first; of a group, each member before what led to the group."""
    found: list[BaseException] = []
    left = [error]
    while left and len(found) < CAUSES_MAX:
        one = left.pop(0)
        if one is not error:
            found.append(one)
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions
        cause = one.__cause__ or one.__context__
        if cause is not None and cause not in found:
            left.append(cause)
    return found


class JsonLines(logging.Formatter):
    """One JSON object per record, always one line."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its newline."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        fields: Mapping[str, object] | None = getattr(record, "fencepost_fields", None)
        line: dict[str, Any] = {
            "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "service": self._service,
            "event": record.getMessage() if fields is not None else "log",
        }
        if fields is None:
            line["logger"] = record.name
            line["message"] = safe(record.getMessage())
        for name, value in list((fields or {}).items())[:FIELDS_MAX]:
            key = f"{name}_" if name in _RESERVED else name
            line[key] = WITHHELD if name in WITHHELD_FIELDS else safe(value)
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line["error"] = _error_text(error)
            line["frames"] = _frames(error)
            line["causes"] = [{"error": _error_text(cause), "frames": _frames(cause)} for cause in _causes(error)]
        return json.dumps(line, ensure_ascii=True, default=safe)


def configure(service: str, level: str = "info", *, stream: TextIO | None = None) -> None:
    """Send every log of this process to `stream` (standard error) as JSON lines under the name of the service.

    Raises:
        ValueError: the level is none of LEVELS.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines(service))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    # gRPC logs several lines a call below this level, about nothing that a reader of ours could act on.
    logging.getLogger("grpc").setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    logging.raiseExceptions = False  # a log that cannot be written must not break the call that it describes
