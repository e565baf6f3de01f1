"""The report of an acceptance: what went in, what came out, and what it was bound to. Never a login or a credential."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fencepost_testing.acceptance_evidence import UNVERIFIED, Rollout, Turn

Json = Any
SCHEMA: Final = 1
SECRET: Final = re.compile(
    r"fp_[A-Za-z0-9_-]{43}|sk-[A-Za-z0-9_-]{16,}|eyJ[A-Za-z0-9_-]{16,}\.|Bearer |(?:access|refresh|id)_token"
)
NOTES: Final = (
    "Counts are of characters and of words between white space. They are not counts of tokens.",
    "That a message was delivered says nothing of its style or completeness, which are not judged here.",
    "One run shows that it can be done. It says nothing of how often.",
)


class Leaked(Exception):
    """Something that looks like a secret was about to be written; nothing was."""


def counted(text: str) -> dict[str, Json]:
    """Return a text with its labelled counts."""
    return {"text": text, "characters": len(text), "words": len(text.split())}


def hashed(path: Path) -> dict[str, Json]:
    """Return name, size and SHA-256 of an artifact."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": found}


def conversation(rollout: Rollout, turns: Iterable[Turn]) -> dict[str, Json]:
    """Return what binds records to a conversation of Codex's own."""
    return {
        "thread": rollout.thread,
        "rollout": rollout.path.name,
        "codex": rollout.version,
        "model_provider": rollout.provider,
        "turns": [
            {
                "turn": turn.turn_id,
                "model": turn.model or UNVERIFIED,
                "effort": turn.effort,
                "end": turn.end,
                "work": turn.records,
                "tools": [
                    {"call": item.call_id, "tool": item.name, "receipt": _receipt(turn, item.call_id)}
                    for item in turn.items
                    if item.kind == "call"
                ],
                "output": [counted(item.text) for item in turn.items if item.kind == "said"],
            }
            for turn in turns
        ],
    }


def _receipt(turn: Turn, call_id: str) -> Json:
    """Return the ids in a tool's result: those, and no bodies, are its receipt."""
    result = next((item for item in turn.items if item.kind == "result" and item.call_id == call_id), None)
    document = result.document if result is not None else None
    if not isinstance(document, dict):
        return None
    names = (
        "operation",
        "request_id",
        "interaction_id",
        "delivery_state",
        "wake_reason",
        "interruption",
        "provider_session_id",
        "provider_turn_id",
        "code",
    )
    found = {name: document[name] for name in names if document.get(name) is not None}
    received = [one.get("interaction_id") for one in document.get("messages") or [] if isinstance(one, dict)]
    return {**found, **({"received": received} if received else {})}


@dataclass(kw_only=True)
class Report:
    """What the scenes of a run leave."""

    artifacts: Mapping[str, Json]
    scenes: dict[str, Json] = field(default_factory=dict)
    schema: Json = None
    others: list[str] = field(default_factory=list)

    def add(self, scene: str, **evidence: Json) -> None:
        self.scenes[scene] = evidence

    def document(self) -> dict[str, Json]:
        return {
            "report": SCHEMA,
            "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "notes": list(NOTES),
            "artifacts": dict(self.artifacts),
            "exposed_tools": self.schema,
            "other_tools": self.others,
            "scenes": self.scenes,
        }

    def write(self, folder: Path, name: str) -> Path:
        """Write NAME.json and NAME.md; returns the first.

        Raises:
            Leaked: a secret would be in it; nothing was written.
        """
        document = self.document()
        text = json.dumps(document, indent=2, ensure_ascii=False)
        if found := SECRET.search(text):
            raise Leaked(
                f"the report holds something like a secret, {len(found[0])} characters long; nothing was written"
            )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.md").write_text(page(document), encoding="utf-8")
        path = folder / f"{name}.json"
        path.write_text(text + "\n", encoding="utf-8")
        return path


def page(document: Json) -> str:
    """Return a report for people."""
    lines = ["# Acceptance", "", f"Written at {document['written_at']}.", ""]
    lines += [f"- {note}" for note in document["notes"]]
    lines += ["", "## What was run", "", "| artifact | bytes | SHA-256 |", "| --- | --- | --- |"]
    lines += [
        f"| {name}: {one['name']} | {one['bytes']} | `{one['sha256']}` |"
        for name, one in document["artifacts"].items()
        if isinstance(one, dict)
    ]
    lines += [f"- {name}: {one}" for name, one in document["artifacts"].items() if not isinstance(one, dict)]
    tools = document["exposed_tools"] or []
    names = [str(one["name"]) for tool in tools for one in tool.get("tools", [tool])]
    lines += ["", f"Exposed to the model: {', '.join(sorted(names)) or 'not recorded'}. Schemas are in the JSON.", ""]
    for scene, evidence in document["scenes"].items():
        lines += ["", f"## {scene}", ""]
        for name, value in evidence.items():
            if isinstance(value, dict) and "thread" in value:
                lines += _conversation(name, value)
            elif isinstance(value, dict) and "characters" in value:
                lines += [f"- {name} ({value['characters']} characters, {value['words']} words): {value['text']}"]
            else:
                lines += [f"- {name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"]
    return "\n".join(lines) + "\n"


def _conversation(name: str, value: Json) -> list[str]:
    lines = ["", f"{name}: thread `{value['thread']}`, Codex {value['codex']}", ""]
    for turn in value["turns"]:
        lines += [f"- turn `{turn['turn']}`: {turn['end'] or 'open'}, model {turn['model']}, effort {turn['effort']}"]
        lines += [f"  - work `{record}`" for record in turn["work"]]
        lines += [f"  - {one['tool']} `{one['call']}`: {json.dumps(one['receipt'])}" for one in turn["tools"]]
        lines += [
            f"  - said ({one['characters']} characters, {one['words']} words): {one['text']}" for one in turn["output"]
        ]
    return [*lines, ""]
