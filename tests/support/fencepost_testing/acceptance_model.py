"""A model for the acceptance: it answers a person's plain English as a sensible model would, by plays written before.

`python -P -m fencepost_testing.acceptance_model --port P --folder DIR` serves the Responses API on loopback, as
codex_model does, and writes the same record. DIR/plays.json is a list of plays: {"when": PATTERN, "steps": [STEP...]}.
The newest thing that somebody asked for is looked for in each `when`; what matches is played, a step for each request:
a step is a list of lines of codex_model, of which the last is a CALL or says something. In them stand

    <last:NAME>    for the last text under the member NAME in the results of tools since then
    <match:N>      for what the group N of the pattern has found
    <asked>        for the id of the record that asks

What asks in codex_model's own words is obeyed as there. Every request is recorded with its thread, the model and effort
that it names, and the tools of ours that it exposes; their schemas lie in DIR/schema.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from fencepost_testing import codex_model
from fencepost_testing.codex_model import Lines, Told
from fencepost_testing.scripted_model import last_member

Json = Any
SERVER: Final = "fencepost"
UNKNOWN: Final = "I do not know what to do with that."
_SLOT: Final = re.compile(r"<(last:\w+|match:\d|asked)>")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Play:
    """What is done when somebody asks in words that match."""

    when: re.Pattern[str]
    steps: tuple[Lines, ...]


def plays_of(document: Json) -> list[Play]:
    return [
        Play(
            when=re.compile(one["when"]),
            steps=tuple([(verb, rest) for verb, rest in step] for step in one["steps"]),
        )
        for one in document
    ]


def played(history: list[Told], plays: list[Play]) -> Lines:
    """Return what is done next for the newest thing asked: the step after as many results as there were since."""
    at = max((number for number, one in enumerate(history) if one.who == "person"), default=-1)
    if at < 0:
        return [("SAY", UNKNOWN)]
    asking = history[at]
    found = next(((one, match) for one in plays if (match := one.when.search(asking.text))), None)
    if found is None:
        return [("SAY", UNKNOWN)]
    play, match = found
    results = [one.text for one in history[at:] if one.who == "result"]
    step = play.steps[min(len(results), len(play.steps) - 1)]

    def filled(slot: re.Match[str]) -> str:
        kind, _, name = slot.group(1).partition(":")
        if kind == "match":
            return match.group(int(name))
        return asking.record if kind == "asked" else last_member(results, name)

    return [(verb, _SLOT.sub(filled, rest)) for verb, rest in step]


def ours(body: Json) -> list[Json]:
    """Return the tools of ours that a request exposes, as they stand in it."""
    offered = list(body.get("tools", []))
    for item in body.get("input", []):
        if item.get("type") == "additional_tools":
            offered += item.get("tools", [])
    return [tool for tool in offered if SERVER in str(tool.get("name"))]


def names_of(tools: list[Json]) -> list[str]:
    """Return the names of tools, those of a namespace without it."""
    return sorted(str(one.get("name")) for tool in tools for one in tool.get("tools", [tool]))


class Model(codex_model.Model):
    """See the module."""

    def __init__(self, port: int, folder: Path) -> None:
        super().__init__(port, folder)
        self.RequestHandlerClass = Handler

    def plays(self) -> list[Play]:
        path = self.folder / "plays.json"
        return plays_of(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


class Handler(codex_model.Handler):
    server: Model

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", "0"))) or b"{}"
        body = json.loads(raw)
        number, history = self.server.number(), codex_model.told(body)
        lines = codex_model.asked(history, {})
        plays = self.server.plays()
        if plays and (lines[0][0] == "SILENT" or (history and history[-1].who == "result")):
            lines = played(history, plays)
        tools = ours(body)
        if tools:
            self._keep("schema.json", tools)
        self.server.write(
            event="asked",
            number=number,
            thread=str(body.get("prompt_cache_key", "")),
            model=str(body.get("model", "")),
            effort=str((body.get("reasoning") or {}).get("effort") or ""),
            tools=names_of(tools),
            others=names_of([tool for tool in body.get("tools", []) if tool not in tools]),
            lines=lines,
            history=[dataclasses.asdict(one) for one in history],
        )
        if lines[0][0] == "FAIL":
            self._whole(400, {"error": {"message": lines[0][1], "type": "invalid_request_error"}})
            self.server.write(event="ended", number=number, how="refused")
            return
        # The program has tools of the same names for agents of its own; ours are meant.
        self._stream(number, lines, history, {**body, "tools": tools})

    def _stream(self, number: int, lines: Lines, history: list[Told], body: Json) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        how = "complete"
        try:
            for event in self._events(number, lines, history, body):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
        except OSError:
            how = "left"
        self.server.write(event="ended", number=number, how=how)

    def _keep(self, name: str, document: Json) -> None:
        draft = self.server.folder / f"{name}.draft"
        draft.write_text(json.dumps(document, indent=2), encoding="utf-8")
        draft.replace(self.server.folder / name)


def main() -> int:
    parser = argparse.ArgumentParser(description="Serve a model that plays the acceptance.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    wanted = parser.parse_args()
    with Model(wanted.port, wanted.folder) as model:
        (wanted.folder / "ready").touch()
        model.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
