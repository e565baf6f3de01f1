"""Where everything lies: the one class that computes the paths of a Fencepost home, and the one reader of credentials.

Standard library only, and little of it: the stdio shim imports this module at every start of an agent program.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from fencepost.errors import Refused

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Final

HOME_VARIABLE: Final = "FENCEPOST_HOME"
SESSION_VARIABLE: Final = "FENCEPOST_SESSION_ID"
CREDENTIAL_VARIABLE: Final = "FENCEPOST_CREDENTIAL_FILE"
GENERATION_VARIABLE: Final = "FENCEPOST_GENERATION"

SESSIONS: Final = "sessions"
MAILBOX: Final = "mailbox"
MCP_EDGE: Final = "mcp_edge"
PROVIDERS: Final = "providers"
SERVICES: Final = (SESSIONS, MAILBOX, MCP_EDGE, PROVIDERS)

# sockaddr_un.sun_path holds 108 bytes on Linux and 104 on macOS, the closing NUL included.
SOCKET_PATH_BYTES_MAX_LINUX: Final = 107
SOCKET_PATH_BYTES_MAX_MACOS: Final = 103
SOCKET_PATH_BYTES_MAX: Final = SOCKET_PATH_BYTES_MAX_MACOS if sys.platform == "darwin" else SOCKET_PATH_BYTES_MAX_LINUX
ADDRESS_BYTES_MAX: Final = 4096

TOKEN_PREFIX: Final = "fp_"  # noqa: S105 (the form, not a secret)
TOKEN_CHARS: Final = len(TOKEN_PREFIX) + 43
CREDENTIAL_BYTES_MAX: Final = 256

# In an agent's folder: which MCP tools are stored for it.
TOOLS_NAME: Final = "tools"

FOLDER_MODE: Final = 0o700
_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022
_UUID_DASHES: Final = (8, 13, 18, 23)
_HEX: Final = frozenset("0123456789abcdef")
_BASE64URL: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")


def is_uuid(text: str) -> bool:
    """Tell whether `text` is a UUID in its canonical lower-case form of 36 characters."""
    return len(text) == 36 and all(
        char == "-" if place in _UUID_DASHES else char in _HEX for place, char in enumerate(text)
    )


def is_token(text: str) -> bool:
    """Tell whether `text` has the form of a credential: `fp_` and 43 characters of base64url."""
    return (
        len(text) == TOKEN_CHARS
        and text.startswith(TOKEN_PREFIX)
        and all(char in _BASE64URL for char in text[len(TOKEN_PREFIX) :])
    )


def _service_name(service: str) -> str:
    if not service or len(service) > 32 or not set(service) <= _NAME:
        raise ValueError(f"not a service name: {service!r}")
    return service


def _path(text: str) -> Path:
    # Imported here: the shim joins strings and never needs pathlib, which costs a tenth of its start.
    from pathlib import Path  # noqa: PLC0415

    return Path(text)


class Home:
    """The folder that holds one person's Fencepost. Computing a path touches nothing on disk.

    Refuses an agent id that is no canonical UUID and a service name that is no plain word: no path leaves the home.
    """

    __slots__ = ("text",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.text: Final[str] = os.path.abspath(os.fspath(path))  # noqa: PTH100 (see _path)

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> Home:
        """Return the home that FENCEPOST_HOME names; where it is unset or empty, ~/.fencepost.

        Refuses one that cannot be looked into, see check_usable; one that is not there yet is no such home.
        """
        home = cls.named(env)
        home.check_usable()
        return home

    @classmethod
    def named(cls, env: Mapping[str, str] | None = None) -> Home:
        """Return what from_environment returns, without a look at the disk."""
        named = (os.environ if env is None else env).get(HOME_VARIABLE, "")
        if "\0" in named:
            raise Refused("invalid_home", f"{HOME_VARIABLE} holds a NUL character; nothing was created")
        try:
            return cls(named or os.path.join(os.path.expanduser("~"), ".fencepost"))  # noqa: PTH111, PTH118 (see _path)
        except FileNotFoundError as error:
            raise Refused(
                "invalid_home",
                f"{HOME_VARIABLE} is relative to the current folder, which is gone; nothing was created",
                hint=f"Give {HOME_VARIABLE} as an absolute path, or go to a folder that is there.",
            ) from error

    def __repr__(self) -> str:
        return f"Home({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Home) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    # Strings for the shim; everybody else takes the paths below.

    def edge_address_text(self) -> str:
        """Return the path of the published address of the shim socket."""
        return f"{self.text}/run/edge.addr"

    def agent_credential_text(self, agent_id: str) -> str:
        """Return the path of an agent's credential. Refuses anything but a canonical UUID."""
        if not is_uuid(agent_id):
            raise Refused(
                "invalid_session_id",
                "the agent id is not a UUID in lower-case form; nothing was read",
                hint="Use the UUID that `fencepost agent create` or `fencepost agent list` printed.",
            )
        return f"{self.text}/agents/{agent_id}/credential"

    # Folders.

    @property
    def path(self) -> Path:
        """The home itself."""
        return _path(self.text)

    @property
    def run(self) -> Path:
        """Sockets, locks and published addresses; 0700."""
        return _path(f"{self.text}/run")

    @property
    def logs(self) -> Path:
        """One log file per service."""
        return _path(f"{self.text}/logs")

    @property
    def agents(self) -> Path:
        """One folder per agent."""
        return _path(f"{self.text}/agents")

    @property
    def services(self) -> Path:
        """The credentials of the services."""
        return _path(f"{self.text}/services")

    @property
    def settings(self) -> Path:
        """The settings file, which need not exist."""
        return _path(f"{self.text}/fencepost.toml")

    @property
    def certificates(self) -> Path:
        """The private certificate authority for calls over TCP, which need not exist; 0700."""
        return _path(f"{self.text}/tls")

    # Per service.

    @property
    def socket_folder(self) -> str:
        """The folder of the sockets: run, or the short folder of a home whose own path is over the limit.

        Only servers need it: everybody else reads published addresses.
        """
        run = f"{self.text}/run"
        # The slash and the longest name of a socket; edge.sock is shorter than all of them.
        room = SOCKET_PATH_BYTES_MAX - max(len(f"/{name}.sock") for name in SERVICES)
        if len(os.fsencode(run)) <= room:
            return run
        from fencepost import sockets  # noqa: PLC0415 (a home of ordinary length never needs it)

        return sockets.recorded(run) or sockets.candidate(self.text, bytes_max=room)

    def socket(self, service: str) -> Path:
        """The gRPC socket of a service, 0600."""
        return _path(f"{self.socket_folder}/{_service_name(service)}.sock")

    def lock(self, service: str) -> Path:
        """The lock that a service's process holds for its life."""
        return _path(f"{self.text}/run/{_service_name(service)}.lock")

    def address(self, service: str) -> Path:
        """The file in which a running service publishes its address."""
        return _path(f"{self.text}/run/{_service_name(service)}.addr")

    def log(self, service: str) -> Path:
        """The log file of a service."""
        return _path(f"{self.text}/logs/{_service_name(service)}.log")

    def folder(self, service: str) -> Path:
        """The folder that only this service reads."""
        return _path(f"{self.text}/{_service_name(service)}")

    def database(self, service: str) -> Path:
        """The database that only this service opens."""
        return _path(f"{self.text}/{_service_name(service)}/{service}.db")

    def service_credential(self, name: str) -> Path:
        """The token by which a service speaks to others; 0600, made by sessions."""
        return _path(f"{self.text}/services/{_service_name(name)}.credential")

    # The shim socket of mcp_edge, the supervisor, the operator, agents.

    @property
    def edge_socket(self) -> Path:
        """The socket on which mcp_edge serves stdio shims."""
        return _path(f"{self.socket_folder}/edge.sock")

    @property
    def edge_address(self) -> Path:
        """The published address of the shim socket."""
        return _path(self.edge_address_text())

    @property
    def up_lock(self) -> Path:
        """The supervisor's lock."""
        return _path(f"{self.text}/run/up.lock")

    @property
    def up_status(self) -> Path:
        """The supervisor's status file."""
        return _path(f"{self.text}/run/up.json")

    @property
    def operator_credential(self) -> Path:
        """The operator's token; 0600, made by sessions."""
        return _path(f"{self.text}/operator.credential")

    def agent_folder(self, agent_id: str) -> Path:
        """An agent's folder; 0700."""
        return _path(os.path.dirname(self.agent_credential_text(agent_id)))  # noqa: PTH120 (see _path)

    def agent_credential(self, agent_id: str) -> Path:
        """An agent's token; 0600. The path does not change over the agent's lives."""
        return _path(self.agent_credential_text(agent_id))

    def check_socket_paths(self, services: tuple[str, ...] = SERVICES) -> None:
        """Refuse a home for whose sockets even the short folder is too long. Touches nothing."""
        paths = [*(self.socket(name) for name in services), self.edge_socket]
        longest = max(len(os.fsencode(path)) for path in paths)
        if longest > SOCKET_PATH_BYTES_MAX:
            over = longest - SOCKET_PATH_BYTES_MAX
            raise Refused(
                "home_path_too_long",
                f"the socket paths of the home {self.text} take up to {longest} bytes in {self.socket_folder}, and this"
                f" system takes {SOCKET_PATH_BYTES_MAX}; nothing was created",
                hint=f"Choose a shorter {HOME_VARIABLE}, for example ~/.fencepost, or a shorter XDG_RUNTIME_DIR or"
                f" TMPDIR: {over} bytes less are enough.",
                state={"longest_bytes": str(longest), "bytes_max": str(SOCKET_PATH_BYTES_MAX)},
            )

    def check_usable(self) -> None:
        """Refuse a home that cannot be looked into: no folder, links in a loop or to nothing, too long, closed to us.

        A home that is not there yet can be used: `fencepost up` makes it. Creates nothing.
        """
        for folder in (self.text, f"{self.text}/run"):
            try:
                # What is asked about lies in the folder, so that the answer needs the right to look into it.
                os.stat(f"{folder}/.")  # noqa: PTH116 (see _path)
            except FileNotFoundError:
                if os.path.islink(folder):  # noqa: PTH114 (see _path)
                    raise _unusable(folder, "a link to nothing") from None
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    raise Refused(
                        "home_path_too_long",
                        f"the home of {len(os.fsencode(self.text))} bytes has a path or a folder name over this"
                        " system's limit; nothing was done",
                        hint=f"Choose a shorter {HOME_VARIABLE}, for example ~/.fencepost.",
                    ) from error
                raise _unusable(folder, _FLAWS.get(error.errno or 0, error.strerror or "not to be read")) from error

    def prepare(self) -> None:
        """Create the home and its run and logs folders, 0700; where its path is over the socket limit, a short folder.

        Refuses, before anything is created, a home for which the short folder is too long as well; and a home or a
        short folder that belongs to somebody else or that others can write to.
        """
        self.check_socket_paths()
        for folder in (self.path, self.run, self.logs):
            try:
                folder.mkdir(mode=FOLDER_MODE, parents=folder == self.path, exist_ok=True)
            except OSError as error:
                raise Refused(
                    "home_not_writable",
                    f"{folder} cannot be created: {error.strerror}",
                    hint=f"Choose a {HOME_VARIABLE} in a folder that you can write to.",
                ) from error
            _check_folder(str(folder), private=folder != self.path)
        if (folder_of_sockets := self.socket_folder) != str(self.run):
            from fencepost import sockets  # noqa: PLC0415 (a home of ordinary length never needs it)

            sockets.prepare(folder_of_sockets, str(self.run))


