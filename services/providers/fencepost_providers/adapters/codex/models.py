"""The models that the installed Codex offers: what `codex debug models` prints, kept for a while."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from fencepost_providers.domain.runtimes import Catalogue, Model

KEPT_MS: Final = 300_000
FAILED_KEPT_MS: Final = 30_000
ASK_MS_MAX: Final = 12_000
MODELS_MAX: Final = 256
EFFORTS_MAX: Final = 16
NAME_CHARS_MAX: Final = 200
RANKS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
# Codex asks these itself; a person cannot work with them.
HIDDEN: Final = frozenset({"codex-auto-review"})

Ask = Callable[[], Awaitable[bytes]]


def read(output: bytes) -> tuple[Model, ...]:
    """Return the models of a catalogue in the program's order.

    Raises:
        ValueError: the output is no catalogue, or names no model.
    """
    document = json.loads(output)
    if isinstance(document, dict):
        document = document.get("models", document.get("data"))
    if not isinstance(document, list):
        raise ValueError("it holds no list of models")
    found = [model for entry in document[:MODELS_MAX] if isinstance(entry, dict) and (model := _model(entry))]
    if not found:
        raise ValueError("it names no model")
    return tuple(found)


def _model(entry: Mapping[str, Any]) -> Model | None:
    name = next((str(entry[key]) for key in ("slug", "id", "model") if entry.get(key)), "")[:NAME_CHARS_MAX]
    if not name or name in HIDDEN or entry.get("visibility", "list") != "list" or entry.get("hidden") is True:
        return None
    default = str(entry.get("default_reasoning_level") or "")
    levels = entry.get("supported_reasoning_levels")
    efforts = [str(level.get("effort") or "") for level in levels or () if isinstance(level, dict)][:EFFORTS_MAX]
    if default and default not in efforts:
        efforts.append(default)
        efforts.sort(key=lambda effort: RANKS.index(effort) if effort in RANKS else len(RANKS))
    return Model(
        model=name,
        title=str(entry.get("display_name") or name)[:NAME_CHARS_MAX],
        efforts=tuple(effort for effort in efforts if effort),
        default_effort=default,
        is_default=entry.get("priority") == 1 or entry.get("isDefault") is True,
    )


class Models:
    """The catalogue, asked for again after KEPT_MS or when told to.

    A refresh that fails keeps the list and says why; one that was begun earlier never replaces what a later one found.
    """

    def __init__(self, ask: Ask, *, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._ask = ask
        self._now_ms = now_ms
        self._begun = 0
        self._listed = 0
        self._failed_at_ms = -FAILED_KEPT_MS
        self._kept = Catalogue()

    async def get(self, *, refresh: bool) -> Catalogue:
        """Return the catalogue. Raises nothing but CancelledError."""
        now = self._now_ms()
        fresh = self._kept.source == "live" and now - self._kept.asked_at_ms < KEPT_MS
        if not refresh and (fresh or now - self._failed_at_ms < FAILED_KEPT_MS):
            return self._kept
        self._begun += 1
        mine = self._begun
        try:
            found = Catalogue(models=read(await self._ask()), source="live", asked_at_ms=now)
        except Exception as error:  # noqa: BLE001 (whatever is wrong with the program, the list stays)
            if mine > self._listed:
                self._failed_at_ms = now
                problem = f"codex debug models gave no list: {str(error) or type(error).__name__}"
                self._kept = replace(self._kept, problem=problem)
            return self._kept
        if mine > self._listed:
            self._listed, self._kept = mine, found
        return self._kept
