"""A page of another origin, in a real browser beside an insecure service on loopback, cannot start a run."""

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import require
from tests.support.service import environment, started

PAGE = """<!doctype html><meta charset="utf-8"><title>elsewhere</title><pre id="out">waiting</pre><script>
const body = JSON.stringify({payload: {kind: "javascript", code: "1"}});
const url = "SERVICE/v1/runs";
const form = document.createElement("form");
Object.assign(form, {method: "post", action: url, target: "frame", enctype: "text/plain"});
const tries = {
  json: () => fetch(url, {method: "POST", body, headers: {"content-type": "application/json"}}),
  simple: () => fetch(url, {method: "POST", body, mode: "no-cors"}),
  typed: () => fetch(url, {method: "POST", mode: "no-cors", body: new Blob([body], {type: "application/json"})}),
  beacon: async () => ({status: navigator.sendBeacon(url, new Blob([body], {type: "text/plain"})) ? "sent" : "not sent"}),
  read: () => fetch("SERVICE/v1/describe").then((answer) => answer.text()).then((text) => ({status: text})),
};
(async () => {
  const results = {};
  for (const [name, attempt] of Object.entries(tries)) {
    try { results[name] = String((await attempt()).status); } catch (error) { results[name] = "blocked"; }
  }
  const input = Object.assign(document.createElement("input"), {name: body.slice(0, -1) + ', "x": "', value: '"}'});
  form.append(input); document.body.append(form); form.submit();
  document.getElementById("out").textContent = JSON.stringify(results);
})();
</script><iframe name="frame"></iframe>"""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server of another origin; its address and its folder."""
    folder = tmp_path / "site"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}", folder
        server.shutdown()
        thread.join()


def dump(url: str, profile: Path) -> str:
    """The page's document once its scripts had five seconds."""
    quiet = [
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-sync",
    ]
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [
        CHROMIUM,
        "--headless",
        *root,
        *quiet,
        "--disable-component-update",
        f"--user-data-dir={profile}",
    ]
    done = subprocess.run(
        [*command, "--virtual-time-budget=5000", "--dump-dom", url],
        capture_output=True,
        timeout=90,
        check=False,
    )
    return done.stdout.decode()


def said_by(url: str, profile: Path) -> str:
    """What the page wrote. A busy machine may end the browser's time before the page's scripts; then it gets another."""
    for number in range(5):
        said = (
            dump(url, profile.with_name(f"profile-{number}"))
            .partition('<pre id="out">')[2]
            .partition("</pre>")[0]
        )
        if said.startswith("{"):
            return said
    raise AssertionError("the page's scripts never came to their end")


def test_a_page_of_another_origin_cannot_start_a_run_or_read_an_answer(
    tmp_path: Path, elsewhere: tuple[str, Path]
) -> None:
    require("chromium", available=bool(CHROMIUM), why="there is no chromium on the path")
    origin, folder = elsewhere
    settings = {"PLIMSOLL_INSECURE": "1", "SANDBOX_PROVIDER": "wasm"}
    with started(environment(tmp_path / "data", **settings), tmp_path / "log") as running:
        (folder / "index.html").write_text(PAGE.replace("SERVICE", running.url))
        results = json.loads(said_by(f"{origin}/index.html", tmp_path / "profile"))
        assert results["json"] == results["read"] == "blocked"
        assert results["typed"] in {"blocked", "0"}
        refused = [
            line["refusal"] for line in running.lines() if line["event"] == "refused" and "refusal" in line
        ]
        assert "cross_origin" in refused, "the browser never reached the service, so this proves nothing"
        with running.client() as client:
            assert client.get("/v1/runs").json()["runs"] == []
        assert running.run("1").status_code == 200, "the same request from here does run"