_FLAWS: Final = {
    errno.ENOTDIR: "not a folder, or lies below a file",
    errno.ELOOP: "a loop of links",
    errno.EACCES: "closed to this user",
    errno.EPERM: "closed to this user",
}


def _unusable(folder: str, flaw: str) -> Refused:
    return Refused(
        "invalid_home",
        f"{folder} is {flaw}; nothing was done",
        hint=f"Choose a folder of your own as {HOME_VARIABLE}, or leave it unset for ~/.fencepost.",
        state={"home_folder": folder},
    )


def _check_folder(folder: str, *, private: bool) -> None:
    facts = os.lstat(folder) if private else os.stat(folder)  # noqa: PTH116 (see _path)
    if not stat.S_ISDIR(facts.st_mode):
        raise Refused("home_unsafe", f"{folder} is not a folder", hint=f"Choose another {HOME_VARIABLE}.")
    if facts.st_uid != os.geteuid():
        raise Refused("home_unsafe", f"{folder} belongs to another user", hint=f"Choose another {HOME_VARIABLE}.")
    if facts.st_mode & (_OTHERS if private else _OTHERS_WRITE):
        raise Refused("home_unsafe", f"{folder} is open to other users", hint=f"Run: chmod 700 '{folder}'")


def _replacement(name: str) -> str:
    """Return how a credential that others may know is replaced: whose it is decides, and its place tells whose."""
    if os.path.basename(os.path.dirname(os.path.dirname(name))) == "agents":  # noqa: PTH119, PTH120 (see _path)
        return (
            "Have the operator run `fencepost agent renew` for this agent: it writes a new credential, and the old one"
            " is worthless after that."
        )
    return (
        f"Run: chmod 600 '{name}'. If somebody else may have read it: `fencepost credential list` shows its UUID, and"
        " `fencepost credential revoke UUID` replaces it at once."
    )


