"""What a short message costs on disk: at rest, and written."""

from __future__ import annotations

from typing import Final

from fencepost_bench.rows import Plan, Row
from fencepost_bench.setting import Setting

MESSAGES: Final = {1: 1500, 16: 16_000}
MESSAGE_BYTES: Final = 300
REST_BYTES: Final = 1024

PLANS: Final = (
    Plan(id="disk-rest", goal=1.0),
    Plan(id="disk-written-1"),
    Plan(id="disk-written-16"),
)


def sizes(setting: Setting) -> list[Row]:
    """Measure every row of PLANS."""
    rest, *written = PLANS
    found = {batch: setting.disk.ask("sizes", messages=messages, batch=batch) for batch, messages in MESSAGES.items()}
    at_rest = found[16]["rest"]
    rows = [rest.row(at_rest / REST_BYTES, f"{at_rest:.0f} bytes of {REST_BYTES} for a message of {MESSAGE_BYTES}")]
    for plan, batch in zip(written, MESSAGES, strict=True):
        if "written" not in found[batch]:
            rows.append(plan.unmeasured("the system does not tell what a process has written"))
            continue
        count = found[batch]["written"]
        detail = f"{count / 1024:.1f} KiB written for each message of {MESSAGE_BYTES} bytes, {batch} a commit"
        rows.append(plan.row(count / MESSAGE_BYTES, detail))
    return rows
