"""How a call that did not end in success is told to a model: one envelope, one code, what was written, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fencepost.errors import FencepostError, NotWritten, Refused
from fencepost.mcp import answers, registry, wire

EDGE_CALL_MS_MAX: Final = 62_000

NOT_CONNECTED: Final = frozenset({"not_running", "unreachable"})
_UP: Final = "`fencepost status` shows which services run, `fencepost up` starts them."
_LOOK: Final = (
    "Do not send it again. Ask the recipient, or look whether it arrived with `fencepost message list --sent` in this"
    " agent's environment."
)
_ONCE: Final = (
    "Do not call it with another request_id. Where you gave one, the same call with the same request_id is carried out"
    " once at most, so it may be repeated as it was; else look whether it was done."
)
_NEW_ID: Final = "It may be called again, with a new request_id: the old one is refused from now on."
_SEE: Final = "Look at the agent's status with list_agents before you decide anew; it is not tried again."

# Fields of services, and what tools call them.
_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "start_deadline_ms": ("start_deadline",),
    "thread_id": ("thread", "id"),
    "record_ids": ("ids",),
    "task_ids": ("ids",),
    "page_size": ("limit",),
}


class ToolError(Exception):
    """What the model is told instead of a result. Never holds a body or a credential."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str = "",
        uncertain: bool = False,
        state: Mapping[str, str] | None = None,
        key_spent: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        # True where it is not known what was written; else nothing was.
        self.uncertain = uncertain
        # Safe facts of how things stand.
        self.state = state
        # True where the same key would be refused from now on.
        self.key_spent = key_spent

    def line(self, id_text: str) -> bytes:
        """Return the line, without its end, that answers the call."""
        return wire.tool_error(
            id_text,
            code=self.code,
            message=self.message,
            hint=self.hint,
            uncertain=self.uncertain,
            state=self.state,
        )


def _name_arguments(problem: ToolError, tool: str) -> None:
    takes = registry.EVERY_OF[tool].arguments
    names = {
        field: next(argument for argument in arguments if argument in takes)
        for field, arguments in _ARGUMENTS.items()
        if field not in takes and not takes.keys().isdisjoint(arguments)
    }
    if not names:
        return
    problem.message = registry.renamed(problem.message, names)
    problem.hint = registry.renamed(problem.hint, names)
    if problem.state:
        problem.state = {key: names.get(value, value) for key, value in problem.state.items()}


def fitting(problem: ToolError, tool: str) -> ToolError:
    """Return a problem with the hint that fits its tool: what is lost is looked for where it would be found.

    The seven tools tell no state: their receipts and pages do.
    """
    _name_arguments(problem, tool)
    if problem.code == "permission_denied" and problem.state and "role" in problem.state:
        # The service names its own method, which is no word of the caller's.
        problem.message = f"{tool} is not open to the role {problem.state['role']}; nothing was written."
        problem.hint = problem.hint or "agent_list shows who has another role: ask that agent."
    if problem.uncertain and tool in answers.TELLS:
        problem.hint = _SEE
    if tool in answers.MESSAGING:
        problem.state = None
    if tool in answers.MESSAGES:
        return problem
    if problem.uncertain and tool in answers.SETTLES:
        problem.hint = _ONCE
    elif problem.key_spent:
        problem.hint = _NEW_ID
    return problem


def renamed(problem: ToolError) -> ToolError:
    """Return a problem whose texts call tools by their other names."""
    problem.message = registry.renamed(problem.message, registry.WARPED)
    problem.hint = registry.renamed(problem.hint, registry.WARPED)
    return problem


def sentence(text: str) -> str:
    """Return a text of a service as a whole sentence. The name of a field is left as it is spelt."""
    if "_" not in text.partition(" ")[0]:
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else f"{text}."


def told(error: FencepostError, *, mutation: bool) -> ToolError:
    """Return what a model is told of an error of the client library."""
    message, hint = sentence(error.message), error.hint
    if isinstance(error, Refused):
        if error.may_resend:
            hint = f"{hint} It may be called again.".lstrip()
        return ToolError(error.reason, message, hint=hint, state=error.state)
    if isinstance(error, NotWritten):
        # A new call has a new key, so this holds where the old key was spent too.
        hint = f"It may be called again. {_UP}" if error.reason in NOT_CONNECTED else "It may be called again."
        code = "not_written" if mutation else "control_transport_error"
        return ToolError(code, message, hint=hint, key_spent=error.key_spent)
    if mutation:
        return ToolError("delivery_uncertain", message, hint=_LOOK, uncertain=True)
    return repeatable(message)


def repeatable(message: str) -> ToolError:
    """Return what is told of a lost page: what it showed and acknowledged is the same when it is asked for again."""
    hint = f"Call it again with the same arguments; that changes nothing more. {_UP}"
    return ToolError("control_transport_error", message, hint=hint, uncertain=True)


def overdue(*, mutation: bool) -> ToolError:
    """Return what is told of a call that outlasted EDGE_CALL_MS_MAX."""
    message = f"No answer came within {EDGE_CALL_MS_MAX // 1000} s."
    if mutation:
        return ToolError("delivery_uncertain", message, hint=_LOOK, uncertain=True)
    return repeatable(message)


def senseless(*, mutation: bool) -> ToolError:
    """Return what is told where a service's answer makes no sense for the call."""
    return ToolError(
        "invalid_receipt",
        "The service's answer does not fit the call; what was written is not known."
        if mutation
        else "The service's answer does not fit the call.",
        hint=_LOOK if mutation else "Call it again.",
        uncertain=mutation,
    )


def broken(*, mutation: bool) -> ToolError:
    """Return what is told of a defect of the edge itself."""
    return ToolError(
        "internal_error",
        "The edge failed while it worked on the call; what was written is not known."
        if mutation
        else "The edge failed while it worked on the call.",
        hint=_LOOK if mutation else "Look at the log of mcp_edge in the home.",
        uncertain=mutation,
    )


def overloaded(count: int) -> ToolError:
    """Return what is told of a call for which there is no room."""
    return ToolError(
        "overloaded",
        f"{count} calls of this agent are in progress and no more fit; this one was not sent.",
        hint="Call it again when one of them has been answered.",
    )


def stopped(*, mutation: bool) -> ToolError:
    """Return what is told of a call that the edge's stop ended, where nobody asks the next edge about it."""
    if mutation:
        message = "The edge was stopped before the answer came: the call may or may not have been written."
        return ToolError("delivery_uncertain", message, hint=_LOOK, uncertain=True)
    message = "The edge is being stopped, and the call ended before its time; calling it again changes nothing more."
    return ToolError("draining", message, hint="It may be called again.")


def unsettled(error: FencepostError | None) -> ToolError:
    """Return what is told where nobody could say what became of a mutation."""
    why = "the store is another one than it was sent to" if error is None else error.reason
    return ToolError(
        "delivery_uncertain",
        "The connection was lost after the call was sent. What became of it could not be learned"
        f" ({why}): it may or may not have been written.",
        hint=_LOOK,
        uncertain=True,
    )


def cancelled() -> ToolError:
    """Return what is told where the store has durably refused the lost call."""
    return ToolError(
        "not_written",
        "The connection was lost, and it is proved that the call was not written and never will be.",
        hint="It may be called again.",
        key_spent=True,
    )


def unsent(error: FencepostError) -> ToolError:
    """Return what is told where a question before the call failed: whatever became of it, the call was not sent."""
    if isinstance(error, Refused):
        return told(error, mutation=True)
    return ToolError(
        "not_written",
        f"{sentence(error.message)} The call itself was not sent.",
        hint=f"It may be called again. {_UP}",
    )
