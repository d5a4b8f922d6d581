"""Calling a service, and believing an answer only after checking it.

`Client` and `AsyncClient` are thin: what is sent and what an answer means is decided in `core`, which does no input or
output. Errors are drawn as a tree at the top of `errors`.
"""

from plimsoll.client.aio import AsyncClient
from plimsoll.client.results import Run
from plimsoll.client.sync import Client

__all__ = ["AsyncClient", "Client", "Run"]
