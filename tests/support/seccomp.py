"""The seccomp profile with one call more, and what the program inside is answered under any profile."""

import json
from typing import Any

from plimsoll.contract.requests import Python
from plimsoll.contract.tiers import Tier
from providers.docker import smoke
from providers.docker.frames import Output
from providers.docker.recipe import seccomp_profile
from providers.docker.settings import DockerSettings
from tests.support.docker import Daemon, Sandbox

UNCONFINED = "unconfined"


def letting_through(name: str) -> str:
    """The profile without any rule about that call but one that allows it."""
    profile = json.loads(seccomp_profile())
    for rule in profile["syscalls"]:
        rule["names"] = [each for each in rule["names"] if each != name]
    profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
    profile["syscalls"].append({"names": [name], "action": "SCMP_ACT_ALLOW"})
    return json.dumps(profile)


def found_inside(docker: Daemon, image: str, profile: str) -> dict[str, Any]:
    """All that the program inside says in a container of runc's with that profile."""
    options = ["no-new-privileges:true", f"seccomp={profile}"]
    sandbox = Sandbox.start(docker, image, "runc", "python", SecurityOpt=options)
    try:
        case = smoke.cases(Tier.CONTAINER, DockerSettings("docker", "/nonexistent"))[smoke.INSIDE]
        assert isinstance(case.payload, Python)
        said = b"".join(event.data for event in sandbox.run(case.payload) if isinstance(event, Output))
    finally:
        sandbox.destroy()
    found: dict[str, Any] = json.loads(said)
    return found


def is_noticed(found: dict[str, Any]) -> bool:
    """Whether the start-up probe takes those answers for another filter's."""
    return not smoke.are_the_filters(found["refused"], found["machine"])
