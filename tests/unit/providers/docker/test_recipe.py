"""What a container is created from: complete, the same for everybody, and with nothing of the image's."""

import json
from pathlib import Path

import pytest

from providers.docker.recipe import recipe, seccomp_profile
from providers.docker.settings import DockerSettings

ROOT = Path(__file__).resolve().parents[4]
IMAGE = "sha256:" + "ab" * 32
SETTINGS = DockerSettings(
    provider="docker", state_dir="/state", runtime="other", pids=100, memory_mb=300, disk_mb=9
)
UID = 0x7000_0002
BOTH = pytest.mark.parametrize("gvisor", [False, True])


def limits_of(*, gvisor: bool) -> dict[str, int]:
    made = recipe(SETTINGS, IMAGE, "python", UID, gvisor=gvisor)["HostConfig"]
    assert all(limit["Soft"] == limit["Hard"] for limit in made["Ulimits"])
    return {limit["Name"]: limit["Hard"] for limit in made["Ulimits"]} | {"pids": made["PidsLimit"]}


def test_the_profile_that_operators_read_is_the_profile_that_is_sent() -> None:
    assert seccomp_profile() == (ROOT / "deploy" / "seccomp.json").read_text()


@BOTH
def test_the_profile_goes_along_whatever_the_runtime_says_it_is(*, gvisor: bool) -> None:
    options = recipe(SETTINGS, IMAGE, None, UID, gvisor=gvisor)["HostConfig"]["SecurityOpt"]
    assert options[0] == "no-new-privileges:true"
    assert json.loads(options[1].removeprefix("seccomp="))["defaultAction"] == "SCMP_ACT_ERRNO"


@BOTH
def test_nothing_is_left_for_the_image_to_say(*, gvisor: bool) -> None:
    made = recipe(SETTINGS, IMAGE, "python", UID, gvisor=gvisor)
    assert (made["Image"], made["User"]) == (IMAGE, "0:0")
    assert made["Entrypoint"] == ["/usr/bin/python3", "-I", "-S", "-B", "/usr/lib/plimsoll"]
    assert made["Healthcheck"] == {"Test": ["NONE"]}
    assert all(made[name] for name in ("Env", "WorkingDir", "StopSignal", "Hostname"))


@pytest.mark.parametrize(
    ("language", "words"), [("python", ["python"]), ("javascript", ["javascript"]), (None, [])]
)
def test_the_agent_is_told_its_uid_and_the_language(language: str | None, words: list[str]) -> None:
    assert recipe(SETTINGS, IMAGE, language, UID, gvisor=False)["Cmd"] == [str(UID), *words]


@BOTH
def test_a_container_ends_with_its_stream_and_leaves_nothing(*, gvisor: bool) -> None:
    made = recipe(SETTINGS, IMAGE, None, UID, gvisor=gvisor)
    assert made["OpenStdin"]
    assert made["StdinOnce"]
    assert made["HostConfig"]["AutoRemove"]
    assert made["HostConfig"]["LogConfig"] == {"Type": "none"}


@BOTH
def test_it_has_no_network_no_device_no_mount_and_no_more_than_three_capabilities(*, gvisor: bool) -> None:
    host = recipe(SETTINGS, IMAGE, None, UID, gvisor=gvisor)["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert host["CapDrop"] == ["ALL"]
    assert host["CapAdd"] == ["KILL", "SETGID", "SETUID"]
    assert host["ReadonlyRootfs"]
    assert not host["Privileged"]
    assert (host["Dns"], host["DnsSearch"]) == (["127.0.0.1"], ["."])
    assert (
        not {"Binds", "Mounts", "Devices", "VolumesFrom", "PidMode", "UsernsMode", "CgroupParent"}
        & host.keys()
    )


@BOTH
def test_what_the_daemon_would_hide_by_itself_is_hidden_too(*, gvisor: bool) -> None:
    """The list takes the place of the daemon's own."""
    by_itself = ("acpi", "kcore", "keys", "latency_stats", "timer_list", "timer_stats", "sched_debug", "scsi")
    host = recipe(SETTINGS, IMAGE, None, UID, gvisor=gvisor)["HostConfig"]
    assert {*(f"/proc/{name}" for name in by_itself), "/sys/firmware"} <= set(host["MaskedPaths"])
    closed = {*host["ReadonlyPaths"], *host["MaskedPaths"]}
    assert {f"/proc/{name}" for name in ("bus", "fs", "irq", "sys", "sysrq-trigger")} <= closed
    assert len(closed) == len(host["ReadonlyPaths"]) + len(host["MaskedPaths"])


def test_memory_has_no_swap_on_top_and_processors_are_counted() -> None:
    host = recipe(SETTINGS, IMAGE, None, UID, gvisor=False)["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 300 << 20
    assert host["NanoCpus"] == 1_000_000_000
    assert host["Runtime"] == "other"


def test_every_writable_place_is_bounded_in_bytes_and_files_and_runs_nothing() -> None:
    tmpfs = recipe(SETTINGS, IMAGE, None, UID, gvisor=False)["HostConfig"]["Tmpfs"]
    sizes = {"/workspace": "size=9m", "/tmp": "size=9m", "/dev/shm": "size=1m"}
    assert tmpfs.keys() == sizes.keys()
    for place, words in tmpfs.items():
        assert set(words.split(",")) >= {"noexec", "nosuid", "nodev", "nr_inodes=16384", sizes[place]}
        owner = 0 if place == "/dev/shm" else UID + 1
        assert {f"uid={owner}", f"gid={owner}"} <= set(words.split(","))


def test_the_kernel_counts_the_processes_of_a_runc_container() -> None:
    assert limits_of(gvisor=False) == {
        "nofile": 1024,
        "core": 0,
        "fsize": 9 << 20,
        "msgqueue": 0,
        "pids": 100,
    }


def test_gvisor_counts_its_guests_itself_because_outside_its_own_threads_count_too() -> None:
    assert limits_of(gvisor=True) == limits_of(gvisor=False) | {"nproc": 100, "pids": 1024}
