"""S9: machine code is taken from the cache only when nobody else can have put it there."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from providers.wasm import cache, capi, guest
from providers.wasm.vm import MIB, Engine, EngineConfig

CONFIG = EngineConfig()
CODE = b"machine code"


@pytest.fixture(name="compilations")
def _compilations(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every compilation, which the tests of the cache itself do not need to really happen."""
    done: list[bytes] = []

    def compile_module(wasm: bytes, config: EngineConfig) -> bytes:
        done.append(wasm)
        return CODE

    monkeypatch.setattr(cache, "compile_module", compile_module)
    return done


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(name="file")
def _file(folder: Path, compilations: list[bytes]) -> Path:
    """A cache that has been filled, with the count of compilations back at none."""
    assert cache.compiled(folder, CONFIG) == CODE
    compilations.clear()
    (file,) = folder.iterdir()
    return file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_first_start_compiles_the_pinned_guest_and_keeps_it_private(
    folder: Path, compilations: list[bytes]
) -> None:
    assert cache.compiled(folder, CONFIG) == CODE
    assert compilations == [guest.load()]
    (file,) = folder.iterdir()
    assert (mode(folder), mode(file)) == (0o700, 0o600)


def test_a_second_start_does_not_compile(file: Path, folder: Path, compilations: list[bytes]) -> None:
    assert cache.compiled(folder, CONFIG) == CODE
    assert compilations == []


def _truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def _replace_bytes(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def _replace_all(file: Path) -> None:
    file.write_bytes(b"native code of somebody else")


def _symlink(file: Path) -> None:
    target = file.with_name("target")
    file.rename(target)
    file.symlink_to(target)


def _symlink_outside(file: Path) -> None:
    outside = file.parents[1] / "outside"
    file.rename(outside)
    file.symlink_to(outside)


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def _foreign_owner(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(file, 4242, -1)


def _another_key(file: Path) -> None:
    """A file of another configuration under this one's name."""
    other = cache.cache_key(replace(CONFIG, memory_bytes=32 * MIB))
    file.write_bytes(cache._digest(other, CODE) + CODE)


FAULTS = [
    lambda file: file.chmod(0o666),
    lambda file: file.chmod(0o640),
    lambda file: file.chmod(0o700),
    lambda file: file.write_bytes(b""),
    *(
        _truncate,
        _replace_bytes,
        _replace_all,
        _symlink,
        _symlink_outside,
        _pipe,
        _foreign_owner,
        _another_key,
    ),
]
NAMES = [
    *("0666", "0640", "0700", "empty"),
    *("truncated", "bytes", "all", "symlink", "symlink-outside", "pipe", "owner", "another-key"),
]


@pytest.mark.parametrize("spoil", FAULTS, ids=NAMES)
def test_a_file_with_anything_wrong_is_compiled_again_and_replaced(
    file: Path, folder: Path, compilations: list[bytes], spoil: Callable[[Path], None]
) -> None:
    spoil(file)
    assert cache.compiled(folder, CONFIG) == CODE
    assert len(compilations) == 1
    assert stat.S_ISREG(file.lstat().st_mode)
    assert (mode(file), file.stat().st_uid) == (0o600, os.geteuid())
    assert cache.compiled(folder, CONFIG) == CODE
    assert len(compilations) == 1


def test_a_symlink_is_replaced_and_its_target_left_alone(
    file: Path, folder: Path, compilations: list[bytes]
) -> None:
    outside = folder.parent / "outside"
    outside.write_bytes(b"precious")
    file.unlink()
    file.symlink_to(outside)
    cache.compiled(folder, CONFIG)
    assert outside.read_bytes() == b"precious"


@pytest.mark.parametrize("wrong", [0o755, 0o770, 0o701])
def test_a_directory_that_others_can_enter_is_refused(
    folder: Path, compilations: list[bytes], wrong: int
) -> None:
    folder.mkdir()
    folder.chmod(wrong)
    with pytest.raises(cache.CacheRefused, match="0700"):
        cache.compiled(folder, CONFIG)


def test_a_directory_of_somebody_else_is_refused(folder: Path, compilations: list[bytes]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    folder.mkdir(mode=0o700)
    os.chown(folder, 4242, -1)
    with pytest.raises(cache.CacheRefused, match="0700"):
        cache.compiled(folder, CONFIG)


def test_a_symlink_instead_of_the_directory_is_refused(folder: Path, compilations: list[bytes]) -> None:
    real = folder.with_name("real")
    real.mkdir(mode=0o700)
    folder.symlink_to(real)
    with pytest.raises(cache.CacheRefused, match="cannot be opened"):
        cache.compiled(folder, CONFIG)


def test_a_file_instead_of_the_directory_is_refused(folder: Path, compilations: list[bytes]) -> None:
    folder.write_bytes(b"")
    with pytest.raises(cache.CacheRefused, match="cannot be opened"):
        cache.compiled(folder, CONFIG)


def test_the_key_changes_with_whatever_the_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {cache.cache_key(CONFIG)}
    for name in ("memory_bytes", "wasm_stack_bytes", "keep_resident_bytes"):
        keys.add(cache.cache_key(replace(CONFIG, **{name: getattr(CONFIG, name) // 2})))
    for owner, name in ((cache, "WASM_SHA256"), (capi, "WASMTIME_VERSION")):
        with monkeypatch.context() as changed:
            changed.setattr(owner, name, "other")
            keys.add(cache.cache_key(CONFIG))
    with monkeypatch.context() as changed:
        changed.setattr(cache, "_processor", lambda: "other")
        keys.add(cache.cache_key(CONFIG))
    assert len(keys) == 7


def test_a_cache_that_cannot_be_written_costs_time_and_not_the_start(
    folder: Path, compilations: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    assert cache.compiled(folder, CONFIG) == CODE
    assert list(folder.iterdir()) == []
    with pytest.raises(OSError, match="No space"):
        cache.fill(folder, CONFIG)


@pytest.mark.component("wasm")
def test_the_command_fills_a_cache_that_an_engine_starts_from(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-m", "providers.wasm.cache", str(folder), "--memory-mb", "32"]
    root = Path(cache.__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def compile_again(wasm: bytes, config: EngineConfig) -> bytes:
        pytest.fail("the cache was not used")

    monkeypatch.setattr(cache, "compile_module", compile_again)
    config = EngineConfig(memory_bytes=32 * MIB)
    Engine.load(cache.compiled(folder, config), config).close()


def test_the_command_says_why_it_failed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    assert cache.main([str(folder)]) == 1
    assert "0700" in capsys.readouterr().err
