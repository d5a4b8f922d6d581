"""The wasm provider with one part of its wall taken out, to see that it then refuses to serve.

`spawn("wasm", {…, "without": NAME}, module="tests.support.weakened_wasm")`; the names are the keys of WEAKENINGS.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from providers.main import main
from providers.wasm import descriptors, seccomp, zygote  # what the fork server imports comes later, inside it
from providers.wasm.provider import WasmProvider


def _filter() -> None:
    seccomp.install = lambda machine: None


def _one_rule() -> None:
    seccomp.ALLOWED = (*seccomp.ALLOWED, "socket")  # type: ignore[misc,assignment]


def _closing() -> None:
    descriptors.close_all_but = lambda keep: None


def _guest() -> None:
    vars(zygote)["WASM_SHA256"] = "0" * 64


def _in_runner(change: Callable[[], None]) -> Callable[[], None]:
    """For what only the fork server imports: change it once it did."""

    def weaken() -> None:
        load = zygote._load

        def loaded(settings: zygote.ZygoteSettings) -> Any:
            answer = load(settings)
            change()
            return answer

        zygote._load = loaded

    return weaken


def _capabilities() -> None:
    from providers.wasm import runner  # noqa: PLC0415

    runner._drop_capabilities = lambda: None


def _memory_limit() -> None:
    from providers.wasm import runner, vm  # noqa: PLC0415

    runner._limits = lambda memory_bytes, cap: vm.VmLimits(output_cap_bytes=cap)  # type: ignore[assignment]


def _output_cap() -> None:
    from providers.wasm import runner, vm  # noqa: PLC0415

    runner._limits = lambda memory_bytes, cap: vm.VmLimits(memory_bytes=memory_bytes)  # type: ignore[assignment]


def _deadline() -> None:
    from providers.wasm.ticker import Ticker  # noqa: PLC0415

    Ticker.arm = lambda *_: None  # type: ignore[method-assign]


def _randomness() -> None:
    os.urandom = bytes


WEAKENINGS: Mapping[str, tuple[Callable[[], None], str]] = {
    "filter": (_filter, "seccomp_missing"),
    "one_rule": (_in_runner(_one_rule), "seccomp_missing"),
    "closing": (_closing, "runner_descriptors"),
    "guest": (_guest, "guest_unknown"),
    "capabilities": (_in_runner(_capabilities), "runner_privileged"),
    "memory_limit": (_in_runner(_memory_limit), "smoke_memory"),
    "deadline": (_in_runner(_deadline), "smoke_deadline"),
    "output_cap": (_in_runner(_output_cap), "smoke_flood"),
    "randomness": (_in_runner(_randomness), "smoke_random"),
}
"""What is taken out, and a fault that must be said then."""


def weakened(settings: Mapping[str, Any]) -> WasmProvider:
    WEAKENINGS[settings["without"]][0]()
    return WasmProvider.from_settings(settings)


if __name__ == "__main__":
    raise SystemExit(main({"wasm": weakened}))
