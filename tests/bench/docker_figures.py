"""Figures 12 to 15: a run in a container under runc and under gVisor, and what else there is, by a docker daemon of our own."""

import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.bench import http_figures
from tests.bench.docker_floors import ANSWER, SNIPPETS, Floors, available, unpacked
from tests.bench.http_figures import Service
from tests.bench.report import Figure, Report
from tests.bench.sampling import Series
from tests.bench.wire import Connection, closed_loop
from tests.support import docker
from tests.support.births import Births
from tests.support.service import ROOT

LLM_PYTHON = ROOT / ".venv-llm-sandbox" / "bin" / "python"
LLM_SCRIPT = Path(__file__).with_name("llm_sandbox_runs.py")
POOL = 3
"""For each language: a hit at rest, one right after others, and for Python one flood."""
REST_S: Final = 0.8
"""So long after its start the last container that waits is surely ready, and the machine quiet."""
HIT_MS: Final = {"runc": 10.0, "runsc": 20.0}
FLOOD_MS: Final = {"runc": 300.0, "runsc": 500.0}
TIMES_FASTER: Final = 20.0
_NAMES: Final = {"runc": "runc", "runsc": "gVisor"}
_PATIENCE_S: Final = 60.0
_LLM_S: Final = 120.0
_NOTE: Final = (
    "llm-sandbox {}, without its environment setup (that makes a venv and upgrades pip over the network), without a network, "
    "on the image with a link for the name `python`. Its pool gives one container to run after run; Plimsoll's never does."
)
_WITH_PYTHON: Final = (
    "USER 0\nRUN ln -s python3 /usr/bin/python && mkdir -p /sandbox/.sandbox-venv/bin"
    " && ln -s /usr/bin/python3 /sandbox/.sandbox-venv/bin/python\n"
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How many samples."""

    rounds: int
    seconds: float
    llm_new: int
    llm_pooled: int


FULL = Effort(rounds=12, seconds=4.0, llm_new=5, llm_pooled=15)
QUICK = Effort(rounds=3, seconds=1.0, llm_new=1, llm_pooled=3)


def say(text: str) -> None:
    """Progress, for who waits."""
    print(f"docker figures: {text}", file=sys.stderr, flush=True)


def figures(report: Report, folder: Path, *, quick: bool = False) -> None:
    """All of them, or one that says why there are none."""
    found, why = docker.available()
    if not found:
        report.figure(12, "Runs in containers").note(f"not measured: {why}")
        return
    effort = QUICK if quick else FULL
    folder.mkdir(parents=True, exist_ok=True)
    # A socket's path has little room.
    with tempfile.TemporaryDirectory(prefix="pd-") as place, docker.daemon(Path(place)) as daemon:
        say("building the sandbox image")
        image = docker.build_image(daemon)
        with unpacked(daemon, image, Path(place) / "floors") as floors, Births(daemon) as births:
            bench = Bench(floors, births, folder, effort)
            for number, runtime in ((12, "runc"), (13, "runsc")):
                with report.measuring(number, _title(runtime)) as figure:
                    _of_runtime(figure, bench, runtime)
            with report.measuring(14, "The same snippets under bubblewrap, in the image's files") as figure:
                _of_bubblewrap(figure, bench)
            with report.measuring(15, "The same snippets by llm-sandbox, on the same image") as figure:
                _side_by_side(figure, bench)


def _title(runtime: str) -> str:
    return f"One run over HTTP in a container under {_NAMES[runtime]}: {' and '.join(SNIPPETS.values())}"


@dataclass(slots=True)
class Bench:
    """What all figures share."""

    floors: Floors
    births: Births
    folder: Path
    effort: Effort
    hits: dict[tuple[str, str], Series] = field(default_factory=dict)
    """By runtime and language."""

    @property
    def daemon(self) -> docker.Daemon:
        return self.floors.daemon


@dataclass(slots=True)
class Samples:
    """Milliseconds by what took them."""

    taken: defaultdict[str, Series] = field(default_factory=lambda: defaultdict(Series))

    def add(self, name: str, value: float) -> None:
        self.taken[name].values.append(value)


# --- one runtime ----------------------------------------------------------------------------------------------------------


def _of_runtime(figure: Figure, bench: Bench, runtime: str) -> None:
    """Figures 12 and 13."""
    found, why = docker.runsc_available() if runtime == "runsc" else (True, "")
    if not found:
        figure.note(f"not measured: {why}")
        return
    say(f"{_NAMES[runtime]}: starting a service with a pool and one without")
    samples = Samples()
    with served(bench, runtime, POOL) as warm, served(bench, runtime, 0) as cold, ExitStack() as stack:
        ready, fresh = (stack.enter_context(_connected(each)) for each in (warm, cold))
        for number in range(-1, bench.effort.rounds):  # the first warms up
            say(f"{_NAMES[runtime]}: round {number + 1} of {bench.effort.rounds}")
            _round(samples if number >= 0 else Samples(), bench, runtime, (warm, ready), (cold, fresh))
        rates = {each: _rate(bench, warm, each) for each in SNIPPETS}
    _report(figure, samples.taken, runtime)
    for language, rate in rates.items():
        figure.value(f"two callers that ask again at once, {language}", rate, "runs/s")
        bench.hits[runtime, language] = samples.taken[f"pool hit, {language}"]


Asked = tuple[Service, Connection]


def _round(samples: Samples, bench: Bench, runtime: str, warm: Asked, cold: Asked) -> None:
    """Hits while enough containers wait, then everything else while the pool is full and quiet."""
    used: list[tuple[str, float]] = []

    def hit(name: str, language: str) -> None:
        spent, ended, container = _run(warm, _snippet(language))
        if bench.births.times[container]["start"] > ended - spent / 1000:
            raise RuntimeError("a run that should have hit the pool missed it")
        samples.add(f"{name}, {language}", spent)
        used.append((container, ended))

    for language in SNIPPETS:
        _rest(bench.births)
        hit("pool hit", language)
    for language in SNIPPETS:
        hit("pool hit again", language)
    _flood(samples, bench, warm)
    for container, ended in used:
        samples.add("destroy", 1000 * (bench.births.gone(container) - ended))
    _rest(bench.births)
    for language in SNIPPETS:
        samples.add(f"docker run, {language}", bench.floors.docker_run(runtime, language))
        samples.add(f"raw runtime, {language}", bench.floors.raw(runtime, language))
        spent, _, container = _run(cold, _snippet(language))
        samples.add(f"pool miss, {language}", spent)
        bench.births.gone(container)


def _flood(samples: Samples, bench: Bench, warm: Asked) -> None:
    body = {"payload": {"kind": "python", "code": "while True: print('x' * 1000)"}}
    spent, ended, container = _run(warm, body, b"")
    samples.add("output cap, answer", spent)
    samples.add("output cap, gone", spent + 1000 * (bench.births.gone(container) - ended))


def _rest(births: Births) -> None:
    """Until every container that should wait does, and nothing else goes on."""

    def holds() -> bool:
        starts = births.alive().values()
        return len(starts) == POOL * len(SNIPPETS) and time.time() - max(starts) > REST_S

    births.until(holds, _PATIENCE_S)


def _snippet(language: str) -> Mapping[str, Any]:
    return {"payload": {"kind": language, "code": SNIPPETS[language]}}


def _run(asked: Asked, body: Mapping[str, Any], stdout: bytes = ANSWER) -> tuple[float, float, str]:
    """One checked run: milliseconds, when it was answered, and its container's id."""
    service, connection = asked
    request = service.post(body=json.dumps(body).encode())
    began = time.perf_counter()
    status, answer = connection.ask(request)
    spent, ended = 1000 * (time.perf_counter() - began), time.time()
    said = json.loads(answer)
    if status != 200 or (stdout and said["result"]["stdout"] != stdout.decode()):
        raise RuntimeError(f"the service answered {status}: {answer.decode()[:500]}")
    return spent, ended, str(said["instance"]).rpartition(":")[2]


def _rate(bench: Bench, service: Service, language: str) -> float:
    """Runs a second for two callers, begun with a full pool: what refilling it allows."""
    _rest(bench.births)
    with _connected(service) as one, _connected(service) as two:
        request = service.post(body=json.dumps(_snippet(language)).encode())
        answers, seconds = closed_loop((one, two), (request, request), bench.effort.seconds)
    return answers[200] / seconds


def _connected(service: Service) -> Connection:
    connection = service.connect()
    connection.sock.settimeout(_PATIENCE_S)
    return connection


@contextmanager
def served(bench: Bench, runtime: str, pool: int) -> Iterator[Service]:
    """A service over that runtime whose pool has that many containers for each language."""
    with http_figures.served(
        bench.folder / f"{runtime}-{pool}",
        SANDBOX_PROVIDER=f"docker@{runtime}",
        **bench.daemon.settings(bench.floors.image),
        SANDBOX_DOCKER_POOL=str(pool),
        SANDBOX_MEMORY_MB="256",
        SANDBOX_EVIDENCE_INTERVAL_S="3600",  # a look is no part of a run
    ) as service:
        yield service


def _report(figure: Figure, taken: Mapping[str, Series], runtime: str) -> None:
    for language in SNIPPETS:
        figure.line(f"pool hit, {language}", taken[f"pool hit, {language}"])
        figure.line(f"right after others, while refilled, {language}", taken[f"pool hit again, {language}"])
        figure.line(f"pool miss (no pool), {language}", taken[f"pool miss, {language}"])
        figure.line(f"docker run, {language}", taken[f"docker run, {language}"])
        figure.line(f"{runtime} run, {language}", taken[f"raw runtime, {language}"])
    figure.line("destroy: from the answer until it is gone", taken["destroy"])
    figure.line("beyond the output cap, to the answer", taken["output cap, answer"])
    figure.line("beyond the output cap, until it is gone", taken["output cap, gone"])
    for language in SNIPPETS:
        hit, miss, run, raw = (
            taken[f"{each}, {language}"].p50
            for each in ("pool hit", "pool miss", "docker run", "raw runtime")
        )
        figure.value(f"pool hit, {runtime}, {language}, p50", hit, "ms", at_most=HIT_MS[runtime])
        figure.value(
            f"docker run against a pool hit, {runtime}, {language}", run / hit, at_least=TIMES_FASTER
        )
        figure.value(f"pool miss against docker run, {language}", miss / run)
        figure.value(f"pool miss against {runtime} run, {language}", miss / raw)
    gone = taken["output cap, gone"].p50
    figure.value(f"output cap until gone, {runtime}, p50", gone, "ms", at_most=FLOOD_MS[runtime])


# --- what else there is ---------------------------------------------------------------------------------------------------


def _of_bubblewrap(figure: Figure, bench: Bench) -> None:
    """Figure 14."""
    found, why = available()
    if not found:
        figure.note(f"not measured: {why}")
        return
    for language in SNIPPETS:
        series = Series([bench.floors.bubblewrap(language) for _ in range(bench.effort.rounds + 1)][1:])
        figure.line(f"bwrap, {language}", series)
        for runtime, name in _NAMES.items():
            if hits := bench.hits.get((runtime, language)):
                figure.value(f"bwrap against a pool hit under {name}, {language}", series.p50 / hits.p50)


def _side_by_side(figure: Figure, bench: Bench) -> None:
    """Figure 15."""
    if not LLM_PYTHON.exists():
        figure.note("not measured: there is no .venv-llm-sandbox (`make bench` makes it)")
        return
    if not bench.hits:
        figure.note("not measured: there is no pool hit to compare it with")
        return
    image = "plimsoll-llm-sandbox"
    _with_python(bench.daemon, bench.floors.image, image)
    for runtime in dict.fromkeys(each for each, _ in bench.hits):
        say(f"llm-sandbox under {_NAMES[runtime]}")
        said = _llm(bench, image, runtime)
        for language, taken in said["milliseconds"].items():
            where = f"{_NAMES[runtime]}, {language}"
            hits = bench.hits[runtime, language]
            figure.line(f"Plimsoll, pool hit, {where}", hits)
            for key, text in (
                ("pooled", "llm-sandbox, its pool"),
                ("new", "llm-sandbox, new container"),
                ("new_end", "llm-sandbox, its end"),
            ):
                figure.line(f"{text}, {where}", Series(taken[key]))
            figure.value(
                f"llm-sandbox's pool against a pool hit, {where}", Series(taken["pooled"]).p50 / hits.p50
            )
        figure.notes = [_NOTE.format(said["version"])]


def _with_python(daemon: docker.Daemon, image: str, tag: str) -> None:
    """It calls `python`, and in its pool the one of the environment that its setup would have made."""
    subprocess.run(
        ["docker", "build", "--quiet", "--network", "none", "--tag", tag, "-"],
        input=f"FROM {image}\n{_WITH_PYTHON}".encode(),
        env=daemon.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_LLM_S,
        check=True,
    )


def _llm(bench: Bench, image: str, runtime: str) -> dict[str, Any]:
    asked = {
        "image": image,
        "runtime": runtime,
        "snippets": SNIPPETS,
        "new": bench.effort.llm_new,
        "pooled": bench.effort.llm_pooled,
    }
    done = subprocess.run(
        [LLM_PYTHON, "-I", LLM_SCRIPT],
        input=json.dumps(asked).encode(),
        env=bench.daemon.environment,
        stdout=subprocess.PIPE,
        timeout=_LLM_S,
        check=True,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said
