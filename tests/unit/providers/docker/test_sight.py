"""What is read of a container on the host: control groups of both versions, mounts, processes, and when there is no proof."""

import contextlib
import hashlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.docker import cgroups, mounts, process
from providers.docker.process import Process
from providers.docker.sight import Limits, Sight, Unseen
from tests.unit.providers.docker.walls import CONTAINER, ID, MEMORY, MOUNTINFO

LIMITS = Limits(MEMORY, 128, 1.0, 0x7000_0000)
FIRST = "\n".join(
    f"{number}:{name}:/docker/{ID}" for number, name in enumerate(("pids", "memory", "cpu,cpuacct"), 2)
)
SECOND = f"0::/system.slice/docker-{ID}.scope\n"


@pytest.fixture
def first(tmp_path: Path) -> cgroups.Mounts:
    """Version 1 as a container has it."""
    files = {
        "memory/memory.limit_in_bytes": f"{MEMORY}\n",
        "memory/memory.memsw.limit_in_bytes": f"{MEMORY}\n",
        "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        "memory/memory.usage_in_bytes": "1000000\n",
        "memory/memory.stat": "cache 9\ntotal_rss 500000\ntotal_inactive_file 100000\ntotal_active_file 200000\n",
        "memory/memory.kmem.tcp.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.kmem.tcp.usage_in_bytes": "20000\n",
        "memory/cgroup.procs": "17\n18\n",
        "pids/pids.max": "128\n",
        "cpu/cpu.cfs_quota_us": "150000\n",
        "cpu/cpu.cfs_period_us": "100000\n",
    }
    for name, content in files.items():
        controller, _, file = name.partition("/")
        path = tmp_path / controller / "docker" / ID / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return cgroups.Mounts({name: tmp_path / name for name in ("memory", "pids", "cpu", "cpuacct")}, None)


@pytest.fixture
def second(tmp_path: Path) -> cgroups.Mounts:
    """Version 2 as a container has it, with systemd's names."""
    files = {
        "memory.max": f"{MEMORY}\n",
        "memory.swap.max": "0\n",
        "memory.events": "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n",
        "memory.current": "1000000\n",
        "memory.stat": "anon 1\ninactive_file 100000\nactive_file 200000\nslab_reclaimable 50000\n",
        "cgroup.procs": "17\n",
        "pids.max": "128\n",
        "cpu.max": "150000 100000\n",
    }
    folder = tmp_path / "system.slice" / f"docker-{ID}.scope"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(content)
    return cgroups.Mounts({}, tmp_path)


LIMITED = {"memory_bytes": str(MEMORY), "swap_bytes": "0", "oom_kill": "on", "pids": "128", "cpus": "1.5"}


