"""Adapters by name: what the installed distributions offer, and what cannot be loaded of it.

An adapter that cannot be loaded is reported and costs the others nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from types import MappingProxyType
from typing import Final

from fencepost_kit import logs
from fencepost_providers.adapters.base import ADAPTERS_GROUP, Adapter, Forgets

ADAPTERS_MAX: Final = 64
_log: Final = logs.get(__name__)


class Adapters:
    """The adapters of this process."""

    def __init__(self, adapters: Mapping[str, Adapter], broken: Mapping[str, str] | None = None) -> None:
        self._adapters = MappingProxyType(dict(adapters))
        self._broken = MappingProxyType(dict(broken or {}))

    def __len__(self) -> int:
        return len(self._adapters)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, also of what cannot be loaded, in order."""
        return tuple(sorted({*self._adapters, *self._broken}))

    @property
    def forgetting(self) -> tuple[Forgets, ...]:
        """The adapters that want to hear of deleted agents."""
        return tuple(adapter for adapter in self._adapters.values() if isinstance(adapter, Forgets))

    def get(self, name: str) -> Adapter | None:
        """Return the adapter of a name, None where there is none that can be used."""
        return self._adapters.get(name)

    def problem(self, name: str) -> str:
        """Return why there is no adapter of a name; empty where there is one."""
        if name in self._adapters:
            return ""
        if not name:
            return "the agent names no provider: set one with `fencepost agent update NAME --provider P`"
        return self._broken.get(name, f"no adapter named {name!r} is installed; there are: {', '.join(self.names)}")


def installed(entries: Iterable[metadata.EntryPoint] | None = None) -> Adapters:
    """Load the entry points of the group, in name order; of two with one name the second is left out."""
    found = metadata.entry_points(group=ADAPTERS_GROUP) if entries is None else entries
    adapters: dict[str, Adapter] = {}
    broken: dict[str, str] = {}
    for entry in sorted(found, key=lambda entry: entry.name)[:ADAPTERS_MAX]:
        if entry.name in adapters:
            _log.warning("adapter_named_twice", name=entry.name, module=entry.value)
            continue
        try:
            make: Callable[[], Adapter] = entry.load()
            adapter = make()
        except Exception as error:  # noqa: BLE001 - somebody else's code must not keep ours from starting
            broken[entry.name] = f"the adapter cannot be loaded ({type(error).__name__}): {error}"
            _log.warning("adapter_not_loaded", name=entry.name, module=entry.value, kind=type(error).__name__)
            continue
        adapters[entry.name] = adapter
    return Adapters(adapters, {name: text for name, text in broken.items() if name not in adapters})
