"""What the container provider must have seen to claim a tier. Pure: from observations to findings; names decide nothing.

1. A process that runs a known gVisor is judged as one: every need of `kernel`, or nothing is served.
2. Any other process that can be seen from here is judged as a container under the host's kernel: every need of `container`, or
   nothing. That holds for a runtime called runsc too; what it then lacks for `kernel` is a shortfall.
3. A container that cannot be seen from here is believed what its daemon says of it, and what a program inside found: at most
   `container`, and the facts say that they are the daemon's. Where gVisor was asked for, the program inside finds no
   container's limits, so nothing is served.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.contract.tiers import Tier
from providers.docker import cgroups, mounts, runsc
from providers.docker.agent import identity
from providers.docker.recipe import seccomp_profile
from providers.docker.sight import AGENT, Limits
from providers.seam import Findings, Observation

HELD: Final = "held"
SMOKE: Final = ("inside", "deadline", "sleeper", "memory", "flood", "processes")
"""The limits that are broken for real at every start (smoke.py)."""
_MOST_NANO: Final = 1 << 63
UNSEEN: Final = "local_proof"
"""The fact that there is none; its value is the code of `sight.Unseen`."""
GVISOR_UNPROVEN: Final = "gvisor_unproven"

Values = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that must hold of the facts, and the fault when it does not."""

    fits: Callable[[Values], bool]
    fault: str


def _is(name: str, expected: str, fault: str) -> Need:
    return Need(lambda values: values.get(name) == expected, fault)


def _as_asked(name: str) -> Need:
    """The kernel's limit is the one that was asked for."""
    return Need(lambda values: _equal(values, f"cgroup.{name}", f"limits.{name}"), f"cgroup_{name}")


def _said_as_asked(name: str) -> Need:
    return Need(lambda values: _equal(values, f"daemon.{name}", f"limits.{name}"), f"daemon_{name}")


def _equal(values: Values, name: str, other: str) -> bool:
    return name in values and values[name] == values.get(other)


def _promised(place: str) -> Need:
    return Need(lambda values: mounts.is_promised(values.get(f"mounts.{place}", "")), "mounts_promised")


_BOTH: Final = (
    _as_asked("memory_bytes"),
    _as_asked("pids"),
    _as_asked("cpus"),
    _is("cgroup.swap_bytes", "0", "cgroup_swap_bytes"),
    _is("cgroup.oom_kill", "on", "cgroup_oom_kill"),
    _is("sandbox.no_new_privs", "1", "no_new_privs_missing"),
    _is("sandbox.seccomp", "2", "seccomp_missing"),
    _is("sandbox.traced_by", "0", "sandbox_traced"),
    _is("sandbox.groups", "", "sandbox_user"),
    _is("sandbox.oom_score_adj", "1000", "oom_score_adj"),
    _is("network.devices", "lo", "network_devices"),
    *(_is(f"namespace.{name}", "own", "namespace_shared") for name in ("net", "mnt", "ipc", "uts")),
)
_AGENT: Final = " ".join([AGENT] * 4)
_CAPABILITIES: Final = f"{identity.KILL_SETGID_SETUID:x}"
CONTAINER: Final = (
    *_BOTH,
    _is("cgroup.socket_memory", cgroups.COUNTED, "cgroup_socket_memory"),
    _is("sandbox.executable", "image", "runsc_unknown"),
    _is("sandbox.uids", _AGENT, "sandbox_user"),
    _is("sandbox.gids", _AGENT, "sandbox_user"),
    *(_is(f"sandbox.cap_{name}", _CAPABILITIES, "sandbox_capabilities") for name in ("eff", "prm", "bnd")),
    *(_is(f"sandbox.cap_{name}", "0", "sandbox_capabilities") for name in ("inh", "amb")),
    _is("namespace.pid", "own", "namespace_shared"),
    _is("mounts.root", "ro", "root_writable"),
    *(_promised(place) for place in mounts.PROMISED),
    _is("mounts.kernel_settings", "ro", "mounts_kernel"),
    _is("mounts.hidden", mounts.HIDDEN, "mounts_hidden"),
    _is("mounts.unexpected", "0", "mounts_unexpected"),
    _is("sandbox.processes", "powerless", "sandbox_processes"),
)
"""What the host must see of a container under its own kernel."""


