"""Which versions of Codex are dealt with, and for what. Source: M080 M136 M137."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fencepost_providers.domain.runtimes import Capability, CapabilityKind, Support

_VERSION: Final = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?:-([0-9A-Za-z.-]{1,40}))?(?:\+[0-9A-Za-z.-]{1,40})?")
_PRODUCT: Final = re.compile(r"[^/\s]*/(\S+)")

SHARED_FROM: Final = (0, 154, 0)
STEERED_FROM: Final = (0, 159, 2)
EXCEPTION: Final = "0.154.0-alpha.6"
# Each ran every test of tests/e2e_external/codex.
CERTIFIED: Final = ("0.159.2", "0.169.0", "0.171.0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """A version as its program tells it."""

    text: str
    numbers: tuple[int, int, int]
    stable: bool


def parse(text: str) -> Version | None:
    """Return the first version in a text such as "codex-cli 0.171.0", or None."""
    found = _VERSION.search(text)
    if found is None:
        return None
    major, minor, patch, pre = found.groups()
    numbers = (int(major), int(minor), int(patch))
    return Version(text=".".join(map(str, numbers)) + (f"-{pre}" if pre else ""), numbers=numbers, stable=not pre)


def of_user_agent(text: str) -> str:
    """Return the version in a user agent such as "name/0.171.0 (Debian; x86_64) ...", empty where there is none."""
    found = _PRODUCT.match(text)
    version = parse(found.group(1)) if found else None
    return version.text if version else ""


def refusal(text: str) -> str:
    """Return why no agent can be started with this version; empty where one can."""
    version = parse(text)
    if version is None:
        return f"its version cannot be read from {text[:80]!r}"
    if version.text == EXCEPTION or (version.stable and version.numbers >= SHARED_FROM):
        return ""
    if not version.stable:
        return f"{version.text} is not a released version, and no other than {EXCEPTION} was tried"
    return f"{version.text} is older than {_dotted(SHARED_FROM)}, from which on conversations can be shared"


def steers(text: str) -> bool:
    """Whether work can be put into a running turn."""
    version = parse(text)
    return version is not None and version.stable and version.numbers >= STEERED_FROM


def capabilities(text: str) -> Mapping[CapabilityKind, Capability]:
    """Return one entry of each kind; "" stands for no program."""
    why = refusal(text) if text else "no codex was found"
    if why:
        return MappingProxyType({kind: Capability(support=Support.NONE, reason=why) for kind in CapabilityKind})
    version = parse(text)
    certified = version is not None and version.text in CERTIFIED
    granted = (
        Capability(support=Support.CERTIFIED)
        if certified
        else Capability(
            support=Support.UNCERTIFIED,
            reason=f"{text} was not tried with the whole suite, as {', '.join(CERTIFIED)} were",
        )
    )
    found = dict.fromkeys(CapabilityKind, granted)
    if not steers(text):
        why = f"{text} takes work only while idle; from {_dotted(STEERED_FROM)} on also into a running turn"
        found[CapabilityKind.MID_TURN] = Capability(support=Support.NONE, reason=why)
    return MappingProxyType(found)


def _dotted(numbers: tuple[int, int, int]) -> str:
    return ".".join(map(str, numbers))