def read_credential(path: str | os.PathLike[str]) -> str:
    """Return the token in a credential file.

    Refuses a link, a file of another user, a file that others may read, one over CREDENTIAL_BYTES_MAX bytes, and
    anything that is not exactly one token. No error repeats the content.
    """
    name = os.fspath(path)
    try:
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise Refused(
            "credential_missing",
            f"there is no credential at {name}",
            hint=f"Check {HOME_VARIABLE} and the agent's id; the home's services write this file.",
        ) from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ELOOP and os.path.islink(name):  # noqa: PTH114 (_path)
            raise Refused(
                "credential_unreadable",
                f"the credential at {name} is a link, and a link is refused: what it names can be changed by others",
                hint="Name the file itself.",
            ) from error
        raise Refused("credential_unreadable", f"the credential at {name} cannot be read: {error}") from error
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise Refused("credential_unsafe", f"the credential at {name} is not a plain file")
        if facts.st_uid != os.geteuid():
            raise Refused("credential_unsafe", f"the credential at {name} belongs to another user")
        if facts.st_mode & _OTHERS:
            raise Refused(
                "credential_unsafe",
                f"the credential at {name} can be read by other users and may be known to them",
                hint=_replacement(name),
            )
        raw = os.read(handle, CREDENTIAL_BYTES_MAX + 1)
    finally:
        os.close(handle)
    token = raw.removesuffix(b"\n").decode("ascii", "replace")
    if len(raw) > CREDENTIAL_BYTES_MAX or not is_token(token):
        raise Refused("credential_malformed", f"the file at {name} does not hold exactly one credential")
    return token


def read_address(path: str | os.PathLike[str]) -> str | None:
    """Return the address that a service has published, or None where it has published none.

    Refuses an address that is not an absolute Unix socket path.
    """
    try:
        handle = os.open(os.fspath(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(
            "address_unreadable", f"the published address {os.fspath(path)} cannot be read: {error}"
        ) from error
    try:
        raw = os.read(handle, ADDRESS_BYTES_MAX + 1)
    finally:
        os.close(handle)
    address = raw.decode("utf-8", "surrogateescape").removesuffix("\n")
    if len(raw) > ADDRESS_BYTES_MAX or not address.startswith("unix:/") or "\n" in address or "\0" in address:
        raise Refused(
            "address_malformed",
            f"{os.fspath(path)} does not hold the address of a Unix socket; nothing was sent",
            hint="Start the services of this home again with `fencepost up`.",
        )
    return address