class TestControlGroups:
    def test_version_1(self, first: cgroups.Mounts) -> None:
        found = cgroups.find(FIRST + "\n0::/\n", ID, first)
        assert found.limits() == LIMITED
        assert (found.oom_kills(), found.held(), found.processes()) == (3, 720_000, [17, 18])
        assert len(found.limit_files) == 5
        assert all(Path(path).is_file() for path in found.limit_files)

    def test_socket_memory_is_counted_by_version_1_once_it_has_a_limit(self, first: cgroups.Mounts) -> None:
        found = cgroups.find(FIRST, ID, first)
        assert found.count_sockets() == "counted"
        limit = found.folders["memory"] / "memory.kmem.tcp.limit_in_bytes"
        assert int(limit.read_text()) == 32 << 20
        limit.unlink()
        limit.mkdir()
        assert found.count_sockets() == "uncounted"
        (found.folders["memory"] / "memory.kmem.tcp.usage_in_bytes").unlink()
        assert found.held() == 700_000

    def test_version_2(self, second: cgroups.Mounts) -> None:
        found = cgroups.find(SECOND, ID, second)
        assert found.limits() == LIMITED
        assert (found.oom_kills(), found.held(), found.processes()) == (2, 650_000, [17])
        assert found.count_sockets() == "counted"
        assert len(found.limit_files) == 4
        assert all(Path(path).is_file() for path in found.limit_files)

    @pytest.mark.parametrize("file", ["memory.max", "memory.swap.max", "pids.max", "cpu.max"])
    def test_no_limit_is_said_as_such(self, second: cgroups.Mounts, file: str) -> None:
        found = cgroups.find(SECOND, ID, second)
        (found.folders["memory"] / file).write_text("max 100000\n" if file == "cpu.max" else "max\n")
        assert cgroups.NONE in found.limits().values()

    def test_no_limit_of_version_1_is_said_as_such(self, first: cgroups.Mounts) -> None:
        found = cgroups.find(FIRST, ID, first)
        for name in ("limit_in_bytes", "memsw.limit_in_bytes"):
            (found.folders["memory"] / f"memory.{name}").write_text("9223372036854771712\n")
        (found.folders["cpu"] / "cpu.cfs_quota_us").write_text("-1\n")
        (found.folders["memory"] / "memory.oom_control").write_text("oom_kill_disable 1\noom_kill 0\n")
        said = found.limits()
        assert (said["memory_bytes"], said["swap_bytes"], said["cpus"]) == (cgroups.NONE,) * 3
        assert said["oom_kill"] == "off"

    def test_swap_beside_the_memory_is_seen(self, first: cgroups.Mounts) -> None:
        found = cgroups.find(FIRST, ID, first)
        (found.folders["memory"] / "memory.memsw.limit_in_bytes").write_text(f"{2 * MEMORY}\n")
        assert found.limits()["swap_bytes"] == str(MEMORY)

    @pytest.mark.parametrize(
        "path",
        [
            "/",
            "/docker",
            f"/docker/{ID[:-1]}",
            f"/docker/{ID}/below",
            f"/docker/x{ID}",
            f"/docker/{'0' * 64}",
            f"/../docker/{ID}",
            f"/system.slice/docker-{'0' * 64}.scope",
            "",
        ],
    )
    def test_a_process_in_another_group_is_not_this_containers(
        self, path: str, second: cgroups.Mounts
    ) -> None:
        with pytest.raises(cgroups.Missing, match="cgroup_other"):
            cgroups.find(f"0::{path}\n", ID, second)

    @pytest.mark.parametrize("controller", ["pids", "memory", "cpu"])
    def test_every_controller_must_be_this_containers(self, controller: str, first: cgroups.Mounts) -> None:
        lines = [line for line in FIRST.splitlines() if controller not in line]
        escaped = "\n".join([*lines, f"9:{controller}:/"])
        with pytest.raises(cgroups.Missing, match="cgroup_other"):
            cgroups.find(escaped, ID, first)

    def test_no_id_is_no_container(self, second: cgroups.Mounts) -> None:
        with pytest.raises(cgroups.Missing):
            cgroups.find("0::/\n", "", second)

    def test_groups_that_are_mounted_nowhere_prove_nothing(self) -> None:
        with pytest.raises(cgroups.Missing, match="cgroup_unmounted"):
            cgroups.find(SECOND, ID, cgroups.Mounts({}, None))

    def test_only_whole_hierarchies_count(self) -> None:
        found = cgroups.mounts(
            "30 1 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "31 1 0:28 /docker/x /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
            "32 1 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
            "33 1 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        )
        assert {"memory", "cpu", "cpuacct"} <= found.first.keys()
        assert "pids" not in found.first
        assert found.second == Path("/sys/fs/cgroup/unified")


class TestMounts:
    def test_those_of_a_real_container_are_as_promised(self) -> None:
        said = mounts.facts(MOUNTINFO)
        assert said == {name: value for name, value in CONTAINER.items() if name.startswith("mounts.")}
        assert all(mounts.is_promised(said[f"mounts.{place}"]) for place in mounts.PROMISED)

    def test_terminals_that_lie_open_above_their_cover_are_seen(self) -> None:
        cover = "60 77 0:52 / /dev/pts ro,relatime - tmpfs tmpfs ro\n"
        again = "61 77 0:53 / /dev/pts rw,nosuid,noexec - devpts devpts rw,ptmxmode=666\n"
        assert mounts.facts(MOUNTINFO + again, ["/dev/pts"])["mounts.hidden"] != "all"
        assert mounts.facts(MOUNTINFO + again)["mounts.unexpected"] != "0"
        assert mounts.facts(MOUNTINFO.replace(cover, again))["mounts.unexpected"] != "0"

    def test_what_is_to_be_hidden_and_is_not_is_said(self) -> None:
        held = ["/proc/keys", "/sys/firmware", "/proc/acpi"]
        assert mounts.facts(MOUNTINFO, held)["mounts.hidden"] == "all"
        said = mounts.facts(MOUNTINFO, [*held, "/proc/cmdline", "/proc/bus"])["mounts.hidden"]
        assert said == "all but 2, /proc/cmdline among them"
        said = mounts.facts(MOUNTINFO.replace("/null /proc/keys", "/kmsg /proc/keys"), held)["mounts.hidden"]
        assert said == "all but 1, /proc/keys among them"

    @pytest.mark.parametrize(
        "line",
        [
            "99 75 254:0 / /host rw,relatime - ext4 /dev/vda rw",
            "99 75 254:0 / /host ro,relatime - ext4 /dev/vda rw",
            "99 75 0:60 / /run rw,nosuid,nodev,noexec - tmpfs tmpfs rw,size=1k",
            "99 75 254:0 /run/docker.sock /run/docker.sock ro - ext4 /dev/vda rw",
            "99 77 0:6 / /dev rw,nosuid - devtmpfs devtmpfs rw",
            "99 75 0:42 / /proc rw,relatime - proc proc rw",
            "99 76 0:42 /sys /proc/sys rw,relatime - proc proc rw",
            "99 79 0:45 / /sys rw - sysfs sysfs rw",
            "99 80 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
            "99 75 0:61 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw,size=1k",
            "99 75 254:0 /x /etc/hosts rw - ext4 /dev/vda rw",
            "99 76 0:43 /evil /proc/keys rw,nosuid - tmpfs tmpfs rw",
            "99 75 0:62 / /sys/kernel/debug rw - debugfs debugfs rw",
        ],
    )
    def test_any_other_mount_is_unexpected(self, line: str) -> None:
        assert mounts.facts(f"{MOUNTINFO}{line}\n")["mounts.unexpected"] != "0"

    def test_a_root_that_can_be_written_is_seen(self) -> None:
        said = mounts.facts(MOUNTINFO.replace("/ / ro,relatime", "/ / rw,relatime"))
        assert (said["mounts.root"], said["mounts.unexpected"]) == ("rw", "1")

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (",size=65536k,nr_inodes", ",nr_inodes"),
            (",nr_inodes=16384,mode=700", ",mode=700"),
            (",nr_inodes=16384", ",nr_inodes=163840"),
            ("/workspace rw,nosuid,nodev,noexec", "/workspace rw,nosuid,nodev"),
            ("/workspace rw,nosuid,nodev,noexec", "/workspace rw,nodev,noexec"),
            ("/workspace rw,", "/workspace ro,"),
            (" /workspace ", " /elsewhere "),
            ("- tmpfs tmpfs rw,size=65536k", "- ext4 /dev/vda rw,size=65536k"),
        ],
    )
    def test_a_place_that_is_not_as_promised_is_seen(self, old: str, new: str) -> None:
        said = mounts.facts(MOUNTINFO.replace(old, new))
        assert not mounts.is_promised(said["mounts./workspace"])

    def test_the_kernels_settings_must_be_there_and_closed(self) -> None:
        assert (
            mounts.facts(MOUNTINFO.replace(" /proc/sys ", " /proc/elsewhere "))["mounts.kernel_settings"]
            == "rw"
        )

    def test_no_mounts_at_all_promise_nothing(self) -> None:
        assert mounts.facts("")["mounts.root"] == "rw"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", "print('ready', flush=True); input()"], stdin=-1, stdout=-1
    )
    assert process.stdout is not None
    process.stdout.readline()
    with process:
        yield process
        process.kill()


