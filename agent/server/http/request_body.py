"""Reads the bodies of requests within limits: of one body's length and JSON values, of all together.
``[],`` takes three bytes, and 64 as a list: the values of a long body are counted bit by bit before it
is parsed, so that parsing takes some 50 ms at most."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable

from starlette.requests import Request

from agent.server.http.body_budget import BodyBudget, BodyShare
from agent.server.http.errors import ApiError, body_too_large
from agent.util.json_text import StringSkipper

MAX_JSON_VALUES = 250_000
"""Values and keys of a body, wherever they are in it; its depth is bounded by pydantic's parser."""
SCAN_BYTES = 64 * 1024
"""Bytes that are scanned before the event loop runs other tasks: below a millisecond."""


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


def _decoder(encoding: str, max_bytes: int) -> Callable[[bytes | None], bytes] | None:
    """Return a decoder of the pieces of a body, up to one byte above ``max_bytes``, which takes None as
    the end; None: the body is not encoded. Raises ApiError: 415 for an unknown encoding."""
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # either header
        case _:
            message = (
                f"Bodies with Content-Encoding {encoding[:40]!r} are not decoded: gzip or none."
            )
            raise ApiError(415, message, code="unsupported_content_encoding")

    def decode(chunk: bytes | None) -> bytes:
        try:
            if chunk is None:  # the checksum is in the last bytes
                if not decoder.eof:
                    raise zlib.error("it has no end")
                return b""
            return decoder.decompress(chunk, max_bytes + 1)
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
