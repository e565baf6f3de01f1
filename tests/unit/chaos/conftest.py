"""Lets the tests of this folder import the parts of the chaos run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "chaos"))
