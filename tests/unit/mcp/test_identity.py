"""The shim reads its identity as the client library does, without importing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost import client
from fencepost.errors import Refused
from fencepost.home import Home
from fencepost.mcp import link
from fencepost.mcp.link import new_nonce

AGENT = "0195f3a0-0000-7000-8000-000000000001"
OTHER = "0195f3a0-0000-7000-8000-000000000002"


@pytest.fixture
def files(home: Home, tmp_path: Path) -> dict[str, str]:
    """Credential files by what is in them, relative to what the agent's own folder holds."""
    contents = {"same": "fp_" + "T" * 43, "other": "fp_" + "U" * 43, "broken": "fp_x", "empty": ""}
    named = {}
    for name, content in contents.items():
        file = tmp_path / name
        file.write_text(content)
        file.chmod(0o600)
        named[name] = str(file)
    wide = tmp_path / "wide"
    wide.write_text(contents["same"])
    wide.chmod(0o644)
    (tmp_path / "linked").symlink_to(named["same"])
    return {**named, "wide": str(wide), "linked": str(tmp_path / "linked"), "absent": str(tmp_path / "absent")}


CASES = [
    {},
    {"session": AGENT},
    {"session": AGENT.upper()},
    {"session": OTHER},
    {"session": "../../etc"},
    {"file": "same"},
    {"file": "other"},
    {"file": "broken"},
    {"file": "empty"},
    {"file": "wide"},
    {"file": "linked"},
    {"file": "absent"},
    {"file": "same", "session": AGENT},
    {"file": "other", "session": AGENT},
    {"file": "same", "session": OTHER},
    {"file": "absent", "session": AGENT},
    {"session": AGENT, "generation": "3"},
    {"session": AGENT, "generation": "0"},
    {"session": AGENT, "generation": "three"},
    {"generation": "3"},
]


@pytest.mark.requirement("mcp.identity-by-environment")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_shim_and_library_read_the_same_identity(home: Home, files: dict[str, str], case: dict[str, str]) -> None:
    env = {}
    if "session" in case:
        env["FENCEPOST_SESSION_ID"] = case["session"]
    if "file" in case:
        env["FENCEPOST_CREDENTIAL_FILE"] = files[case["file"]]
    if "generation" in case:
        env["FENCEPOST_GENERATION"] = case["generation"]

    def read(kind: Any) -> Any:
        try:
            return kind.from_environment(home, env)
        except Refused as refused:
            return refused.reason

    theirs, mine = read(client.Identity), read(link.Identity)
    if isinstance(theirs, str):
        assert mine == theirs
    else:
        assert mine.token == theirs.token
        assert mine.generation == theirs.expected_generation
        assert (mine.agent_id is not None) == theirs.unconfirmed
        assert mine.agent_id in (None, theirs.agent_id)


@pytest.mark.requirement("mcp.ids-are-used-once")
def test_nonces_differ_and_follow_the_time() -> None:
    nonces = [new_nonce() for _ in range(100)]
    assert len(set(nonces)) == 100
    assert all(len(nonce) == 32 and set(nonce) <= set("0123456789abcdef") for nonce in nonces)
    assert [nonce[:12] for nonce in nonces] == sorted(nonce[:12] for nonce in nonces)
