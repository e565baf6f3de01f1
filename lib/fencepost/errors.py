"""What a call into Fencepost can end in besides success.

Every operation has three outcomes, and the type says which:

* it returns: done;
* `Refused` or `NotWritten`: nothing was written and, under this key, nothing ever will be by this call;
* `Uncertain`: it is not known. Nothing here, and nothing built on this, may replay such a call by itself.

No text in these errors repeats a message body or a credential.
"""

from __future__ import annotations

from types import MappingProxyType

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, ClassVar, Final

    from fencepost.common.v1.common_pb2 import Refusal

STATUS_METADATA: Final = "grpc-status-details-bin"
STATUS_BYTES_MAX: Final = 16 * 1024
_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


class FencepostError(Exception):
    """A call that did not end in success.

    Attributes:
        reason: stable snake_case code; programs decide on this and on the type, never on the text.
        message: what happened and what was, or was not, written.
        hint: what the caller can do next, one sentence; may be empty.
        state: safe facts of the current state, for example the current generation.
    """

    outcome: ClassVar[str] = "failed"

    def __init__(self, reason: str, message: str, *, hint: str = "", state: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.hint = hint
        self.state: Mapping[str, str] = _EMPTY if state is None else MappingProxyType(dict(state))

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class Refused(FencepostError):
    """The answer was no, and nothing was written.

    Attributes:
        may_resend: the very same call, with the same key, may succeed later without any other change.
    """

    outcome = "refused"

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        hint: str = "",
        state: Mapping[str, str] | None = None,
        may_resend: bool = False,
    ) -> None:
        super().__init__(reason, message, hint=hint, state=state)
        self.may_resend = may_resend


class NotWritten(FencepostError):
    """It is proved that nothing was written, so the call may be made again.

    Attributes:
        key_spent: the service has durably cancelled this idempotency key; a new attempt needs a new key.
            Where False, the call never left this process and the same key may be used.
    """

    outcome = "not_written"

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        hint: str = "",
        state: Mapping[str, str] | None = None,
        key_spent: bool = False,
    ) -> None:
        super().__init__(reason, message, hint=hint, state=state)
        self.key_spent = key_spent


class Uncertain(FencepostError):
    """Whether the call was carried out is not known. It must not be replayed by machinery."""

    outcome = "uncertain"


LOST_TAIL: Final = "; what was written is not known"
# What a status without a refusal detail is called. The code alone proves nothing about what was written.
_LOST: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "DEADLINE_EXCEEDED": ("deadline_exceeded", "no answer came in time"),
        "UNAVAILABLE": ("connection_lost", "the connection was lost before an answer came"),
        "CANCELLED": ("connection_lost", "the call was cut off before an answer came"),
        "INTERNAL": ("internal_error", "the service failed while it worked on the call"),
        "UNIMPLEMENTED": ("unimplemented", "the running service does not know this call; its version may be older"),
    }
)


def refusal_detail(error: Any) -> Refusal | None:
    """Return the refusal that a gRPC error carries, or None where it carries none that can be trusted.

    A detail counts only if it decodes, names a reason, and says that nothing was written.
    """
    raw = next((value for key, value in error.trailing_metadata() or () if key == STATUS_METADATA), None)
    if not isinstance(raw, bytes) or len(raw) > STATUS_BYTES_MAX:
        return None
    # Imported here: errors are named by programs that never speak gRPC, the shim among them.
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # noqa: PLC0415

    from fencepost.common.v1 import common_pb2  # noqa: PLC0415

    try:
        status = Status.FromString(raw)
        detail = next((item for item in status.details if item.Is(common_pb2.Refusal.DESCRIPTOR)), None)
        refusal = common_pb2.Refusal()
        if detail is None or not detail.Unpack(refusal):
            return None
    except DecodeError:
        return None
    if not refusal.reason or refusal.effect != common_pb2.EFFECT_NOT_WRITTEN:
        return None
    return refusal


def error_of(error: Any) -> FencepostError:
    """Return what a gRPC error means: `Refused` only where the refusal detail is present, else `Uncertain`."""
    refusal = refusal_detail(error)
    if refusal is not None:
        return Refused(
            refusal.reason,
            error.details() or refusal.reason,
            hint=refusal.hint,
            state=dict(refusal.state),
            may_resend=refusal.may_resend,
        )
    code = error.code().name
    reason, text = _LOST.get(
        code, ("unexpected_status", f"the service answered {code} without saying what was written")
    )
    return Uncertain(reason, text + LOST_TAIL, state={"status": code})
