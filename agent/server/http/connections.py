"""Limits the number of connections, and the time that a request may take to arrive.

uvicorn has no such limits. Its protocol classes are extended here by what they know of a connection::

    connected ──▶ head ──▶ body ──▶ answer ──▶ idle ──▶ head …
                 HEAD_SECONDS  │              uvicorn's keep-alive timer
                           STALL_SECONDS without a byte, MIN_BYTES_PER_SECOND on average

At the limit of connections a new one takes the place of the idlest; those being answered stay."""

import json
import resource
import time
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from agent.server.http.access import request_id_headers
from agent.server.http.errors import RETRY_AFTER_SECONDS, ApiError
from agent.server.http.request_body import BodyBudget, BodyShare, LimitLog

HEAD_SECONDS = 15.0
"""Time for a request's head, from the connection or the head's first byte."""
STALL_SECONDS = 20.0
"""Time between two pieces of a body or of a WebSocket's message."""
GRACE_SECONDS = 30.0
MIN_BYTES_PER_SECOND = 32 * 1024
"""A body or message may take `GRACE_SECONDS`, and as long as it takes at this speed."""
READ_BYTES = 4 * 1024
"""Bytes read at a time: h11 blocks the loop for some 35 µs with any chunk."""
MAX_CONNECTIONS = 512
"""Twice as many as responses run at once."""
MAX_FRAGMENTS = 16_384
"""Fragments of a WebSocket's message: an empty one still takes memory."""
CLOSE_TRY_AGAIN, CLOSE_TOO_BIG, CLOSE_POLICY = 1013, 1009, 1008
"""Codes of RFC 6455."""


class ConnectionLimits(uvicorn.Config):
    """uvicorn's configuration, for its protocols, with what all connections of a server share."""

    def __init__(self, app: Any, body_budget: BodyBudget, **options: Any) -> None:
        super().__init__(app, http=HttpConnection, ws=WebSocketTransport, **options)
        self.body_budget = body_budget
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.max_connections = min(MAX_CONNECTIONS, descriptors // 2)
        self.head_seconds, self.stall_seconds = HEAD_SECONDS, STALL_SECONDS
        self.limit_log = LimitLog()


class Arrival:
    """Progress of a head, body or message, and the deadline of its next piece."""

    def __init__(self, allowed_seconds: float | None = None) -> None:
        """``allowed_seconds``: for all of it; None: as long as it keeps its pace."""
        self.began = self._latest = time.monotonic()
        self._allowed_seconds, self._size = allowed_seconds, 0

    def add(self, size: int) -> None:
        self._latest, self._size = time.monotonic(), self._size + size

    def is_late(self, now: float, stall_seconds: float) -> bool:
        if self._allowed_seconds is not None:
            return now > self.began + self._allowed_seconds
        pace = self.began + GRACE_SECONDS + self._size / MIN_BYTES_PER_SECOND
        return now > min(pace, self._latest + stall_seconds)


class IdentifyingConnection(h11.Connection):
    """h11, which gives each answer an id."""

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]  # all of its overloads
        if type(event) is h11.Response:  # of an ABC, isinstance takes 0.4 µs more
            headers, status = [*event.headers, *request_id_headers()], event.status_code
            event = h11.Response(status_code=status, headers=headers, reason=event.reason)
        return super().send(event)


