"""Runs one Python snippet as the file `main.py` of the workspace would run; started ahead of time.

Its program comes over descriptor 3, once, and there it says that it has it and begins, and its exit code when nothing more can
come from it, so that nobody waits while an interpreter is taken apart.
"""

import atexit
import gc
import os
import sys
import threading
import types
from contextlib import suppress
from importlib.machinery import SourceFileLoader

_NAME = "main.py"
_FILE = f"/workspace/{_NAME}"
_CHANNEL = 3
_SELF = os.getpid()


def _read() -> bytes:
    os.set_inheritable(_CHANNEL, False)  # noqa: FBT003  # the library takes it by position
    os.write(_CHANNEL, b".")
    parts = []
    while part := os.read(_CHANNEL, 1 << 16):
        parts.append(part)
    os.write(_CHANNEL, b"!")
    return b"".join(parts)


def _run(program: bytes, module: types.ModuleType) -> int:
    """Its exit code."""
    with suppress(OSError), open(_FILE, "wb") as file:  # noqa: PTH123  # no more imports than needed
        file.write(program)
    module.__dict__.update(
        __builtins__=__builtins__, __file__=_FILE, __loader__=SourceFileLoader("__main__", _FILE)
    )
    sys.modules["__main__"] = module
    sys.argv[:] = [_NAME]
    sys.path.insert(0, os.path.dirname(_FILE))  # noqa: PTH120  # as above
    try:
        exec(compile(program, _FILE, "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # it is what a snippet is for
    except SystemExit as end:
        return _code(end.code)
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is shown without the frames of this file
        _show(error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None))
        return 1
    return 0


def _code(said: object) -> int:
    """What `sys.exit(said)` means."""
    if said is None or isinstance(said, int):
        return (said or 0) & 0xFF
    with suppress(Exception):
        sys.stderr.write(f"{said}\n")
    return 1


def _show(error: BaseException) -> None:
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(error), error, error.__traceback__)
        return
    # The interpreter's own printer looks for source lines in files only.
    import traceback  # noqa: PLC0415  # most snippets do not need it

    traceback.print_exception(error)


def _end(code: int, module: types.ModuleType) -> None:
    """What an interpreter does at its end, in its order, as far as a program can see it. A forked child says nothing."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  # waits for threads, as the interpreter does
    atexit._run_exitfuncs()  # noqa: SLF001
    for name in list(module.__dict__):
        if name != "__builtins__":
            module.__dict__[name] = None
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    if os.getpid() == _SELF:
        os.write(_CHANNEL, bytes([code]))
    os._exit(code)


_main = types.ModuleType("__main__")
_end(_run(_read(), _main), _main)
