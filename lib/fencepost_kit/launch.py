"""Starts a program that must not outlive the process that asked for it.

Run as a script, standard library only:

    python -IS launch.py PARENT_PID -- PROGRAM [ARGUMENT ...]

Linux: the kernel kills the program when the thread that started this script ends (PR_SET_PDEATHSIG; start children
from the main thread). Elsewhere the program is told its parent by FENCEPOST_PARENT_PID and watches it. Either way the
program is not started when the parent is gone already. Exits with 127 where the program cannot be executed, with 125
where the parent is gone.
"""

import os
import sys

PARENT_VARIABLE = "FENCEPOST_PARENT_PID"
EXIT_USAGE = 124
EXIT_ORPHAN = 125
EXIT_NOT_EXECUTABLE = 127

PR_SET_PDEATHSIG = 1
SIGKILL = 9


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent's thread ends. The request outlives exec."""
    import ctypes  # noqa: PLC0415 - only where it is needed

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def main(argv: list[str]) -> int:
    """Become the program. Returns only where that failed."""
    if len(argv) < 4 or argv[2] != "--" or not argv[1].isascii() or not argv[1].isdigit():
        sys.stderr.write("usage: launch.py PARENT_PID -- PROGRAM [ARGUMENT ...]\n")
        return EXIT_USAGE
    parent = int(argv[1])
    if sys.platform == "linux":
        die_with_parent()
    # After the request and not before it: a parent that ended in between is noticed here.
    if os.getppid() != parent:
        sys.stderr.write("launch.py: the parent has ended; nothing was started\n")
        return EXIT_ORPHAN
    os.environ[PARENT_VARIABLE] = argv[1]
    try:
        os.execvp(argv[3], argv[3:])  # noqa: S606 - becoming the given program is the purpose
    except OSError as error:
        sys.stderr.write(f"launch.py: {argv[3]}: {error.strerror}\n")
    return EXIT_NOT_EXECUTABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv))
