"""The docker provider with seconds instead of a third of one for what a stopped run had written: on a busy machine too.

`spawn("docker@runsc", {…}, module="tests.support.patient_docker")`
"""

PATIENCE_S = 4.0
"""Less than the host's own grace."""


def be_provider() -> int:
    from providers.docker import course  # noqa: PLC0415  # as the entry does
    from providers.docker.provider import DockerProvider  # noqa: PLC0415
    from providers.main import main  # noqa: PLC0415

    vars(course)["DRAIN_S"] = PATIENCE_S
    return main({"docker": DockerProvider.from_settings})


if __name__ == "__main__":
    raise SystemExit(be_provider())
