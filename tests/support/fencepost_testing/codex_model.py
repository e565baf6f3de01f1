"""A model for real Codex whose words stand in what it is asked. Loopback only, standard library only.

`python codex_model.py --port P --folder DIR` serves the Responses API. DIR/record.jsonl gets a line for each request
and for each end; DIR/ready is there once it listens. Lines that can be obeyed:

    SAY words             says the words, as the final answer
    UNPHASED words        the same without a phase
    ASIDE words           says the words as commentary, then obeys the next line
    SILENT                ends without a word
    HOLD tag              says nothing until DIR/<tag> is there, then obeys the next line
    FAIL words            refuses the request with status 400
    RECALL pattern        says whatever matches in all it was told before
    LONG number           says so many letters
    CALL tool {json}      calls a tool, then says "called: " and its result
    ASK words             wants to run something that takes a person's leave, for this reason

A record that came as a host's delivery is read by its body, unless DIR/script.json has lines for its id. What was asked
for while the model had not spoken yet is done one after the other.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

Json = Any
HOLD_S_MAX: Final = 60
LOOK_S: Final = 0.01
VERBS: Final = ("SAY", "UNPHASED", "ASIDE", "SILENT", "HOLD", "FAIL", "RECALL", "LONG", "CALL", "ASK")
_LINE: Final = re.compile(rf"^\s*({'|'.join(VERBS)})\b ?(.*)$", re.MULTILINE)
_ROUTE: Final = re.compile(r"<fencepost_route>(.*)</fencepost_route>", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Told:
    """Something that a request tells: by "person", "result" of a tool, or "model"; of which record, where it is one."""

    who: str
    text: str
    record: str = ""


def told(body: Json) -> list[Told]:
    """Return what a request tells, in order."""
    found: list[Told] = []
    route = ""
    for item in body.get("input", []):
        kind, role = item.get("type", "message"), item.get("role")
        if kind == "message" and role in {"user", "assistant"}:
            text = text_of(item["content"])
            # What was asked for before an interruption is over, as if it had been answered.
            who = "model" if role == "assistant" or text.startswith("<turn_aborted>") else "person"
            found.append(Told(who=who, text=text, record=route))
            route = ""
        elif kind == "message" and (routed := _ROUTE.search(text_of(item.get("content")))):
            route = str(json.loads(routed.group(1)).get("interaction_id", ""))
        elif kind == "function_call":
            found.append(Told(who="model", text=item.get("arguments", "")))
        elif kind == "function_call_output" and item.get("call_id"):
            found.append(Told(who="result", text=text_of(item.get("output"))))
        elif kind == "function_call_output":
            found.append(delivered(text_of(item.get("output")), name=str(item.get("name", ""))))
    return found


def delivered(text: str, *, name: str) -> Told:
    """Return what a delivery tells; what came to the inbox asks for nothing."""
    try:
        document = json.loads(text)
    except ValueError:
        return Told(who="person", text=text)
    who = "inbox" if "inbox" in name else "person"
    return Told(who=who, text=str(document["body"]), record=str(document["interaction_id"]))


def text_of(content: Json) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return json.dumps(content)


Lines = list[tuple[str, str]]


def asked(history: list[Told], script: dict[str, Lines]) -> Lines:
    """Return what is to be done: everything that was asked for since the model spoke last, in order."""
    last = max((n for n, one in enumerate(history) if one.who == "model"), default=-1)
    tail = history[last + 1 :]
    if tail and tail[-1].who == "result":
        return [("SAY", f"called: {tail[-1].text}")]
    lines: Lines = []
    for one in tail:
        if one.who == "person":
            lines += script.get(one.record) or [(verb, rest.strip()) for verb, rest in _LINE.findall(one.text)]
    return lines or [("SILENT", "")]


def tool_named(body: Json, wanted: str) -> tuple[str, str]:
    """Return namespace and name of an offered tool."""
    for tool in body.get("tools", []):
        inner = tool.get("tools", []) if tool.get("type") == "namespace" else [tool]
        for one in inner:
            if one.get("name") == wanted or str(one.get("name", "")).endswith(f"__{wanted}"):
                return (tool["name"] if tool.get("type") == "namespace" else ""), one["name"]
    return "", wanted


class Model(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, folder: Path) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.folder = folder
        self._lock = threading.Lock()
        self._number = 0

    def script(self) -> dict[str, Lines]:
        path = self.folder / "script.json"
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return {record: [(verb, rest) for verb, rest in lines] for record, lines in found.items()}

    def number(self) -> int:
        with self._lock:
            self._number += 1
            return self._number

    def write(self, **fields: Json) -> None:
        with self._lock, (self.folder / "record.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Model

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name is inherited)
        """Say nothing."""

    def do_GET(self) -> None:
        self._whole(200, {"object": "list", "data": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))) or "{}")
        number, history = self.server.number(), told(body)
        lines = asked(history, self.server.script())
        heard = [dataclasses.asdict(one) for one in history]
        self.server.write(event="asked", number=number, lines=lines, history=heard)
        if lines[0][0] == "FAIL":
            self._whole(400, {"error": {"message": lines[0][1], "type": "invalid_request_error"}})
            self.server.write(event="ended", number=number, how="refused")
            return
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

    def _events(self, number: int, lines: Lines, history: list[Told], body: Json) -> Iterator[dict[str, Json]]:
        usage: dict[str, Json] = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
        usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        response = {"id": f"resp_{number}", "object": "response", "model": "scripted", "status": "in_progress"}
        output: list[Json] = []
        yield {"type": "response.created", "response": {**response, "output": []}}
        for verb, rest in lines:
            if verb == "HOLD":
                yield from self._held(rest)
                continue
            item = spoken(verb, rest, history, body, f"{number}_{len(output)}")
            if item is not None:
                yield {"type": "response.output_item.added", "output_index": len(output), "item": item}
                yield {"type": "response.output_item.done", "output_index": len(output), "item": item}
                output.append(item)
            if verb in {"CALL", "ASK"}:
                break
        done = {**response, "status": "completed", "output": output, "usage": usage}
        yield {"type": "response.completed", "response": done}

    def _held(self, tag: str) -> Iterator[dict[str, Json]]:
        limit = time.monotonic() + HOLD_S_MAX
        while not (self.server.folder / tag).exists() and time.monotonic() < limit:
            # Written only to notice that nobody listens any more.
            yield {"type": "response.in_progress", "response": {"id": "held", "status": "in_progress", "output": []}}
            time.sleep(LOOK_S)

    def _whole(self, status: int, document: Json) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def spoken(verb: str, rest: str, history: list[Told], body: Json, identity: str) -> Json | None:
    """Return the item that a line makes the model put out, or None."""
    if verb == "SILENT":
        return None
    if verb == "ASK":
        leave = {"cmd": "true", "sandbox_permissions": "require_escalated", "justification": rest}
        verb, rest = "CALL", f"exec_command {json.dumps(leave)}"
    if verb == "CALL":
        wanted, _, arguments = rest.partition(" ")
        namespace, name = tool_named(body, wanted)
        call = {"type": "function_call", "id": f"fc_{identity}", "call_id": f"call_{identity}", "name": name}
        return {**call, "arguments": arguments or "{}", **({"namespace": namespace} if namespace else {})}
    if verb == "RECALL":
        before = "\n".join(_LINE.sub("", text) for text in (one.text for one in history))
        rest = " ".join(dict.fromkeys(re.findall(rest, before))) or "nothing"
    elif verb == "LONG":
        rest = "x" * int(rest)
    part = {"type": "output_text", "text": rest, "annotations": []}
    item = {"type": "message", "id": f"msg_{identity}", "role": "assistant", "status": "completed", "content": [part]}
    phase = {"ASIDE": "commentary", "UNPHASED": None}.get(verb, "final_answer")
    return {**item, **({"phase": phase} if phase else {})}


def main() -> int:
    parser = argparse.ArgumentParser(description="Serve a model that obeys what it is asked.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    wanted = parser.parse_args()
    with Model(wanted.port, wanted.folder) as model:
        (wanted.folder / "ready").touch()
        model.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
