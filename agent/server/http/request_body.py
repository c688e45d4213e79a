"""Reads the bodies of requests within limits: of one body's length and JSON values, of all together.
``[],`` takes three bytes, and 64 as a list: the values of a long body are counted bit by bit before it
is parsed, so that parsing takes some 50 ms at most."""

import asyncio
import logging
import time
import zlib
from collections.abc import Callable
from typing import Any, Self

import pydantic_core
from starlette.requests import Request

from agent.server.http.errors import ApiError, body_too_large, rate_limited
from agent.util.json_text import StringSkipper

log = logging.getLogger(__name__)

MAX_UNREAD_BYTES = 32 * 1024 * 1024
"""Bytes of all requests together."""
UNCOUNTED_BYTES = 64 * 1024
"""Bytes per request outside the budget, so that large requests never block small ones."""
LOG_INTERVAL_SECONDS = 60.0
MAX_JSON_VALUES = 250_000
"""Values and keys of a body, wherever they are in it; its depth is bounded by pydantic's parser."""
SCAN_BYTES = 64 * 1024
"""Bytes that are scanned before the event loop runs other tasks: below a millisecond."""


class BodyBudget:
    """Bounds the bytes of all requests that have arrived and are not read yet."""

    def __init__(self, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.max_bytes, self.used_bytes = max(MAX_UNREAD_BYTES, 2 * max_body_bytes), 0
        self._limit_log = LimitLog()

    def take(self, size: int) -> None:
        """Count further bytes. Raises ApiError: 429 where they are too many."""
        if size > 0 and self.used_bytes + size > self.max_bytes:
            self._limit_log.warning(
                f"requests of more than {self.max_bytes:,} bytes together are being received"
            )
            raise rate_limited("Too many long requests are being received: try again later.")
        self.used_bytes += size


class BodyShare:
    """The part of a budget that one body takes; leaving it as a context gives it back."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget, self.size, self._counted = budget, 0, 0

    def add(self, size: int) -> None:
        """Add bytes that have arrived. Raises ApiError: 429 where all bodies are too long together."""
        counted = max(0, self.size + size - UNCOUNTED_BYTES)
        self._budget.take(counted - self._counted)
        self.size, self._counted = self.size + size, counted

    def release(self) -> None:
        """Give all back: the body has been read. No effect when repeated."""
        self._budget.take(-self._counted)
        self.size = self._counted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class LimitLog:
    """Logs that a limit is reached, once in a while."""

    def __init__(self) -> None:
        self._logged_at = -LOG_INTERVAL_SECONDS

    def warning(self, message: str) -> None:
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL_SECONDS:
            self._logged_at = now
            log.warning("a limit is reached: %s", message)


async def read_body(request: Request, budget: BodyBudget) -> bytearray:
    """Read a request's body. Raises ApiError: 413 if it is too long or has too many values, 429 if all
    bodies are too long together. A body up to twice too long is read before it is refused, as a client
    that is still sending would not read the answer."""
    max_bytes = budget.max_body_bytes
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > 2 * max_bytes:
        raise body_too_large(max_bytes)
    body, size = bytearray(), 0
    decode = _decoder(request.headers.get("content-encoding", ""), max_bytes)
    with BodyShare(budget) as share:
        async for chunk in request.stream():
            if decode is not None:
                chunk = decode(chunk)
            size += len(chunk)
            if size <= max_bytes:
                share.add(len(chunk))
                body += chunk
            elif size > 2 * max_bytes:
                raise body_too_large(max_bytes)
            else:
                body.clear()
        if decode is not None and size <= max_bytes:
            decode(None)
        if size > max_bytes:
            raise body_too_large(max_bytes)
        await check_json_size(body)
    return body


def parse_json_object(body: bytes | bytearray) -> dict[str, Any]:
    """Parse a body that has to be a JSON object. Raises ApiError."""
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        message = f"The body of the request is not valid JSON: {error}."
        raise ApiError(400, message, code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "The body of the request must be a JSON object.", code="invalid_type")
    return value


async def read_json(request: Request, budget: BodyBudget) -> dict[str, Any]:
    """Read a body that has to be a JSON object, within the limits of `read_body`. Raises ApiError."""
    return parse_json_object(await read_body(request, budget))


def _decoder(encoding: str, max_bytes: int) -> Callable[[bytes | None], bytes] | None:
    """Return a decoder of the pieces of a body, up to one byte above ``max_bytes``, which takes None as
    the end; None: the body is not encoded. Raises ApiError: 415 for an unknown encoding."""
    if (name := encoding.strip().lower()) in ("", "identity"):
        return None
    if name not in ("gzip", "x-gzip", "deflate"):
        message = f"Bodies with Content-Encoding {encoding[:40]!r} are not decoded: gzip or none."
        raise ApiError(415, message, code="unsupported_content_encoding")
    decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # either header

    def decode(chunk: bytes | None) -> bytes:
        try:
            if chunk is None:  # the checksum is in the last bytes
                if not decoder.eof:
                    raise zlib.error("it has no end")
                return b""
            piece = decoder.decompress(chunk, max_bytes + 1)
            if decoder.unused_data:
                raise zlib.error("something follows its end")
            return piece
        except zlib.error as error:
            message = f"The body of the request is not valid {encoding[:40]}: {error}."
            raise ApiError(400, message, code="invalid_body") from None

    return decode


async def check_json_size(body: bytes | bytearray) -> None:
    """Raises ApiError, 413, for JSON with more than `MAX_JSON_VALUES` values and keys."""
    if len(body) <= MAX_JSON_VALUES:
        return
    values, strings = 1, StringSkipper()
    for start in range(0, len(body), SCAN_BYTES):
        outside = strings.skip(body[start : start + SCAN_BYTES])
        values += len(outside) - len(outside.translate(None, b",:[{"))
        if values > MAX_JSON_VALUES:
            message = f"The body of the request has more than {MAX_JSON_VALUES:,} JSON values."
            raise ApiError(413, message, code="request_too_large")
        await asyncio.sleep(0)  # others are answered meanwhile
