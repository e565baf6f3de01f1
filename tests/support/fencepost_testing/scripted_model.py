"""A model that calls the tools it is told to, in four of the wire formats that agent programs speak. Loopback only.

`python scripted_model.py --port P --calls FILE --record FILE -- PROGRAM...` serves while the program runs, and ends
with its status. FILE of calls: a JSON list of [tool, arguments]. One call is made for each request of the program, the
next when the result of the one before is there; then the model says "done" and the last result. The string
"<last:NAME>" in arguments stands for the last text under the name NAME in the results so far. Standard library only.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

Json = Any
BODY_BYTES_MAX: Final = 32 * 1024 * 1024
# Tools of ours are told from others by the name of the server, which every program puts before them.
SERVER: Final = "fencepost"
SAID: Final = "done: "
ASIDE: Final = "A title"
_LAST: Final = re.compile(r"<last:(\w+)>")


@dataclass(kw_only=True)
class Heard:
    """What a request says, whatever its format: the tools on offer, as (namespace, name), and results so far."""

    tools: list[tuple[str, str]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    def named(self, tool: str) -> tuple[str, str] | None:
        """Return a tool of ours as it is offered, or None."""
        for namespace, name in self.tools:
            if SERVER in namespace + name and (name == tool or name.endswith(f"_{tool}")):
                return namespace, name
        return None

    @property
    def ours(self) -> list[str]:
        return sorted(namespace + name for namespace, name in self.tools if SERVER in namespace + name)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Text, or the call of a tool."""

    text: str = ""
    tool: tuple[str, str] | None = None
    arguments: Mapping[str, Json] = field(default_factory=dict)
    identity: str = ""


def decide(heard: Heard, calls: Sequence[tuple[str, Mapping[str, Json]]], number: int) -> Answer:
    """Return what the model does next."""
    if not heard.ours:
        return Answer(text=ASIDE)
    done = len(heard.results)
    if done >= len(calls):
        return Answer(text=SAID + heard.results[-1])
    tool, arguments = calls[done]
    found = heard.named(tool)
    if found is None:
        return Answer(text=f"no tool {tool} is offered")
    return Answer(tool=found, arguments=_filled(arguments, heard.results), identity=f"call_{number}")


def _filled(arguments: Mapping[str, Json], results: Sequence[str]) -> dict[str, Json]:
    def one(value: Json) -> Json:
        found = _LAST.fullmatch(value) if isinstance(value, str) else None
        return value if found is None else last_member(results, found.group(1))

    return {name: one(value) for name, value in arguments.items()}


def last_member(results: Sequence[str], name: str) -> str:
    """Return the last text under a member name in results, in which programs may have escaped or wrapped the JSON."""
    found = re.findall(rf'\\*"{name}\\*"\s*:\s*\\*"([^"\\]*)', "\n".join(results))
    return str(found[-1]) if found else ""


def text_of(content: Json) -> str:
    """Return the text of a content, which is a string, a list of parts, or an object that holds one."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(part) for part in content)
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return str(content["text"])
    return json.dumps(content)


# One reader and one writer for each format. A writer yields (event name or "", data).
Events = Iterator[tuple[str, Json]]


def hear_responses(body: Json) -> Heard:
    heard = Heard()
    offered = [*body.get("tools", [])]
    for item in body.get("input", []):
        kind = item.get("type", "")
        if kind == "additional_tools":
            offered += item.get("tools", [])
        elif kind == "function_call_output":
            heard.results.append(text_of(item.get("output")))
    for tool in offered:
        if tool.get("type") == "namespace":
            heard.tools += [(tool["name"], inner["name"]) for inner in tool.get("tools", [])]
        else:
            heard.tools.append(("", tool.get("name", "")))
    return heard


def say_responses(answer: Answer, model: str) -> Events:
    if answer.tool is None:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    else:
        namespace, name = answer.tool
        item = {"type": "function_call", "id": f"fc_{answer.identity}", "call_id": answer.identity, "name": name}
        item |= {"arguments": json.dumps(answer.arguments), "status": "completed"}
        item |= {"namespace": namespace} if namespace else {}
    usage: dict[str, Json] = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    response = {"id": "resp_1", "object": "response", "model": model, "output": [], "status": "in_progress"}
    events: list[dict[str, Json]] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [item], "usage": usage},
        },
    ]
    for number, event in enumerate(events):
        yield event["type"], {**event, "sequence_number": number}


def hear_messages(body: Json) -> Heard:
    heard = Heard(tools=[("", tool.get("name", "")) for tool in body.get("tools", [])])
    for message in body.get("messages", []):
        for block in message["content"] if isinstance(message["content"], list) else []:
            if block.get("type") == "tool_result":
                heard.results.append(text_of(block.get("content")))
    return heard


def say_messages(answer: Answer, model: str) -> Events:
    usage = {"input_tokens": 9, "output_tokens": 9}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    yield "message_start", {"message": {**message, "stop_reason": None, "stop_sequence": None}}
    block: dict[str, Json]
    if answer.tool is None:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": answer.text}
    else:
        block = {"type": "tool_use", "id": f"toolu_{answer.identity}", "name": answer.tool[1], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(answer.arguments)}
    yield "content_block_start", {"index": 0, "content_block": block}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    reason = "end_turn" if answer.tool is None else "tool_use"
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield "message_stop", {}


def hear_chat(body: Json) -> Heard:
    return Heard(
        tools=[("", tool.get("function", {}).get("name", "")) for tool in body.get("tools") or []],
        results=[text_of(told.get("content")) for told in body.get("messages", []) if told.get("role") == "tool"],
    )


def say_chat(answer: Answer, model: str) -> Events:
    def chunk(delta: Json, reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}

    if answer.tool is None:
        yield "", chunk({"role": "assistant", "content": answer.text})
    else:
        call = {"name": answer.tool[1], "arguments": json.dumps(answer.arguments)}
        calls = [{"index": 0, "id": answer.identity, "type": "function", "function": call}]
        yield "", chunk({"role": "assistant", "content": None, "tool_calls": calls})
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    yield "", {**chunk({}, "stop" if answer.tool is None else "tool_calls"), "usage": usage}


def hear_generate(body: Json) -> Heard:
    heard = Heard()
    for tool in body.get("tools", []):
        heard.tools += [("", declared.get("name", "")) for declared in tool.get("functionDeclarations", [])]
    for content in body.get("contents", []):
        for part in content.get("parts", []):
            if "functionResponse" in part:
                heard.results.append(json.dumps(part["functionResponse"].get("response")))
    return heard


def say_generate(answer: Answer, model: str) -> Events:
    part: dict[str, Json] = {"text": answer.text}
    if answer.tool is not None:
        part = {"functionCall": {"name": answer.tool[1], "args": answer.arguments}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
    yield "", {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}


@dataclass(frozen=True, kw_only=True)
class Format:
    """How one kind of request is read and answered. `typed` data carry the event's name as a member too."""

    path: re.Pattern[str]
    hear: Callable[[Json], Heard]
    say: Callable[[Answer, str], Events]
    closing: bytes = b""


