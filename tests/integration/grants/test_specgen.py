"""From a document to a guest that calls the API, with the commands and the program of docs/specgen.md and nothing copied."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from plimsoll.contract.grants import QUERY_KEYS, ROUTES
from plimsoll.specgen.outputs import LIMITS
from tests.architecture.repository import ROOT
from tests.docs.pages import Block, blocks, programs
from tests.integration.grants.conftest import BROKER, Answering, Api, Granted, api
from tests.integration.service.stand import Served, Stand, bearer, http, json_of
from tests.support.openapi_documents import document, parameter
from tests.support.service import started

pytestmark = [pytest.mark.component("wasm"), pytest.mark.component("seccomp")]

PAGE = blocks(ROOT / "docs" / "specgen.md")
(PROGRAM,) = programs("specgen")
SECRET = "not-a-real-token"


class Hr(Answering):
    """Employees, a page at a time, and what was put there."""

    @override
    def do_GET(self) -> None:
        assert isinstance(self.server, Api)
        sent = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        self.server.seen.append((self.command, self.path, {**self.headers, "body": sent}))
        body = b'[{"id": 7, "name": "Ada"}, {"id": 8, "name": "Grace"}]'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_GET  # noqa: N815  # the library's names


@pytest.fixture(scope="module")
def server() -> Iterator[Api]:
    with api() as found:
        found.RequestHandlerClass = Hr
        yield found


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Granted, Served]]:
    """The real service with the real wall."""
    granted = Granted(Stand(tmp_path_factory.mktemp("house"), "", BROKER | {"SANDBOX_PROVIDER": "wasm"}))
    log = granted.stand.folder / "log"
    with started(granted.stand.environ(), log, start_s=120) as running, http(running.url) as client:
        yield granted, Served(running, client)


House = tuple[Granted, Served]


def specgen(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("plimsoll")), "specgen", str(folder / "API.json")]
    return subprocess.run([*command, *more], capture_output=True, text=True, timeout=60, check=False)


def applied(granted: Granted, file: Path) -> subprocess.CompletedProcess[str]:
    return granted.admin("grants", "apply", str(file), HR_TOKEN=SECRET)


def filled_in(block: Block) -> str:
    """What the page adds to the file."""
    return block.text.partition("<< 'END'\n")[2].partition("END\n")[0]


def test_a_document_becomes_a_guests_call_of_the_api(house: House, server: Api, tmp_path: Path) -> None:
    granted, served = house
    making, adding = [block for block in PAGE if block.language == "sh"]
    subprocess.run(["bash", "-c", making.text.replace("$(mktemp -d)", str(tmp_path))], check=True, timeout=60)
    made = specgen(
        tmp_path, "--name", "hr-read", "--server", f"{server.origin}/v1", "-o", str(tmp_path / "out")
    )
    assert made.returncode == 1, made.stderr  # something is left out, as the page shows
    file = tmp_path / "out" / "grant.toml"
    file.write_text(file.read_text() + filled_in(adding))
    done = applied(granted, file)
    assert done.returncode == 0, done.stderr
    token = granted.caller("reader")
    (shown,) = json_of(served.http.get("/v1/grants", headers=bearer(token)))["grants"]
    texts = {each.name: each.read_text() for each in file.parent.iterdir()}
    assert (shown["description"], shown["catalog"]) == (texts["description.md"], texts["catalog.json"])
    assert shown["preamble"] == {"javascript": texts["preamble.js"], "python": texts["preamble.py"]}
    assert "127.0.0.1" not in json.dumps(shown)

    server.seen.clear()
    environment = {"PLIMSOLL_URL": served.running.url, "PLIMSOLL_TOKEN": token}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM.text],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == (PAGE[PAGE.index(PROGRAM) + 1].text + "\n", "")
    ((method, path, headers),) = server.seen
    assert (method, path, headers["authorization"]) == ("GET", "/v1/employees?page=1", f"Bearer {SECRET}")

    server.seen.clear()
    code = shown["preamble"]["javascript"] + (
        'const r = await api.replace_employee({ id: "7", body: { name: "Ada", at: [1.5, null] } });\n'
        "console.log(r.status);\n"
        'try { await api.replace_employee({ id: "a/b", body: {} }); } catch (error) { console.log(error.code); }\n'
        'try { await host.get("/v1/salaries"); } catch (error) { console.log(error.code); }\n'
    )
    answer = json_of(granted.run(served, code, caller="reader"))
    assert (answer["result"]["stdout"], answer["result"]["stderr"]) == ("200\nargument\ndenied\n", "")
    ((method, path, headers),) = server.seen
    assert (method, path, headers["body"]) == ("PUT", "/v1/employees/7", '{"at":[1.5,null],"name":"Ada"}')
    assert headers["content-type"] == "application/json"


def large(functions: int) -> dict[str, Any]:
    """As much of everything as a document may have, for so many operations."""
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(24)}}
    content = {"content": {"application/json": {"schema": schema}}}
    paths = {
        f"/{'x' * 120}/{number:03}": {
            "put": {
                "operationId": f"{'f' * 56}{number}",
                "summary": "s" * 240,
                "parameters": [
                    parameter(f"{key:02}{'k' * 60}", description="d" * 240) for key in range(QUERY_KEYS)
                ],
                "requestBody": content,
                "responses": {"200": content},
            }
        }
        for number in range(functions)
    }
    return document(paths, servers=[{"url": "https://hr.example.com"}])


def test_the_largest_that_specgen_makes_can_be_applied(tmp_path: Path, granted: Granted) -> None:
    """One operation more is refused there, and not by `grants apply`; in both databases."""
    fits, over = 1, ROUTES
    while over - fits > 1:
        middle = (fits + over) // 2
        (tmp_path / "API.json").write_text(json.dumps(large(middle)))
        made = specgen(tmp_path, "--name", "hr-large", "--force", "-o", str(tmp_path / "out"))
        assert made.returncode in {0, 65}, made.stderr
        fits, over = (middle, over) if made.returncode == 0 else (fits, middle)
    (tmp_path / "API.json").write_text(json.dumps(large(fits)))
    assert specgen(tmp_path, "--name", "hr-large", "--force", "-o", str(tmp_path / "out")).returncode == 0
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    assert any(size > 0.9 * LIMITS[name] for name, size in sizes.items()), sizes
    file = tmp_path / "out" / "grant.toml"
    file.write_text(
        file.read_text()
        + 'allowed_callers = ["reader"]\n[hr-large.credential]\ntype = "static"\nenv = "HR_TOKEN"\n'
    )
    assert granted.admin("vault", "init").returncode == 0
    done = applied(granted, file)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [name for name in LIMITS if name != "grant.toml"])
def test_a_text_of_exactly_the_bound_is_taken_and_one_byte_more_is_not(
    tmp_path: Path, on_sqlite: Granted, name: str
) -> None:
    (tmp_path / "API.json").write_text(json.dumps(document({"/a": {"get": {}}})))
    assert specgen(tmp_path, "--name", "hr", "-o", str(tmp_path)).returncode == 0
    file = tmp_path / "grant.toml"
    file.write_text(
        file.read_text()
        + 'allowed_callers = ["reader"]\n[hr.credential]\ntype = "static"\nenv = "HR_TOKEN"\n'
    )
    assert on_sqlite.admin("vault", "init").returncode == 0
    (tmp_path / name).write_bytes(b"x" * LIMITS[name])
    assert applied(on_sqlite, file).returncode == 0
    (tmp_path / name).write_bytes(b"x" * (LIMITS[name] + 1))
    refused = applied(on_sqlite, file)
    assert refused.returncode == 1
    assert f"must be at most {LIMITS[name]} bytes: '{name}' has more" in refused.stderr
