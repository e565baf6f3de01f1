"""Named fault points: places where a test makes this process die, fail or stall.

Switched off, a point costs one attribute read:

    if faults.ARMED:
        faults.hit("mailbox.commit.before")

They are armed only by the environment: FENCEPOST_FAULTS="mailbox.commit.after=kill@3;sessions.start=delay_ms:50".
"""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fencepost.home import SERVICES
from fencepost_kit.refusal import StartRefused

VARIABLE: Final = "FENCEPOST_FAULTS"
DELAY_MS_MAX: Final = 10_000
FAULTS_MAX: Final = 64
EXIT_CODE: Final = 70

ARMED: bool = False
POINTS: Final[dict[str, str]] = {}
"""Every point that this process can hit, with the moment that it stands for."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
_RULE: Final = re.compile(r"(?P<name>[^=]+)=(?P<action>kill|exit|error|delay_ms:(?P<delay>\d+))(?:@(?P<turn>\d+|\*))?")


class InvalidFaults(StartRefused):
    """FENCEPOST_FAULTS is malformed, or names a point that this process does not have."""

    reason = "invalid_faults"


class InjectedFault(OSError):
    """The error that an armed point with the action `error` raises, an I/O error to whoever catches it."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.EIO, f"fault injected at {name}")


@dataclass(slots=True)
class _Fault:
    action: str
    turn: int  # 0: every hit
    delay_ms: int = 0
    hits: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self) -> bool:
        """Count a hit and tell whether it is the one."""
        with self.lock:
            self.hits += 1
            return self.turn in {0, self.hits}


_armed: dict[str, list[_Fault]] = {}


def register(name: str, moment: str) -> str:
    """Declare a point and return its name. The module that hits it calls this when it is imported."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"not a fault point name: {name!r}")
    POINTS[name] = moment
    return name


def arm_from_environment(env: Mapping[str, str] | None = None) -> None:
    """Arm what FENCEPOST_FAULTS names; unset or empty disarms.

    An entry is NAME=ACTION[@N]: kill (SIGKILL to this process), exit, error, or delay_ms:MS, on the N-th hit (1 unless
    given, * for every one).

    Raises:
        InvalidFaults: an entry is malformed, or a delay over DELAY_MS_MAX. What was armed before stays so.
    """
    text = (os.environ if env is None else env).get(VARIABLE, "")
    arm(text)


def arm(text: str) -> None:
    """Arm the entries of `text` and disarm all others."""
    global ARMED  # noqa: PLW0603 - the module attribute is the switch, so that off costs one read
    rules = [entry.strip() for entry in text.split(";") if entry.strip()]
    if len(rules) > FAULTS_MAX:
        raise InvalidFaults(f"{VARIABLE}: more than {FAULTS_MAX} entries")
    faults: dict[str, list[_Fault]] = {}
    for rule in rules:
        name, fault = _parse(rule)
        faults.setdefault(name, []).append(fault)
    _armed.clear()
    _armed.update(faults)
    ARMED = bool(faults)


def _parse(rule: str) -> tuple[str, _Fault]:
    match = _RULE.fullmatch(rule)
    if match is None:
        raise InvalidFaults(f"{VARIABLE}: {rule!r} is not NAME=kill|exit|error|delay_ms:MS[@N]")
    name, delay_ms = match["name"], int(match["delay"] or 0)
    if delay_ms > DELAY_MS_MAX:
        raise InvalidFaults(f"{VARIABLE}: {rule!r} is over {DELAY_MS_MAX} ms")
    turn = match["turn"] or "1"
    if turn == "0":
        raise InvalidFaults(f"{VARIABLE}: {rule!r}: hits count from 1")
    return name, _Fault(
        action=match["action"].partition(":")[0], turn=0 if turn == "*" else int(turn), delay_ms=delay_ms
    )


def armed() -> tuple[str, ...]:
    """Return the names of the points at which something is armed."""
    return tuple(sorted(_armed))


def refuse_unknown() -> None:
    """Refuse to run where a fault is armed at a point that does not exist: it would never fire, and a test lie.

    The first word of a name says whose point it is. Those of other services of the home are left to them: they share
    the environment.

    Raises:
        InvalidFaults: it names the points that exist.
    """
    ours = {name.partition(".")[0] for name in POINTS}
    others = set(SERVICES) - ours
    unknown = sorted(name for name in _armed if name not in POINTS and name.partition(".")[0] not in others)
    if unknown:
        raise InvalidFaults(
            f"{VARIABLE}: no fault point {', '.join(unknown)} in this process",
            hint=f"It has: {', '.join(sorted(POINTS)) or 'none'}.",
        )


def hit(name: str) -> None:
    """Do what is armed at this point. Call it only behind `if faults.ARMED:`.

    Raises:
        InjectedFault: the action is `error`.
    """
    # All count the hit before any acts: the first one's error must not hide it from the others.
    for fault in [fault for fault in _armed.get(name, ()) if fault.count()]:
        _act(name, fault)


def _act(name: str, fault: _Fault) -> None:
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(DELAY_MS_MAX / 1000)  # the signal is on its way: nothing after this point may run
    elif fault.action == "exit":
        os._exit(EXIT_CODE)
    elif fault.action == "error":
        raise InjectedFault(name)
    else:
        time.sleep(fault.delay_ms / 1000)
