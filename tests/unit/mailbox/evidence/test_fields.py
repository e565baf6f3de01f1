"""What the fields of evidence may hold, at both sides of each limit, and which paths are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain.evidence import fields
from fencepost_mailbox.domain.evidence.refusals import InvalidEvidence
from fencepost_mailbox.domain.evidence.values import (
    CHECKOUT_BYTES_MAX,
    EVIDENCE_PATH_BYTES_MAX,
    EXIT_CODE_MAX,
    TEST_LABEL_BYTES_MAX,
    VERDICT_DETAIL_BYTES_MAX,
    CommitReported,
    DiffReported,
    FileReported,
    Reported,
    RunReported,
    evidence_id_of,
    evidence_id_text,
)
from fencepost_mailbox.domain.tasks.values import TASK_TEXT_BYTES_MAX

FILE = FileReported(path="a", sha256="0" * 64)
RUN = RunReported(label="x", outcome=1)
GOOD: tuple[Reported, ...] = (
    FILE,
    replace(FILE, path="ü" * (EVIDENCE_PATH_BYTES_MAX // 2), commit="a" * 64),
    replace(FILE, path="a/.b/c..d/...", commit="a" * 40),
    DiffReported(path="x"),
    DiffReported(base="a" * 40, head="b" * 40),
    replace(RUN, label="x" * TEST_LABEL_BYTES_MAX, outcome=3, exit_code=-EXIT_CODE_MAX),
    replace(RUN, exit_code=EXIT_CODE_MAX, summary="s" * TASK_TEXT_BYTES_MAX),
)
BAD: tuple[tuple[str, Reported | None], ...] = (
    ("descriptor", None),
    ("path", replace(FILE, path="ü" * (EVIDENCE_PATH_BYTES_MAX // 2) + "x")),
    ("path", replace(FILE, path="\ud800")),
    ("sha256", replace(FILE, sha256="0" * 63)),
    ("sha256", replace(FILE, sha256="A" * 64)),
    ("commit", replace(FILE, commit="main")),
    ("commit", CommitReported(commit="a" * 41)),
    ("commit", CommitReported(commit="--all" + "a" * 35)),
    ("path", DiffReported()),
    ("path", DiffReported(path="x", base="a" * 40)),
    ("head", DiffReported(base="a" * 40)),
    ("base", DiffReported(head="a" * 40)),
    ("label", replace(RUN, label="")),
    ("label", replace(RUN, label=" ")),
    ("label", replace(RUN, label="x" * (TEST_LABEL_BYTES_MAX + 1))),
    ("outcome", replace(RUN, outcome=0)),
    ("outcome", replace(RUN, outcome=4)),
    ("exit_code", replace(RUN, exit_code=EXIT_CODE_MAX + 1)),
    ("exit_code", replace(RUN, exit_code=-EXIT_CODE_MAX - 1)),
    ("summary", replace(RUN, summary="s" * (TASK_TEXT_BYTES_MAX + 1))),
)


@pytest.mark.parametrize("reported", GOOD)
def test_what_keeps_its_limits_passes(reported: Reported) -> None:
    assert fields.check_reported(reported) is reported


@pytest.mark.requirement("evidence.only-what-can-be-checked")
@pytest.mark.parametrize(("field", "reported"), BAD)
def test_what_breaks_a_limit_is_refused_by_its_field(field: str, reported: Reported | None) -> None:
    with pytest.raises(InvalidEvidence) as refused:
        fields.check_reported(reported)
    assert refused.value.state["field"] == field


PARTS = st.text(
    st.characters(codec="utf-8", exclude_characters="/\\:~\x7f", exclude_categories=("Cc", "Cs")), min_size=1
)
NAMES = PARTS.filter(lambda part: part not in (".", ".."))


@pytest.mark.requirement("evidence.paths-stay-in-the-checkout")
@given(st.lists(NAMES, min_size=1, max_size=5))
def test_every_relative_path_without_dots_passes(parts: list[str]) -> None:
    assert fields.path_flaw("/".join(parts)) == ""


@pytest.mark.requirement("evidence.paths-stay-in-the-checkout")
@given(
    before=st.lists(NAMES, max_size=3),
    after=st.lists(NAMES, max_size=3),
    evil=st.sampled_from(["..", ".", "", "\\", "a\\b", "\x00", "a\nb", "\x1b"]),
)
def test_a_part_that_leads_out_or_hides_is_refused_wherever_it_stands(
    before: list[str], after: list[str], evil: str
) -> None:
    assert fields.path_flaw("/".join([*before, evil, *after]))


@pytest.mark.requirement("evidence.paths-stay-in-the-checkout")
@given(
    start=st.sampled_from(["/", "//", "~/", "~root/", "C:", "c:/", "file:", "https://", "ssh+git://", "\\\\host\\"]),
    rest=st.lists(NAMES, min_size=1, max_size=3),
)
def test_an_absolute_path_a_drive_a_home_or_a_scheme_is_refused(start: str, rest: list[str]) -> None:
    with pytest.raises(InvalidEvidence):
        fields.check_path(start + "/".join(rest), "path")


def test_what_a_check_says_has_its_limits() -> None:
    fields.check_found(1, "d" * VERDICT_DETAIL_BYTES_MAX, "c" * CHECKOUT_BYTES_MAX)
    for verdict, detail, checkout in (
        (0, "", ""),
        (4, "", ""),
        (1, "d" * (VERDICT_DETAIL_BYTES_MAX + 1), ""),
        (1, "", "c" * (CHECKOUT_BYTES_MAX + 1)),
    ):
        with pytest.raises(InvalidEvidence):
            fields.check_found(verdict, detail, checkout)


@given(st.text(max_size=40))
def test_an_id_is_what_its_text_says_or_none(text: str) -> None:
    found = evidence_id_of(text)
    assert found is None or evidence_id_text(found) == text
    assert evidence_id_of(evidence_id_text(b"x" * 16)) == b"x" * 16
