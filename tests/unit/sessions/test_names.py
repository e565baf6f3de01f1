"""Names: whatever is accepted is found again by every spelling of the same text, and two that look alike are one."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_sessions.domain.agents import Agent
from fencepost_sessions.domain.limits import (
    AMBIGUOUS_NAMED_MAX,
    NAME_CHARS_MAX,
    NAME_INPUT_BYTES_MAX,
    NEAR_MISSES_MAX,
    QUARANTINE_MS,
)
from fencepost_sessions.domain.names import ReleasedName, agent_name, check_quarantine, is_uuid_shaped, name_key
from fencepost_sessions.domain.refusals import AmbiguousTarget, InvalidName, InvalidTarget, NameQuarantined, NotFound
from fencepost_sessions.domain.roles import Role
from fencepost_sessions.domain.targets import TargetId, TargetName, resolve_name, target_of

PROJECT = bytes(16)
UUID = "0198c0de-0000-7000-8000-0000000000aa"


def an_agent(name: str, *, number: int = 1, project: bytes = PROJECT) -> Agent:
    accepted = agent_name(name)
    return Agent(
        agent_id=number.to_bytes(16, "big"),
        project_id=project,
        name=accepted.text,
        name_key=accepted.key,
        role=Role.AGENT,
        provider="",
        workspace="",
        generation=1,
        created_at_ms=0,
        revision=1,
    )


def accepted_or_none(text: str) -> str | None:
    try:
        return agent_name(text).text
    except InvalidName:
        return None


any_text = st.text(min_size=1, max_size=NAME_CHARS_MAX)
names = any_text.map(accepted_or_none).filter(lambda name: name is not None).map(str)


@pytest.mark.requirement("sessions.accepted-names-are-found")
@given(name=names)
def test_every_accepted_name_is_a_target_that_finds_its_agent_and_no_other(name: str) -> None:
    agent = an_agent(name)
    target = target_of(name)
    assert isinstance(target, TargetName)
    assert target.key == agent.name_key
    assert resolve_name(target, [agent]) is agent


@pytest.mark.requirement("sessions.accepted-names-are-found")
@given(name=names, form=st.sampled_from(["NFC", "NFD"]))
def test_an_accepted_name_is_found_in_every_canonical_spelling(name: str, form: str) -> None:
    spelled = unicodedata.normalize(form, name)  # type: ignore[arg-type]
    target = target_of(spelled)
    assert isinstance(target, TargetName)
    assert target.text == agent_name(spelled).text == name


@pytest.mark.requirement("sessions.names-are-unique-without-regard-to-case")
@given(name=names)
def test_names_that_differ_in_case_or_normal_form_have_one_key(name: str) -> None:
    key = name_key(name)
    for other in (name.casefold(), name.lower(), name.swapcase().swapcase(), unicodedata.normalize("NFD", name)):
        if name_key(other) != key:
            # Lower and upper case are not each other's inverse for every letter; folding is what decides.
            assert other.casefold() != name.casefold()
    assert name_key(name.casefold()) == key
    assert name_key(unicodedata.normalize("NFD", name)) == key
    assert name_key(key) == key


@given(text=st.text(max_size=80))
def test_an_accepted_name_is_short_visible_unpadded_and_in_normal_form(text: str) -> None:
    name = accepted_or_none(text)
    if name is None:
        return
    assert 1 <= len(name) <= NAME_CHARS_MAX
    assert name == unicodedata.normalize("NFC", text) == unicodedata.normalize("NFC", name)
    assert name == name.strip()
    assert not any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"} for char in name)
    assert not is_uuid_shaped(name)


@pytest.mark.parametrize(
    "pair",
    [("Alice", "aLICE"), ("Zoë", "Zoe\u0308"), ("ZOË", "zoe\u0308"), ("straße", "STRASSE"), ("ΣΊΣΥΦΟΣ", "σίσυφος")],
)
def test_these_spellings_are_one_name(pair: tuple[str, str]) -> None:
    assert agent_name(pair[0]).key == agent_name(pair[1]).key


@pytest.mark.requirement("sessions.names-cannot-be-mistaken")
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        " padded",
        "padded ",
        "\u00a0padded",
        "tab\tinside",
        "line\nend",
        "nul\0",
        "esc\x1b[31m",
        "zero\u200bwidth",
        "right\u202eleft",
        "\ufeffmark",
        "line\u2028separator",
        "\ud800",
        "\U000e0fff",
        "x" * (NAME_CHARS_MAX + 1),
        "x" * (NAME_INPUT_BYTES_MAX + 1),
        UUID,
        UUID.upper(),
        UUID.replace("-", ""),
        f"{{{UUID}}}",
        f"urn:uuid:{UUID}",
        "all",
        "ALL",
        "*",
        "broadcast",
        "Broadcast",
        "class:reviewer",
        "CLASS:",
    ],
)
def test_a_name_that_could_be_taken_for_something_else_is_refused_and_so_is_the_target(text: str) -> None:
    with pytest.raises(InvalidName) as refused:
        agent_name(text)
    assert "nothing was written" in refused.value.message
    if not (target_is_id := text.lower() == UUID):
        with pytest.raises(InvalidTarget):
            target_of(text)
    assert target_is_id is isinstance(target_of(UUID) if target_is_id else None, TargetId)


def test_a_name_of_exactly_the_greatest_length_is_accepted_and_one_more_is_not() -> None:
    assert agent_name("n" * NAME_CHARS_MAX).text == "n" * NAME_CHARS_MAX
    with pytest.raises(InvalidName):
        agent_name("n" * (NAME_CHARS_MAX + 1))


def test_the_longest_name_is_accepted_in_its_longest_spelling() -> None:
    # Four code points each when decomposed: the bound on what comes in leaves room for every spelling of a name.
    name = "\u1f82" * NAME_CHARS_MAX
    spelled = unicodedata.normalize("NFD", name)
    assert len(spelled.encode()) <= NAME_INPUT_BYTES_MAX
    assert agent_name(spelled).text == name


def test_a_name_that_is_too_long_only_while_decomposed_is_accepted() -> None:
    assert agent_name(unicodedata.normalize("NFD", "é" * NAME_CHARS_MAX)).text == "é" * NAME_CHARS_MAX


def test_a_uuid_is_a_target_in_any_case_and_means_the_same_agent() -> None:
    assert target_of(UUID) == target_of(UUID.upper()) == TargetId(agent_id=bytes.fromhex(UUID.replace("-", "")))


def test_words_that_only_begin_like_reserved_ones_are_names() -> None:
    for name in ("allison", "broadcaster", "class", "classy", "**", "all hands"):
        assert agent_name(name).text == name


@pytest.mark.requirement("sessions.targets-match-exactly")
def test_a_near_miss_in_case_is_not_found_and_is_named_in_the_hint() -> None:
    with pytest.raises(NotFound) as refused:
        resolve_name(target_of("alice"), [an_agent("Alice")])  # type: ignore[arg-type]
    assert '"Alice"' in refused.value.hint


def test_no_more_near_misses_are_named_than_fit() -> None:
    spellings = ["abcd", "Abcd", "aBcd", "abCd", "abcD"]
    agents = [an_agent(name, number=number) for number, name in enumerate(spellings)]
    with pytest.raises(NotFound) as refused:
        resolve_name(target_of("ABCD"), agents)  # type: ignore[arg-type]
    assert refused.value.hint.count('"') == 2 * NEAR_MISSES_MAX


@pytest.mark.requirement("sessions.ambiguous-names-are-refused")
def test_a_name_of_several_projects_is_ambiguous_and_projects_are_named_up_to_a_limit() -> None:
    agents = [an_agent("ann", number=number, project=number.to_bytes(16, "big")) for number in range(1, 9)]
    with pytest.raises(AmbiguousTarget) as refused:
        resolve_name(target_of("ann"), agents)  # type: ignore[arg-type]
    assert refused.value.state == {"matches": "8"}
    assert refused.value.hint.count("00000000-") == AMBIGUOUS_NAMED_MAX


@pytest.mark.requirement("sessions.released-names-rest")
def test_a_released_name_is_refused_to_others_until_its_time_is_over() -> None:
    released = ReleasedName(key="ann", agent_id=b"a" * 16, released_at_ms=1_000)
    with pytest.raises(NameQuarantined) as refused:
        check_quarantine(released, agent_id=b"b" * 16, now_ms=1_000 + QUARANTINE_MS - 1)
    assert refused.value.state == {"free_in_ms": "1"}
    assert refused.value.may_resend
    check_quarantine(released, agent_id=b"b" * 16, now_ms=1_000 + QUARANTINE_MS)


def test_the_agent_that_released_a_name_may_take_it_back_at_once() -> None:
    released = ReleasedName(key="ann", agent_id=b"a" * 16, released_at_ms=1_000)
    check_quarantine(released, agent_id=b"a" * 16, now_ms=1_000)


def test_a_clock_that_went_back_never_frees_a_name_early() -> None:
    released = ReleasedName(key="ann", agent_id=b"a" * 16, released_at_ms=1_000_000)
    with pytest.raises(NameQuarantined):
        check_quarantine(released, agent_id=b"b" * 16, now_ms=1)