def _of_family(fits: Callable[[runsc.Family, Values], bool], fault: str) -> Need:
    return Need(lambda values: fits(runsc.family_of(values.get("sandbox.release", "")), values), fault)


def _holds_no_more(family: runsc.Family, values: Values) -> bool:
    held = (values.get(f"sandbox.cap_{name}", "x") for name in ("eff", "prm", "inh", "amb"))
    return all(_hexadecimal(each) & ~family.capabilities == 0 for each in held)


def _is_its_user(family: runsc.Family, values: Values) -> bool:
    return all(values.get(f"sandbox.{name}") == " ".join([family.uid] * 4) for name in ("uids", "gids"))


KERNEL: Final = (
    *_BOTH,
    _is("sandbox.executable", "host", "runsc_in_image"),
    Need(lambda values: bool(values.get("sandbox.executable_sha256")), "runsc_unknown"),
    Need(lambda values: bool(values.get("sandbox.release")), "runsc_unknown"),
    _of_family(_is_its_user, "sandbox_user"),
    _of_family(_holds_no_more, "sandbox_capabilities"),
    _of_family(
        lambda family, values: values.get("sandbox.platform") in family.platforms, "runsc_flag_platform"
    ),
    _is("sandbox.network", "none", "runsc_flag_network"),
    _is("sandbox.flags", "expected", "runsc_flags"),
    _is("namespace.user", "own", "namespace_shared"),
    # No image can have its program put into the host's pid namespace: whoever is there was started by a runtime.
    _is("namespace.pid", "host", "namespace_pid"),
    _is("sandbox.mounts", "tmpfs ro /", "sandbox_mounts"),
    _is("sandbox.processes", "the same executable", "sandbox_processes"),
)
"""What the host must see of gVisor's sandbox process."""

_DAEMON: Final[Mapping[str, str]] = {
    "running": "true",
    "root": "ro",
    "privileged": "false",
    "capabilities": "KILL SETGID SETUID",
    "no_new_privs": "1",
    "seccomp": "ours",
    "namespaces": "network=none pid= ipc=private uts= userns=",
    "mounts": "none",
    "devices": "none",
    "oom_kill": "on",
}
ON_ITS_WORD: Final = (
    Need(lambda values: bool(values.get(UNSEEN)), UNSEEN),
    # Here the daemon's word on limits is known to be wrong.
    Need(lambda values: values.get(UNSEEN) != "cgroup_ignored", "runsc_flag_ignore_cgroups"),
    *(_is(f"daemon.{name}", value, f"daemon_{name}") for name, value in _DAEMON.items()),
    *(_said_as_asked(name) for name in ("memory_bytes", "memory_and_swap_bytes", "pids", "cpus")),
)
"""What a daemon must say of a container that cannot be seen from here."""


def wall_of(observations: Iterable[Observation]) -> Tier:
    """The tier that these facts are about; whether they prove it is `judge`'s to say."""
    values = _values(observations)
    return Tier.KERNEL if values.get("sandbox.release") and UNSEEN not in values else Tier.CONTAINER


def judge_container(observations: Iterable[Observation], *, runtime: str) -> Findings:
    """The tier that one container's facts prove. `runtime` (configured) only decides if shortfalls are said."""
    seen = tuple(observations)
    values, tier = _values(seen), wall_of(seen)
    needs = KERNEL if tier is Tier.KERNEL else ON_ITS_WORD if UNSEEN in values else CONTAINER
    faults = [need.fault for need in needs if not need.fits(values)]
    if "runsc_flags" in faults:
        faults += values.get("sandbox.flags", "").split()
    return _found(tier, seen, faults, runtime)


def judge(observations: Iterable[Observation], *, runtime: str) -> Findings:
    """As `judge_container`, of a whole look: the facts of a container and of the limits that were tried (`of_smoke`)."""
    seen = tuple(observations)
    one, values = judge_container(seen, runtime=runtime), _values(seen)
    tried = [f"smoke_{name}" for name in SMOKE if values.get(f"smoke.{name}") != HELD]
    return _found(wall_of(seen), seen, [*one.faults, *tried], runtime)


def _found(tier: Tier, seen: tuple[Observation, ...], faults: Iterable[str], runtime: str) -> Findings:
    short = (GVISOR_UNPROVEN,) if tier is Tier.CONTAINER and runtime != "runc" else ()
    codes = tuple(dict.fromkeys(faults))
    return Findings(Tier.NONE if codes else tier, seen, codes, short)


