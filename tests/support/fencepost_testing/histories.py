"""What every machine of random histories must do: end at any point and leave nothing behind."""

from __future__ import annotations

import gc
import warnings

from hypothesis.stateful import RuleBasedStateMachine


def ends_before_it_began(machine: type[RuleBasedStateMachine]) -> None:
    """Make a machine and end it at once: nothing is raised and nothing left open.

    Hypothesis gives up a history at any draw, the very first one too, and swallows what `teardown` raises then. What
    was left open is found later, in whatever test runs when it is collected.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        machine().teardown()
        gc.collect()
