"""Facts and command lines of real containers, as they were read on a machine with control groups of version 1."""

from plimsoll.contract.tiers import Tier
from providers.seam import Observation

ID = "7630c3c2f60a85703f5eef7e6a3668b252cbe647a0deb6d92bae6b90437bc04e"
MEMORY = 512 << 20
_TASK = f"/run/containerd/io.containerd.runtime.v2.task/moby/{ID}"

ARGV_2024 = [
    "runsc-sandbox",
    f"--log={_TASK}/log.json",
    "--log-format=json",
    "--network=none",
    "--platform=systrap",
    "--root=/run/docker/runtime-runc/moby",
    "--log-fd=3",
    "boot",
    "--apply-caps=false",
    f"--bundle={_TASK}",
    "--controller-fd=10",
    "--cpu-num=2",
    "--dev-io-fd=-1",
    "--gofer-mount-confs=lisafs:none,lisafs:none,lisafs:none,lisafs:none",
    "--io-fds=4,5,6,7",
    "--mounts-fd=8",
    "--setup-root=false",
    "--spec-fd=11",
    "--start-sync-fd=9",
    "--stdio-fds=12,13,14",
    "--total-host-memory=25276502016",
    f"--total-memory={MEMORY}",
    "--host-shmem-huge=never",
    "--proc-mount-sync-fd=22",
    ID,
]
ARGV_2022 = [
    "runsc-sandbox",
    "--root=/run/docker/runtime-runc/moby",
    f"--log={_TASK}/log.json",
    "--log-format=json",
    "--network=none",
    "--log-fd=3",
    "boot",
    "--proc-mount-sync-fd=22",
    f"--bundle={_TASK}",
    "--cpu-num",
    "2",
    "--total-memory",
    str(MEMORY),
    *(f"--io-fds={number}" for number in range(4, 8)),
    "--overlay-filestore-fd=-1",
    "--mounts-fd=8",
    "--start-sync-fd=9",
    "--controller-fd=10",
    "--spec-fd=11",
    *(f"--stdio-fds={number}" for number in range(12, 15)),
    ID,
]

_LIMITS = {
    "limits.memory_bytes": str(MEMORY),
    "limits.pids": "128",
    "limits.cpus": "1",
    "cgroup.memory_bytes": str(MEMORY),
    "cgroup.swap_bytes": "0",
    "cgroup.oom_kill": "on",
    "cgroup.pids": "128",
    "cgroup.cpus": "1",
}
_COMMON = {
    "sandbox.groups": "",
    "sandbox.no_new_privs": "1",
    "sandbox.seccomp": "2",
    "sandbox.traced_by": "0",
    "sandbox.oom_score_adj": "1000",
    "namespace.net": "own",
    "namespace.mnt": "own",
    "namespace.ipc": "own",
    "namespace.uts": "own",
    "network.devices": "lo",
}
CONTAINER = {
    **_LIMITS,
    **_COMMON,
    "cgroup.socket_memory": "counted",
    "sandbox.executable": "image",
    "sandbox.release": "",
    "sandbox.uids": "agent agent agent agent",
    "sandbox.gids": "agent agent agent agent",
    "sandbox.cap_eff": "e0",
    "sandbox.cap_prm": "e0",
    "sandbox.cap_inh": "0",
    "sandbox.cap_bnd": "e0",
    "sandbox.cap_amb": "0",
    "namespace.user": "host",
    "namespace.pid": "own",
    "mounts.root": "ro",
    "mounts./workspace": "tmpfs nodev,noexec,nosuid size=65536k nr_inodes=16384",
    "mounts./tmp": "tmpfs nodev,noexec,nosuid size=65536k nr_inodes=16384",
    "mounts./dev/shm": "tmpfs nodev,noexec,nosuid size=1024k nr_inodes=16384",
    "mounts.kernel_settings": "ro",
    "mounts.hidden": "all",
    "mounts.unexpected": "0",
    "sandbox.processes": "powerless",
}
_GVISOR = {
    **_LIMITS,
    **_COMMON,
    "limits.pids": "1024",
    "cgroup.pids": "1024",
    "sandbox.executable": "host",
    "sandbox.network": "none",
    "sandbox.flags": "expected",
    "sandbox.mounts": "tmpfs ro /",
    "sandbox.processes": "the same executable",
    "namespace.user": "own",
    "namespace.pid": "host",
}
GVISOR_2024 = {
    **_GVISOR,
    "sandbox.executable_sha256": "a6756a39353dfac7aeab4d3f9205341e4a714600991c7928d747b93d50f9cfaf",
    "sandbox.release": "20240729.0",
    "sandbox.platform": "systrap",
    "sandbox.uids": "0 0 0 0",
    "sandbox.gids": "0 0 0 0",
    "sandbox.cap_eff": "800ff",
    "sandbox.cap_prm": "800ff",
    "sandbox.cap_inh": "0",
    "sandbox.cap_bnd": "800ff",
    "sandbox.cap_amb": "0",
}
GVISOR_2022 = {
    **_GVISOR,
    "sandbox.executable_sha256": "de98831af671d537a66cd36b4ae1d797e03f9d265375162ab2221a9a33c2592c",
    "sandbox.release": "20221219.0",
    "sandbox.platform": "ptrace",
    "sandbox.uids": "65534 65534 65534 65534",
    "sandbox.gids": "65534 65534 65534 65534",
    "sandbox.cap_eff": "240000",
    "sandbox.cap_prm": "240000",
    "sandbox.cap_inh": "240000",
    "sandbox.cap_bnd": "1ffffffffff",
    "sandbox.cap_amb": "240000",
}

