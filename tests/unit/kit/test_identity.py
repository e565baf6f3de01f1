"""Tokens, credential files, and who holds them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.common.v1 import common_pb2
from fencepost_kit.identity import (
    CachedIdentify,
    Caller,
    Role,
    UnusableCredential,
    bearer,
    fingerprint,
    mint_token,
    read_token,
    write_token,
)
from fencepost_kit.refusal import Unauthenticated

TOKEN = "fp_" + "A" * 43


def caller(generation: int = 1) -> Caller:
    return Caller(
        credential_id=bytes(16),
        role=Role.AGENT,
        agent_id=bytes(16),
        project_id=bytes(16),
        generation=generation,
        label="a",
    )


def test_roles_are_those_of_the_contract() -> None:
    named = {name: value for name, value in common_pb2.Role.items() if name != "ROLE_UNSPECIFIED"}
    assert {f"ROLE_{role.name}": role.value for role in Role} == named


def test_minted_tokens_differ_and_have_the_form_that_readers_take(tmp_path: Path) -> None:
    tokens = {mint_token() for _ in range(200)}
    assert len(tokens) == 200
    for token in tokens:
        assert bearer((("authorization", f"Bearer {token}"),)) == token


def test_a_fingerprint_is_the_sha256_of_the_tokens_ascii() -> None:
    assert fingerprint(TOKEN) == hashlib.sha256(TOKEN.encode()).digest()


def test_the_credential_is_found_among_other_metadata() -> None:
    metadata = (("user-agent", "x"), ("authorization", f"Bearer {TOKEN}"), ("traceparent-bin", b"\x00"))
    assert bearer(metadata) == TOKEN


@given(
    value=st.text(max_size=80)
    | st.binary(max_size=80)
    | st.sampled_from([TOKEN, f"bearer {TOKEN}", f"Bearer {TOKEN}\n"])
)
def test_what_is_not_a_bearer_token_is_refused_without_repeating_it(value: Any) -> None:
    with pytest.raises(Unauthenticated) as caught:
        bearer((("authorization", value),))
    if len(value) > 8:
        assert str(value) not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("metadata", [None, (), (("x-authorization", f"Bearer {TOKEN}"),)])
def test_no_credential_is_refused_with_what_to_send(metadata: Any) -> None:
    with pytest.raises(Unauthenticated, match="no credential") as caught:
        bearer(metadata)
    assert "authorization: Bearer" in caught.value.hint


@pytest.mark.requirement("kit.a-credential-file-is-its-owners-alone")
def test_a_written_token_is_read_back_from_a_file_of_mode_0600_in_a_folder_of_mode_0700(tmp_path: Path) -> None:
    file = tmp_path / "agents" / "one" / "credential"
    before = os.umask(0)
    try:
        write_token(file, TOKEN)
    finally:
        os.umask(before)
    assert read_token(file) == TOKEN
    assert file.stat().st_mode & 0o7777 == 0o600
    assert file.parent.stat().st_mode & 0o7777 == 0o700
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.requirement("kit.a-credential-file-is-its-owners-alone")
def test_a_replaced_token_was_never_open_to_others_and_leaves_no_other_file(tmp_path: Path) -> None:
    file = tmp_path / "credential"
    file.write_text("old")
    file.chmod(0o644)
    write_token(file, TOKEN)
    assert read_token(file) == TOKEN
    assert list(tmp_path.iterdir()) == [file]


def test_a_failed_write_leaves_the_old_token_and_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credential"
    write_token(file, TOKEN)

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_token(file, mint_token())
    assert read_token(file) == TOKEN
    assert list(tmp_path.iterdir()) == [file]


def test_only_a_token_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a token"):
        write_token(tmp_path / "credential", "secret")
    assert not list(tmp_path.iterdir())


@pytest.mark.requirement("kit.a-credential-file-is-its-owners-alone")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_a_token_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "credential"
    write_token(file, TOKEN)
    file.chmod(mode)
    with pytest.raises(UnusableCredential) as caught:
        read_token(file)
    assert TOKEN not in caught.value.message


@pytest.mark.requirement("kit.a-credential-file-is-its-owners-alone")
def test_a_token_of_another_owner_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credential"
    write_token(file, TOKEN)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(UnusableCredential, match="another user"):
        read_token(file)


def test_a_link_to_a_token_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "credential"
    write_token(file, TOKEN)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(UnusableCredential):
        read_token(tmp_path / "link")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"secret",
        TOKEN.encode()[:-1],
        TOKEN.encode() + b"A",
        b" " + TOKEN.encode(),
        TOKEN.encode() + b"\n\n",
        (TOKEN + "\n" + TOKEN).encode(),
        b"fp_" + b"\xff" * 43,
        TOKEN.encode() + b"\n" * 4000,
    ],
)
def test_a_file_that_is_not_exactly_one_token_is_refused_without_repeating_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "credential"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(UnusableCredential) as caught:
        read_token(file)
    assert caught.value.state["cause"] == "credential_malformed"
    assert TOKEN not in caught.value.message


def test_a_missing_token_file_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(UnusableCredential, match="credential") as caught:
        read_token(tmp_path / "credential")
    assert caught.value.state["cause"] == "credential_missing"


class Directory:
    """A directory of a service: what it knows may change between calls."""

    def __init__(self) -> None:
        self.callers: dict[bytes, Caller] = {}
        self.asked: list[bytes] = []

    def known(self, mark: bytes) -> Caller | None:
        return self.callers.get(mark)

    async def identify(self, mark: bytes) -> Caller:
        self.asked.append(mark)
        try:
            return self.callers[mark]
        except KeyError:
            raise Unauthenticated("not known") from None


@pytest.mark.requirement("kit.a-cached-token-is-checked-on-every-call")
async def test_the_directory_is_asked_on_every_call_so_that_a_revocation_holds_at_once() -> None:
    directory = Directory()
    identify = CachedIdentify(directory, size_max=4)
    directory.callers[fingerprint(TOKEN)] = caller(generation=1)
    assert (await identify(TOKEN)).generation == 1
    directory.callers[fingerprint(TOKEN)] = caller(generation=2)
    assert (await identify(TOKEN)).generation == 2
    del directory.callers[fingerprint(TOKEN)]
    with pytest.raises(Unauthenticated):
        await identify(TOKEN)
    assert directory.asked == [fingerprint(TOKEN)] * 3
    assert len(identify) == 0


async def test_tokens_that_nobody_holds_are_not_remembered() -> None:
    identify = CachedIdentify(Directory(), size_max=4)
    for _ in range(10):
        with pytest.raises(Unauthenticated):
            await identify(mint_token())
    assert len(identify) == 0


async def test_the_cache_never_grows_over_its_limit_and_forgets_the_oldest() -> None:
    directory = Directory()
    identify = CachedIdentify(directory, size_max=3)
    tokens = [mint_token() for _ in range(5)]
    for token in tokens:
        directory.callers[fingerprint(token)] = caller()
        await identify(token)
        assert len(identify) <= 3
    for token in tokens:
        assert await identify(token) == caller()
    assert len(identify) == 3


def test_a_cache_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        CachedIdentify(Directory(), size_max=0)
