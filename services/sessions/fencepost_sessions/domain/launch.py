"""How an agent's program is to be started, as a person set it, and whether it is to run at all (R241, M069).

sessions keeps the settings and knows no program: it refuses what no program could take, and what a program makes of
the rest is its adapter's matter.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Final, cast

from fencepost_sessions.domain.limits import (
    APPROVAL_BYTES_MAX,
    CLASS_BYTES_MAX,
    EFFORT_BYTES_MAX,
    INCLUDE_DIRECTORIES_MAX,
    LAUNCH_BYTES_MAX,
    LAUNCH_TEXT_BYTES_MAX,
    MODEL_BYTES_MAX,
    SANDBOX_BYTES_MAX,
)
from fencepost_sessions.domain.paths import path_flaw
from fencepost_sessions.domain.refusals import InvalidCustomArguments, InvalidDesiredState, InvalidLaunchSettings
from fencepost_sessions.domain.texts import bytes_of, word_flaw
from fencepost_sessions.domain.tools import tools_flaw

SESSION_POLICIES: Final = ("resume", "fresh")
CAPTURES: Final = ("on", "off")
# Tag and length of one text in a message.
TEXT_FRAME_BYTES: Final = 4


class Desired(enum.IntEnum):
    """Whether a person wants Fencepost to run an agent; stored, and those of fencepost.sessions.v1.DesiredState."""

    UNSPECIFIED = 0
    ON = 1
    OFF = 2
    PAUSED = 3


class DeliverWhenActive(enum.IntEnum):
    """What work does that arrives during a turn; the numbers of fencepost.sessions.v1.DeliverWhenActive."""

    UNSPECIFIED = 0
    STEER = 1
    AFTER_TURN = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSettings:
    """The settings of one agent; an empty text is the program's own default."""

    class_name: str = ""
    model: str = ""
    effort: str = ""
    sandbox: str = ""
    approval: str = ""
    session_policy: str = ""
    custom_arguments: str = ""
    include_directories: tuple[str, ...] = ()
    checkout_root: str = ""
    capture: str = ""
    tools_profile: str = ""
    deliver_when_active: DeliverWhenActive = DeliverWhenActive.UNSPECIFIED


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchChange:
    """What to change of the settings; None leaves a field as it is, an empty text or tuple clears it."""

    class_name: str | None = None
    model: str | None = None
    effort: str | None = None
    sandbox: str | None = None
    approval: str | None = None
    session_policy: str | None = None
    custom_arguments: str | None = None
    include_directories: tuple[str, ...] | None = None
    checkout_root: str | None = None
    capture: str | None = None
    tools_profile: str | None = None
    deliver_when_active: int | None = None


_NAMES: Final = tuple(field.name for field in fields(LaunchSettings))
NO_LAUNCH: Final = LaunchSettings()
NO_CHANGE: Final = LaunchChange()


def _short(bytes_max: int) -> Callable[[str], str | None]:
    return lambda text: word_flaw(text, bytes_max)


def _one_of(words: tuple[str, ...]) -> Callable[[str], str | None]:
    return lambda text: None if text in words else f"is none of {', '.join(words)}"


def _component_flaw(text: str) -> str | None:
    if "/" in text or text in {".", ".."}:
        return "is not one part of a path"
    return word_flaw(text, CLASS_BYTES_MAX)


# What is wrong with each text, where it is not empty.
_FLAWS: Final[Mapping[str, Callable[[str], str | None]]] = MappingProxyType(
    {
        "class_name": _component_flaw,
        "model": _short(MODEL_BYTES_MAX),
        "effort": _short(EFFORT_BYTES_MAX),
        "sandbox": _short(SANDBOX_BYTES_MAX),
        "approval": _short(APPROVAL_BYTES_MAX),
        "session_policy": _one_of(SESSION_POLICIES),
        "checkout_root": path_flaw,
        "capture": _one_of(CAPTURES),
        "tools_profile": tools_flaw,
    }
)


def desired_state(number: int) -> Desired:
    """Return what a person wants; 0 is nothing asked.

    Raises:
        InvalidDesiredState: no number of the contract.
    """
    try:
        return Desired(number)
    except ValueError as error:
        raise InvalidDesiredState(
            "the desired state is none that this version knows; nothing was written", hint="Name on, off or paused."
        ) from error


