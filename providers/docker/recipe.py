"""What a sandbox container is made from: the body of `POST /containers/create`, all of it ours, nothing left to the image.

- everything that an image could set is set here (Entrypoint, Cmd, Env, WorkingDir, User, StopSignal, Healthcheck)
- the image is named by its content id, so that what was inspected is what runs
- the seccomp profile always goes along: gVisor does not look at it, and a runtime that only calls itself gVisor then still
  has it
- nothing is writable but three memory file systems, there is no network but its own loopback, and every limit is set
- it ends when the stream it was attached with ends, and is gone when it ends
"""

from functools import cache
from importlib import resources
from typing import Any, Final

from providers.docker import hidden
from providers.docker.settings import DockerSettings

LABEL_PREFIX: Final = "plimsoll."
"""Labels say what a container is to whoever lists them; nothing is decided by them."""
LABEL: Final = LABEL_PREFIX + "sandbox"
AGENT: Final = ("/usr/bin/python3", "-I", "-S", "-B", "/usr/lib/plimsoll")
AGENT_FILES: Final = "/usr/lib/plimsoll"
WORKSPACE: Final = "/workspace"
ENVIRONMENT: Final = ("PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8")
"""Of the agent; guests get one of their own from it, and under gVisor some could read this one."""
GVISOR_PIDS: Final = 1024
"""Under gVisor the limit counts the kernel's own threads: reaching it ends the sandbox. There nproc limits the guest."""
INODES: Final = 16_384
"""How many files a place to write can hold: an empty one takes memory of the kernel, too. gVisor has no such bound."""
NO_RESOLVER: Final = ("nameserver 127.0.0.1", "options attempts:1")
"""All of a container's /etc/resolv.conf: nobody answers there. Unless told, the daemon copies that of the host."""
_MIB: Final = 1 << 20
_NANO: Final = 1_000_000_000
_OPEN_FILES: Final = 1024


def pids_limit(settings: DockerSettings, *, gvisor: bool) -> int:
    """The limit that the kernel of this machine keeps on the container's processes."""
    return GVISOR_PIDS if gvisor else settings.pids


def recipe(
    settings: DockerSettings, image_id: str, language: str | None, uid: int, *, gvisor: bool
) -> dict[str, Any]:
    """One container, with the interpreter of `language` warm. `gvisor` says what the runtime was seen to be.

    `uid` is the agent's, and the next one the guest's: nobody else's on this machine (names.uid_of).
    """
    return {
        "Image": image_id,
        "User": "0:0",  # the agent gives that up before anything else
        "Entrypoint": list(AGENT),
        "Cmd": [str(uid), *([] if language is None else [language])],
        "Env": list(ENVIRONMENT),
        "WorkingDir": WORKSPACE,
        "StopSignal": "SIGKILL",
        "Healthcheck": {"Test": ["NONE"]},
        "Hostname": "sandbox",
        "Labels": {LABEL: settings.provider},
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": _host(settings, uid + 1, gvisor=gvisor),
    }


def _host(settings: DockerSettings, guest: int, *, gvisor: bool) -> dict[str, Any]:
    memory = settings.memory_mb * _MIB
    closed = f"rw,noexec,nosuid,nodev,nr_inodes={INODES}"
    tmpfs = f"{closed},size={settings.disk_mb}m,uid={guest},gid={guest},mode=0700"  # runc ignores mode alone
    shm = f"{closed},size=1m,uid=0,gid=0,mode=1777"
    return {
        "Runtime": settings.runtime,
        "AutoRemove": True,
        "Init": False,  # whatever the daemon does by default: the agent is the first process
        "Privileged": False,
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "CapAdd": ["KILL", "SETGID", "SETUID"],
        "SecurityOpt": ["no-new-privileges:true", "seccomp=" + seccomp_profile()],
        "NetworkMode": "none",
        "Dns": ["127.0.0.1"],
        "DnsSearch": ["."],  # the word for none
        "DnsOptions": ["attempts:1"],
        "MaskedPaths": list(hidden.PATHS),
        "ReadonlyPaths": list(hidden.READ_ONLY),
        "PidsLimit": pids_limit(settings, gvisor=gvisor),
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": round(settings.cpus * _NANO),
        "Tmpfs": {WORKSPACE: tmpfs, "/tmp": tmpfs, "/dev/shm": shm},  # noqa: S108  # the container's own, made empty for it
        "ShmSize": _MIB,
        "IpcMode": "private",
        "LogConfig": {"Type": "none"},
        "OomScoreAdj": 1000,
        "Ulimits": _ulimits(settings, gvisor=gvisor),
    }


def _ulimits(settings: DockerSettings, *, gvisor: bool) -> list[dict[str, Any]]:
    limits = {"nofile": _OPEN_FILES, "core": 0, "fsize": settings.disk_mb * _MIB, "msgqueue": 0}
    if gvisor:
        limits["nproc"] = settings.pids  # under runc the control group counts them
    return [{"Name": name, "Soft": value, "Hard": value} for name, value in limits.items()]


@cache
def seccomp_profile() -> str:
    """The profile, as JSON text: the file that operators find as deploy/seccomp.json."""
    return resources.files("providers.docker").joinpath("seccomp.json").read_text(encoding="utf-8")
