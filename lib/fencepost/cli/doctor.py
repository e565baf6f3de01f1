"""`fencepost doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

from fencepost.cli.options import AsJson


def doctor(*, as_json: AsJson = False) -> None:
    """Find what is wrong between agent programs and their mailbox, and say what to do. Changes nothing."""
    from fencepost.cli import diagnosis  # noqa: PLC0415 (what only sends looks at nothing else)

    diagnosis.run(as_json=as_json)
