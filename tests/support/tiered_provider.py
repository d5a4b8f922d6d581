"""The effect provider under the names of real ones, behind a wall as strong as a test says.

`docker@runsc` is `kernel`, `docker` is `container`, `wasm` is `process`. It runs nothing, so it proves nothing: only the
service's side is tried with it. `python -m tests.support.tiered_provider serve` is the real `plimsolld` over such providers, as
SANDBOX_PROVIDER lists them; what happened is in `$TEST_EFFECTS/<entry>`, one side-effect file each. Files beside it switch a
provider from outside, at its next look:

    <entry>.fault     a required fact that is missing (see effect_provider)
    <entry>.tier      another tier than the usual one;  <entry>.shortfall  the code that says why
    <entry>.hold      the look does not end while this file exists
    <entry>.die       the process ends in the look
    <entry>.slow      closing takes that many seconds, and is noted in <entry>.closed
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from plimsoll.contract.requests import Kind
from plimsoll.contract.tiers import Tier
from plimsoll.contract.worker import Environment, Resources
from providers.main import main
from providers.seam import Findings, kind_of
from tests.support.effect_provider import EffectProvider

TIERS: Final = {"docker@runsc": Tier.KERNEL, "docker": Tier.CONTAINER, "wasm": Tier.PROCESS}


class TieredProvider(EffectProvider):
    """See the module's docstring."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._name = str(settings["provider"])
        self.resources = Resources(int(settings["memory_mb"]), settings.get("docker_cpus"))
        self._looked = False

    @property
    @override
    def environments(self) -> Mapping[Kind, Environment]:  # type: ignore[override]  # the other's never change
        """Nothing before the first look, as of a provider that must first see its image."""
        kinds = (Kind.JAVASCRIPT, Kind.PYTHON) if kind_of(self._name) == "docker" else (Kind.JAVASCRIPT,)
        return {kind: EffectProvider.environments[kind] for kind in kinds} if self._looked else {}

    @override
    async def collect(self) -> Findings:
        while self._said("hold") is not None:
            await asyncio.sleep(0.02)
        if self._said("die") is not None:
            os._exit(7)
        found = await super().collect()
        self._looked = not found.faults
        tier = Tier(self._said("tier") or TIERS[self._name])
        return replace(found, tier=tier, shortfalls=tuple(filter(None, [self._said("shortfall")])))

    @override
    async def close(self) -> None:
        if seconds := self._said("slow"):
            await asyncio.sleep(float(seconds))
            self._beside("closed").touch()

    def _said(self, switch: str) -> str | None:
        try:
            return self._beside(switch).read_text().strip()
        except FileNotFoundError:
            return None

    def _beside(self, switch: str) -> Path:
        return self._effects.with_name(f"{self._effects.name}.{switch}")


def be_service() -> None:
    """`plimsolld`, with these providers instead of the real ones."""
    from app.cli import serve_main  # noqa: PLC0415  # not in a provider process
    from app.dispatch import supervisor  # noqa: PLC0415

    real, effects = supervisor.spawn, Path(os.environ["TEST_EFFECTS"])

    def spawn(
        name: str, settings: Mapping[str, Any], *, module: str = "tests.support.tiered_provider"
    ) -> supervisor.ProviderProcess:
        return real(name, {**settings, "effects": str(effects / name)}, module=module)

    vars(supervisor)["spawn"] = spawn
    del sys.argv[1]
    serve_main()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        be_service()
    raise SystemExit(main({"docker": TieredProvider, "docker@runsc": TieredProvider, "wasm": TieredProvider}))
