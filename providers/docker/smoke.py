"""Programs that break each limit of a container on purpose, with their verdicts. The provider runs them its normal way.

`inside` looks around as a guest would (inside.py); the others run into one limit each. What a program says is its image's word,
so each verdict rests on what the host decides where it can: the end, the flags, the output's cap.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from plimsoll.contract.requests import Python
from plimsoll.contract.results import EXIT_DEADLINE, EXIT_FLOOD, EXIT_MEMORY
from plimsoll.contract.tiers import Tier
from providers.docker import syscalls
from providers.docker.agent.guests import ENVIRONMENT
from providers.docker.names import FIRST_UID
from providers.docker.recipe import NO_RESOLVER, seccomp_profile
from providers.docker.settings import DockerSettings
from providers.seam import Break, Finish

INSIDE: Final = "inside"
_CAP: Final = 4096
_SHORT_MS: Final = 200
_LATE_MS: Final = 3_000
"""How much later than its deadline a run may be over on a busy machine, its leftovers drained included."""
_LONG_MS: Final = 30_000
_MIB: Final = 1 << 20
_FILLED_MB: Final = 256
"""Larger places are asked for their size only."""
_PROCESSES: Final = 512
"""The most that a guest can be given."""
_PLACES: Final = ("/tmp", "/workspace")  # noqa: S108  # the sandbox's own
_SHM: Final = "/dev/shm"  # noqa: S108  # as above
_GVISOR_KERNEL: Final = "4.4.0"
"""What gVisor says to be. An image could say so too: it decides nothing, but another answer is a contradiction."""
_OWN_TO_GVISOR: Final = frozenset(
    {
        "setns",
        "process_vm_readv",
        "pidfd_open",
        "io_uring_setup",
        "add_key",
        "keyctl",
        "syslog",
        "personality",
    }
)
"""Calls that gVisor's own kernel answers in a way of its own, without asking the host's."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case went: its end, its output inside the cap, and how long it took from Begun to its end."""

    step: Finish | Break
    stdout: bytes
    duration_ms: int

    @property
    def finish(self) -> Finish:
        """The end, or one that fits nothing."""
        return self.step if isinstance(self.step, Finish) else Finish(-1)

    @property
    def number(self) -> int:
        """The last whole number it printed, or -1."""
        words = self.stdout.split()
        return int(words[-1]) if words and words[-1].isdigit() else -1


@dataclass(frozen=True, slots=True)
class Case:
    """One program, the limits it runs under, and whether an outcome says that they hold."""

    payload: Python
    timeout_ms: int
    output_bytes: int
    holds: Callable[[Outcome], bool]


