"""Certificates that `fencepost certs` never makes: those that are out of their time."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fencepost.home import Home

CONFIGURATION = """\
[ca]
default_ca = one
[one]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
x509_extensions = client
[any]
commonName = supplied
[client]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = clientAuth
"""


def reissue(home: Home, name: str, scratch: Path, *, begin: str, end: str) -> None:
    """Replace an issued certificate by one of the same key and authority that is good from `begin` to `end`."""
    tls, issued = home.certificates, home.certificates / "issued" / name
    scratch.mkdir()
    (scratch / "index").write_text("")
    (scratch / "cnf").write_text(CONFIGURATION.format(folder=scratch))
    request = scratch / "request"
    run("req", "-new", "-key", issued / "client.key", "-subj", f"/CN={name}", "-out", request)
    run(
        "ca", "-batch", "-notext", "-config", scratch / "cnf", "-in", request, "-out", issued / "client.crt",
        "-cert", tls / "authority.crt", "-keyfile", tls / "authority.key", "-startdate", begin, "-enddate", end,
    )  # fmt: skip


def run(*words: str | Path) -> None:
    """Run openssl to its end."""
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=30)