# --- facts from elsewhere -------------------------------------------------------------------------------------------------


def of_smoke(results: Mapping[str, str]) -> list[Observation]:
    """How each of smoke.cases went: HELD or failed. What a program inside says is the guest's word."""
    return [
        Observation(
            f"smoke.{name}",
            value,
            "guest" if name == "inside" else "host",
            "tried from inside" if name == "inside" else "broken on purpose",
            Tier.CONTAINER,
        )
        for name, value in results.items()
    ]


def of_daemon(inspected: Mapping[str, Any], limits: Limits, unseen: str) -> tuple[Observation, ...]:
    """What the daemon says of a container that cannot be seen from here (`unseen`: the code of Unseen): `container` at most."""
    asked = {"memory_bytes": str(limits.memory_bytes), "memory_and_swap_bytes": str(limits.memory_bytes)}
    asked |= {"pids": str(limits.pids), "cpus": cgroups.cpus_text(limits.cpus)}
    host = _dict(inspected.get("HostConfig"))
    said = {
        "running": _word(_dict(inspected.get("State")).get("Running")),
        "root": "ro" if host.get("ReadonlyRootfs") is True else "rw",
        "privileged": _word(host.get("Privileged")),
        "capabilities": _capabilities(host),
        **_security(host.get("SecurityOpt")),
        "namespaces": "network={NetworkMode} pid={PidMode} ipc={IpcMode} uts={UTSMode} userns={UsernsMode}".format_map(
            _Words(host)
        ),
        "mounts": _none_of(host, "Binds", "Mounts", "VolumesFrom", "Links")
        if not inspected.get("Mounts")
        else "some",
        "devices": _none_of(host, "Devices", "DeviceRequests", "DeviceCgroupRules"),
        "oom_kill": "off" if host.get("OomKillDisable") else "on",
        "memory_bytes": _word(host.get("Memory")),
        "memory_and_swap_bytes": _word(host.get("MemorySwap")),
        "pids": _word(host.get("PidsLimit")),
        "cpus": _cpus(host.get("NanoCpus")),
    }
    tier = Tier.CONTAINER
    return (
        Observation(UNSEEN, unseen, "host", "looked for the daemon's process here", tier),
        *(Observation(f"limits.{name}", value, "host", "asked for", tier) for name, value in asked.items()),
        *(Observation(f"daemon.{name}", value, "daemon", "inspect", tier) for name, value in said.items()),
    )


class _Words(dict[str, Any]):
    """Printable words of an answer; what is absent is empty."""

    def __init__(self, host: Mapping[str, Any]) -> None:
        super().__init__({name: _word(value) for name, value in host.items()})

    def __missing__(self, key: str) -> str:
        return ""


def _values(observations: Iterable[Observation]) -> dict[str, str]:
    return {each.name: each.value for each in observations}


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str:
    """A short printable word of the daemon's; anything else is no value."""
    text = json.dumps(value) if isinstance(value, bool | int) else value
    return text if isinstance(text, str) and len(text) <= 64 and text.isprintable() else ""  # noqa: PLR2004


def _capabilities(host: Mapping[str, Any]) -> str:
    added, dropped = host.get("CapAdd"), host.get("CapDrop")
    if dropped != ["ALL"] or not isinstance(added, list):
        return "unknown"
    return " ".join(sorted(_word(name).removeprefix("CAP_") for name in added))


def _security(options: Any) -> dict[str, str]:
    words = [word for word in options if isinstance(word, str)] if isinstance(options, list) else []
    raised = {"no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"} & set(words)
    profiles = [word.removeprefix("seccomp=") for word in words if word.startswith("seccomp=")]
    ours = len(profiles) == 1 and _equal_json(profiles[0], seccomp_profile())
    return {"no_new_privs": "1" if raised else "0", "seccomp": "ours" if ours else "another"}


def _equal_json(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


def _none_of(host: Mapping[str, Any], *names: str) -> str:
    return "some" if any(host.get(name) for name in names) else "none"


def _cpus(nano: Any) -> str:
    return cgroups.cpus_text(nano / 1_000_000_000) if isinstance(nano, int) and abs(nano) < _MOST_NANO else ""


def _hexadecimal(text: str) -> int:
    """A number that fits nothing where there is none."""
    try:
        return int(text, 16)
    except ValueError:
        return -1
