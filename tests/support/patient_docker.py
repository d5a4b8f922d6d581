"""The docker provider with seconds instead of a third of one for what a stopped run had written: on a busy machine too.

`spawn("docker@runsc", {…}, module="tests.support.patient_docker")`
"""

PATIENCE_S = 4.0
"""Less than the host's own grace."""


def be_provider() -> int:
    from providers.docker import course  # noqa: PLC0415  # as the entry does
    from providers.main import docker, main  # noqa: PLC0415

    vars(course)["DRAIN_S"] = PATIENCE_S
    return main({"docker": docker})


if __name__ == "__main__":
    raise SystemExit(be_provider())