class HttpConnection(H11Protocol):
    """An HTTP connection whose requests have to arrive in time."""

    def __init__(self, config: uvicorn.Config, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        assert isinstance(config, ConnectionLimits)
        self.limits = config
        self.conn = IdentifyingConnection(h11.SERVER)
        self._arrival: Arrival | None = None
        """The arrival of the head or body that is not complete."""
        self._arriving: Any = None
        """h11's state of the client meanwhile: IDLE for a head, SEND_BODY for a body."""
        self._active_at = time.monotonic()
        """When something was last read, or could no longer be written."""

    def connection_made(self, transport: Any) -> None:
        has_room = make_room(self)
        super().connection_made(transport)
        transport.max_size = READ_BYTES
        if not has_room:
            self._refuse(503, "Too many connections are open: try again later.")
        self._note_arrival()

    def data_received(self, data: bytes) -> None:
        self._active_at = time.monotonic()
        if self._arrival is not None:
            self._arrival.add(len(data))
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        self._note_arrival()

    def pause_writing(self) -> None:
        """Note since when the client does not read (extends uvicorn's)."""
        self._active_at = time.monotonic()
        super().pause_writing()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Refuse a WebSocket where these have half of the connections (extends uvicorn's)."""
        sockets = sum(isinstance(c, WebSocketTransport) for c in self.connections)
        if sockets < max(1, self.limits.max_connections // 2):
            super().handle_websocket_upgrade(event)
        else:
            self._refuse(503, "Too many WebSockets are open: try again later.")

    def _note_arrival(self) -> None:
        state = self.conn.their_state
        is_idle = (
            state is h11.IDLE
            and self.timeout_keep_alive_task is not None
            and not self.conn.trailing_data[0]
        )
        if self.transport.is_closing() or is_idle or state not in (h11.IDLE, h11.SEND_BODY):
            self._arrival = self._arriving = None
        elif self._arriving is not state:
            self._arriving = state
            self._arrival = Arrival(self.limits.head_seconds if state is h11.IDLE else None)

    @property
    def idle_rank(self) -> tuple[int, float] | None:
        """The order in which connections make room for new ones; None: this one is being answered."""
        if self.cycle is None or self.cycle.response_complete:
            return 0, self._active_at
        if self._arriving is h11.SEND_BODY and self._arrival is not None:
            return 1, self._arrival.began
        return (2, self._active_at) if self.flow.write_paused else None

    def close_late(self, now: float) -> None:
        arrival = None if self.flow.read_paused else self._arrival
        if arrival is not None and arrival.is_late(now, self.limits.stall_seconds):
            self._refuse(408, "The request did not arrive in time.")

    def abort(self) -> None:
        self.connections.discard(self)
        self.transport.abort()

    def _refuse(self, status: int, message: str) -> None:
        self._arrival = None
        if self.cycle is not None:  # the application sees a client that has left
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = json.dumps({"error": ApiError(status, message).body}).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("retry-after", RETRY_AFTER_SECONDS),
            ("connection", "close"),
        ]
        response = h11.Response(status_code=status, headers=headers)
        events = (response, h11.Data(data=body), h11.EndOfMessage())
        try:
            answer = [self.conn.send(event) for event in events]
        except h11.LocalProtocolError:  # an answer has begun, or may have no body
            self.transport.abort()
            return
        self.transport.write(b"".join(part or b"" for part in answer))
        self.transport.close()


class WebSocketTransport(WebSocketsSansIOProtocol):
    """A WebSocket whose messages have to arrive in time, and are bounded together with all bodies."""

    def __init__(self, config: uvicorn.Config, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        assert isinstance(config, ConnectionLimits)
        self.limits, self._share = config, BodyShare(config.body_budget)
        self._arrival: Arrival | None = None
        """The arrival of the message that is not complete."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.frames and not self.conn.reader.buffer:
            self._share.release()
            self._arrival = None
            return
        self._arrival = self._arrival or Arrival()
        self._arrival.add(len(data))
        try:
            self._share.add(len(data))
        except ApiError:
            self._fail(CLOSE_TRY_AGAIN)
        if len(self.frames) > MAX_FRAGMENTS:
            self._fail(CLOSE_TOO_BIG)

    def connection_lost(self, exc: Exception | None) -> None:
        self._share.release()
        super().connection_lost(exc)

    def close_late(self, now: float) -> None:
        arrival = None if self.read_paused else self._arrival
        if arrival is not None and arrival.is_late(now, self.limits.stall_seconds):
            self._fail(CLOSE_POLICY)

    def _fail(self, code: int) -> None:
        self._share.release()
        self._arrival = None
        if self.handshake_complete and not self.close_sent and not self.transport.is_closing():
            self.conn.send_close(code)
            self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()


def make_room(newcomer: HttpConnection) -> bool:
    """Close the idlest connection where there are too many; False: all are being answered."""
    limits, connections = newcomer.limits, newcomer.connections
    if len(connections) < limits.max_connections:
        return True
    limits.limit_log.warning(
        f"{limits.max_connections} connections are open; idle and slow ones make way for new ones"
    )
    ranked = [
        (rank, connection)
        for connection in connections
        if isinstance(connection, HttpConnection) and (rank := connection.idle_rank) is not None
    ]
    if not ranked:
        return False
    min(ranked, key=lambda pair: pair[0])[1].abort()
    return True


def close_late(connections: Any) -> None:
    now = time.monotonic()
    for connection in list(connections):
        connection.close_late(now)
