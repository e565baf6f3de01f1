"""What a server offers and calls itself: settings read strictly, and everything told from constants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost.home import TOOLS_NAME
from fencepost.mcp import answers, generate, names, offers, profiles, reference, registry, shim
from fencepost.mcp.arguments import given
from fencepost.mcp.registry import ALL_TOOLS_LIST_BYTES_MAX, TOOLS_LIST_BYTES_MAX, Malformed, examine, menu
from fencepost.mcp.session import Told

ALL = frozenset(profiles.FAMILIES)


@pytest.mark.requirement("tools.profiles")
@pytest.mark.parametrize(
    ("text", "families"),
    [
        ("messaging", {"messaging"}),
        ("tasks", {"tasks"}),
        ("files,context", {"context", "files"}),
        ("messaging, tasks", {"messaging", "tasks"}),
        ("all", ALL),
        ("off", set()),
    ],
)
def test_a_profile_is_read_and_written_back(text: str, families: set[str]) -> None:
    assert profiles.parse(text) == families
    assert profiles.parse(profiles.text_of(frozenset(families))) == families


@pytest.mark.requirement("tools.profiles")
@pytest.mark.parametrize("text", ["", "every", "tasks,tasks", "all,off", "tasks,", "Tasks", "messaging tasks"])
def test_a_profile_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"takes all, off"):
        profiles.parse(text)


@pytest.mark.requirement("tools.profiles")
def test_what_is_stored_bounds_what_is_asked_for() -> None:
    asked, stored = frozenset({"messaging", "tasks"}), frozenset({"tasks", "files"})
    assert profiles.allowed(None, None) == profiles.DEFAULT
    assert profiles.allowed(asked, None) == asked
    assert profiles.allowed(None, stored) == stored
    assert profiles.allowed(asked, stored) == {"tasks"}
    assert profiles.allowed(asked, frozenset()) == frozenset()


@pytest.mark.requirement("tools.profiles")
def test_a_tool_of_another_family_is_as_unknown_as_one_that_there_is_not() -> None:
    for families, name in [(profiles.DEFAULT, "task_start"), (frozenset({"tasks"}), "send_message")]:
        told = examine({"name": name, "arguments": {}}, menu(families))
        assert isinstance(told, Malformed)
        assert told.protocol
        assert told.message.startswith(f"unknown tool {name}")
    off = examine({"name": "send_message", "arguments": {}}, menu(frozenset()))
    assert isinstance(off, Malformed)
    assert off.message.endswith("this server offers no tools")


@pytest.mark.requirement("mcp.tools-list-is-small")
@pytest.mark.parametrize("warp", [False, True])
def test_every_family_together_costs_a_model_at_most_24_kib(warp: bool) -> None:
    told = offers.telling("x", ALL, warp=warp)
    assert len(told.tools_list) <= ALL_TOOLS_LIST_BYTES_MAX
    assert told.tools_list == generate.tools_list(ALL, warp=warp)
    assert len(offers.telling("x", profiles.DEFAULT, warp=warp).tools_list) <= TOOLS_LIST_BYTES_MAX
    assert json.loads(told.initialize("1"))["instructions"] == menu(ALL, warp=warp).instructions
    for words in registry.TOLD.values():
        assert len(words.split()) <= registry.INSTRUCTION_WORDS_MAX


@pytest.mark.requirement("mcp.answers-are-generated")
@pytest.mark.parametrize("families", [frozenset(), frozenset({"tasks"}), frozenset({"tasks", "messaging"}), ALL])
@pytest.mark.parametrize("warp", [False, True])
def test_what_is_told_is_what_the_registry_says(families: frozenset[str], warp: bool) -> None:
    told = offers.telling("a-name", families, warp=warp)
    offered = menu(families, warp=warp)
    assert json.loads(told.tools_list)["tools"] == [tool.wire() for tool in offered.tools.values()]
    hello = json.loads(told.initialize("2025-06-18"))
    assert (hello["serverInfo"]["name"], hello["instructions"]) == ("a-name", offered.instructions)
    assert json.loads(told.discover())["instructions"] == offered.instructions
    assert b'"name":"a-name"' in told.modern_head()


@pytest.mark.requirement("mcp.answers-are-generated")
def test_the_reference_page_is_what_would_be_generated() -> None:
    page = reference.PAGE.read_text(encoding="utf-8")
    assert reference.page_text(page) == page
    for tool in registry.EVERY:
        assert f"| `{tool.name}`" in page
        assert tool.returns
    for other in registry.WARPED.values():
        assert f"`{other}`" in page


@pytest.mark.requirement("tools.server-names")
@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({}, "fencepost-local"),
        ({"SSH_CONNECTION": "somewhere 1 here 22"}, "fencepost-ssh"),
        ({"WSL_DISTRO_NAME": "Debian"}, "fencepost-wsl"),
        ({"WSL_INTEROP": "/run/WSL/1_interop"}, "fencepost-wsl"),
        ({"WSL_DISTRO_NAME": "Debian", "SSH_CONNECTION": "x"}, "fencepost-ssh"),
    ],
)
def test_a_server_is_called_by_the_environment_of_its_agent(env: dict[str, str], name: str, tmp_path: Path) -> None:
    assert names.detected(env, mark=str(tmp_path / "none")) == name


@pytest.mark.requirement("tools.server-names")
def test_a_name_that_was_set_comes_before_every_environment() -> None:
    assert names.server_name({"SSH_CONNECTION": "x", "FENCEPOST_SERVER_NAME": "team.mcp"}) == "team.mcp"
    with pytest.raises(ValueError, match="takes 1 to 64"):
        names.server_name({"FENCEPOST_SERVER_NAME": 'a"b'})


@pytest.mark.requirement("tools.server-names")
def test_a_mark_of_wsl_counts_where_no_variable_says_so(tmp_path: Path) -> None:
    assert names.detected({}, mark=str(tmp_path)) == "fencepost-wsl"


@pytest.mark.requirement("tools.profiles")
@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        ([], {}, (None, False, "fencepost-local")),
        (["--tools", "tasks"], {"FENCEPOST_TOOLS": "files"}, ({"tasks"}, False, "fencepost-local")),
        ([], {"FENCEPOST_TOOLS": "files", "FENCEPOST_TOOL_NAMES": "warp"}, ({"files"}, True, "fencepost-local")),
        (["--names=warp", "--server-name", "x", "--tools=off"], {}, (set(), True, "x")),
        (["--names", "fencepost"], {"FENCEPOST_TOOL_NAMES": "warp"}, (None, False, "fencepost-local")),
    ],
)
def test_arguments_come_before_the_environment(
    words: list[str], env: dict[str, str], expected: tuple[object, bool, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "detected", lambda _env: names.LOCAL)
    said = given(words)
    wish = offers.wish_of(env, tools=said.tools, called=said.names, name=said.server)
    assert (wish.tools, wish.warp, wish.name) == expected


@pytest.mark.requirement("tools.profiles")
@pytest.mark.parametrize(
    ("words", "env", "named"),
    [
        (["--tools", "every"], {}, "--tools takes"),
        (["--tools="], {}, "--tools takes"),
        ([], {"FENCEPOST_TOOLS": "every"}, "FENCEPOST_TOOLS takes"),
        (["--names", "x"], {}, "FENCEPOST_TOOL_NAMES or --names takes"),
        (["--server-name", "a b"], {}, "FENCEPOST_SERVER_NAME or --server-name takes"),
        (["--server-name", "x" * 65], {}, "FENCEPOST_SERVER_NAME or --server-name takes"),
    ],
)
def test_a_setting_that_cannot_be_understood_is_named(words: list[str], env: dict[str, str], named: str) -> None:
    said = given(words)
    with pytest.raises(ValueError, match=named):
        offers.wish_of(env, tools=said.tools, called=said.names, name=said.server)


@pytest.mark.requirement("tools.stored-profile")
@pytest.mark.parametrize(
    ("text", "families"),
    [("tasks,files\n", {"tasks", "files"}), ("all\n", ALL), ("off\n", set()), ("tasks,later\n", {"tasks"})],
)
def test_what_is_stored_for_an_agent_is_read_from_its_folder(tmp_path: Path, text: str, families: set[str]) -> None:
    assert offers.stored_in(str(tmp_path)) is None
    (tmp_path / offers.STORED).write_text(text)
    assert offers.stored_in(str(tmp_path)) == families
    told = offers.told(offers.Wish(), str(tmp_path))
    assert json.loads(told.tools_list)["tools"] == [tool.wire() for tool in menu(frozenset(families)).tools.values()]


@pytest.mark.requirement("mcp.start-is-cheap")
def test_the_shim_looks_at_every_variable_that_may_change_what_it_tells() -> None:
    telling = {profiles.TOOLS_VARIABLE, profiles.NAMES_VARIABLE, names.SERVER_VARIABLE}
    assert set(shim.TELLING) == telling | set(names.SSH_VARIABLES) | set(names.WSL_VARIABLES)
    assert (shim.WSL_MARK, shim.STORED, offers.STORED) == (names.WSL_MARK, TOOLS_NAME, TOOLS_NAME)
    assert answers.SERVER_NAME.decode() == names.LOCAL
    assert Told().tools_list is answers.TOOLS_LIST
