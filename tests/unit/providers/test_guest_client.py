"""The guests' client: one text for both walls."""

from tests.architecture.repository import ROOT


def test_both_walls_have_the_same_client_in_javascript() -> None:
    vm, container = (ROOT / "providers" / place / "host.js" for place in ("wasm/guest", "docker/agent"))
    assert vm.read_bytes() == container.read_bytes()
