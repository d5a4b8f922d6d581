"""Generated clients in the interpreters that guests have: QuickJS behind the wasm wall, and Node and Python as they are.

Under them is the `host` of the guests, whose messages are recorded and answered. What a program finds out comes back as JSON.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.architecture.repository import ROOT
from tests.support.wasm_in_process import InProcess

DEADLINE_S = 60.0
Inputs = Sequence[tuple[str, dict[str, Any]]]
"""Functions with their arguments."""

_AGENT = ROOT / "providers" / "docker" / "agent"
_HOST_JS = (_AGENT / "host.js").read_text(encoding="utf-8").strip()
_HOST_PY = (_AGENT / "host.py").read_text(encoding="utf-8")
_JAVASCRIPT = """
const calls = [];
const ANSWER = { status: 200, headers: {}, body: "[1]", body_encoding: "text" };
const before = Reflect.ownKeys(globalThis);
globalThis.host = @HOST@(async (text) => {
    const { method, path, query = {}, headers, body = null } = JSON.parse(text);
    calls.push({ method, path, query, headers, body });
    return JSON.stringify(path === "/fails" ? { error: { code: "denied", reason: "no" } } : ANSWER);
});
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
ANSWER = {"status": 200, "headers": {}, "body": "[1]", "body_encoding": "text"}
def send(message):
    said = json.loads(message)
    calls.append({name: said.get(name, default) for name, default in DEFAULTS.items()})
    failed = {"error": {"code": "denied", "reason": "no"}}
    return json.dumps(failed if said["path"] == "/fails" else ANSWER).encode()
DEFAULTS = {"method": None, "path": None, "query": {}, "headers": None, "body": None}
host = types.ModuleType("host")
exec(compile(HOST, "host.py", "exec"), vars(host))
host._send = send
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
    before, _, after = _JAVASCRIPT.replace("@HOST@", _HOST_JS).partition("@PREAMBLE@")
    return before + preamble + after.replace("@INPUTS@", text)


def in_python(preamble: str, inputs: Inputs) -> Seen:
    program = f"PREAMBLE = {preamble!a}\nHOST = {_HOST_PY!a}\nINPUTS = {json.dumps(inputs)!a}\n{_PYTHON}"
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