FORMATS: Final = (
    Format(path=re.compile(r"/responses$"), hear=hear_responses, say=say_responses),
    Format(path=re.compile(r"/messages$"), hear=hear_messages, say=say_messages),
    Format(path=re.compile(r"/chat/completions$"), hear=hear_chat, say=say_chat, closing=b"data: [DONE]\n\n"),
    Format(path=re.compile(r":(streamG|g)enerateContent$"), hear=hear_generate, say=say_generate),
)


class Model(ThreadingHTTPServer):
    """The server; it writes a line on each request into the record."""

    daemon_threads = True

    def __init__(self, *, port: int, calls: Sequence[tuple[str, Mapping[str, Json]]], record: Path) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.calls = calls
        self._record = record
        self._lock = threading.Lock()
        self._number = 0

    def next_number(self) -> int:
        with self._lock:
            self._number += 1
            return self._number

    def write(self, **fields: Json) -> None:
        with self._lock, self._record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


class Handler(BaseHTTPRequestHandler):
    """One connection of a program."""

    protocol_version = "HTTP/1.1"
    server: Model

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name is inherited)
        """Say nothing: standard output is the program's."""

    def do_GET(self) -> None:
        self.server.write(path=self.path, method=self.command)
        self._whole({"object": "list", "data": [], "has_more": False})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body, path = self._body(), self.path.partition("?")[0]
        form = next((form for form in FORMATS if form.path.search(path)), None)
        if form is None:
            self.server.write(path=path, method=self.command)
            self._whole({"input_tokens": 9, "totalTokens": 9})
            return
        heard = form.hear(body)
        answer = decide(heard, self.server.calls, self.server.next_number())
        called = answer.tool and "".join(answer.tool)
        self.server.write(path=path, tools=heard.ours, results=heard.results, called=called, text=answer.text)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in form.say(answer, str(body.get("model", "scripted"))):
            typed = {"type": name, **data} if name else data
            head = f"event: {name}\n" if name else ""
            self.wfile.write(f"{head}data: {json.dumps(typed)}\n\n".encode())
        self.wfile.write(form.closing)
        self.close_connection = True

    def _whole(self, document: Json) -> None:
        content = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> Json:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            raw = b"".join(self._chunks())
        else:
            raw = self.rfile.read(min(int(self.headers.get("content-length", "0")), BODY_BYTES_MAX))
        if self.headers.get("content-encoding") == "gzip":
            raw = gzip.decompress(raw)
        return json.loads(raw) if raw else {}

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()


def main() -> int:
    parser = argparse.ArgumentParser(description="Serve a scripted model while a program runs.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--calls", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("program", nargs="+")
    wanted = parser.parse_args()
    calls = [(tool, arguments) for tool, arguments in json.loads(wanted.calls.read_text(encoding="utf-8"))]
    with Model(port=wanted.port, calls=calls, record=wanted.record) as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        try:
            return subprocess.run(wanted.program, check=False, stdin=subprocess.DEVNULL).returncode
        finally:
            model.shutdown()


if __name__ == "__main__":
    sys.exit(main())