def launched(settings: LaunchSettings, change: LaunchChange) -> LaunchSettings:
    """Return the settings after `change`; the very same value where nothing changes.

    Raises:
        InvalidLaunchSettings: a field breaks its rule, or all together are over LAUNCH_BYTES_MAX.
        InvalidCustomArguments: the custom arguments cannot be split.
    """
    wanted = {name: value for name in _NAMES if (value := getattr(change, name)) is not None}
    for name, flaw_of in _FLAWS.items():
        flaw = flaw_of(wanted[name]) if wanted.get(name) else None
        if flaw is not None:
            raise _refused(name, flaw)
    if "custom_arguments" in wanted:
        split_arguments(wanted["custom_arguments"])
    if "include_directories" in wanted:
        _check_directories(wanted["include_directories"])
    if "deliver_when_active" in wanted:
        wanted["deliver_when_active"] = _deliver_when_active(wanted["deliver_when_active"])
    after = replace(settings, **wanted)
    if _text_bytes(after) > LAUNCH_BYTES_MAX:
        raise InvalidLaunchSettings(
            f"the launch settings take more than {LAUNCH_BYTES_MAX} bytes together; nothing was written",
            hint="Shorten the custom arguments or the list of directories.",
            state={"launch_bytes_max": str(LAUNCH_BYTES_MAX)},
        )
    return settings if after == settings else after


def split_arguments(text: str) -> tuple[str, ...]:
    """Return custom arguments as a POSIX shell would split them, without expansion.

    Raises:
        InvalidCustomArguments: over LAUNCH_TEXT_BYTES_MAX bytes, with a NUL, or with a quote that is not closed.
    """
    flaw = None
    if bytes_of(text) > LAUNCH_TEXT_BYTES_MAX:
        flaw = f"are longer than {LAUNCH_TEXT_BYTES_MAX} bytes"
    elif "\0" in text:
        flaw = "hold a NUL character"
    if flaw is None:
        try:
            return tuple(shlex.split(text))
        except ValueError as error:
            # What shlex says names no part of the text: "No closing quotation", "No escaped character".
            flaw = f"cannot be split into words ({str(error).lower()})"
    raise InvalidCustomArguments(
        f"the custom arguments {flaw}; nothing was written",
        hint="Quote them as for a POSIX shell; nothing is expanded.",
    )


def launch_bytes(settings: LaunchSettings) -> int:
    """Return at least the bytes that settings take in a message."""
    frames = len(_NAMES) + len(settings.include_directories)
    return _text_bytes(settings) + frames * TEXT_FRAME_BYTES


def words_of_launch(settings: LaunchSettings) -> dict[str, object]:
    """Return settings as words of JSON, without what is the default."""
    return {name: value for name, value in asdict(settings).items() if value != getattr(NO_LAUNCH, name)}


def launch_of_words(words: Mapping[str, object]) -> LaunchSettings:
    """Return the settings that words_of_launch() wrote."""
    known = cast("dict[str, Any]", dict(words))
    known["include_directories"] = tuple(known.pop("include_directories", ()))
    known["deliver_when_active"] = DeliverWhenActive(known.pop("deliver_when_active", 0))
    return LaunchSettings(**known)


def running_content(desired: int, change: LaunchChange) -> tuple[str | int | None, ...]:
    """Return what is asked of an agent's runtime as content of an idempotency key; nothing where nothing is asked.

    So a key that was used by a version without settings keeps its content.
    """
    if not desired and change == NO_CHANGE:
        return ()
    directories = change.include_directories
    counted: tuple[str | int | None, ...] = (None,) if directories is None else (len(directories), *directories)
    return (desired, *(getattr(change, name) for name in _NAMES if name != "include_directories"), *counted)


def _check_directories(directories: tuple[str, ...]) -> None:
    if len(directories) > INCLUDE_DIRECTORIES_MAX:
        raise _refused("include_directories", f"names more than {INCLUDE_DIRECTORIES_MAX} folders")
    for path in directories:
        flaw = path_flaw(path)
        if flaw is not None:
            raise _refused("include_directories", f"holds what {flaw}")


def _deliver_when_active(number: int) -> DeliverWhenActive:
    try:
        return DeliverWhenActive(number)
    except ValueError as error:
        raise _refused("deliver_when_active", "is none that this version knows") from error


def _text_bytes(settings: LaunchSettings) -> int:
    texts = [value for name in _NAMES if isinstance(value := getattr(settings, name), str)]
    return sum(bytes_of(text) for text in (*texts, *settings.include_directories))


def _refused(name: str, flaw: str) -> InvalidLaunchSettings:
    field = "class" if name == "class_name" else name
    return InvalidLaunchSettings(
        f"the launch setting {field} {flaw}; nothing was written",
        hint="Correct this setting; an empty text clears it.",
        state={"field": field},
    )