MOUNTINFO = r"""75 51 0:39 / / ro,relatime master:2 - overlay overlay rw,lowerdir=/l/A:/l/B,upperdir=/d,workdir=/w
76 75 0:42 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
77 75 0:43 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
78 77 0:44 / /dev/pts rw,nosuid,noexec,relatime - devpts devpts rw,gid=5,mode=620,ptmxmode=666
79 75 0:45 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro
80 79 0:46 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755
84 80 0:32 /docker/c7b8 /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime - cgroup cgroup rw,memory
90 77 0:41 / /dev/mqueue rw,nosuid,nodev,noexec,relatime - mqueue mqueue rw
91 77 0:47 / /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,size=1024k,nr_inodes=16384
92 75 0:48 / /workspace rw,nosuid,nodev,noexec - tmpfs tmpfs rw,size=65536k,nr_inodes=16384,mode=700,uid=10001,gid=10001
93 75 0:49 / /tmp rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,size=65536k,nr_inodes=16384,mode=700,uid=10001,gid=10001
94 75 254:0 /var/lib/docker/containers/c7b8/resolv.conf /etc/resolv.conf ro,relatime - ext4 /dev/vda rw,discard
95 75 254:0 /var/lib/docker/containers/c7b8/hostname /etc/hostname ro,relatime - ext4 /dev/vda rw,discard
96 75 254:0 /var/lib/docker/containers/c7b8/hosts /etc/hosts ro,relatime - ext4 /dev/vda rw,discard
52 76 0:42 /bus /proc/bus ro,nosuid,nodev,noexec,relatime - proc proc rw
55 76 0:42 /sys /proc/sys ro,nosuid,nodev,noexec,relatime - proc proc rw
56 76 0:50 / /proc/acpi ro,relatime - tmpfs tmpfs ro
57 76 0:43 /null /proc/keys rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
59 79 0:51 / /sys/firmware ro,relatime - tmpfs tmpfs ro
60 77 0:52 / /dev/pts ro,relatime - tmpfs tmpfs ro
"""


def observed(values: dict[str, str], **changes: str | None) -> list[Observation]:
    """As observations; a change to None takes a fact away. Names are written with `__` for a dot."""
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    merged = {**values, **changed}
    return [
        Observation(name, value, "host", "seen", Tier.CONTAINER)
        for name, value in merged.items()
        if value is not None
    ]
