"""Every fault of the environment is reported at once, and every setting is in the help."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from app.settings import SETTINGS, Settings, SettingsError, read_settings, settings_help

HOME = {"HOME": "/home/somebody"}


def faults(**environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read_settings({**HOME, **environ})
    return caught.value.faults


def test_nothing_set_gives_the_defaults_and_no_provider() -> None:
    settings = read_settings(HOME)
    assert settings.providers == ()
    assert settings.data_dir == Path("/home/somebody/.local/share/plimsoll")
    assert settings.database_url == "sqlite+aiosqlite:////home/somebody/.local/share/plimsoll/plimsoll.db"


def test_every_field_of_the_settings_has_a_row_and_every_row_a_field() -> None:
    assert sorted(row.field for row in SETTINGS) == sorted(each.name for each in fields(Settings))
    assert len({row.name for row in SETTINGS}) == len(SETTINGS)


def test_every_setting_is_in_the_help() -> None:
    assert all(f"  {row.name}\n" in settings_help() for row in SETTINGS)


def test_all_faults_are_named_at_once_and_no_value_is_repeated() -> None:
    found = faults(
        SANDBOX_PROVIDER="dokcer",
        SANDBOX_MEMORY_MB="lots-of-canary",
        PLIMSOLL_ADDR="nowhere",
        PLIMSOLL_INSECURE="yes",
    )
    assert [fault.split(":")[0] for fault in found] == [
        "SANDBOX_PROVIDER",
        "SANDBOX_MEMORY_MB",
        "PLIMSOLL_ADDR",
        "PLIMSOLL_INSECURE",
    ]
    assert "canary" not in "".join(found)


@pytest.mark.parametrize(
    "environ",
    [
        {"SANDBOX_MEMORY": "64"},
        {"PLIMSOLL_ADRR": "127.0.0.1:1"},
        {"SANDBOX_PROVIDER": "wasm,wasm"},
        {"SANDBOX_PROVIDER": "wasm,"},
        {"SANDBOX_MAX_CONCURRENT": "0"},
        {"SANDBOX_MAX_CONCURRENT": "-1"},
        {"SANDBOX_MAX_CONCURRENT": "1e3"},
        {"SANDBOX_MAX_CONCURRENT": "٣"},
        {"SANDBOX_MAX_CONCURRENT": " 8"},
        {"PLIMSOLL_DATA_DIR": "relative/path"},
        {"PLIMSOLL_ADDR": "127.0.0.1:99999"},
        {"PLIMSOLL_ADDR": "unix:relative.sock"},
        {"PLIMSOLL_ADDR": "0.0.0.0:8746"},
        {"PLIMSOLL_ADDR": "10.0.0.1:8746", "PLIMSOLL_INSECURE": "1"},
        {"PLIMSOLL_ALLOWED_HOSTS": "good.example,*.example"},
        {"PLIMSOLL_TRUSTED_PROXIES": "proxy.example"},
        {"PLIMSOLL_DATABASE_URL": "mysql://somewhere"},
        {"SANDBOX_MEMORY_MB": "512", "SANDBOX_TOTAL_MEMORY_MB": "256"},
    ],
)
def test_a_malformed_unknown_or_contradicting_setting_is_a_fault(environ: dict[str, str]) -> None:
    assert len(faults(**environ)) == 1


@pytest.mark.parametrize("address", ["[::1]:0", "localhost:80", "127.0.0.1:0", "unix:/run/plimsoll/api.sock"])
def test_loopback_and_unix_addresses_allow_insecure_mode(address: str) -> None:
    assert read_settings({**HOME, "PLIMSOLL_ADDR": address, "PLIMSOLL_INSECURE": "1"}).insecure


def test_names_that_our_other_programs_read_are_no_faults() -> None:
    read_settings({**HOME, "PLIMSOLL_URL": "http://localhost", "PLIMSOLL_TOKEN": "x"})


def test_an_entry_fixes_the_runtime_and_bare_docker_takes_the_setting_else_runc() -> None:
    settings = read_settings({**HOME, "SANDBOX_PROVIDER": "docker@runsc, docker,wasm"})
    assert settings.providers == ("docker@runsc", "docker", "wasm")
    assert [settings.runtime_of(each) for each in ("docker@runsc", "docker")] == ["runsc", "runc"]
    other = read_settings({**HOME, "SANDBOX_PROVIDER": "docker", "SANDBOX_DOCKER_RUNTIME": "kata"})
    assert other.runtime_of("docker") == "kata"


@pytest.mark.parametrize(
    "entries",
    [
        "docker@",
        "docker@RUNSC",
        "docker@-x",
        "docker@a/b",
        f"docker@{'a' * 33}",
        "wasm@x",
        "dokcer",
        "docker,",
    ],
)
def test_a_malformed_entry_is_a_fault_that_says_what_is_known(entries: str) -> None:
    (fault,) = faults(SANDBOX_PROVIDER=entries)
    assert fault == "SANDBOX_PROVIDER: names an unknown provider; known: wasm, docker, docker@RUNTIME"


@pytest.mark.parametrize(
    ("entries", "runtime"),
    [("docker@runsc,docker@runsc", ""), ("docker,docker@runc", ""), ("docker@kata,wasm,docker", "kata")],
)
def test_one_runtime_named_twice_is_a_fault(entries: str, runtime: str) -> None:
    (fault,) = faults(SANDBOX_PROVIDER=entries, SANDBOX_DOCKER_RUNTIME=runtime)
    assert fault.startswith("SANDBOX_PROVIDER: must not name a provider twice")


def test_docker_beside_another_runtime_than_its_own_is_no_fault() -> None:
    read_settings({**HOME, "SANDBOX_PROVIDER": "docker,docker@runc", "SANDBOX_DOCKER_RUNTIME": "crun"})


def test_memory_is_64_for_wasm_and_512_for_docker_and_a_setting_is_for_both() -> None:
    both = {**HOME, "SANDBOX_PROVIDER": "docker,wasm"}
    assert [read_settings(both).memory_of(each) for each in ("wasm", "docker")] == [64, 512]
    named = read_settings({**both, "SANDBOX_MEMORY_MB": "128"})
    assert [named.memory_of(each) for each in ("wasm", "docker")] == [128, 128]


@pytest.mark.parametrize(
    ("providers", "memory", "kind"),
    [("docker", "63", "docker"), ("docker@runsc,wasm", "63", "docker"), ("docker,wasm", "1025", "wasm")],
)
def test_memory_that_a_kind_of_provider_cannot_work_with_is_a_fault(
    providers: str, memory: str, kind: str
) -> None:
    (fault,) = faults(SANDBOX_PROVIDER=providers, SANDBOX_MEMORY_MB=memory, SANDBOX_TOTAL_MEMORY_MB="65536")
    assert fault.startswith("SANDBOX_MEMORY_MB: must be from ")
    assert fault.endswith(f" for {kind}")


def test_a_total_without_room_for_one_run_of_each_is_a_fault_that_names_the_least() -> None:
    environ = {"SANDBOX_PROVIDER": "docker@runsc,docker,wasm"}
    (fault,) = faults(**environ, SANDBOX_TOTAL_MEMORY_MB="1087")
    assert fault.startswith("SANDBOX_TOTAL_MEMORY_MB: must be at least 1536 ")
    least = read_settings({**HOME, **environ, "SANDBOX_TOTAL_MEMORY_MB": "1536"})
    assert least.slots == {"docker@runsc": 1, "docker": 1, "wasm": 8}


def test_every_fault_of_docker_s_settings_is_named_with_its_rule() -> None:
    found = faults(
        SANDBOX_DOCKER_HOST="http://canary",
        SANDBOX_DOCKER_RUNTIME="../canary",
        SANDBOX_DOCKER_IMAGE="an image",
        SANDBOX_DOCKER_CPUS="0.05",
        SANDBOX_DOCKER_PIDS="8",
        SANDBOX_DOCKER_DISK_MB="0",
        SANDBOX_DOCKER_POOL="-1",
        SANDBOX_RUNSC_SHA256="AB",
    )
    assert [fault.split(":")[0].removeprefix("SANDBOX_") for fault in found] == [
        "DOCKER_HOST", "DOCKER_RUNTIME", "DOCKER_IMAGE", "DOCKER_CPUS",
        "DOCKER_PIDS", "DOCKER_DISK_MB", "DOCKER_POOL", "RUNSC_SHA256",
    ]  # fmt: skip
    assert all(": must " in fault for fault in found)
    assert "canary" not in "".join(found)


@pytest.mark.parametrize(
    "host", ["unix:///run/docker.sock", "tcp://127.0.0.1:2375", "tcp://docker.example:1", "tcp://[::1]:2375"]
)
def test_a_docker_host_is_a_socket_or_an_address_with_a_port(host: str) -> None:
    assert read_settings({**HOME, "SANDBOX_DOCKER_HOST": host}).docker_host == host


@pytest.mark.parametrize(
    "host",
    [
        "unix:docker.sock", "unix://", "unix:///a b", "ssh://host", "tcp://host", "tcp://host:65536",
        "tcp://user:secret@host:1", "tcp://host:1/path", f"unix:///{'x' * 108}",
    ],
)  # fmt: skip
def test_any_other_docker_host_is_a_fault(host: str) -> None:
    assert faults(SANDBOX_DOCKER_HOST=host) == [
        "SANDBOX_DOCKER_HOST: must be unix:///PATH or tcp://HOST:PORT"
    ]


def test_the_database_url_is_not_in_the_repr() -> None:
    url = "sqlite+aiosqlite:////canary"
    assert "canary" not in repr(read_settings({**HOME, "PLIMSOLL_DATABASE_URL": url}))


CANARIES = {
    "PLIMSOLL_DATABASE_URL": "postgresql+asyncpg://user:canary@127.0.0.1/db",
    "PLIMSOLL_TOKEN": "canary-token",
    "PLIMSOLL_URL": "http://canary-url",
    "PLIMSOLL_DATA_DIR": "/data",
    "PLIMSOLL_CACHE_DIR": "/cache",
}


@pytest.mark.parametrize("provider", ["wasm", "docker", "docker@runsc"])
def test_no_provider_is_told_a_secret(provider: str) -> None:
    settings = read_settings({**HOME, **CANARIES, "SANDBOX_PROVIDER": "docker@runsc,docker,wasm"})
    frame = settings.provider_frame(provider)
    assert "canary" not in json.dumps(frame)
    assert not {"database_url", "data_dir", "allowed_hosts"} & set(frame)


COMMON = {
    "output_bytes": 65536,
    "evidence_interval_s": 60,
    "insecure": False,
    "debug_dumpable": False,
}


def test_the_wasm_provider_is_told_its_limits_and_its_cache() -> None:
    settings = read_settings({**HOME, **CANARIES, "SANDBOX_PROVIDER": "wasm"})
    assert settings.provider_frame("wasm") == COMMON | {
        "provider": "wasm",
        "memory_mb": 64,
        "slots": 32,
        "cache_dir": "/cache",
    }


def test_a_docker_provider_is_told_its_daemon_its_limits_and_its_place() -> None:
    given = {
        "SANDBOX_PROVIDER": "docker@runsc,docker",
        "SANDBOX_DOCKER_HOST": "unix:///run/other.sock",
        "SANDBOX_DOCKER_IMAGE": "mine:1",
        "SANDBOX_DOCKER_CPUS": "0.5",
        "SANDBOX_DOCKER_PIDS": "256",
        "SANDBOX_DOCKER_DISK_MB": "32",
        "SANDBOX_DOCKER_POOL": "0",
        "SANDBOX_RUNSC_SHA256": f"{'a' * 64}, {'b' * 64}",
    }
    frame = read_settings({**HOME, **CANARIES, **given}).provider_frame("docker@runsc")
    assert frame == COMMON | {
        "provider": "docker@runsc",
        "docker_host": "unix:///run/other.sock",
        "docker_runtime": "runsc",
        "docker_image": "mine:1",
        "docker_cpus": 0.5,
        "docker_pids": 256,
        "docker_disk_mb": 32,
        "docker_pool": 0,
        "runsc_sha256": ["a" * 64, "b" * 64],
        "state_dir": "/data/providers/docker-runsc",
        "memory_mb": 512,
        "slots": 4,
    }


def test_no_two_entries_share_a_place_for_their_state() -> None:
    entries = ("docker", "docker@runc", "docker@a.b", "docker@a-b", "docker@a_b")
    assert len({Settings().state_dir(each) for each in entries}) == len(entries)
