"""Runs one Python snippet as a script would run; started ahead of time. Its program comes over descriptor 3, once."""

import linecache
import os
import sys
import types

_NAME = "main.py"


def _read() -> bytes:
    os.write(3, b".")
    parts = []
    while part := os.read(3, 1 << 16):
        parts.append(part)
    os.close(3)
    return b"".join(parts)


def _run(program: bytes) -> None:
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    sys.argv[:] = [_NAME]
    sys.path.insert(0, "")
    # So that a traceback shows the snippet's lines, which are in no file.
    source = program.decode(errors="replace")
    linecache.cache[_NAME] = (len(source), None, source.splitlines(keepends=True), _NAME)
    try:
        exec(compile(program, _NAME, "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # it is what a snippet is for
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is shown without the frames of this file
        _show(error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None))
        raise SystemExit(1) from None


def _show(error: BaseException) -> None:
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(error), error, error.__traceback__)
        return
    # The interpreter's own printer looks for source lines in files only.
    import traceback  # noqa: PLC0415  # most snippets do not need it

    traceback.print_exception(error)


_run(_read())
