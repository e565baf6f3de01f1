"""Launch settings at both sides of every limit."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost_sessions import translate
from fencepost_sessions.domain.launch import (
    CAPTURES,
    NO_CHANGE,
    NO_LAUNCH,
    SESSION_POLICIES,
    DeliverWhenActive,
    LaunchChange,
    LaunchSettings,
    launch_bytes,
    launch_of_words,
    launched,
    running_content,
    split_arguments,
    words_of_launch,
)
from fencepost_sessions.domain.limits import (
    APPROVAL_BYTES_MAX,
    CLASS_BYTES_MAX,
    EFFORT_BYTES_MAX,
    INCLUDE_DIRECTORIES_MAX,
    LAUNCH_BYTES_MAX,
    LAUNCH_TEXT_BYTES_MAX,
    MODEL_BYTES_MAX,
    PATH_BYTES_MAX,
    SANDBOX_BYTES_MAX,
)
from fencepost_sessions.domain.refusals import InvalidCustomArguments, InvalidLaunchSettings
from fencepost_sessions.domain.tools import ALL_TOOLS, NO_TOOLS, TOOL_FAMILIES

WORDS = {
    "class_name": CLASS_BYTES_MAX,
    "model": MODEL_BYTES_MAX,
    "effort": EFFORT_BYTES_MAX,
    "sandbox": SANDBOX_BYTES_MAX,
    "approval": APPROVAL_BYTES_MAX,
}
LISTS = {
    "session_policy": SESSION_POLICIES,
    "capture": CAPTURES,
    "tools_profile": (*TOOL_FAMILIES, ALL_TOOLS, NO_TOOLS, "files,tasks"),
}
SETTINGS = st.builds(
    LaunchSettings,
    class_name=st.sampled_from(("", "a")),
    model=st.sampled_from(("", "m")),
    custom_arguments=st.sampled_from(("", "-x 'a b'")),
    include_directories=st.lists(st.sampled_from(("/a", "/b")), max_size=3).map(tuple),
    capture=st.sampled_from(("", *CAPTURES)),
    deliver_when_active=st.sampled_from(DeliverWhenActive),
)


def a_change(**values: Any) -> LaunchChange:
    return LaunchChange(**values)


@pytest.mark.requirement("sessions.unusable-settings-are-refused")
@pytest.mark.parametrize("name", WORDS)
def test_a_word_is_as_long_as_its_limit_and_no_longer(name: str) -> None:
    longest = "x" * WORDS[name]
    assert getattr(launched(NO_LAUNCH, a_change(**{name: longest})), name) == longest
    for text in (longest + "x", "a\nb", " a", "a\u202eb", "\0"):
        with pytest.raises(InvalidLaunchSettings) as refused:
            launched(NO_LAUNCH, a_change(**{name: text}))
        assert refused.value.state == {"field": name.removesuffix("_name")}


@pytest.mark.requirement("sessions.unusable-settings-are-refused")
@pytest.mark.parametrize("text", ["a/b", "/a", "..", ".", "a/"])
def test_a_class_is_one_part_of_a_path(text: str) -> None:
    with pytest.raises(InvalidLaunchSettings):
        launched(NO_LAUNCH, a_change(class_name=text))
    assert launched(NO_LAUNCH, a_change(class_name="..a")).class_name == "..a"


@pytest.mark.requirement("sessions.unusable-settings-are-refused")
@pytest.mark.parametrize("name", LISTS)
def test_a_setting_with_a_list_of_words_takes_these_words_and_no_other(name: str) -> None:
    for word in LISTS[name]:
        assert getattr(launched(NO_LAUNCH, a_change(**{name: word})), name) == word
        with pytest.raises(InvalidLaunchSettings):
            launched(NO_LAUNCH, a_change(**{name: word.upper()}))


@pytest.mark.requirement("sessions.unusable-settings-are-refused")
@pytest.mark.parametrize("text", ["'", '"a', "a\\", "\0", "x" * (LAUNCH_TEXT_BYTES_MAX + 1)])
def test_custom_arguments_that_no_shell_could_split_are_refused(text: str) -> None:
    with pytest.raises(InvalidCustomArguments):
        launched(NO_LAUNCH, a_change(custom_arguments=text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ()),
        ("-a b", ("-a", "b")),
        ("'a b' c\\ d", ("a b", "c d")),
        ("--x=$HOME `id` *", ("--x=$HOME", "`id`", "*")),
        ("a # b", ("a", "#", "b")),
        ("'a\nb'", ("a\nb",)),
        ("x" * LAUNCH_TEXT_BYTES_MAX, ("x" * LAUNCH_TEXT_BYTES_MAX,)),
    ],
)
def test_custom_arguments_are_split_as_a_shell_would_and_nothing_is_expanded(text: str, words: tuple[str, ...]) -> None:
    assert split_arguments(text) == words


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), max_size=5))
def test_quoted_arguments_come_back_as_they_were(words: list[str]) -> None:
    assert split_arguments(shlex.join(words)) == tuple(words)


@pytest.mark.requirement("sessions.unusable-settings-are-refused")
def test_directories_are_absolute_and_no_more_than_the_most() -> None:
    most = tuple(f"/d{number}" for number in range(INCLUDE_DIRECTORIES_MAX))
    assert launched(NO_LAUNCH, a_change(include_directories=most)).include_directories == most
    for directories in ((*most, "/x"), ("a",), ("",), ("/a/../b",), ("/" + "x" * PATH_BYTES_MAX,)):
        with pytest.raises(InvalidLaunchSettings) as refused:
            launched(NO_LAUNCH, a_change(include_directories=directories))
        assert refused.value.state == {"field": "include_directories"}
    with pytest.raises(InvalidLaunchSettings):
        launched(NO_LAUNCH, a_change(checkout_root="here"))


@pytest.mark.requirement("sessions.unusable-settings-are-refused")
def test_all_settings_together_have_a_limit() -> None:
    long = "/" + "x" * (PATH_BYTES_MAX - 1)
    full = launched(NO_LAUNCH, a_change(include_directories=(long, long, long), checkout_root=long))
    assert sum(len(text) for text in (*full.include_directories, full.checkout_root)) == LAUNCH_BYTES_MAX
    with pytest.raises(InvalidLaunchSettings):
        launched(full, a_change(model="x"))
    assert launched(full, a_change(model="x", checkout_root="")).model == "x"


@given(SETTINGS)
def test_settings_come_back_from_their_words_and_weigh_at_least_what_they_take(settings: LaunchSettings) -> None:
    assert launch_of_words(json.loads(json.dumps(words_of_launch(settings)))) == settings
    assert translate.launch_to_proto(settings).ByteSize() <= launch_bytes(settings)


@given(SETTINGS)
def test_settings_come_back_from_a_message_as_they_were(settings: LaunchSettings) -> None:
    shown = translate.launch_to_proto(settings)
    assert launched(NO_LAUNCH, translate.launch_from_proto(shown, new=True)) == settings
    shown.set_include_directories = True
    assert launched(NO_LAUNCH, translate.launch_from_proto(shown, new=False)) == settings


def test_every_field_of_the_contract_has_its_place_here() -> None:
    theirs = {field.name for field in pb.LaunchSettings.DESCRIPTOR.fields} - {"set_include_directories"}
    assert {field.name.removesuffix("_name") for field in fields(LaunchSettings)} == theirs
    assert {field.name for field in fields(LaunchChange)} == {field.name for field in fields(LaunchSettings)}


@pytest.mark.requirement("sessions.keys-have-one-answer")
@given(st.lists(SETTINGS, min_size=2, max_size=2, unique=True))
def test_two_different_changes_are_different_content(two: list[LaunchSettings]) -> None:
    first, second = (
        LaunchChange(**{field.name: getattr(one, field.name) for field in fields(LaunchSettings)}) for one in two
    )
    assert running_content(0, first) != running_content(0, second)
    assert running_content(1, first) != running_content(2, first)


def test_a_change_of_nothing_is_no_content_and_the_very_same_settings() -> None:
    assert running_content(0, NO_CHANGE) == ()
    settings = LaunchSettings(model="m")
    assert launched(settings, NO_CHANGE) is settings
    assert launched(settings, a_change(model="m")) is settings
    with pytest.raises(InvalidLaunchSettings):
        launched(settings, a_change(deliver_when_active=3))
