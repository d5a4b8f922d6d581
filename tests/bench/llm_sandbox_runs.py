"""What the package llm-sandbox takes for a snippet; run by the interpreter of .venv-llm-sandbox, which has nothing of ours.

Given as JSON on stdin: image, runtime, snippets by language, and how many samples of a new container and of a pooled one.
Milliseconds come as JSON on stdout. Its environment setup is skipped, because that needs pip and a network.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from llm_sandbox import SandboxSession  # type: ignore[import-not-found]  # in an environment of its own
from llm_sandbox.pool import (  # type: ignore[import-not-found]  # as above
    PoolConfig,
    PooledSandboxSession,
    create_pool_manager,
)

# The image's own program is an agent, which ends when nobody talks to it.
CONTAINER = {"command": ["infinity"], "entrypoint": ["sleep"], "network_mode": "none"}


def sample(make: Callable[[], Any], code: str) -> tuple[float, float]:
    """Milliseconds to the answer, and from there to the session's end."""
    began = time.perf_counter()
    session = make()
    session.open()
    try:
        said = session.run(code)
        answered = time.perf_counter()
    finally:
        session.close()
    ended = time.perf_counter()
    if (said.exit_code, said.stdout) != (0, "42\n"):
        raise RuntimeError(said.stderr)
    return 1000 * (answered - began), 1000 * (ended - answered)


def measure(asked: dict[str, Any], language: str, code: str) -> dict[str, list[float]]:
    """A new container for each run; then one container of its pool for all."""
    container = CONTAINER | {"runtime": asked["runtime"]}
    options = {"lang": language, "image": asked["image"], "runtime_configs": container}
    options |= {"skip_environment_setup": True}
    cold = [sample(lambda: SandboxSession(**options), code) for _ in range(asked["new"])]
    config = PoolConfig(max_pool_size=1, min_pool_size=1)
    with create_pool_manager(config=config, **options) as pool:
        pooled = [sample(lambda: PooledSandboxSession(pool), code) for _ in range(asked["pooled"] + 1)][1:]
    return {
        "new": [answer for answer, _ in cold],
        "new_end": [end for _, end in cold],
        "pooled": [answer for answer, _ in pooled],
    }


def main() -> None:
    asked = json.load(sys.stdin)
    found = {language: measure(asked, language, code) for language, code in asked["snippets"].items()}
    json.dump({"version": version("llm-sandbox"), "milliseconds": found}, sys.stdout)


if __name__ == "__main__":
    main()
