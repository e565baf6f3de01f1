"""Care for the data of one home: backups while services run, and restoring one while nothing does.

Like fencepost.up it runs where the services run and may use fencepost_kit.
"""

from __future__ import annotations

from fencepost.care.backup import Made, back_up
from fencepost.care.manifest import Manifest, StoreCopy, read_manifest
from fencepost.care.restore import Restored, restore

__all__ = ["Made", "Manifest", "Restored", "StoreCopy", "back_up", "read_manifest", "restore"]
