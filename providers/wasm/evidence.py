"""What the wasm provider must have seen to claim its tier, and how it looks. The judging is pure.

Each row of REQUIRED is a fact that the tier `process` rests on: take any away, or let it have another value, and the provider
serves nothing. Facts about a runner come from two sides: the runner says how every forbidden call ended (before it gets any
code), and the host reads `/proc/<pid>` from outside.
"""

import contextlib
import errno
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from plimsoll.contract.tiers import Tier
from providers.seam import Findings, Observation
from providers.wasm import descriptors, seccomp
from providers.wasm.guest.pins import WASM_SHA256

DENIED: Final = errno.errorcode[errno.EPERM]
DESCRIPTORS: Final = "image null null null socket"
"""All a runner has open: /dev/null three times, its socket, and the image that fresh guest memory is mapped from."""
HELD: Final = "held"

SMOKE: Final = ("clean", "deadline", "memory", "stack", "output", "flood", "random", "fresh")
"""The limits that are broken for real at every start (smoke.py)."""


@dataclass(frozen=True, slots=True)
class Need:
    """One required fact: when its value will do, and the fault when it does not or is missing."""

    fits: Callable[[str], bool]
    fault: str


def _equals(expected: str, fault: str) -> Need:
    return Need(lambda value: value == expected, fault)


def _present(fault: str) -> Need:
    return Need(bool, fault)


def runner_needs(policy: str, *, dumpable: bool = False) -> dict[str, Need]:
    """The required facts about every single runner."""
    return {
        "seccomp.policy": _equals(policy, "seccomp_missing"),
        **{f"seccomp.{name}": _equals(DENIED, "seccomp_missing") for name in seccomp.PROBES},
        "runner.seccomp": _equals("2", "seccomp_missing"),
        "runner.no_new_privs": _equals("1", "no_new_privs_missing"),
        "runner.capabilities": _equals("0", "runner_privileged"),
        "runner.descriptors": _equals(DESCRIPTORS, "runner_descriptors"),
        "runner.dumpable": _equals(str(int(dumpable)), "runner_dumpable"),
    }


def required(policy: str, *, dumpable: bool = False) -> dict[str, Need]:
    """Every required fact by name, for the filter with this content address."""
    return {
        "engine": _present("engine_unknown"),
        "guest.sha256": _equals(WASM_SHA256, "guest_unknown"),
        "cache.key": _present("cache_unknown"),
        "limits.memory_bytes": _present("limits_unknown"),
        "limits.wasm_stack_bytes": _present("limits_unknown"),
        "limits.output_bytes": _present("limits_unknown"),
        "limits.kill_grace_ms": _present("limits_unknown"),
        **runner_needs(policy, dumpable=dumpable),
        **{f"smoke.{name}": _equals(HELD, f"smoke_{name}") for name in SMOKE},
    }


def faults_of(needs: Mapping[str, Need], observations: Iterable[Observation]) -> tuple[str, ...]:
    """The fault of every need that is not met, each once."""
    values = {each.name: each.value for each in observations}
    return tuple(
        dict.fromkeys(need.fault for name, need in needs.items() if not need.fits(values.get(name, "")))
    )


def judge(observations: Iterable[Observation], policy: str, *, dumpable: bool = False) -> Findings:
    """The tier that these observations prove: `process` with all required facts, otherwise none, with the faults."""
    seen = tuple(observations)
    faults = faults_of(required(policy, dumpable=dumpable), seen)
    return Findings(Tier.NONE if faults else Tier.PROCESS, seen, faults)


# --- looking --------------------------------------------------------------------------------------------------------------


def of_engine(about: Mapping[str, str], limits: Mapping[str, int]) -> list[Observation]:
    """What the fork server loaded, and the limits every run gets."""
    told = {"engine": "engine", "guest.sha256": "guest", "cache.key": "cache_key"}
    found = [
        _fact(name, about.get(key, ""), "fork-server", "read when it was loaded")
        for name, key in told.items()
    ]
    return found + [
        _fact(f"limits.{name}", str(value), "host", "set for every run") for name, value in limits.items()
    ]


def of_report(report: Mapping[str, Any]) -> list[Observation]:
    """What a runner said of itself, before it got any code."""
    probes = report.get("probes")
    attempts = probes if isinstance(probes, dict) else {}
    return [
        _fact("seccomp.machine", _word(report.get("machine")), "runner", "uname"),
        _fact("seccomp.policy", _word(report.get("policy")), "runner", "digest of the installed filter"),
        *(
            _fact(f"seccomp.{name}", _word(attempts.get(name)), "runner", "tried after confining itself")
            for name in seccomp.PROBES
        ),
        _fact("runner.dumpable", _word(report.get("dumpable")), "runner", "prctl(PR_GET_DUMPABLE)"),
    ]


def of_process(pid: int, report: Mapping[str, Any], proc: Path = Path("/proc")) -> list[Observation]:
    """What can be seen of a runner from outside. A non-dumpable one shows its descriptors only to a privileged host."""
    status = _status(proc / str(pid) / "status")
    facts = {"seccomp": "Seccomp", "no_new_privs": "NoNewPrivs"}
    how = "/proc/<pid>/status"
    found = [_fact(f"runner.{name}", status.get(key, ""), "host", how) for name, key in facts.items()]
    capabilities = status.get("CapEff", "") and f"{int(status['CapEff'], 16):x}"
    found.append(_fact("runner.capabilities", capabilities, "host", how))
    outside = descriptors.of(proc / str(pid) / "fd")
    if outside is not None:
        return [*found, _fact("runner.descriptors", outside, "host", "/proc/<pid>/fd")]
    inside = _word(report.get("descriptors"))
    return [*found, _fact("runner.descriptors", inside, "runner", "/proc/self/fd before confining itself")]


def of_smoke(results: Mapping[str, str]) -> list[Observation]:
    """How the limits held when they were broken on purpose."""
    return [_fact(f"smoke.{name}", value, "host", "run at start") for name, value in results.items()]


def _fact(name: str, value: str, source: str, observed: str) -> Observation:
    return Observation(name, value, source, observed, Tier.PROCESS)


def _word(value: object) -> str:
    """A short printable word from a runner; anything else is no value."""
    return value if isinstance(value, str) and len(value) <= 128 and value.isprintable() else ""  # noqa: PLR2004


def _status(path: Path) -> dict[str, str]:
    with contextlib.suppress(OSError):
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}
