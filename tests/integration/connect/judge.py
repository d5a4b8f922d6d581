"""Runs in `.venv-published`, where only the published client is: does the calls on stdin and says on stdout what came of each.

In:  {"url", "token", "options": {…}, "parallel": false, "calls": [{"do": NAME, "with": {…}}, …]}
Out: one object a call: {"result": {…}} or {"error": {…}}

NAME is a method of the client, or one of the functions below that begin with `cancel`. Bytes travel as base64.
"""

import asyncio
import base64
import dataclasses
import importlib
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# By name, since the type checker runs where this package is not.
published: Any = importlib.import_module("plimsoll_client")


def arguments(given: dict[str, Any]) -> dict[str, Any]:
    rule = given.get("software")
    return given | (
        {"software": published.SoftwareRule(rule["mode"], tuple(rule["identities"]))} if rule else {}
    )


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def said(result: Any) -> dict[str, Any]:
    return {"result": {"class": type(result).__name__} | plain(dataclasses.asdict(result))}


def raised(error: BaseException) -> dict[str, Any]:
    names = ("code", "not_dispatched", "http_status", "answer_not_bound", "message")
    told = {name: getattr(error, name, None) for name in names}
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return {
        "error": {"class": kinds[0], "kinds": kinds, "result": getattr(error, "result", None) is not None}
        | told
    }


def cancel_before(client: Any, **given: Any) -> Any:
    """With a handle that is cancelled already."""
    handle = published.CancelHandle()
    handle.cancel()
    return client.run_javascript(cancel=handle, **given)


def cancel_after(client: Any, *, seconds: float, **given: Any) -> Any:
    """From another thread, once the request is surely sent."""
    handle = published.CancelHandle()
    threading.Timer(seconds, handle.cancel).start()
    return client.run_javascript(cancel=handle, **given)


def cancel_await_before(client: Any, **given: Any) -> Any:
    """The awaiting task, while its thread has not begun: the only worker thread there is, is busy."""

    async def main() -> None:
        busy = threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        holding = loop.run_in_executor(None, busy.wait)
        task = asyncio.create_task(asynchronous(client).run_javascript(**given))
        await asyncio.sleep(0.1)
        task.cancel()
        try:
            await task
        finally:
            busy.set()
            await holding

    asyncio.run(main())


def cancel_await_after(client: Any, *, seconds: float, **given: Any) -> Any:
    """The awaiting task, once the request is surely sent; `asyncio.run` waits for the thread, so its end is timed too."""

    async def main() -> None:
        async with asyncio.timeout(seconds):
            await asynchronous(client).run_javascript(**given)

    asyncio.run(main())


def asynchronous(client: Any) -> Any:
    transport = client._transport
    return published.AsyncClient(client.base_url, transport.token)


def outcome(client: Any, call: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    try:
        given = arguments(call.get("with", {}))
        done = globals()[call["do"]] if call["do"].startswith("cancel") else None
        result = done(client, **given) if done else getattr(client, call["do"])(**given)
        told = said(result)
    except (published.PlimsollError, asyncio.CancelledError, TimeoutError) as error:
        told = raised(error)
    return told | {"seconds": time.monotonic() - started}


def main() -> None:
    asked = json.load(sys.stdin)
    client = published.Client(asked["url"], asked["token"], **asked["options"])
    with ThreadPoolExecutor(len(asked["calls"]) if asked["parallel"] else 1) as threads:
        json.dump(list(threads.map(lambda call: outcome(client, call), asked["calls"])), sys.stdout)


if __name__ == "__main__":
    main()
