"""Imported before anything that imports gRPC: this process starts programs, and gRPC must not take part in that.

gRPC's fork handlers run in between fork and exec, beside its own threads: one child in some hundred died of them before
it was executed, and sometimes this process did. Nothing here goes on after a fork without an exec, so they are not
needed.
"""

from __future__ import annotations

import os

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
