"""Settings: where a value comes from, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest

from fencepost.home import Home
from fencepost_kit.settings import FILE_BYTES_MAX, TEXT_CHARS_MAX, InvalidSettings, load, setting
from fencepost_testing.processes import short_home


@dataclass(frozen=True, kw_only=True)
class Example:
    drain_ms: int = setting(5000, least=0, most=60_000, about="how long open calls may take at a stop")
    ratio: float = setting(0.5, least=0, most=1)
    level: str = setting("info")
    strict: bool = setting(default=False)


@pytest.fixture
def home() -> Iterator[Home]:
    with short_home() as found:
        found.path.mkdir()
        yield found


def read(home: Home, *, file: str = "", env: dict[str, str] | None = None, argv: tuple[str, ...] = ()) -> Any:
    if file:
        home.settings.write_text(file)
    return load(Example, service="example", home=home, env=env or {}, argv=argv)


def test_without_any_source_the_defaults_hold_and_nothing_is_created(home: Home) -> None:
    loaded = read(home)
    assert loaded.value == Example()
    assert set(loaded.sources.values()) == {"default"}
    assert not list(home.path.iterdir())


@pytest.mark.requirement("kit.a-setting-knows-its-source")
def test_a_flag_beats_the_environment_that_beats_the_file_that_beats_the_default(home: Home) -> None:
    file = '[example]\ndrain_ms = 1\nratio = 1\nlevel = "debug"\n'
    env = {"FENCEPOST_EXAMPLE_DRAIN_MS": "2", "FENCEPOST_EXAMPLE_RATIO": "0.25"}
    loaded = read(home, file=file, env=env, argv=("--drain-ms", "3"))
    assert loaded.value == Example(drain_ms=3, ratio=0.25, level="debug")
    assert loaded.sources == {
        "drain_ms": "--drain-ms",
        "ratio": "FENCEPOST_EXAMPLE_RATIO",
        "level": f"{home.settings} [example] level",
        "strict": "default",
    }


def test_settings_cannot_be_changed_afterwards(home: Home) -> None:
    with pytest.raises(FrozenInstanceError):
        read(home).value.drain_ms = 1


@pytest.mark.requirement("kit.unknown-settings-are-refused")
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"file": "[example]\ndrian_ms = 1\n"}, r"\[example\] drian_ms"),
        ({"env": {"FENCEPOST_EXAMPLE_DRIAN_MS": "1"}}, "FENCEPOST_EXAMPLE_DRIAN_MS"),
        ({"argv": ("--drian-ms", "1")}, "--drian-ms"),
    ],
)
def test_an_unknown_key_is_refused_by_name_with_those_that_are_known(
    home: Home, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidSettings, match=named) as caught:
        read(home, **options)
    assert "drain_ms" in caught.value.hint


def test_other_services_tables_and_variables_are_not_ours(home: Home) -> None:
    loaded = read(home, file="[other]\nanything = 1\n", env={"FENCEPOST_OTHER_ANYTHING": "1", "FENCEPOST_HOME": "x"})
    assert loaded.value == Example()


@pytest.mark.parametrize(
    ("text", "taken"),
    [("0", True), ("60000", True), ("-1", False), ("60001", False)],
)
def test_a_number_is_taken_up_to_both_ends_of_its_range(home: Home, text: str, taken: bool) -> None:
    if taken:
        assert read(home, argv=(f"--drain-ms={text}",)).value.drain_ms == int(text)
        return
    with pytest.raises(InvalidSettings, match="between 0 and 60000"):
        read(home, argv=(f"--drain-ms={text}",))


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("DRAIN_MS", ""),
        ("DRAIN_MS", "five"),
        ("DRAIN_MS", "1.5"),
        ("DRAIN_MS", "1_000"),
        ("DRAIN_MS", "٣"),
        ("DRAIN_MS", "0x10"),
        ("RATIO", "nan"),
        ("RATIO", "inf"),
        ("RATIO", "1e-1"),
        ("STRICT", "maybe"),
    ],
)
def test_text_that_is_not_of_the_fields_type_is_refused(home: Home, field: str, text: str) -> None:
    with pytest.raises(InvalidSettings, match=f"FENCEPOST_EXAMPLE_{field}: must be"):
        read(home, env={f"FENCEPOST_EXAMPLE_{field}": text})


@pytest.mark.parametrize(
    "line", ['drain_ms = "5"x', "drain_ms = true", "drain_ms = 1.5", "strict = 1", "level = 3", "ratio = nan"]
)
def test_a_file_must_hold_the_fields_own_types(home: Home, line: str) -> None:
    with pytest.raises(InvalidSettings):
        read(home, file=f"[example]\n{line}\n")


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("Yes", True), ("1", True), ("off", False), ("FALSE", False)]
)
def test_switches_are_read_from_words(home: Home, text: str, value: bool) -> None:
    assert read(home, argv=("--strict", text)).value.strict is value


@pytest.mark.parametrize(
    "argv",
    [("drain",), ("--",), ("-d", "1"), ("--drain-ms",), ("--drain-ms", "1", "--drain_ms=2")],
    ids=["no flag", "empty", "short", "no value", "twice"],
)
def test_malformed_flags_are_refused(home: Home, argv: tuple[str, ...]) -> None:
    with pytest.raises(InvalidSettings):
        read(home, argv=argv)


@pytest.mark.parametrize(
    "content",
    [b"[example", b"\xff\xfe", b"example = 1", b"#" * (FILE_BYTES_MAX + 1)],
    ids=["no toml", "no utf-8", "no table", "too long"],
)
def test_an_unreadable_file_is_refused_with_its_path(home: Home, content: bytes) -> None:
    home.settings.write_bytes(content)
    with pytest.raises(InvalidSettings, match=str(home.settings)):
        load(Example, service="example", home=home, env={})


def test_files_and_texts_are_taken_up_to_their_limits(home: Home) -> None:
    head = b"[example]\n"
    home.settings.write_bytes(head + b"#" * (FILE_BYTES_MAX - len(head)))
    assert load(Example, service="example", home=home, env={}).value == Example()
    assert read(home, argv=("--level", "x" * TEXT_CHARS_MAX)).value.level == "x" * TEXT_CHARS_MAX
    with pytest.raises(InvalidSettings, match="characters"):
        read(home, argv=("--level", "x" * (TEXT_CHARS_MAX + 1)))


def test_a_folder_in_the_files_place_is_refused(home: Home) -> None:
    home.settings.mkdir()
    with pytest.raises(InvalidSettings, match="cannot be read"):
        read(home)
