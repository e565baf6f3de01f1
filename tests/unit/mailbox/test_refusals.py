"""Every way of saying no has a status of its own entry, a stable reason, and a line in the reference."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

import fencepost_mailbox
from fencepost_kit.refusal import DependencyDown, Refusal
from fencepost_kit.statuses import KIT_STATUSES
from fencepost_mailbox.domain.refusals import DirectoryStale, MailboxRefusal
from fencepost_mailbox.statuses import STATUS_OF

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "errors.md"
STATUS = grpc.StatusCode
# What the architecture says of kinds, reason by reason.
EXPECTED = {
    "invalid_message": STATUS.INVALID_ARGUMENT,
    "invalid_idempotency_key": STATUS.INVALID_ARGUMENT,
    "idempotency_conflict": STATUS.ALREADY_EXISTS,
    "key_cancelled": STATUS.FAILED_PRECONDITION,
    "invalid_limit": STATUS.INVALID_ARGUMENT,
    "invalid_timeout": STATUS.INVALID_ARGUMENT,
    "invalid_cursor": STATUS.INVALID_ARGUMENT,
    "expired_cursor": STATUS.FAILED_PRECONDITION,
    "invalid_target": STATUS.INVALID_ARGUMENT,
    "ambiguous_target": STATUS.INVALID_ARGUMENT,
    "not_found": STATUS.NOT_FOUND,
    "self_request": STATUS.INVALID_ARGUMENT,
    "agent_deleted": STATUS.FAILED_PRECONDITION,
    "unauthorized": STATUS.PERMISSION_DENIED,
    "invalid_task": STATUS.FAILED_PRECONDITION,
    "conflicting_reply": STATUS.ALREADY_EXISTS,
    "withdrawn": STATUS.FAILED_PRECONDITION,
    "stale_generation": STATUS.ABORTED,
    "stale_incarnation": STATUS.ABORTED,
    "stale_claim": STATUS.ABORTED,
    "conflicting_outcome": STATUS.ALREADY_EXISTS,
    "stale_binding": STATUS.ABORTED,
    "invalid_binding": STATUS.INVALID_ARGUMENT,
    "not_pending": STATUS.FAILED_PRECONDITION,
    "hop_limit": STATUS.FAILED_PRECONDITION,
    "invalid_state": STATUS.FAILED_PRECONDITION,
    "invalid_context": STATUS.INVALID_ARGUMENT,
    "invalid_evidence": STATUS.INVALID_ARGUMENT,
    "context_limit": STATUS.FAILED_PRECONDITION,
    "evidence_limit": STATUS.FAILED_PRECONDITION,
    "invalid_path": STATUS.INVALID_ARGUMENT,
    "invalid_reservation": STATUS.INVALID_ARGUMENT,
    "reservation_lost": STATUS.ABORTED,
    "reservation_limit": STATUS.FAILED_PRECONDITION,
    "dependency_unavailable": STATUS.UNAVAILABLE,
    "storage_error": STATUS.UNAVAILABLE,
    "invalid_task_field": STATUS.INVALID_ARGUMENT,
    "request_conflict": STATUS.ALREADY_EXISTS,
    "version_conflict": STATUS.ABORTED,
    "stale_revision": STATUS.ABORTED,
    "stale_attempt": STATUS.ABORTED,
    "already_running": STATUS.FAILED_PRECONDITION,
    "not_next": STATUS.FAILED_PRECONDITION,
    "deadline_passed": STATUS.FAILED_PRECONDITION,
    "self_review": STATUS.INVALID_ARGUMENT,
    "dependency_cycle": STATUS.FAILED_PRECONDITION,
    "dependency_limit": STATUS.FAILED_PRECONDITION,
    "work_running": STATUS.FAILED_PRECONDITION,
    "notifications_unread": STATUS.FAILED_PRECONDITION,
    "invalid_attributes": STATUS.INVALID_ARGUMENT,
    "invalid_query": STATUS.INVALID_ARGUMENT,
    "not_shown": STATUS.FAILED_PRECONDITION,
}


def refusals() -> Iterator[type[MailboxRefusal]]:
    """Every refusal class that any module of the mailbox defines."""
    for module in pkgutil.walk_packages(fencepost_mailbox.__path__, "fencepost_mailbox."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    waiting = [MailboxRefusal]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind.__module__.startswith("fencepost_mailbox"):
                waiting.append(kind)
                yield kind


KINDS = sorted(refusals(), key=lambda kind: kind.__name__)


@pytest.mark.requirement("mailbox.every-refusal-has-a-status-and-a-reason")
@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_has_the_status_of_its_kind(kind: type[MailboxRefusal]) -> None:
    assert STATUS_OF.get(kind) is EXPECTED[kind.reason]


@pytest.mark.requirement("mailbox.every-refusal-has-a-status-and-a-reason")
def test_no_two_refusals_share_a_reason_and_none_inherits_one() -> None:
    assert not [reason for reason, times in Counter(kind.reason for kind in KINDS).items() if times > 1]
    assert not [kind for kind in KINDS if "reason" not in vars(kind)]
    # The one reason that the kit has too: to a caller it is the same thing, whoever finds it.
    shared = {kind.reason for kind in KINDS} & {kind.reason for kind in KIT_STATUSES}
    assert shared == {DirectoryStale.reason} == {DependencyDown.reason}


@pytest.mark.requirement("mailbox.every-refusal-has-a-status-and-a-reason")
@pytest.mark.parametrize("kind", KINDS)
def test_a_reason_is_documented(kind: type[MailboxRefusal]) -> None:
    assert re.fullmatch(r"[a-z][a-z_]*[a-z]", kind.reason)
    assert f"`{kind.reason}`" in REFERENCE.read_text(encoding="utf-8")


@pytest.mark.requirement("mailbox.every-refusal-has-a-status-and-a-reason")
def test_may_be_resent_and_unavailable_are_one_thing() -> None:
    for kind, status in (*STATUS_OF.items(), *KIT_STATUSES.items()):
        assert kind.may_resend == (status in (STATUS.UNAVAILABLE, STATUS.RESOURCE_EXHAUSTED)), kind


def test_the_table_names_no_stranger() -> None:
    assert set(STATUS_OF) == {MailboxRefusal, *KINDS}
    assert all(issubclass(kind, Refusal) for kind in STATUS_OF)
