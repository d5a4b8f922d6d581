"""Generated clients in the interpreters that guests have: QuickJS behind the wasm wall, and Node and Python as they are.

A `host` of the test's own records what it is called with. What a program finds out comes back as JSON.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.wasm_in_process import InProcess

DEADLINE_S = 60.0
Inputs = Sequence[tuple[str, dict[str, Any]]]
"""Functions with their arguments."""

_JAVASCRIPT = """
const calls = [];
const before = Reflect.ownKeys(globalThis);
globalThis.host = {};
for (const verb of ["get", "post", "put", "patch", "delete"]) {
    host[verb] = async (path, options = {}) => {
        calls.push({ verb, path, query: { ...options.query }, headers: { ...options.headers }, body: options.body ?? null,
            options: Object.keys(options).sort() });
        if (path === "/fails") throw Object.assign(new Error("no"), { code: "denied" });
        return { status: 200, body: "[1]", json() { return JSON.parse(this.body); } };
    };
}
@PREAMBLE@
(async () => {
    const ends = [];
    for (const [name, values] of JSON.parse(@INPUTS@)) {
        calls.length = 0;
        try {
            const r = await api[name](values);
            ends.push({ status: r.status, body: r.body, json: r.json(), calls: [...calls] });
        } catch (error) {
            ends.push({ code: error.code ?? `${error}`, text: error.message, calls: [...calls] });
        }
    }
    const made = Reflect.ownKeys(globalThis).filter((name) => !before.includes(name) && name !== "host");
    console.log(JSON.stringify({ ends, made, functions: Object.keys(api), polluted: Object.keys(Object.getPrototypeOf({})) }));
})();
"""

_PYTHON = """
import builtins, json, sys, types
calls = []
class Answer:
    status, body = 200, "[1]"
    def json(self):
        return json.loads(self.body)
class Denied(Exception):
    code = "denied"
def recorder(verb):
    def call(path, **options):
        calls.append({"verb": verb, "path": path, "query": options.get("query", {}), "headers": options.get("headers", {}),
            "body": options.get("body"), "options": sorted(options)})
        if path == "/fails":
            raise Denied("no")
        return Answer()
    return call
host = types.ModuleType("host")
for verb in ("get", "post", "put", "patch", "delete"):
    setattr(host, verb, recorder(verb))
sys.modules["host"] = host
space = {"__name__": "__main__"}
known = set(vars(builtins))
exec(compile(PREAMBLE, "preamble.py", "exec"), space)
api, ends = space["api"], []
for name, values in json.loads(INPUTS):
    calls.clear()
    try:
        r = getattr(api, name)(**values)
        ends.append({"status": r.status, "body": r.body, "json": r.json(), "calls": list(calls)})
    except Exception as error:
        ends.append({"code": getattr(error, "code", repr(error)), "text": str(error), "calls": list(calls)})
made = sorted(set(space) - {"__name__", "__builtins__"}) + sorted(set(vars(builtins)) - known)
print(json.dumps({"ends": ends, "made": made, "functions": list(vars(api)), "polluted": []}))
"""


@dataclass(frozen=True)
class Seen:
    """What one interpreter found: how each call ended, and every global name that the preamble left."""

    ends: list[dict[str, Any]]
    made: list[str]
    functions: list[str]
    polluted: list[str]


def javascript(preamble: str, inputs: Inputs) -> str:
    text = json.dumps(json.dumps(inputs, allow_nan=False))
    before, _, after = _JAVASCRIPT.partition("@PREAMBLE@")
    return before + preamble + after.replace("@INPUTS@", text)


def in_python(preamble: str, inputs: Inputs) -> Seen:
    program = f"PREAMBLE = {preamble!a}\nINPUTS = {json.dumps(inputs)!a}\n{_PYTHON}"
    return _run([sys.executable, "-I", "-W", "error", "-"], program)


def in_node(preamble: str, inputs: Inputs) -> Seen:
    node = shutil.which("node")
    assert node
    return _run([node, "-"], javascript(preamble, inputs))


async def in_wasm(guest: InProcess, preamble: str, inputs: Inputs) -> Seen:
    """In a guest of its own, as a caller's program would be."""
    steps = await guest.run(javascript(preamble, inputs), timeout_ms=20_000, cap=1 << 20)
    assert steps.finish.exit_code == 0, steps.stderr.decode()
    return _seen(steps.stdout.decode())


def _run(command: list[str], program: str) -> Seen:
    done = subprocess.run(
        command, input=program.encode(), capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return _seen(done.stdout.decode())


def _seen(text: str) -> Seen:
    return Seen(**json.loads(text))


Guest = Callable[[str, Inputs], Awaitable[Seen]]
