"""Every way in which shared context says no. A refusal wrote nothing; its reason is public."""

from __future__ import annotations

from fencepost_mailbox.domain.refusals import MailboxRefusal


class InvalidContext(MailboxRefusal):
    """A key, content or other field breaks its rule; `field` in the state names it."""

    reason = "invalid_context"


class ContextLimit(MailboxRefusal):
    """The project has as many contexts as it may."""

    reason = "context_limit"
