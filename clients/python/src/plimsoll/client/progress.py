"""How far an exchange got: the proof, or the lack of it, that no byte of the request left."""

from plimsoll.contract.refusals import Reason

_BEFORE_SENDING = "connection."
"""Prefix of the transport's events while a connection is made; every other event is the exchange itself."""


class Progress:
    """Told of the transport's events. Only an event seen is a proof: without any, nothing is claimed."""

    def __init__(self) -> None:
        self._nothing_left = True

    def handed_over(self) -> None:
        """The transport has the request now; from here on silence proves nothing."""
        self._nothing_left = False

    def event(self, name: str) -> None:
        """One event of the transport, such as `connection.connect_tcp.started`."""
        self._nothing_left = name.startswith(_BEFORE_SENDING)

    def mark(self, reason: Reason) -> Reason | None:
        """`reason` if it is proven that no byte of the request left."""
        return reason if self._nothing_left else None
