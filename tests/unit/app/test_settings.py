"""Every fault of the environment is reported at once, and every setting is in the help."""

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


def test_slots_are_what_the_total_memory_allows() -> None:
    settings = read_settings({**HOME, "SANDBOX_MEMORY_MB": "64", "SANDBOX_TOTAL_MEMORY_MB": "256"})
    assert settings.wasm_slots == 4


def test_the_database_url_is_not_in_the_repr() -> None:
    url = "sqlite+aiosqlite:////canary"
    assert "canary" not in repr(read_settings({**HOME, "PLIMSOLL_DATABASE_URL": url}))


def test_a_provider_is_told_limits_and_nothing_secret() -> None:
    frame = read_settings({**HOME, "PLIMSOLL_DATABASE_URL": "sqlite+aiosqlite:////canary"}).provider_frame()
    assert "canary" not in repr(frame)
    assert "data_dir" not in frame
