"""uvicorn's HTTP/1.1 protocol with our clocks, caps and answers (S6).

A connection waits for one thing at a time, and every wait ends:

    head     from its first byte, `head_s`; then 408
    turn     a complete header, until strangers from there may be heard again; not where the last request had a caller
    body     `body_s` in all and `body_rate` on average, while we are willing to read; then 408
    answer   however long the run takes; but a caller that takes none of it for `stall_s` is cut
    idle     `keep_alive_s`
    drain    after an answer that came before the request's end: at most `drain_s` and `drain_bytes` are dropped
"""

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable
from enum import Enum
from typing import Any, cast

import h11
from typing_extensions import override
from uvicorn import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.http import head
from app.http.answers import INTERNAL, logged_problem, too_large
from app.http.door import FULL, OTHER_USER, Door, Entry, is_other_user
from app.http.ids import has_caller, new_request_id, read_raw_request_id, read_request_id
from app.http.proof import has_key, may_have_key
from plimsoll.contract.refusals import Code, Reason, Refusal

CLOSE = (b"connection", b"close")
_LATE_HEAD = Refusal(Code.REQUEST_TIMEOUT, "The header did not arrive in time", Reason.REQUEST)
_LATE_BODY = Refusal(Code.REQUEST_TIMEOUT, "The body did not arrive in time", Reason.REQUEST)
_MALFORMED = Refusal(Code.INVALID_HEADER, "The request is not valid HTTP/1.1", Reason.REQUEST)


class Wait(Enum):
    """What of a request has not arrived yet."""

    NOTHING = "nothing"
    HEAD = "head"
    TURN = "turn"
    """Everything has, and its time to be heard has not come."""
    BODY = "body"


