"""Run providers alone: python -m fencepost_providers [--home PATH] [--FIELD VALUE ...]."""

from __future__ import annotations

import fencepost_providers.forking  # noqa: F401 - before everything that imports gRPC

# isort: split

from fencepost.home import PROVIDERS
from fencepost_kit.program import main
from fencepost_providers.settings import Settings
from fencepost_providers.wiring import serve

if __name__ == "__main__":
    raise SystemExit(main(PROVIDERS, Settings, serve))
