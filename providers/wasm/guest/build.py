"""Builds the wasm guest, byte for byte, from hash-pinned inputs in a temporary directory.

    python providers/wasm/guest/build.py [--check]   rebuild and compare with what is committed
    python providers/wasm/guest/build.py --write     rebuild and replace quickjs.wasm and pins.py

Inputs: shim.c, heap.c and console.js here; host.js of the sandbox image's agent, since guests have one client on every wall;
requirements/guest.lock (QuickJS-NG's sources, the compiler); the pre-initialiser from npm, pinned here. Needs pip, npm and
about a minute; it changes nothing outside the temporary directory and, with --write, this folder.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

GUEST: Final = Path(__file__).resolve().parent
LOCK: Final = GUEST.parents[2] / "requirements" / "guest.lock"
WASM: Final = GUEST / "quickjs.wasm"
PINS: Final = GUEST / "pins.py"
SOURCES: Final = (
    GUEST / "shim.c",
    GUEST / "heap.c",
    GUEST / "console.js",
    GUEST.parents[1] / "docker" / "agent" / "host.js",
)
INPUTS: Final = (*SOURCES, GUEST / "build.py", LOCK)
"""Whenever one of these changes, the guest must be built again; pins.py says with which it was built."""

SDIST: Final = "quickjs-ng"
WIZER_VERSION: Final = "10.0.0"
WIZER: Final = {
    ("linux", "x86_64"): (
        "linux-x64",
        "fJtM1sy43FBMnp+xpapFX6U1YdTBKA/1T4CYfG/qeE8jn0SXk2EuiYoY/EnC2uyNy9hjTrvfdYO5n4MXW0EIdQ==",
    ),
    ("linux", "aarch64"): (
        "linux-arm64",
        "pGSfFWXzeTqHm6z1PtVaEn+7Fm3QGC8YnHrzBV4sQDVS3N1NwmuHZAc8kslmlFPNdu61ycEvdOsSgCny8JPQvg==",
    ),
    ("darwin", "x86_64"): (
        "darwin-x64",
        "r/LUIZw6Q3Hf4htd46mD+EBxfwjBkxVIrTM1r+B2pTCddoBYQnKVdVsI4UFyy7NoBxzEg8F8BwmTNoSLmFRjpw==",
    ),
    ("darwin", "arm64"): (
        "darwin-arm64",
        "dhZTWel+xccGTKSJtI9A7oM4yyP20FWflsT+AoqkOqkCY7kCNrj4tmMtZ6GXZFRDkrPY5+EnOh62sfShEibAMA==",
    ),
}
"""SHA-512 of the package `@bytecodealliance/wizer-<name>` for each system it is published for."""

UNITS: Final = ("dtoa.c", "libregexp.c", "libunicode.c")  # quickjs.c is included by shim.c
FLAGS: Final = (
    *("-target", "wasm32-wasi", "-mexec-model=reactor", "-std=c23", "-O2", "-D_GNU_SOURCE", "-DNDEBUG"),
    *("-Wl,-z,stack-size=1048576", "-Wl,--strip-all", "-Wl,--gc-sections"),
)


class CannotBuild(Exception):
    """Something that the build needs is missing, or is not what was pinned."""


def inputs_sha256() -> str:
    """One digest over everything that decides the guest's bytes."""
    digest = hashlib.sha256()
    for path in INPUTS:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def run(work: Path, *command: str | Path, **extra: str) -> str:
    """Run a command in `work` with caches of its own. Raises `CannotBuild` with what it said."""
    environment = os.environ | {
        "ZIG_GLOBAL_CACHE_DIR": str(work / "zig-cache"),
        "ZIG_LOCAL_CACHE_DIR": str(work / "zig-cache"),
        "PYTHONPATH": str(work / "tools"),
        **extra,
    }
    done = subprocess.run(  # noqa: S603  every argument is ours
        [str(part) for part in command],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotBuild(f"{Path(str(command[0])).name} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def pip() -> list[str]:
    """This Python's pip, or the one on the path."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if found := shutil.which("pip3") or shutil.which("pip"):
        return [found]
    raise CannotBuild("the build needs pip (on Debian or Ubuntu: apt-get install python3-pip)")


def lock_blocks() -> tuple[str, str]:
    """The lock in two: what is installed as a tool, and the source archive."""
    blocks: list[str] = []
    for line in LOCK.read_text(encoding="utf-8").splitlines(keepends=True):
        if line[:1].isspace():
            blocks[-1] += line
        else:
            blocks.append(line)
    tools = "".join(block for block in blocks if not block.startswith(f"{SDIST}=="))
    return tools, "".join(block for block in blocks if block.startswith(f"{SDIST}=="))


def fetch_python(work: Path) -> Path:
    """Install the compiler into `work` and unpack the sources there; pip checks every hash."""
    tools, sources = lock_blocks()
    (work / "tools.lock").write_text(tools, encoding="utf-8")
    (work / "sources.lock").write_text(sources, encoding="utf-8")
    common = ("--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps")
    run(work, *pip(), "install", *common, "--only-binary", ":all:", "--target", "tools", "-r", "tools.lock")
    # Without build isolation pip asks the pinned setuptools above for the archive's metadata, and fetches nothing else.
    run(
        work,
        *pip(),
        "download",
        *common,
        "--no-binary",
        ":all:",
        "--no-build-isolation",
        "-r",
        "sources.lock",
    )
    (archive,) = work.glob("quickjs_ng-*.tar.gz")
    with tarfile.open(archive) as bundle:
        bundle.extractall(work, filter="data")
    return next(work.glob("quickjs_ng-*/upstream-quickjs"))


def fetch_wizer(work: Path) -> Path:
    """Fetch the pre-initialiser for this system and check it against its pin."""
    system = (sys.platform, platform.machine())
    if system not in WIZER:
        raise CannotBuild(f"the pre-initialiser is not published for {' '.join(system)}")
    npm = shutil.which("npm")
    if npm is None:
        raise CannotBuild("the build needs npm (on Debian or Ubuntu: apt-get install npm)")
    name, pin = WIZER[system]
    run(work, npm, "pack", f"@bytecodealliance/wizer-{name}@{WIZER_VERSION}", "--cache", work / "npm-cache")
    archive = work / f"bytecodealliance-wizer-{name}-{WIZER_VERSION}.tgz"
    if base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() != pin:
        raise CannotBuild("the pre-initialiser is not the one that is pinned")
    with tarfile.open(archive) as bundle:
        bundle.extract("package/wizer", work, filter="data")
    return work / "package" / "wizer"


def build(work: Path) -> bytes:
    """The guest, built in the empty directory `work`."""
    sources = fetch_python(work).relative_to(work)
    wizer = fetch_wizer(work)
    for source in SOURCES:
        shutil.copyfile(source, work / source.name)
    units = [sources / unit for unit in UNITS]
    compiler = (sys.executable, "-m", "ziglang", "cc")
    run(work, *compiler, *FLAGS, "-I", sources, "shim.c", *units, "-o", "raw.wasm")
    options = ("--allow-wasi", "--inherit-stdio", "false", "--init-func", "wizer.initialize")
    run(work, wizer, *options, "raw.wasm", "-o", "guest.wasm")
    return (work / "guest.wasm").read_bytes()


def write(wasm: bytes) -> None:
    """Replace what is committed."""
    WASM.write_bytes(wasm)
    PINS.write_text(
        '"""Written by build.py: what the guest is, and what it was built from."""\n\n'
        "from typing import Final\n\n"
        f'WASM_SHA256: Final = "{hashlib.sha256(wasm).hexdigest()}"\n'
        f'INPUTS_SHA256: Final = "{inputs_sha256()}"\n',
        encoding="utf-8",
    )


def committed_as(wasm: bytes) -> bool:
    """Whether the committed guest and its pins are what these bytes and inputs give."""
    pins = PINS.read_text(encoding="utf-8")
    wanted = (hashlib.sha256(wasm).hexdigest(), inputs_sha256())
    return WASM.read_bytes() == wasm and all(f'"{pin}"' in pins for pin in wanted)


def main(arguments: list[str] | None = None) -> int:
    """Build, then compare or replace."""
    parser = argparse.ArgumentParser(description="Build the wasm guest from hash-pinned inputs.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="compare with what is committed (the default)")
    choice.add_argument("--write", action="store_true", help="replace what is committed")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="guest-build-") as work:
            wasm = build(Path(work))
    except CannotBuild as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    if options.write:
        write(wasm)
    same = committed_as(wasm)
    verdict = "is what is committed" if same else "differs from what is committed"
    sys.stdout.write(f"{hashlib.sha256(wasm).hexdigest()}  {verdict}\n")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
