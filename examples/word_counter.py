"""An agent in thirty lines: it answers every request with the number of its words.

Create it and start it in its own environment; then assign it something as another agent:

    fencepost agent create counter
    FENCEPOST_SESSION_ID=<its UUID> python examples/word_counter.py
    FENCEPOST_SESSION_ID=<another agent's UUID> fencepost message followup counter "how many words are these"
"""

from __future__ import annotations

import asyncio
import sys

from fencepost import Client, FencepostError
from fencepost.mailbox.v1 import mailbox_pb2 as pb


async def answer(client: Client, record: pb.Record) -> None:
    """Do the work of one record: requests are counted, everything else is only read."""
    if record.kind == pb.RECORD_KIND_REQUEST and not record.possibly_seen:
        await client.reply(record.record_id, f"{len(record.body.split())} words")


async def main(requests_max: int | None) -> None:
    """Wait, receive, answer, acknowledge; end after `requests_max` requests, or never."""
    answered = 0
    async with Client.from_environment() as client:
        while requests_max is None or answered < requests_max:
            if (await client.wait(timeout_ms=60_000)).timed_out:
                continue
            page = await client.receive()
            for record in page.records:
                await answer(client, record)
                answered += record.kind == pb.RECORD_KIND_REQUEST
            # Only now: what is not acknowledged is shown again to the next life of this agent.
            await client.receive(ack_cursor=page.ack_cursor, limit=1)


if __name__ == "__main__":
    try:
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
    except FencepostError as error:
        sys.exit(f"{error}\n{error.hint}")
