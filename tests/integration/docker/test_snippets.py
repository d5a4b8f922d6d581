"""A snippet runs as its file would: the same program as snippet and as file of a project says the same, under both runtimes."""

from typing import Any

import pytest

from tests.integration.docker.conftest import Start
from tests.support.docker import Sandbox

OURS = b"/usr/lib/plimsoll"

PYTHON = {
    "its names": (
        "print(__file__, __name__, __spec__, type(__loader__).__name__)",
        b"/workspace/main.py __main__ None SourceFileLoader\n",
    ),
    "its arguments and path": (
        "import sys; print(sys.argv, sys.path[0])",
        b"['main.py'] /workspace\n",
    ),
    "its own text": (
        "print(len(open(__file__).read()))",
        b"33\n",
    ),
    "source of a class": (
        "import inspect\nclass A:\n    b = 1\nprint(inspect.getsource(A), end='')",
        b"class A:\n    b = 1\n",
    ),
    "source of a function": (
        "import inspect\ndef f(): return 1\nprint(inspect.getsource(f), end='')",
        b"def f(): return 1\n",
    ),
    "pickle": (
        "import pickle\nclass A:\n    pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
        b"True\n",
    ),
    "spawn": (
        (
            "import multiprocessing as m\n"
            "def f(x): return x * x\n"
            "if __name__ == '__main__':\n"
            "    with m.get_context('spawn').Pool(2) as pool: print(pool.map(f, [1, 2, 3]))"
        ),
        b"[1, 4, 9]\n",
    ),
    "a pool of spawned processes": (
        (
            "import multiprocessing as m\n"
            "from concurrent.futures import ProcessPoolExecutor\n"
            "def f(x): return x * x\n"
            "if __name__ == '__main__':\n"
            "    with ProcessPoolExecutor(2, m.get_context('spawn')) as pool: print(list(pool.map(f, [1, 2, 3])))"
        ),
        b"[1, 4, 9]\n",
    ),
    "doctest": (
        (
            "def f():\n"
            "    '''\n"
            "    >>> f()\n"
            "    1\n"
            "    '''\n"
            "    return 1\n"
            "import doctest; print(doctest.testmod())"
        ),
        b"TestResults(failed=0, attempted=1)\n",
    ),
    "type hints": (
        "import typing\nclass A:\n    b: 'A'\nprint(typing.get_type_hints(A)['b'] is A)",
        b"True\n",
    ),
}
FAILING_PYTHON = {
    "a traceback": (
        "def f():\n    return 1 / 0\nf()",
        (
            b"Traceback (most recent call last):\n"
            b'  File "/workspace/main.py", line 3, in <module>\n'
            b"    f()\n"
            b'  File "/workspace/main.py", line 2, in f\n'
            b"    return 1 / 0\n"
            b"           ~~^~~\n"
            b"ZeroDivisionError: division by zero\n"
        ),
    ),
    "no Python": (
        "print(1\n",
        (
            b'  File "/workspace/main.py", line 1\n'
            b"    print(1\n"
            b"         ^\n"
            b"SyntaxError: '(' was never closed\n"
        ),
    ),
}
JAVASCRIPT = {
    "its names": (
        ("console.log(require.main === module, __filename, __dirname, module.id, this === exports)"),
        b"true /workspace/main.js /workspace . true\n",
    ),
    "its arguments": (
        "console.log(process.argv.slice(1), process.cwd())",
        b"[ '/workspace/main.js' ] /workspace\n",
    ),
    "its own text": (
        "console.log(require('fs').readFileSync(__filename, 'utf8').length)",
        b"66\n",
    ),
    "a file beside it": (
        (
            "require('fs').writeFileSync('other.js', 'module.exports = require.main.filename');\n"
            "console.log(require('./other'))"
        ),
        b"/workspace/main.js\n",
    ),
    "a return": (
        "console.log(1); if (module) return; console.log(2)",
        b"1\n",
    ),
    "a shebang": (
        "#!/usr/bin/env node\nconsole.log(1)",
        b"1\n",
    ),
    "an import at run time": (
        "import('node:path').then((path) => console.log(path.join('a', 'b')))",
        b"a/b\n",
    ),
}
AWAITING = {
    "a shebang and an await": (
        "#!/usr/bin/env node\nconsole.log(await Promise.resolve(2), require.main === module)",
        b"2 true\n",
    ),
    "a module with require": (
        "import path from 'node:path';\nconsole.log(path.sep, require('path').sep, __dirname)",
        b"/ / /workspace\n",
    ),
    "a module with a shebang": (
        "#!/usr/bin/env node\nimport path from 'node:path';\nconsole.log(await path.sep)",
        b"/\n",
    ),
    "sloppy with await": (
        "x = await 5; console.log(x, require.main.filename)",
        b"5 /workspace/main.js\n",
    ),
}
FAILING_JAVASCRIPT = {
    "a throw": (
        "function f() {\n  throw new Error('no');\n}\nf();",
        (
            b"/workspace/main.js:2\n"
            b"  throw new Error('no');\n"
            b"  ^\n"
            b"\n"
            b"Error: no\n"
            b"    at f (/workspace/main.js:2:9)\n"
        ),
    ),
    "no JavaScript": (
        "let a = 1;\nlet b = ;",
        b"/workspace/main.js:2\nlet b = ;\n        ^\n\nSyntaxError: Unexpected token ';'\n",
    ),
    "after an await": (
        "await 1;\nthrow new Error('no')",
        (
            b"/workspace/main.js:2\n"
            b"throw new Error('no')\n"
            b"      ^\n"
            b"\n"
            b"Error: no\n"
            b"    at /workspace/main.js:2:7\n"
        ),
    ),
    "in a module": (
        "import 'node:path';\nthrow new Error('no')",
        (
            b"file:///workspace/main.mjs:2\n"
            b"throw new Error('no')\n"
            b"      ^\n"
            b"\n"
            b"Error: no\n"
            b"    at file:///workspace/main.mjs:2:7\n"
        ),
    ),
    "a rejection": (
        "Promise.reject(new Error('no'))",
        b"/workspace/main.js:1\nPromise.reject(new Error('no'))\n               ^\n\nError: no\n",
    ),
}


