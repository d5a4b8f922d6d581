"""The wasm provider with seconds instead of a tenth of one before it kills, for what must hold on a busy machine too.

`spawn("wasm", {…}, module="tests.support.patient_wasm")`, or the service over it: `python -m tests.support.patient_wasm serve`.
"""

import sys
from functools import partial

PATIENCE_S = 8.0


def be_provider() -> int:
    from providers.main import main  # noqa: PLC0415
    from providers.wasm import handle  # noqa: PLC0415
    from providers.wasm.provider import WasmProvider  # noqa: PLC0415

    vars(handle)["KILL_GRACE_S"] = PATIENCE_S
    return main({"wasm": WasmProvider.from_settings})


def be_service() -> None:
    from app.cli import serve_main  # noqa: PLC0415
    from app.dispatch import supervisor  # noqa: PLC0415

    vars(supervisor)["spawn"] = partial(supervisor.spawn, module="tests.support.patient_wasm")
    del sys.argv[1]
    serve_main()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        be_service()
    raise SystemExit(be_provider())
