"""A real sshd on loopback, with its own host key, port, configuration and one key that it lets in."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost_testing.processes import dying_with_us

READY_S_MAX: Final = 15.0
LOGIN_S_MAX: Final = 30.0
POLL_S: Final = 0.02
STARTS_MAX: Final = 3
# Where distributions put it, which is on few people's PATH.
PLACES: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/sbin"))
# As root sshd insists on this folder; packages make it when the service is started.
PRIVILEGE_SEPARATION: Final = Path("/run/sshd")
ALIAS: Final = "remote"


def what_is_missing() -> str:
    """Return why no sshd can be run here, or nothing."""
    if shutil.which("sshd", path=PLACES) is None:
        return "no sshd: install the Debian package openssh-server, or your system's"
    for program in ("ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"no {program}: install the Debian package openssh-client, or your system's"
    if not Path("/proc/self/stat").exists():
        return "no /proc, in which these tests look for what is left behind"
    return ""


@dataclass(frozen=True, kw_only=True)
class Remote:
    """An account on "another machine": this one, reached by ssh under an alias of a configuration of its own."""

    folder: Path
    port: int

    @property
    def client(self) -> Path:
        """The configuration of ssh, in which the alias stands."""
        return self.folder / "ssh_config"

    @property
    def home(self) -> Path:
        """Where a tunnel may put its folder; nobody's home folder is touched."""
        return self.folder / "r"

    def what_keeps_us_out(self) -> str:
        """Return why this account cannot log in here (it may be locked, as in some containers), or nothing."""
        words = ["ssh", "-F", str(self.client), "-o", "BatchMode=yes", ALIAS, "true"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=LOGIN_S_MAX, check=False)
        return "" if done.returncode == 0 else f"sshd does not let this account in: {done.stderr.strip()}"

    def known_hosts(self, *keys: str) -> None:
        """Let the client know these host keys of it, and no other."""
        lines = [f"[127.0.0.1]:{self.port} {key}\n" for key in keys]
        (self.folder / "known_hosts").write_text("".join(lines))

    def host_key(self) -> str:
        return " ".join((self.folder / "host.pub").read_text().split()[:2])

    def processes(self) -> list[int]:
        """Every process of this sshd but its listener: sessions, and what they run."""
        found = []
        marker = str(self.folder / "sshd_config").encode()
        children: dict[int, list[int]] = {}
        roots = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError, IndexError, ValueError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
                if marker in (entry / "cmdline").read_bytes():
                    roots.append(int(entry.name))
        waiting = [child for root in roots for child in children.get(root, ())]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            waiting += children.get(pid, ())
        return sorted(set(found) - set(roots))


def _key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, timeout=30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _configure(folder: Path, port: int, more: Sequence[str]) -> Remote:
    remote = Remote(folder=folder, port=port)
    # A Python without a single package, so that nothing but the copied files can be at work over there.
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    (folder / "sshd_config").write_text(
        "\n".join(
            [
                *more,
                f"Port {port}",
                "ListenAddress 127.0.0.1",
                f"HostKey {folder / 'host'}",
                f"AuthorizedKeysFile {folder / 'authorized_keys'}",
                "PidFile none",
                "UsePAM no",
                "PasswordAuthentication no",
                "KbdInteractiveAuthentication no",
                "PermitRootLogin prohibit-password",
                # The folder lies below /tmp, which others can write to.
                "StrictModes no",
                "MaxStartups 100",
                f"SetEnv PATH={path}",
                "",
            ]
        )
    )
    remote.client.write_text(
        "\n".join(
            [
                f"Host {ALIAS}",
                "HostName 127.0.0.1",
                f"Port {port}",
                f"User {getpass.getuser()}",
                f"IdentityFile {folder / 'client'}",
                "IdentitiesOnly yes",
                "IdentityAgent none",
                f"UserKnownHostsFile {folder / 'known_hosts'}",
                "GlobalKnownHostsFile /dev/null",
                "",
            ]
        )
    )
    return remote


def _answers(port: int, child: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + READY_S_MAX
    while time.monotonic() < until and child.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        time.sleep(POLL_S)
    return False


@contextlib.contextmanager
def running_sshd(*options: str) -> Iterator[Remote]:
    """Run sshd with further lines of configuration, which come first and so count; it is joined at the end."""
    if os.geteuid() == 0:
        PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
    program = shutil.which("sshd", path=PLACES)
    assert program is not None, what_is_missing()
    with tempfile.TemporaryDirectory(prefix="fps", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        _key(folder / "host")
        _key(folder / "client")
        shutil.copy(folder / "client.pub", folder / "authorized_keys")
        (folder / "bin").mkdir()
        (folder / "bin" / "python3").symlink_to(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
        log = (folder / "log").open("wb")
        try:
            for _ in range(STARTS_MAX):
                remote = _configure(folder, _free_port(), options)
                words = [program, "-D", "-e", "-f", str(folder / "sshd_config")]
                child = subprocess.Popen(
                    dying_with_us(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
                try:
                    if _answers(remote.port, child):
                        remote.known_hosts(remote.host_key())
                        yield remote
                        return
                finally:
                    child.terminate()
                    child.wait(timeout=READY_S_MAX)
            raise AssertionError(f"sshd did not start:\n{(folder / 'log').read_text(errors='replace')}")
        finally:
            log.close()
