"""The private authority of a home: what is made, for how long, with which modes, and what is refused."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost import Home, Refused, certs
from fencepost.cli.app import main
from fencepost_testing.processes import short_home


@pytest.fixture
def home() -> Iterator[Home]:
    with short_home() as made:
        yield made


@pytest.fixture(scope="module")
def kept() -> Iterator[Home]:
    """A home with an authority, for tests that add to it only."""
    with short_home() as made:
        certs.init(made, hosts=["192.0.2.7", "mail.example"])
        yield made


def left_behind(home: Home) -> list[str]:
    return sorted(path.name for path in home.path.glob(".tls.*"))


@pytest.mark.requirement("tls.certificates-are-private-and-short-lived")
def test_everything_is_private_and_lives_as_long_as_it_says(kept: Home) -> None:
    issued = certs.issue(kept, "laptop")
    for path in [kept.certificates, *kept.certificates.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    lives = {one.kind: certs.days_left(one) for one in certs.show(kept)}
    assert lives == {
        "authority": certs.AUTHORITY_DAYS - 1,
        "service": certs.SERVICE_DAYS - 1,
        "client": certs.CLIENT_DAYS - 1,
    }
    assert issued.path == kept.certificates / "issued" / "laptop" / "client.crt"
    assert {path.name for path in issued.path.parent.iterdir()} == {"authority.crt", "client.crt", "client.key"}
    assert left_behind(kept) == []


@pytest.mark.requirement("tls.certificates-are-private-and-short-lived")
@pytest.mark.parametrize(
    ("days", "fits"),
    [
        (certs.CLIENT_DAYS_MIN - 1, False),
        (certs.CLIENT_DAYS_MIN, True),
        (certs.CLIENT_DAYS_MAX, True),
        (certs.CLIENT_DAYS_MAX + 1, False),
    ],
)
def test_a_lifetime_is_held_at_both_sides(kept: Home, days: int, fits: bool) -> None:
    if fits:
        assert certs.days_left(certs.issue(kept, f"days-{days}", days=days)) == days - 1
        return
    with pytest.raises(Refused) as caught:
        certs.issue(kept, f"days-{days}", days=days)
    assert caught.value.reason == "invalid_lifetime"


@pytest.mark.requirement("tls.certificates-are-refused-by-reason")
@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "A", "é", "-a", "a" * 65, "a\n"])
def test_a_name_never_leaves_its_folder(kept: Home, name: str) -> None:
    for call in (certs.issue, certs.revoke):
        with pytest.raises(Refused) as caught:
            call(kept, name)
        assert caught.value.reason == "invalid_certificate_name"


@pytest.mark.requirement("tls.certificates-are-refused-by-reason")
@pytest.mark.parametrize("host", ["", "a b", "x, IP:0.0.0.0", "a\nb", "-x", "é"])
def test_a_host_cannot_smuggle_anything_into_the_certificate(home: Home, host: str) -> None:
    with pytest.raises(Refused) as caught:
        certs.init(home, hosts=[host])
    assert caught.value.reason == "invalid_host"
    assert not home.path.exists()


@pytest.mark.requirement("tls.certificates-are-refused-by-reason")
@pytest.mark.parametrize(("count", "fits"), [(certs.HOSTS_MAX, True), (certs.HOSTS_MAX + 1, False)])
def test_hosts_are_limited(home: Home, count: int, fits: bool) -> None:
    hosts = [f"h{number}.example" for number in range(count)]
    if fits:
        assert len(certs.init(home, hosts=hosts)) == 2
        return
    with pytest.raises(Refused) as caught:
        certs.init(home, hosts=hosts)
    assert caught.value.reason == "invalid_host"


@pytest.mark.requirement("tls.certificates-are-refused-by-reason")
def test_nothing_is_made_twice_and_nothing_without_an_authority(home: Home, kept: Home) -> None:
    found: list[str] = []
    certs.issue(kept, "twice")
    before = (kept.certificates / "authority.key").read_bytes()
    for call in (
        lambda: certs.init(kept),
        lambda: certs.issue(kept, "twice"),
        lambda: certs.revoke(kept, "never"),
        lambda: certs.issue(home, "x"),
        lambda: certs.show(home),
    ):
        with pytest.raises(Refused) as caught:
            call()
        found.append(caught.value.reason)
    assert found == [
        "certificates_exist",
        "certificate_exists",
        "certificate_unknown",
        "certificates_missing",
        "certificates_missing",
    ]
    assert (kept.certificates / "authority.key").read_bytes() == before


@pytest.mark.requirement("tls.certificates-are-refused-by-reason")
def test_a_name_that_was_taken_back_may_be_issued_anew(kept: Home) -> None:
    first = certs.issue(kept, "again")
    assert certs.revoke(kept, "again") == first
    assert [one.name for one in certs.show(kept) if one.name == "again"] == []
    second = certs.issue(kept, "again")
    assert second.serial != first.serial
    assert (kept.certificates / "revoked" / f"again-{first.serial}.crt").is_file()


@pytest.mark.requirement("tls.certificates-are-refused-by-reason")
def test_without_openssl_or_where_it_fails_nothing_is_left(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused) as caught:
        certs.init(home)
    assert caught.value.reason == "openssl_missing"
    broken = tmp_path / "openssl"
    broken.write_text("#!/bin/sh\necho no entropy >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(Refused) as caught:
        certs.init(home)
    assert (caught.value.reason, "no entropy" in caught.value.message) == ("openssl_failed", True)
    assert not home.certificates.exists()
    assert left_behind(home) == []


@pytest.mark.requirement("tls.certificates-are-refused-by-reason")
def test_the_commands_make_show_and_take_back(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FENCEPOST_HOME", home.text)
    for variable in ("FENCEPOST_SESSION_ID", "FENCEPOST_CREDENTIAL_FILE"):
        monkeypatch.delenv(variable, raising=False)
    assert main(["certs", "init", "--host", "192.0.2.7"]) == 0
    assert "Next: fencepost certs issue NAME" in capsys.readouterr().out
    assert main(["certs", "issue", "laptop", "--days", "7", "--json"]) == 0
    issued = json.loads(capsys.readouterr().out)
    assert (issued["name"], issued["days_left"]) == ("laptop", 6)
    assert issued["expires_at_ms"] > time.time() * 1000
    assert main(["certs", "show"]) == 0
    assert "client laptop: 6 days left" in capsys.readouterr().out
    assert main(["certs", "revoke", "laptop"]) == 0
    assert main(["certs", "show", "--json"]) == 0
    assert [one["kind"] for one in json.loads(capsys.readouterr().out.split("\n", 1)[1])["certificates"]] == [
        "authority",
        "service",
    ]
    monkeypatch.setenv("FENCEPOST_SESSION_ID", "0190f3a2-1111-7222-8333-444455556666")
    assert main(["certs", "show"]) != 0
    assert "permission_denied" in capsys.readouterr().err
