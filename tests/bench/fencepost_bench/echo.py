"""The yardstick: a raw grpc.aio handler on the same stack as the mailbox, in a process of its own.

uvloop, a Unix socket, the kit's server options, the messages of Send in both directions; it parses the bearer token and
looks it up, as the guard does, and does nothing else. Run as `python -m fencepost_bench.echo SOCKET`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

import grpc
import uvloop
from fencepost_bench.child import serve_async

from fencepost.common.v1 import common_pb2
from fencepost.mailbox.v1 import mailbox_pb2, mailbox_pb2_grpc
from fencepost_kit.identity import bearer
from fencepost_kit.serve import SERVER_OPTIONS, Handlers


class Echo:
    """Answers Send with a receipt like a real one."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    async def learn(self, tokens: list[str]) -> None:
        """Remember tokens."""
        self._known.update((token, 1) for token in tokens)

    async def Send(self, request: mailbox_pb2.SendRequest, context: Any) -> mailbox_pb2.SendResponse:
        """Check who calls and answer."""
        if self._known[bearer(context.invocation_metadata())] != 1:
            raise AssertionError
        return mailbox_pb2.SendResponse(
            record_id="inf_0198c0ffee007000800000000000abcd",
            delivery_state=mailbox_pb2.DELIVERY_STATE_ADMITTED,
            recipient=common_pb2.AgentRef(agent_id="0198c0ff-ee00-7000-8000-00000000abcd", name="recipient"),
            recipient_reader=mailbox_pb2.RECIPIENT_READER_NONE,
            admitted_at_ms=1_796_000_000_000,
        )


async def main(path: str) -> None:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    echo = Echo()
    registered: Any = type("Registered", (), {"__getattr__": lambda _self, name: echo.Send})()
    mailbox_pb2_grpc.add_MailboxServiceServicer_to_server(registered, cast("Any", Handlers(server)))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    await serve_async({"learn": echo.learn})
    await server.stop(None)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1]))