def heard(sandbox: Sandbox) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr."""
    seen = sandbox.until("result")
    text: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    for header, body in seen:
        if header["t"] == "out":
            text[header["stream"]] += body
    ends: list[dict[str, Any]] = [header for header, _ in seen if "exit" in header]
    return ends[-1]["exit"], text["stdout"], text["stderr"]


def as_snippet(start: Start, language: str, program: str) -> tuple[int, bytes, bytes]:
    sandbox = start(language)
    sandbox.receive()
    sandbox.send({"t": "run", "language": language}, program.encode())
    return heard(sandbox)


def as_file(start: Start, name: str, program: str) -> tuple[int, bytes, bytes]:
    sandbox = start()
    sandbox.receive()
    sandbox.send({"t": "put", "path": name}, program.encode())
    sandbox.send({"t": "step"}, f"{'python3' if name.endswith('.py') else 'node'} {name}".encode())
    sandbox.send({"t": "go"})
    return heard(sandbox)


@pytest.mark.parametrize("name", PYTHON)
def test_a_python_snippet_is_its_file(start: Start, name: str) -> None:
    program, said = PYTHON[name]
    snippet = as_snippet(start, "python", program)
    assert (snippet[:2], as_file(start, "main.py", program)) == ((0, said), snippet)


@pytest.mark.parametrize("name", FAILING_PYTHON)
def test_a_python_snippet_fails_as_its_file(start: Start, name: str) -> None:
    program, said = FAILING_PYTHON[name]
    snippet = as_snippet(start, "python", program)
    assert (snippet, as_file(start, "main.py", program)) == ((1, b"", said), snippet)


@pytest.mark.parametrize("name", JAVASCRIPT)
def test_a_javascript_snippet_is_its_file(start: Start, name: str) -> None:
    program, said = JAVASCRIPT[name]
    snippet = as_snippet(start, "javascript", program)
    assert (snippet, as_file(start, "main.js", program)) == ((0, said, b""), snippet)


@pytest.mark.parametrize("name", AWAITING)
def test_a_javascript_snippet_may_be_what_no_one_file_is(start: Start, name: str) -> None:
    program, said = AWAITING[name]
    assert as_snippet(start, "javascript", program) == (0, said, b"")


@pytest.mark.parametrize("name", FAILING_JAVASCRIPT)
def test_a_javascript_snippet_fails_where_its_file_would_and_names_no_file_of_ours(
    start: Start, name: str
) -> None:
    program, said = FAILING_JAVASCRIPT[name]
    code, stdout, stderr = as_snippet(start, "javascript", program)
    assert (code, stdout, stderr[: len(said)]) == (1, b"", said)
    assert OURS not in stderr
