"""Every way in which evidence says no. A refusal wrote nothing; its reason is public."""

from __future__ import annotations

from fencepost_mailbox.domain.refusals import MailboxRefusal


class InvalidEvidence(MailboxRefusal):
    """A descriptor, path or other field breaks its rule; `field` in the state names it."""

    reason = "invalid_evidence"


class EvidenceLimit(MailboxRefusal):
    """The task has as much evidence as it may."""

    reason = "evidence_limit"