class Protocol(H11Protocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        door: Door,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.door, self.limits = door, door.limits
        self._entry: tuple[Entry, str | None] = (Entry.SHUT, None)
        self._standing: Refusal | None = None
        self._wait, self._timer = Wait.NOTHING, _Timer(self.loop)
        self._stall, self._unsent = _Timer(self.loop), 0
        self._searched = 0
        self._request_id: str | None = None
        self._path = ""
        self._body_bytes = self._body_chunks = 0
        self._body_since = 0.0
        self._dropped: int | None = None
        # Whether the last request had a caller; whether this one took a turn; when this connection may be heard again.
        self._trusted, self._turn_taken, self._not_before = False, False, 0.0

    # Coming and going

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # With no buffer allowed, `pause_writing` means: the caller has not taken all that was sent.
        transport.set_write_buffer_limits(high=0)
        peer = self.client[0] if self.client else None
        self._entry = self.door.enter(peer)
        if self._entry[0] is Entry.SHUT:
            transport.abort()
        elif self._entry[0] is Entry.TURNED_AWAY:
            self._standing = FULL
        elif is_other_user(transport.get_extra_info("socket")):
            self._standing = OTHER_USER
        self._watch_head()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._stall.cancel()
        self._unset_keepalive_if_required()
        self.door.leave(*self._entry)
        super().connection_lost(exc)

    @override
    def shutdown(self) -> None:
        if (cycle := self._active()) is None:
            self._close()
        else:
            cycle.keep_alive = False

    @override
    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def _close(self) -> None:
        """Close once everything is sent, and give that as long as a stalled reader gets."""
        self._timer.cancel()
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._watch_stall()

    # Reading

    @override
    def data_received(self, data: bytes) -> None:
        if self._dropped is not None:
            self._drop(len(data))
            return
        self._unset_keepalive_if_required()
        self.conn.receive_data(data)
        self.handle_events()

    @override
    def handle_events(self) -> None:
        try:
            while self._step():
                pass
        except h11.RemoteProtocolError:
            self._refuse(_MALFORMED)
        self._watch()

    def _step(self) -> bool:
        """Take one event; False when there is nothing more to take for now."""
        if self._dropped is not None or self._wait is Wait.TURN:
            return False
        if self.conn.their_state is h11.IDLE and not self._head_passed():
            return False
        event = self.conn.next_event()
        if isinstance(event, h11.Request):
            self._begin(event)
        elif isinstance(event, h11.Data):
            self._take(event)
        elif isinstance(event, h11.EndOfMessage):
            self.cycle.more_body = False
            self.cycle.message_event.set()
        elif event is h11.PAUSED:  # the next request came before this one's answer
            self.flow.pause_reading()
        return isinstance(event, (h11.Request, h11.Data, h11.EndOfMessage))

    def _head_passed(self) -> bool:
        """Whether a complete header is there and acceptable; refuses one that is not."""
        data, _ = self.conn.trailing_data
        end = head.end_of_head(data[: self.limits.head_bytes + 1], max(0, self._searched - 3))
        self._searched = len(data) if end is None else 0
        if (end is None and len(data) <= self.limits.head_bytes) or not self._turn_has_come():
            return False
        refusal = self._standing or (
            head.too_long(self.limits) if end is None else head.inspect_head(data[:end], self.limits)
        )
        self._request_id = read_raw_request_id(data[: end or self.limits.head_bytes])
        self._path = head.path_of(data)
        if refusal is not None:
            self._refuse(refusal)
        return refusal is None

    def _turn_has_come(self) -> bool:
        """Whether the header may be looked at now; else it is, once its turn comes."""
        if self._trusted or self._turn_taken or self._standing:
            return True
        self._turn_taken, now = True, self.loop.time()
        turn = max(self._not_before, self.door.pace.turn(self._entry[1], now))
        if turn <= now:
            return True
        self._wait = Wait.TURN
        self.flow.pause_reading()
        self._timer.start(turn - now, self._take_turn)
        return False

    def _take_turn(self) -> None:
        self._wait = Wait.NOTHING
        self.flow.resume_reading()
        self.handle_events()

    def _account(self) -> None:
        """Count an answered request: a stranger's holds its connection back, a caller's gives back the turn it took."""
        self._trusted = has_caller(cast("Any", self.scope))
        if not self._trusted:
            self._not_before = self.door.pace.was_stranger(self.loop.time())
        elif self._turn_taken:
            self.door.pace.was_caller(self._entry[1])
        self._turn_taken = False

    def _begin(self, event: h11.Request) -> None:
        self._body_bytes = self._body_chunks = 0
        self._body_since = self.loop.time()
        self.headers = list(event.headers)
        self.scope = self._scope_of(event)
        self.cycle = _Cycle(self)
        task = self.loop.create_task(self.cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _scope_of(self, event: h11.Request) -> Any:
        raw_path, _, query_string = event.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": event.http_version.decode("ascii"),
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": event.method.decode("ascii"),
            "root_path": "",
            "path": raw_path.decode("ascii"),
            "raw_path": raw_path,
            "query_string": query_string,
            "headers": self.headers,
            "state": self.app_state.copy(),
        }

    def _take(self, event: h11.Data) -> None:
        self._body_bytes += len(event.data)
        self._body_chunks += event.chunk_start
        if self._body_bytes > self.limits.body_bytes or self._body_chunks > self.limits.body_chunks:
            self._refuse(self._too_large())
            return
        self.cycle.body += event.data
        if len(self.cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self.cycle.message_event.set()

    def _too_large(self) -> Refusal:
        if self._body_bytes > self.limits.body_bytes:
            return too_large(self.limits.body_bytes)
        detail = f"A chunked body must be at most {self.limits.body_chunks} chunks"
        return Refusal(Code.BODY_TOO_LARGE, detail, Reason.REQUEST)

    # Waiting

    def _watch(self) -> None:
        """Keep exactly the clock running that belongs to what has not arrived."""
        if self._dropped is not None or self._wait is Wait.TURN or self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE:
            if self._searched:
                self._watch_head()
        elif self.conn.their_state is h11.SEND_BODY:
            self._watch_body()
        else:
            self._wait = Wait.NOTHING
            self._timer.cancel()

    def _watch_head(self) -> None:
        if self._wait is not Wait.HEAD:
            self._wait = Wait.HEAD
            seconds = self.limits.drain_s if self._standing else self.limits.head_s
            self._timer.start(seconds, lambda: self._refuse(self._standing or _LATE_HEAD))

    def _watch_body(self) -> None:
        if self._wait is not Wait.BODY:
            self._wait = Wait.BODY
            self._timer.start(self._body_tick(), self._check_body)

    def _body_tick(self) -> float:
        return min(1.0, self.limits.body_s / 8)

    def _check_body(self) -> None:
        """While we do not read, the caller cannot send: that time does not count."""
        if self.flow.read_paused:
            self._body_since += self._body_tick()
        age = self.loop.time() - self._body_since
        slow = age > self.limits.body_grace_s and self._body_bytes < age * self.limits.body_rate
        if slow or age > self.limits.body_s:
            self._refuse(_LATE_BODY)
        else:
            self._timer.start(self._body_tick(), self._check_body)

    # Writing

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_stall()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self._stall.cancel()

    def _watch_stall(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._stall.start(self.limits.stall_s, self._check_stall)

    def _check_stall(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent:
            self._watch_stall()
        else:
            self.transport.abort()

    @override
    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._account()
        if self._dropped is not None or self.transport.is_closing():
            return
        self._wait, self._request_id, self._path = Wait.NOTHING, None, ""
        self._timer.cancel()
        self.flow.resume_reading()
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.DONE:
            self.conn.start_next_cycle()
        if self.conn.trailing_data[0]:
            self.handle_events()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.limits.keep_alive_s, self.timeout_keep_alive_handler
            )

    # Early ends

    def _active(self) -> RequestResponseCycle | None:
        """The request that is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return None if cycle is None or cycle.response_complete else cycle

    def _refuse(self, refusal: Refusal) -> None:
        """Answer here, whatever the application is doing; it sees a caller that has gone."""
        if (cycle := self._active()) is not None:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        request_id = self._request_id or new_request_id()
        status, headers, body = logged_problem(refusal, request_id, self._path, keyed=self._keyed())
        lines = [b"%s: %s\r\n" % header for header in (*headers, CLOSE)]
        start = b"HTTP/1.1 %d %s\r\n" % (status, STATUS_PHRASES[status])
        self.transport.write(b"".join((start, *lines, b"\r\n", body)))
        self.drain()

    def _keyed(self) -> bool:
        """Whether the request that is refused has, or may have, an Idempotency-Key."""
        if self.conn.their_state is not h11.IDLE:
            return has_key(self.headers or ())
        data, _ = self.conn.trailing_data
        return may_have_key(data, head.end_of_head(data))

    def drain(self) -> None:
        """Say that nothing more follows, then read a little and drop it: a reset would take the answer with it."""
        if self.conn.their_state in {h11.DONE, h11.MUST_CLOSE, h11.CLOSED}:
            self._close()
            return
        self._dropped = 0
        self._unset_keepalive_if_required()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._timer.start(self.limits.drain_s, self._close)

    def _drop(self, size: int) -> None:
        self._dropped = (self._dropped or 0) + size
        if self._dropped > self.limits.drain_bytes:
            self._close()


class _Cycle(RequestResponseCycle):
    """One request and its answer."""

    def __init__(self, protocol: Protocol) -> None:
        self._writer = _Writer(protocol)
        super().__init__(
            scope=protocol.scope,
            conn=protocol.conn,
            transport=cast("asyncio.Transport", self._writer),
            flow=protocol.flow,
            logger=protocol.logger,
            access_logger=protocol.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            on_response=protocol.on_response_complete,
        )
        self._protocol = protocol

    @override
    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start" and not self.response_started:
            if self._is_last():
                message["headers"] = [*message.get("headers", ()), CLOSE]
            self._writer.head_is_next = True
        await super().send(message)

    def _is_last(self) -> bool:
        """An answer before the body's end, at a shutdown, or when few places are left ends the connection."""
        return self.more_body or not self.keep_alive or self._protocol.door.crowded

    @override
    async def send_500_response(self) -> None:
        """The application failed without an answer of its own, which the middleware should have made."""
        sent = read_request_id(self.scope["headers"])
        request_id = sent if isinstance(sent, str) else new_request_id()
        status, headers, body = logged_problem(INTERNAL, request_id, self.scope["path"], keyed=True)
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, CLOSE]})
        await self.send({"type": "http.response.body", "body": body})


class _Writer:
    """The transport as a cycle sees it: a short answer leaves in one piece, and closing drains first.

    A head waits for the first bytes of its body, but not beyond this turn of the event loop.
    """

    def __init__(self, protocol: Protocol) -> None:
        self._protocol, self._transport = protocol, protocol.transport
        self.is_closing = protocol.transport.is_closing
        self.head_is_next = False
        self._head = b""

    def write(self, data: bytes) -> None:
        """Send, after what waits."""
        if self.head_is_next:
            self.head_is_next, self._head = False, data
            self._protocol.loop.call_soon(self._flush)
            return
        head, self._head = self._head, b""
        self._transport.write(head + data)

    def close(self) -> None:
        """Send what waits, and end the connection."""
        self._flush()
        self._protocol.drain()

    def _flush(self) -> None:
        if self._head and not self.is_closing():
            self.write(b"")


class _Timer:
    """At most one pending call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: TimerHandle | None = None

    def start(self, seconds: float, call: Callable[[], None]) -> None:
        """Call after `seconds`, instead of what was pending."""
        self.cancel()
        self._pending = self._loop.call_later(seconds, call)

    def cancel(self) -> None:
        """Nothing is called any more."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
