"""Calling a service, and believing an answer only after checking it.

`Client` and `AsyncClient` are thin: what is sent and what an answer means is decided in `core`, which does no input or
output. Errors are drawn as a tree at the top of `errors`.
"""

from plimsoll.client.aio import AsyncClient
from plimsoll.client.handles import AsyncRunHandle, RunHandle
from plimsoll.client.results import ProjectRun, Run
from plimsoll.client.streaming import Accepted, Output, StepEnded
from plimsoll.client.streams import AsyncRunStream, RunStream
from plimsoll.client.sync import Client

__all__ = [
    "Accepted",
    "AsyncClient",
    "AsyncRunHandle",
    "AsyncRunStream",
    "Client",
    "Output",
    "ProjectRun",
    "Run",
    "RunHandle",
    "RunStream",
    "StepEnded",
]
