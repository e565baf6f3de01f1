"""Generate the committed Python stubs below lib/fencepost from protos/, or with --check fail where they differ.

The proto package path is the Python import path, so the output needs no patching.
"""

from __future__ import annotations

import argparse
import filecmp
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
LIB = ROOT / "lib"


def generate(into: Path) -> list[Path]:
    """Write the stubs of every .proto below `into` and return them relative to it."""
    sources = sorted(path.relative_to(PROTOS).as_posix() for path in PROTOS.rglob("*.proto"))
    plugin = Path(sys.executable).parent
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}",
            f"--plugin=protoc-gen-mypy={plugin / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={plugin / 'protoc-gen-mypy_grpc'}",
            f"--python_out={into}", f"--grpc_python_out={into}", f"--mypy_out={into}", f"--mypy_grpc_out={into}",
            *sources,
        ],
        check=True,
    )  # fmt: skip
    for source in sources:
        # A proto without services still yields an empty gRPC module: nobody imports it.
        if "service " not in (PROTOS / source).read_text(encoding="utf-8"):
            for suffix in ("_pb2_grpc.py", "_pb2_grpc.pyi"):
                (into / source).with_name(Path(source).stem + suffix).unlink(missing_ok=True)
        for folder in (into / source).parent, (into / source).parent.parent:
            init = folder / "__init__.py"
            if folder != into / "fencepost" and not init.exists():
                words = ".".join(folder.relative_to(into).parts)
                init.write_text(f'"""Generated stubs of {words}; see protos/."""\n', encoding="utf-8")
    return sorted(path.relative_to(into) for path in into.rglob("*") if path.is_file())


def same(fresh: Path, committed: Path) -> bool:
    """Say whether both exist with the same bytes."""
    return committed.exists() and filecmp.cmp(fresh, committed, shallow=False)


def main() -> int:
    """Generate, or compare with what is committed."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true")
    check: bool = arguments.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        files = generate(fresh)
        if check:
            differing = [name for name in files if not same(fresh / name, LIB / name)]
            for name in differing:
                print(f"stale stub: lib/{name}; run: make proto", file=sys.stderr)
            return 1 if differing else 0
        for name in files:
            (LIB / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / name, LIB / name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
