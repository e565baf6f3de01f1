"""Run the mailbox alone: python -m fencepost_mailbox [--home PATH] [--FIELD VALUE ...]."""

from __future__ import annotations

from fencepost_kit.program import main
from fencepost_mailbox.settings import MailboxSettings
from fencepost_mailbox.wiring import SERVICE, serve

if __name__ == "__main__":
    raise SystemExit(main(SERVICE, MailboxSettings, serve))
