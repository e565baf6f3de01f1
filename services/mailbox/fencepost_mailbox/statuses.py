"""The status of every refusal of the mailbox: the one table that the guard of each of its services is given."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import grpc

from fencepost_kit.refusal import Refusal
from fencepost_mailbox import task_translate
from fencepost_mailbox.context_translate import CONTEXT_STATUS_OF
from fencepost_mailbox.evidence_translate import EVIDENCE_STATUS_OF
from fencepost_mailbox.file_translate import FILE_STATUS_OF

STATUS_OF: Final[Mapping[type[Refusal], grpc.StatusCode]] = MappingProxyType(
    {**task_translate.STATUS_OF, **CONTEXT_STATUS_OF, **FILE_STATUS_OF, **EVIDENCE_STATUS_OF}
)
