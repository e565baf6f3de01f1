"""Make the project's virtual environment from nothing but python3: pinned uv, the pinned packages, the project itself.

Runs on any Python 3: telling somebody that theirs is too old is part of its work. So no syntax newer than 3.6, and only
what every version has.
"""

import argparse
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST = (3, 11)
NEWEST = (3, 14)
SETS = {"runtime": "requirements/runtime.txt", "dev": "requirements/dev.txt"}
INSTALL_SECONDS_MAX = 900
PROBE_SECONDS_MAX = 20


def fail(text):
    """Say what is missing and what to do, and end."""
    sys.stderr.write("\n" + text.strip() + "\n\n")
    sys.exit(1)


def version_of(python):
    """Return (major, minor) of an interpreter, or None where it does not run."""
    try:
        answer = subprocess.run(
            [python, "-c", "import sys; print(*sys.version_info[:2])"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PROBE_SECONDS_MAX,
            check=True,
        )
        major, minor = answer.stdout.decode().split()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return int(major), int(minor)


def fits(version):
    """Say whether the project runs on this version."""
    return version is not None and OLDEST <= version <= NEWEST


def choose_python():
    """Return the interpreter to build on: this one, else a newer one from PATH."""
    if fits(sys.version_info[:2]):
        return sys.executable
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        found = shutil.which("python3.%d" % minor)
        if found and fits(version_of(found)):
            print("python3 is %d.%d; using %s instead" % (sys.version_info[0], sys.version_info[1], found))
            return found
    fail(
        """
Fencepost needs Python 3.%d to 3.%d; %s is %d.%d, and no other is on PATH.
Nothing was changed. Install one, for example:
    Debian, Ubuntu:   sudo apt install python3 python3-venv
    Fedora:           sudo dnf install python3
    macOS:            brew install python@3.13
or name one that you have:   make test PYTHON=/path/to/python3.12
"""
        % (OLDEST[1], NEWEST[1], sys.executable, sys.version_info[0], sys.version_info[1])
    )
    return None


def make_venv(python, venv):
    """Create the environment where there is none that works; an environment that works is kept."""
    inside = os.path.join(venv, "bin", "python")
    if fits(version_of(inside)):
        return inside
    if os.path.exists(venv) and not os.path.exists(os.path.join(venv, "pyvenv.cfg")) and os.listdir(venv):
        fail("%s exists and is no virtual environment. Nothing was changed. Name another: make test VENV=folder" % venv)
    probe = subprocess.run([python, "-c", "import venv, ensurepip"], stderr=subprocess.DEVNULL, check=False)
    if probe.returncode != 0:
        fail(
            """
This Python cannot make a virtual environment: %s lacks the module venv or ensurepip. Nothing was changed.
    Debian, Ubuntu:   sudo apt install python3-venv
                      (for a Python beside the system's: sudo apt install python%d.%d-venv)
Then run the same make command again.
"""
            % ((python,) + (version_of(python) or sys.version_info[:2]))
        )
    print("making %s with %s" % (os.path.relpath(venv, ROOT), python))
    if subprocess.run([python, "-m", "venv", "--clear", venv], check=False).returncode != 0:
        fail(
            "%s -m venv failed; its own words stand above. Run the same make command again once that is solved."
            % python
        )
    return inside


def quiet_environment():
    """Return the environment for installers: the user's own registry settings, none of another active environment."""
    environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", UV_NO_PROGRESS="1")
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PIP_REQUIRE_VIRTUALENV", "PIP_TARGET", "PIP_USER"):
        environment.pop(name, None)
    return environment


def run(command):
    """Run an installer to its end; return whether it succeeded."""
    try:
        done = subprocess.run(command, cwd=ROOT, env=quiet_environment(), timeout=INSTALL_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write("%s\n" % error)
        return False
    return done.returncode == 0


def install(inside, wanted):
    """Install the pinned set and the project; every file is checked against its hash."""
    pip = [inside, "-m", "pip", "install", "--quiet", "--require-hashes"]
    if not run(pip + ["-r", "requirements/build.txt"]):
        fail("The pinned installer could not be fetched. See to the network or `pip config list`, then run again.")
    uv = [
        os.path.join(os.path.dirname(inside), "uv"),
        "pip",
        "install",
        "--quiet",
        "--compile-bytecode",
        "--python",
        inside,
    ]
    if not run(uv + ["--require-hashes", "-r", SETS[wanted]]):
        # A machine behind a mirror often has only pip set up for it.
        print("uv could not install the set; trying pip with the machine's own settings")
        if not run(pip + ["-r", SETS[wanted]]):
            fail("The pinned packages could not be installed; the reason stands above. Solve it, then run again.")
    project = ["--no-deps", "--no-build-isolation", "--editable", "."]
    if not run(uv + ["--no-index"] + project):
        fail("The project itself could not be installed into its environment; the reason stands above.")


def main():
    """Make or complete the environment."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("set", choices=sorted(SETS))
    arguments.add_argument("--venv", default=".venv")
    options = arguments.parse_args()
    venv = os.path.join(ROOT, options.venv)
    inside = make_venv(choose_python(), venv)
    print("installing requirements/%s.txt (pinned, hashes checked)" % options.set)
    install(inside, options.set)
    with open(os.path.join(venv, ".%s-ready" % options.set), "w") as stamp:
        stamp.write("made by scripts/bootstrap.py\n")


if __name__ == "__main__":
    main()
