"""Settings of a service: one frozen dataclass, read once at the start.

Each value comes from the highest of: flag, environment FENCEPOST_<SERVICE>_<FIELD>, table [<service>] of
<home>/fencepost.toml, default. Unknown keys are refused by name in all of them; each value remembers its source.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from fencepost.home import Home
from fencepost_kit.refusal import StartRefused

FILE_BYTES_MAX: Final = 64 * 1024
TEXT_CHARS_MAX: Final = 4096

_T = TypeVar("_T")
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
# Narrower than int() and float(), which also take underscores, foreign digits, nan and infinity.
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")


class InvalidSettings(StartRefused):
    """A key that is not known, or a value of the wrong type or out of its range."""

    reason = "invalid_settings"


@dataclass(frozen=True, kw_only=True)
class Loaded(Generic[_T]):
    """Settings, and for each field where its value came from."""

    value: _T
    sources: Mapping[str, str]


def setting(default: Any, *, least: float | None = None, most: float | None = None, about: str = "") -> Any:
    """Return a dataclass field with a default, an inclusive range, and what it is for."""
    return dataclasses.field(default=default, metadata={"least": least, "most": most, "about": about})


def load(
    kind: type[_T],
    *,
    service: str,
    home: Home,
    env: Mapping[str, str] | None = None,
    argv: Sequence[str] = (),
) -> Loaded[_T]:
    """Return the settings of `service` as the frozen dataclass `kind`, whose fields are str, int, float or bool.

    `argv` holds flags: --field-name VALUE or --field-name=VALUE.

    Raises:
        InvalidSettings: an unknown key, a value of the wrong type or outside its range, an unreadable file. It names
            the key and the place, and nothing has been changed.
    """
    fields = {field.name: field for field in dataclasses.fields(typing.cast("Any", kind))}
    types = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    sources = dict.fromkeys(fields, "default")
    layers = (
        _from_file(home, service),
        _from_environment(os.environ if env is None else env, service),
        _from_flags(argv),
    )
    for layer in layers:
        for name, (raw, source) in layer.items():
            if name not in fields:
                raise InvalidSettings(f"{source}: unknown setting", hint=f"Known are: {', '.join(sorted(fields))}.")
            values[name] = _value(raw, types[name], fields[name].metadata, source)
            sources[name] = source
    return Loaded(value=kind(**values), sources=MappingProxyType(sources))


_Layer = dict[str, tuple[object, str]]


def tables_of(home: Home) -> Mapping[str, Any]:
    """Return the tables of the home's settings file; empty where there is none."""
    try:
        with home.settings.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidSettings(f"{home.settings} cannot be read: {error.strerror}") from error
    if len(raw) > FILE_BYTES_MAX:
        raise InvalidSettings(f"{home.settings} is over {FILE_BYTES_MAX} bytes")
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidSettings(f"{home.settings} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettings(f"{home.settings} is not TOML: {error}") from None


def _from_file(home: Home, service: str) -> _Layer:
    table = tables_of(home).get(service, {})
    if not isinstance(table, dict):
        raise InvalidSettings(f"{home.settings}: [{service}] must be a table")
    return {name: (raw, f"{home.settings} [{service}] {name}") for name, raw in table.items()}


def _from_environment(env: Mapping[str, str], service: str) -> _Layer:
    prefix = f"FENCEPOST_{service.upper()}_"
    return {name[len(prefix) :].lower(): (raw, name) for name, raw in env.items() if name.startswith(prefix)}


def _from_flags(argv: Sequence[str]) -> _Layer:
    layer: _Layer = {}
    words = iter(argv)
    for word in words:
        flag, equals, raw = word.partition("=")
        if not flag.startswith("--") or len(flag) < 3:
            raise InvalidSettings(f"{word!r} is not a flag", hint="Flags are --name VALUE or --name=VALUE.")
        value = raw if equals else next(words, None)
        name = flag[2:].replace("-", "_")
        if value is None:
            raise InvalidSettings(f"{flag}: a value is missing")
        if name in layer:
            raise InvalidSettings(f"{flag} is given twice")
        layer[name] = (value, flag)
    return layer


def _value(raw: object, kind: Any, metadata: Mapping[str, Any], source: str) -> object:
    value = _converted(raw, kind)
    if value is None:
        raise InvalidSettings(f"{source}: must be {_KINDS[kind]}")
    least, most = metadata.get("least"), metadata.get("most")
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = -math.inf if least is None else least, math.inf if most is None else most
        if not math.isfinite(value) or not low <= value <= high:
            raise InvalidSettings(f"{source}: must be between {low:g} and {high:g}")
    elif isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
        raise InvalidSettings(f"{source}: is over {TEXT_CHARS_MAX} characters")
    return value


_KINDS: Final[Mapping[Any, str]] = MappingProxyType(
    {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
)


def _converted(raw: object, kind: Any) -> str | int | float | bool | None:
    """Return `raw` as `kind`, or None. Text (environment, flags) is parsed; a TOML value must have its type already."""
    if kind not in _KINDS:
        raise TypeError(f"settings are str, int, float or bool, not {kind}")
    if kind is str:
        return raw if isinstance(raw, str) else None
    if isinstance(raw, str):
        return _parsed(raw.strip(), kind)
    if kind is float and isinstance(raw, int) and not isinstance(raw, bool):
        return float(raw)
    return raw if type(raw) is kind else None  # type: ignore[return-value]


def _parsed(text: str, kind: Any) -> int | float | bool | None:
    if kind is bool:
        return True if text.lower() in _TRUE else False if text.lower() in _FALSE else None
    pattern = _WHOLE if kind is int else _NUMBER
    return typing.cast("int | float", kind(text)) if pattern.fullmatch(text) else None