def cases(wall: Tier, settings: DockerSettings) -> Mapping[str, Case]:
    """All cases by name, for a wall (`evidence.wall_of`): at start each is run; later `inside` and one other in turn."""
    bomb = _MEMORY.format(steps=2 * settings.memory_mb // 4)
    memory_ms = settings.memory_mb * _MIB // (20 * 1000)  # 20 MB a second, on the slowest machine
    return {
        INSIDE: _inside(wall, settings),
        "deadline": Case(Python("while True: pass"), _SHORT_MS, _CAP, _is_late),
        "sleeper": Case(Python("import time; time.sleep(60)"), _SHORT_MS, _CAP, _is_late),
        "memory": Case(Python(bomb), _LONG_MS + memory_ms, _CAP, _is_out_of_memory),
        "flood": Case(Python(_FLOOD), _LONG_MS, _CAP, _is_flood),
        "processes": _processes(wall, settings.pids),
    }


# --- one limit each -------------------------------------------------------------------------------------------------------

_MEMORY: Final = "held = []\nfor _ in range({steps}): held.append(bytearray(b'x') * (4 << 20))"
"""Up to twice the limit, so that where there is none it is not the machine that runs out."""
_FLOOD: Final = "while True: print('x' * 999)"
_FORKS: Final = f"""
import os, time
made = 0
try:
    while made <= {_PROCESSES}:
        if os.fork() == 0:
            time.sleep(600)
        made += 1
except OSError:
    pass
print(made)
"""
_THREADS: Final = f"""
import threading
made, forever = 0, threading.Event()
threading.stack_size(1 << 16)
try:
    while made <= {_PROCESSES}:
        threading.Thread(target=forever.wait, daemon=True).start()
        made += 1
except RuntimeError:
    pass
print(made, flush=True)
__import__("os")._exit(0)
"""


def _processes(wall: Tier, most: int) -> Case:
    """Under gVisor with threads, which its limit counts alike: that many forks would end the whole sandbox."""
    program = _THREADS if wall is Tier.KERNEL else _FORKS
    return Case(
        Python(program), _LONG_MS, _CAP, lambda it: it.finish.exit_code == 0 and 1 < it.number <= most
    )


def _is_late(it: Outcome) -> bool:
    ended = it.finish.timed_out and it.finish.exit_code == EXIT_DEADLINE
    return ended and it.duration_ms < _SHORT_MS + _LATE_MS


def _is_out_of_memory(it: Outcome) -> bool:
    return it.finish.oom_killed and not it.finish.timed_out and it.finish.exit_code == EXIT_MEMORY


def _is_flood(it: Outcome) -> bool:
    return it.finish.exit_code == EXIT_FLOOD and it.finish.stdout_truncated and len(it.stdout) == _CAP


# --- from inside ----------------------------------------------------------------------------------------------------------


def _inside(wall: Tier, settings: DockerSettings) -> Case:
    size = settings.disk_mb * _MIB
    fills = settings.disk_mb <= min(_FILLED_MB, settings.memory_mb // 4)
    places = (*(_PLACES if fills else ()), _SHM)
    tried = {} if wall is Tier.KERNEL else syscalls.tried(seccomp_profile())
    source = f"FILL = {places!r}\nTRIED = {tried!r}\n{_probe()}"
    return Case(
        Python(source), _LONG_MS, 16 * _CAP, lambda it: not wrongs(it.stdout, it.finish, wall, places, size)
    )


def wrongs(
    said: bytes, finish: Finish, wall: Tier, filled: tuple[str, ...], disk_bytes: int
) -> tuple[str, ...]:
    """The names of everything that is not as it has to be, in what inside.py said."""
    try:
        found = json.loads(said)
    except ValueError:
        return ("answer",)
    if not isinstance(found, dict) or finish != Finish(0):
        return ("answer",)
    ids = found.get("ids")
    owner = ids[0] if isinstance(ids, list) and ids and isinstance(ids[0], int) else 0
    checks = _checks(wall, filled, disk_bytes, found.get("machine"), owner)
    return tuple(name for name, fits in checks.items() if not _fits(fits, found.get(name)))


def _checks(
    wall: Tier, filled: tuple[str, ...], disk_bytes: int, machine: object, owner: int
) -> dict[str, Callable[[Any], bool]]:
    sizes = {**dict.fromkeys(_PLACES, disk_bytes), _SHM: _MIB}
    gvisor = wall is Tier.KERNEL
    return {
        "kernel": lambda it: bool(it) and (it == _GVISOR_KERNEL) == gvisor,
        "ids": lambda it: len(it) == 1 and it[0] > FIRST_UID,
        "user": lambda it: it == "guest",
        "rights": lambda it: _has_no_rights(it, gvisor=gvisor),
        "environment": lambda it: it == ENVIRONMENT,
        "writable": lambda it: it == sorted((*_PLACES, _SHM)),
        "sizes": lambda it: it.keys() == sizes.keys() and all(0 < it[name] <= sizes[name] for name in sizes),
        "full": lambda it: it == dict.fromkeys(filled, "ENOSPC"),
        "execute": lambda it: it == dict.fromkeys(_PLACES, "EACCES"),
        "interfaces": lambda it: it == ["lo"],
        "network": lambda it: len(it) == 9 and "done" not in it.values(),  # noqa: PLR2004  # as many as are tried
        "resolver": lambda it: tuple(filter(None, it)) == NO_RESOLVER,
        "calls": lambda it: _are_refused(it, _OWN_TO_GVISOR if gvisor else frozenset()),
        "machine": lambda it: gvisor or it in syscalls.NUMBERS,
        "refused": lambda it: gvisor or are_the_filters(it, str(machine)),
        # In gVisor a new namespace is a part of gVisor's own kernel.
        "namespaces": lambda it: gvisor or _are_refused(it, frozenset()),
        "device": lambda it: bool(it) and (gvisor or it != "done"),
        "first_process": lambda it: len(it) == 4 and "done" not in it.values(),  # noqa: PLR2004  # as above
        "settings": lambda it: len(it) == 3 and "done" not in it.values(),  # noqa: PLR2004  # as above
        "owners": lambda it: it == [owner - 1, owner],
    }


def _fits(check: Callable[[Any], bool], value: Any) -> bool:
    try:
        return check(value)
    except (TypeError, AttributeError, KeyError, ValueError):
        return False


def _has_no_rights(said: Any, *, gvisor: bool) -> bool:
    held = [int(said[f"Cap{name}"] or "0", 16) for name in ("Inh", "Prm", "Eff", "Amb")]
    # gVisor does not show the other two: there the host's kernel says them of the sandbox process.
    return not any(held) and (gvisor or (said["NoNewPrivs"], said["Seccomp"]) == ("1", "2"))


def _are_refused(said: Any, but: frozenset[str]) -> bool:
    return bool(said) and all(answer != "done" for name, answer in said.items() if name not in but)


def are_the_filters(said: Mapping[str, str], machine: str) -> bool:
    """Whether every call that the profile refuses got that answer, and none of what a kernel says of itself."""
    expected = syscalls.answers(seccomp_profile(), machine)
    return said.keys() == expected.keys() and all(said[name] in expected[name] for name in expected)


@cache
def _probe() -> str:
    return resources.files("providers.docker").joinpath("inside.py").read_text(encoding="utf-8")
