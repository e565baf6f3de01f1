"""What holds for every test."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

from fencepost.mcp.names import SSH_VARIABLES, WSL_VARIABLES

# How fast examples are made says something about the machine, not about the code: no test depends on it.
# A change is judged by the same histories each time: `make explore` looks at others.
settings.register_profile(
    "fencepost",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="FENCEPOST_TESTS_EXPLORE" not in os.environ,
)
settings.load_profile("fencepost")
# Where the tests are run says nothing about the code either: servers and configurations are named by these.
for variable in (*SSH_VARIABLES, *WSL_VARIABLES):
    os.environ.pop(variable, None)
# A shell has its background jobs ignore the interrupt key, and what they start inherits that. Here the tests may be the
# job, and some of the programs that they start are interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
