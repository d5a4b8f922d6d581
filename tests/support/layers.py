"""Which layer of tests a file belongs to, and in how many pieces a layer is dealt to the workers.

`check` is run by `make check`. `fast` needs no daemon, no server and no network. `walls` needs a docker daemon, a database
server, a browser or a published client. `long` repeats, floods or builds at full size; it also runs the tests of the other
layers that are marked `sized`, which try fewer there.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[1]
DURATIONS: Final = TESTS / "durations.json"

LAYERS: Final = ("check", "fast", "walls", "long")
PLACES: Final[dict[str, str]] = {
    "architecture": "check",
    "docs": "fast",
    "docs/test_blocks.py": "walls",
    "integration": "fast",
    "integration/connect/test_faults.py": "walls",
    "integration/connect/test_grants.py": "walls",
    "integration/connect/test_projects.py": "walls",
    "integration/connect/test_published_client.py": "walls",
    "integration/connect/test_tampering.py": "walls",
    "integration/docker": "walls",
    "integration/grants": "walls",
    "integration/grants/test_broker_process.py": "fast",
    "integration/grants/test_canary.py": "fast",
    "integration/grants/test_ends.py": "fast",
    "integration/grants/test_example.py": "fast",
    "integration/grants/test_processes.py": "fast",
    "integration/grants/test_two_users.py": "fast",
    "integration/openapi/test_schemathesis.py": "walls",
    "integration/providers/test_contract.py": "walls",
    "integration/providers/test_processes.py": "walls",
    "integration/service": "walls",
    "integration/service/test_disk.py": "fast",
    "integration/service/test_drain_output.py": "fast",
    "integration/service/test_kill_points.py": "fast",
    "integration/service/test_serve.py": "fast",
    "integration/service/test_tiers.py": "fast",
    "integration/store": "walls",
    "integration/store/test_files.py": "fast",
    "security": "fast",
    "security/test_browser.py": "walls",
    "security/test_container_agents.py": "walls",
    "security/test_container_hostile.py": "walls",
    "security/test_container_moments.py": "walls",
    "security/test_container_neighbours.py": "walls",
    "security/test_container_shared.py": "walls",
    "security/test_container_stalls.py": "walls",
    "soak": "long",
    "unit": "fast",
    "unit/providers/wasm/test_rebuild.py": "long",
}
"""A folder's or a file's layer; of two that fit, the more precise one counts."""

ALONE: Final = (
    "tests/integration/broker/test_upstream.py::test_an_answer_of_many_chunks_does_not_keep_other_calls_waiting",
    "tests/integration/docker/test_flat.py",
    "tests/integration/service/test_faults.py",
    "tests/integration/http/test_answers.py::test_an_answer_waits_for_no_acknowledgement",
    "tests/integration/http/test_listener.py::test_strangers_wait_for_their_turn_and_a_caller_from_there_does_not",
    "tests/integration/providers/test_streaming.py::TestPrograms::test_the_first_chunk_arrives_before_the_second_print",
    "tests/integration/providers/test_streaming.py::TestPrograms::test_endless_tiny_output_comes_in_few_frames",
    "tests/integration/providers/test_streaming.py::TestPrograms::test_small_output_comes_at_the_end_when_nobody_asked_for_a_stream",
    "tests/integration/providers/test_streaming.py::TestPrograms::test_a_deadline_keeps_what_came",
    "tests/security/test_http_floods.py",
    "tests/integration/service/test_tiers.py::test_all_providers_get_their_time_to_clean_up_at_the_same_time",
    "tests/security/test_runner_frames.py",
    "tests/security/test_runner_hostile.py::test_a_cancel_ends_any_program_and_keeps_its_output_and_its_runner",
    "tests/unit/broker/test_message.py::test_what_no_call_can_have_costs_little_more_than_to_look_at_it",
    "tests/unit/http/test_middleware.py::test_the_stack_costs_less_than_150_us_a_request",
)
"""What measures time, or counts all that a machine holds, a file or a test: it runs after the others, by itself."""

COMPONENTS: Final[dict[str, frozenset[str]]] = {
    "fast": frozenset({"wasm", "seccomp", "openapi-client"}),
    "walls": frozenset(
        {"wasm", "seccomp", "schemathesis", "postgres", "published-client", "chromium", "docker", "runsc"}
    ),
    "long": frozenset({"guest-build", "docker", "runsc"}),
}
"""What the tests of a layer ask for."""

ANY_RUNTIME: Final = frozenset(
    {
        "tests/integration/docker/test_agent.py",
        "tests/integration/docker/test_lines.py",
        "tests/integration/docker/test_snippets.py",
        "tests/integration/docker/test_tools.py",
        "tests/integration/providers/test_processes.py",
        "tests/security/test_container_agents.py",
    }
)
"""What our processes and the image decide, whichever runtime is below: under gVisor these run in the long layer."""

_LONG_S: Final = 45.0
_SUBJECTS: Final = frozenset(
    {"wasm", "effect", "docker", "docker@runsc", "runc", "runsc", "sqlite", "postgres"}
)
_UNKNOWN_S: Final = 4.0


def layer_of(path: Path) -> str:
    """The layer of a test file. Raises LookupError if no place fits."""
    name = path.resolve().relative_to(TESTS).as_posix()
    fitting = [place for place in PLACES if name == place or name.startswith(f"{place}/")]
    if not fitting:
        raise LookupError(f"tests/{name} is in no layer: give it a place in tests/support/layers.py")
    return PLACES[max(fitting, key=len)]


def at_full_size() -> bool:
    """Whether `sized` tests try as many as they can."""
    return os.environ.get("PLIMSOLL_TEST_LAYER") == "long"


def sized(usual: int, full: int) -> int:
    """How often to repeat something: `usual` in its own layer, `full` in the long one."""
    return full if at_full_size() else usual


@cache
def durations() -> dict[str, float]:
    """Seconds by test file, as they were measured last (`make durations`)."""
    found: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return found


def seconds(name: str) -> float:
    return durations().get(name, _UNKNOWN_S)


def later(nodeid: str, case: str) -> bool:
    """Whether a test with this case of parameters belongs to the long layer, though its file does not."""
    return file_of(nodeid) in ANY_RUNTIME and not {"runsc", "docker@runsc"}.isdisjoint(case.split("-"))


def alone(nodeid: str) -> bool:
    return nodeid.partition("[")[0] in ALONE or file_of(nodeid) in ALONE


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def piece(nodeid: str) -> str:
    """The part of a layer that one worker takes as a whole: a file; of a long one what one wall or database is tried with.

    Smaller ones would cost more than they spread: what a file makes once for many tests is made for each of its pieces.
    """
    name, _, rest = nodeid.partition("::")
    if seconds(name) <= _LONG_S:
        return name
    _, _, case = rest.partition("[")
    return "::".join([name, *sorted(_SUBJECTS & set(case.rstrip("]").split("-")))])