_FIRST_THREAD_GOES = """
import ctypes, threading, time
libc = ctypes.CDLL(None)
def other():
    while open(f"/proc/{main}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
    print("gone", flush=True)
    input()
main = threading.get_native_id()
threading.Thread(target=other).start()
libc.pthread_exit(None)
"""


@pytest.fixture
def headless() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose first thread has gone while another goes on."""
    with subprocess.Popen([sys.executable, "-c", _FIRST_THREAD_GOES], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"gone\n"
        yield process
        process.kill()


class TestEnding:
    def test_a_process_that_goes_on_is_not_ending(self, child: subprocess.Popen[bytes]) -> None:
        assert not Process(child.pid).ending()

    def test_one_whose_first_thread_has_gone_is(self, headless: subprocess.Popen[bytes]) -> None:
        """Although its descriptor says that it lives: what is read of it is not what it was."""
        pidfd = os.pidfd_open(headless.pid)
        try:
            assert not select.select([pidfd], [], [], 0)[0]
            assert Process(headless.pid).arguments() == b""
            assert Process(headless.pid).ending()
        finally:
            os.close(pidfd)

    def test_one_that_nobody_has_reaped_is(self, child: subprocess.Popen[bytes]) -> None:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert Process(child.pid).ending()

    def test_one_that_is_not_there_is(self) -> None:
        assert Process(1 << 22).ending()

    @pytest.mark.parametrize("flags", [0x4, 0x400004])
    def test_one_that_is_on_its_way_out_is(self, tmp_path: Path, flags: int) -> None:
        (tmp_path / "7").mkdir()
        (tmp_path / "7" / "stat").write_text(f"7 (a) name) R 1 7 7 0 -1 {flags} 0 0\n")
        assert Process(7, str(tmp_path)).ending()

    def test_at_every_moment_of_a_death_it_is_what_it_was_or_ending(self) -> None:
        """It is asked after the rest was read, so nothing that a death changes is ever taken for another change."""
        program = "x = bytearray(b'x') * (64 << 20); print(flush=True); input()"
        changed = 0
        for _ in range(20):
            with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1) as dying:
                assert dying.stdout is not None
                dying.stdout.readline()
                found = Process(dying.pid)
                before = found.arguments(), found.executable()
                dying.kill()
                while os.waitid(os.P_PID, dying.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                    with contextlib.suppress(OSError):
                        if (found.arguments(), found.executable()) == before:
                            continue
                    assert found.ending()
                    changed += 1
        assert changed


class TestProcess:
    def test_it_is_read_as_the_kernel_shows_it(self, child: subprocess.Popen[bytes]) -> None:
        found = Process(child.pid)
        assert found.arguments().split(b"\0")[0] == os.fsencode(sys.executable)
        assert found.status()["PPid"] == str(os.getpid())
        assert found.start().isdigit()
        real = os.path.realpath(sys.executable)
        assert found.executable().path == real
        assert found.executable_sha256() == hashlib.sha256(Path(real).read_bytes()).hexdigest()

    def test_namespaces_that_are_shared_are_the_hosts(self, child: subprocess.Popen[bytes]) -> None:
        own = Process(child.pid).namespaces()
        assert set(process.apart(own, [Process(os.getpid()).namespaces()]).values()) == {"host"}
        other = dict.fromkeys(process.NAMESPACES, "elsewhere")
        assert set(process.apart(own, [other]).values()) == {"own"}
        assert process.apart(own, [other, {"net": own["net"]}])["net"] == "host"

    def test_a_file_that_was_replaced_is_not_on_the_host_any_more(self, tmp_path: Path) -> None:
        program = tmp_path / "program"
        program.write_bytes(Path("/bin/cat").read_bytes())
        program.chmod(0o700)
        with subprocess.Popen([program], stdin=-1) as running:
            before = Process(running.pid).executable()
            assert before.on_host
            program.rename(tmp_path / "away")
            program.write_bytes(Path("/bin/cat").read_bytes())
            moved = Process(running.pid).executable()
            assert moved != before
            (tmp_path / "away").unlink()
            gone = Process(running.pid).executable()
            assert not gone.on_host
            running.kill()

    def test_a_changed_file_is_hashed_anew(self, tmp_path: Path) -> None:
        sums = []
        for word in (b"#1", b"#2"):
            program = tmp_path / word.decode()
            program.write_bytes(Path("/bin/cat").read_bytes() + word)
            program.chmod(0o700)
            with subprocess.Popen([program], stdin=-1) as running:
                sums.append(Process(running.pid).executable_sha256())
                running.kill()
        assert len(set(sums)) == 2

    @pytest.mark.parametrize(
        ("line", "value"),
        [
            ("Uid", "10000 10001 10001 10001"),
            ("CapEff", "20"),
            ("CapAmb", "1"),
            ("NoNewPrivs", "0"),
            ("CapPrm", None),
        ],
    )
    def test_whoever_holds_anything_is_not_powerless(self, line: str, value: str | None) -> None:
        status = {
            "Uid": "10001 10001 10001 10001",
            "NoNewPrivs": "1",
            **dict.fromkeys(("CapEff", "CapPrm", "CapInh", "CapAmb"), "0"),
        }
        assert process.is_powerless(status, "10001")
        changed = {name: each for name, each in (status | {line: value}).items() if each is not None}
        assert not process.is_powerless(changed, "10001")


class TestUnseen:
    @pytest.mark.parametrize("pid", [0, -1, 1 << 22, 1 << 40])
    def test_no_process_is_no_proof(self, pid: int) -> None:
        with pytest.raises(Unseen, match="pid_unknown"):
            Sight.open(ID, pid, LIMITS, frozenset())

    def test_a_process_of_another_container_or_of_none_is_no_proof(
        self, child: subprocess.Popen[bytes]
    ) -> None:
        with pytest.raises(Unseen, match="cgroup_"):
            Sight.open(ID, child.pid, LIMITS, frozenset())

    def test_no_descriptor_stays(self, child: subprocess.Popen[bytes]) -> None:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # names are counted
        for pid in (0, child.pid):
            with pytest.raises(Unseen):
                Sight.open(ID, pid, LIMITS, frozenset())
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208  # as above
