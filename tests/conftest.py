"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How fast examples are made says something about the machine, not about the code: no test depends on it.
settings.register_profile("fencepost", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fencepost")
