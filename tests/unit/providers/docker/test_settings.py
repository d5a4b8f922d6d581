"""A docker provider's settings: what is read, what is refused."""

from typing import Any

import pytest

from providers.docker.settings import DockerSettings

LEAST: dict[str, Any] = {"provider": "docker", "state_dir": "/state"}


def test_what_is_not_said_has_a_default() -> None:
    settings = DockerSettings.from_settings(LEAST)
    assert settings == DockerSettings(provider="docker", state_dir="/state")
    assert (settings.runtime, settings.image, settings.memory_mb) == ("runc", "plimsoll-sandbox", 512)


def test_everything_said_is_kept() -> None:
    said = {
        "provider": "docker",
        "docker_host": "tcp://127.0.0.1:2375",
        "docker_runtime": "other",
        "docker_image": "registry/own:1",
        "docker_cpus": 0.5,
        "docker_pids": 64,
        "docker_disk_mb": 32,
        "docker_pool": 1,
        "runsc_sha256": ["ab" * 32],
        "state_dir": "/state",
        "memory_mb": 256,
        "slots": 4,
        "output_bytes": 1024,
    }
    assert DockerSettings.from_settings(said) == DockerSettings(
        provider="docker",
        host="tcp://127.0.0.1:2375",
        runtime="other",
        image="registry/own:1",
        cpus=0.5,
        pids=64,
        disk_mb=32,
        pool=1,
        runsc_sha256=frozenset({"ab" * 32}),
        state_dir="/state",
        memory_mb=256,
        slots=4,
        output_bytes=1024,
    )


def test_a_runtime_in_the_name_wins_over_the_setting() -> None:
    said = LEAST | {"provider": "docker@runsc", "docker_runtime": "runc"}
    assert DockerSettings.from_settings(said).runtime == "runsc"


@pytest.mark.parametrize("missing", ["provider", "state_dir"])
def test_name_and_directory_have_no_default(missing: str) -> None:
    with pytest.raises(KeyError, match=missing):
        DockerSettings.from_settings({name: value for name, value in LEAST.items() if name != missing})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("provider", "wasm"),
        ("provider", "docker@"),
        ("docker_host", "ssh://somewhere"),
        ("docker_host", "unix://relative"),
        ("docker_runtime", "--privileged"),
        ("docker_image", ""),
        ("docker_image", "a b"),
        ("docker_cpus", 0),
        ("docker_cpus", float("nan")),
        ("docker_pids", 1),
        ("docker_pids", 1024),
        ("docker_disk_mb", 0),
        ("docker_pool", -1),
        ("runsc_sha256", ["AB" * 32]),
        ("state_dir", "relative"),
        ("memory_mb", 8),
        ("slots", 0),
        ("output_bytes", 1 << 30),
    ],
)
def test_what_is_out_of_bounds_is_refused_by_its_name_and_never_by_its_value(
    name: str, value: object
) -> None:
    with pytest.raises(ValueError, match=name.removeprefix("docker_")) as refused:
        DockerSettings.from_settings(LEAST | {name: value})
    assert str(refused.value) in {name, name.removeprefix("docker_")}


@pytest.mark.parametrize(("name", "value"), [("slots", None), ("runsc_sha256", 5), ("docker_pids", "many")])
def test_what_is_of_another_kind_is_refused(name: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        DockerSettings.from_settings(LEAST | {name: value})
