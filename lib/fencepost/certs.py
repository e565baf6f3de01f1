"""A private certificate authority of one home, for calls over TCP: `fencepost certs`.

Made by the program openssl: only these commands need it, running services verify with the standard library, and no
package with a C or Rust part is installed for an option that most homes never use.

    <home>/tls/authority.crt, authority.key     signs, and is trusted by services and clients of this home alone
    <home>/tls/service.crt, service.key         by which the services of this home show who they are
    <home>/tls/issued/NAME/                     one client: authority.crt, client.crt and client.key, to be copied
    <home>/tls/revoked/NAME-SERIAL.crt          what was taken back

Folders are 0700, files 0600. A certificate opens the connection and no more: every call still needs a credential.
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost.errors import Refused
from fencepost.home import FOLDER_MODE, Home

AUTHORITY_DAYS: Final = 3650
SERVICE_DAYS: Final = 398
CLIENT_DAYS: Final = 90
CLIENT_DAYS_MIN: Final = 1
CLIENT_DAYS_MAX: Final = 398
OPENSSL_S_MAX: Final = 30
HOSTS_ALWAYS: Final = ("localhost", "127.0.0.1", "::1")
HOSTS_MAX: Final = 16

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_FILES: Final = ("authority.crt", "client.crt", "client.key")
_CONFIGURATION: Final = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = {common_name}
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[service]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = {alternatives}
[client]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """What is told of a certificate; the fingerprint is the SHA-256 of its DER form."""

    # authority, service or client.
    kind: str
    name: str
    path: Path
    serial: str
    fingerprint: str
    expires_at_ms: int


def init(home: Home, *, hosts: Sequence[str] = ()) -> list[Certificate]:
    """Make the authority of a home, and the certificate of its services for this machine and for `hosts`.

    Raises:
        Refused: there is one already, a host is no name or address, or openssl is missing or failed. Nothing is left.
    """
    if len(hosts) > HOSTS_MAX:
        raise Refused("invalid_host", f"at most {HOSTS_MAX} hosts; nothing was written")
    alternatives = ", ".join(_alternative(host) for host in (*HOSTS_ALWAYS, *hosts))
    if home.certificates.exists():
        raise Refused(
            "certificates_exist",
            f"{home.certificates} is there already; nothing was written",
            hint="`fencepost certs show` lists it.",
            state={"path": str(home.certificates)},
        )
    home.prepare()
    with _Scratch(home) as folder:
        made = folder / "tls"
        for part in (made, made / "issued", made / "revoked"):
            part.mkdir(mode=FOLDER_MODE)
        configuration = folder / "openssl.cnf"
        configuration.write_text(
            _CONFIGURATION.format(common_name="Fencepost authority", alternatives=alternatives), encoding="ascii"
        )
        _key(made / "authority.key")
        _openssl(
            "req", "-x509", "-new", "-sha256", "-key", made / "authority.key", "-out", made / "authority.crt",
            "-days", AUTHORITY_DAYS, "-set_serial", _serial(), "-config", configuration, "-extensions", "authority",
        )  # fmt: skip
        _sign(
            made, folder, made / "service", kind="service", common_name="Fencepost services", days=SERVICE_DAYS,
            alternatives=alternatives,
        )  # fmt: skip
        made.rename(home.certificates)
    return show(home)


def issue(home: Home, name: str, *, days: int = CLIENT_DAYS) -> Certificate:
    """Make the key and certificate of a client below tls/issued, and return the certificate.

    Raises:
        Refused: no authority, a name or lifetime that cannot be, a name that is in use, or openssl. Nothing is left.
    """
    authority = _authority(home)
    _check_name(name)
    if not CLIENT_DAYS_MIN <= days <= CLIENT_DAYS_MAX:
        raise Refused("invalid_lifetime", f"days are {CLIENT_DAYS_MIN} to {CLIENT_DAYS_MAX}; nothing was written")
    target = authority / "issued" / name
    if target.exists():
        raise Refused(
            "certificate_exists",
            f"there is a certificate of the name {name}; nothing was written",
            hint=f"Take it back with `fencepost certs revoke {name}`, or choose another name.",
        )
    with _Scratch(home) as folder:
        made = folder / "client"
        made.mkdir(mode=FOLDER_MODE)
        _sign(authority, folder, made / "client", kind="client", common_name=name, days=days)
        shutil.copyfile(authority / "authority.crt", made / "authority.crt")
        for file in _FILES:
            (made / file).chmod(0o600)
        # The folder appears whole: services trust what lies in it.
        made.rename(target)
    return _read("client", name, target / "client.crt")


def revoke(home: Home, name: str) -> Certificate:
    """Take a client's certificate back and remove its key here; services end its connections within a second.

    Raises:
        Refused: there is no such certificate. Nothing was changed.
    """
    authority = _authority(home)
    _check_name(name)
    folder = authority / "issued" / name
    if not (folder / "client.crt").is_file():
        raise Refused("certificate_unknown", f"no certificate of the name {name} is in force; nothing was changed")
    found = _read("client", name, folder / "client.crt")
    (folder / "client.crt").rename(authority / "revoked" / f"{name}-{found.serial}.crt")
    shutil.rmtree(folder)
    return found


def show(home: Home) -> list[Certificate]:
    """Return every certificate in force: the authority, the services' and the clients' by name."""
    authority = _authority(home)
    found = [_read(kind, kind, authority / f"{kind}.crt") for kind in ("authority", "service")]
    clients = sorted((authority / "issued").glob("*/client.crt"))
    return found + [_read("client", path.parent.name, path) for path in clients]


def _authority(home: Home) -> Path:
    if not (home.certificates / "authority.crt").is_file():
        raise Refused(
            "certificates_missing",
            f"{home.certificates} holds no authority; nothing was done",
            hint="Make it with `fencepost certs init`.",
        )
    return home.certificates


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Refused(
            "invalid_certificate_name",
            "a name is 1 to 64 of a-z, 0-9, - and _, and begins with a letter or digit; nothing was done",
        )


def _alternative(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        pass
    if not _HOST.fullmatch(host):
        raise Refused("invalid_host", "a host is a name or an IP address; nothing was written")
    return f"DNS:{host}"


class _Scratch:
    """A private folder beside the target, on its file system, so that a rename puts all in place at once."""

    def __init__(self, home: Home) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=".tls.", dir=home.path)

    def __enter__(self) -> Path:
        return Path(self._folder.name)

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def _serial() -> str:
    # Positive and at most 20 bytes, as certificates want it.
    return f"0x{secrets.randbits(126) | 1 << 126:x}"


def _key(path: Path) -> None:
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
    path.chmod(0o600)


def _sign(
    authority: Path, scratch: Path, stem: Path, *, kind: str, common_name: str, days: int, alternatives: str = ""
) -> None:
    """Make `stem`.key and `stem`.crt, signed by the authority."""
    configuration, request = scratch / f"{kind}.cnf", scratch / f"{kind}.csr"
    configuration.write_text(
        _CONFIGURATION.format(common_name=common_name, alternatives=alternatives or "DNS:localhost"), encoding="ascii"
    )
    key, certificate = stem.with_suffix(".key"), stem.with_suffix(".crt")
    _key(key)
    _openssl("req", "-new", "-sha256", "-key", key, "-out", request, "-config", configuration)
    _openssl(
        "x509", "-req", "-sha256", "-in", request, "-out", certificate, "-days", days, "-set_serial", _serial(),
        "-CA", authority / "authority.crt", "-CAkey", authority / "authority.key",
        "-extfile", configuration, "-extensions", kind,
    )  # fmt: skip
    certificate.chmod(0o600)


def _read(kind: str, name: str, path: Path) -> Certificate:
    told = _openssl("x509", "-in", path, "-noout", "-serial", "-fingerprint", "-sha256", "-enddate")
    fields = dict(line.partition("=")[::2] for line in told.splitlines())
    lowered = {key.lower(): value for key, value in fields.items()}
    fingerprint = next(value for key, value in lowered.items() if key.endswith("fingerprint"))
    return Certificate(
        kind=kind,
        name=name,
        path=path,
        serial=lowered["serial"].lower(),
        fingerprint=fingerprint.replace(":", "").lower(),
        expires_at_ms=int(ssl.cert_time_to_seconds(lowered["notafter"]) * 1000),
    )


def _openssl(*words: str | int | os.PathLike[str]) -> str:
    """Run openssl to its end and return its output. Files that it makes are 0600."""
    program = shutil.which("openssl")
    if program is None:
        raise Refused(
            "openssl_missing",
            "the program openssl, which makes certificates, is not installed; nothing was written",
            hint="Install the package openssl of your system. Services and clients do not need it.",
        )
    try:
        done = subprocess.run(
            [program, *map(str, words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=OPENSSL_S_MAX,
            umask=0o077,
            # A configuration of the system or of the caller has no say in what is signed.
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise Refused("openssl_failed", f"openssl {words[0]} took over {OPENSSL_S_MAX} s and was ended") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Refused("openssl_failed", f"openssl {words[0]} failed: {last}")
    return done.stdout


def days_left(certificate: Certificate) -> int:
    """Return how many whole days a certificate is still good for; below 0 where it has expired."""
    return int((certificate.expires_at_ms / 1000 - time.time()) // 86_400)
