"""Run sessions alone: python -m fencepost_sessions [--home PATH] [--FIELD VALUE ...]."""

from __future__ import annotations

from fencepost.home import SESSIONS
from fencepost_kit.program import main
from fencepost_sessions.settings import Settings
from fencepost_sessions.wiring import serve

if __name__ == "__main__":
    raise SystemExit(main(SESSIONS, Settings, serve))
