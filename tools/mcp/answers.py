"""Reads a server's messages, also those that are not quite JSON-RPC, and keeps what it words with an
error: the SDK has codes of its own for timeouts and closed connections, which servers use as well."""

import json
import re
import secrets
from http import HTTPStatus
from typing import Any

import httpx2
import mcp.types as T
from mcp import MCPError
from pydantic_core import from_json

from agent.errors import AgentError
from agent.util.json_text import as_text
from tools.mcp.login import LoginChallenge
from tools.results import encodable
from tools.sanitize import clean_line, strip_hidden

MAX_EXCERPT_CHARS = 500
"""Characters of an error's data, and of the body of an HTTP error."""
MAX_BODY_CHARS = 64 << 10
MAX_MENDED_BYTES = 4 << 20
"""Longest answer in which lone surrogates are replaced: of more, others would wait for the parsing."""
_KEY = f"agent.{secrets.token_hex(8)}"
"""Key of an error's data for what we know of it; no server can guess it."""
_ID = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(-?\d+|"[^"\\]*")\s*,')
_MESSAGE_KEYS = (
    *("error_description", "message", "detail", "title"),
    *("reason", "error", "errors", "msg"),
)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_MARKUP = re.compile(r"<(script|style|head)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


class ServerError(MCPError):
    """An error that came from the server, not from the SDK."""

    def __init__(self, error: MCPError) -> None:
        data: Any = error.error.data
        known: dict[str, Any] = {}
        if isinstance(data, dict) and _KEY in data:
            known, data = data, data["_"]
        super().__init__(error.code, error.message, data)
        self.http_status: int | None = known.get("status")
        """The status of an answer that was an HTTP error, and none of JSON-RPC's."""
        self.challenge = LoginChallenge(**known["challenge"]) if known.get("challenge") else None
        self.lost_session = bool(known.get("lost"))
        self.predicate = str(known.get("predicate", ""))
        """The fault of an answer; empty: it is an error as JSON-RPC has them."""

    def describe(self) -> str:
        """Return the server's message and data; empty: none."""
        text, data = self.message.strip(), self.data
        words = "" if data in ("", {}, []) else excerpt(as_text(data))
        if words and words not in text:
            text = f"{text} ({words})" if text else words
        return text or ("" if self.http_status else f"code {self.code}, without a message")


def excerpt(text: str) -> str:
    """Return a text as a short single line."""
    line = clean_line(text)
    return line if len(line) <= MAX_EXCERPT_CHARS else f"{line[: MAX_EXCERPT_CHARS - 1]}…"


def from_server(error: T.ErrorData, **known: Any) -> None:
    """Mark an error as one of the server's; ``known``: the attributes of its ServerError."""
    if not (isinstance(error.data, dict) and _KEY in error.data):
        error.data = {_KEY: True, "_": error.data, **known}


def is_marked(error: MCPError) -> bool:
    return isinstance(error.error.data, dict) and _KEY in error.error.data


# --- messages ---


def parse_messages(
    data: bytes | bytearray, request_id: T.RequestId | None = None
) -> list[T.JSONRPCMessage]:
    """Parse a message, or those of a batch; raises ValueError for other text. ``request_id``: of the
    request that they answer; an answer that cannot be read becomes an error of it."""
    try:
        values = _load(data)
        items = values if isinstance(values, list) else [values]
        return [_message(item, request_id) for item in items]
    except ValueError as error:
        if match := _ID.match(data):
            request_id = from_json(match[1])
        if request_id is None:
            raise
        return [malformed(request_id, bytes(data[:200]), error)]


def malformed(request_id: T.RequestId, data: bytes, error: ValueError) -> T.JSONRPCError:
    """Return the error of a request whose answer cannot be read."""
    kind = "MCP" if isinstance(error, _NotJsonRpcError) else "JSON"
    begins = excerpt(strip_hidden(data.decode(errors="replace")))[:80]
    predicate = f"sent an answer that is not valid {kind}: {begins!r}"
    failure = T.ErrorData(code=T.PARSE_ERROR, message=predicate)
    from_server(failure, predicate=predicate)
    return T.JSONRPCError(jsonrpc="2.0", id=request_id, error=failure)


class _NotJsonRpcError(AgentError, ValueError):
    pass


def replace_lone_surrogates(data: bytes | bytearray) -> bytes | bytearray:
    """Replace escaped halves of characters in JSON, which JavaScript writes for a cut emoji."""
    if not _has_surrogates(data):
        return data
    try:
        return json.dumps(_load(data), ensure_ascii=False).encode()
    except ValueError:
        return data


def _has_surrogates(data: bytes | bytearray) -> bool:
    return b"\\ud" in data or b"\\uD" in data


def _load(data: bytes | bytearray) -> Any:
    """Parse JSON; bytes that are not UTF-8 and lone surrogates are replaced, control characters are
    accepted. pydantic's ``validate_json`` would take four times the size."""
    try:
        return from_json(data)
    except ValueError:
        if len(data) > MAX_MENDED_BYTES and _has_surrogates(data):
            raise
        return encodable(json.loads(str(data.strip(), "utf-8-sig", "replace"), strict=False))


def _message(item: Any, request_id: T.RequestId | None) -> T.JSONRPCMessage:
    if not isinstance(item, dict):
        raise _NotJsonRpcError
    if "method" not in item:
        item = _answer(item, request_id)
    elif not isinstance(item.get("params"), dict):
        item.pop("params", None)
    try:
        return T.jsonrpc_message_adapter.validate_python({**item, "jsonrpc": "2.0"}, by_name=False)
    except ValueError:
        raise _NotJsonRpcError from None


def _answer(item: dict[str, Any], request_id: T.RequestId | None) -> dict[str, Any]:
    """Bring an answer into the form that JSON-RPC has for it."""
    number, result, error = item.get("id"), item.get("result"), item.get("error")
    if request_id is None and not item.keys() & {"id", "jsonrpc"}:
        raise _NotJsonRpcError  # a line of a log
    if isinstance(number, float):
        number = int(number)
    answer: dict[str, Any] = {"id": number if request_id is None else request_id}
    if error is not None:
        return answer | {"error": _error(error)}
    if "result" not in item:
        raise _NotJsonRpcError
    if not isinstance(result, dict):
        result = {} if result is None else {"content": result}
    return answer | {"result": result}


def _error(error: Any) -> dict[str, Any]:
    if not isinstance(error, dict):
        return {"code": T.INTERNAL_ERROR, "message": as_text(error)}
    code: Any = error.get("code")
    message = error.get("message")
    text = as_text(error if message is None else message)
    if isinstance(code, str) and not code.lstrip("-").isdigit():
        text = f"{code}: {text}"
    try:
        number = int(code)
    except (TypeError, ValueError, OverflowError):
        number = T.INTERNAL_ERROR
    return {"code": number, "message": text, "data": error.get("data")}


# --- HTTP errors ---


def http_error(response: httpx2.Response, body: bytes) -> T.ErrorData:
    """Return the JSON-RPC error that stands for an HTTP error, with the SDK's code for it."""
    status, in_session = response.status_code, "mcp-session-id" in response.request.headers
    code, message = T.INTERNAL_ERROR, ""
    if status == 404:
        code = T.INVALID_REQUEST if in_session else T.METHOD_NOT_FOUND
    data, own = None, False
    try:
        value = _load(body)
    except ValueError:
        message = _message_in_text(body.decode(errors="replace"))
    else:
        if isinstance(value, dict) and value.keys() >= {"jsonrpc", "error"} and value["error"]:
            error = _error(value["error"])
            code, message, data, own = error["code"], error["message"], error.get("data"), True
        else:
            message = _message_in(value)
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
    nothing = (phrase, f"{status} {phrase}", "Error", "Error response")
    if message.strip(". ").casefold() in map(str.casefold, nothing):
        message = ""
    if (seconds := response.headers.get("Retry-After", "")).isdigit():
        message = f"{message or phrase} (retry after {int(seconds):,} s)"
    marked = T.ErrorData(code=code, message=message, data=data)
    from_server(marked, status=None if own else status, lost=in_session and status == 404)
    return marked


def _message_in(value: Any) -> str:
    """Find the message in the JSON of an error; all of it where none is found."""
    if isinstance(value, list) and value:
        return _message_in(value[0])
    if isinstance(value, dict):
        for key in _MESSAGE_KEYS:
            if (inner := value.get(key)) not in (None, "", {}, []):
                return _message_in(inner)
    return excerpt(as_text(value)) if value not in (None, "", {}, []) else ""


def _message_in_text(text: str) -> str:
    text = text[:MAX_BODY_CHARS]
    if "<" in text:
        title = _TITLE.search(text)
        text = (title[1] if title else "") or _MARKUP.sub(" ", text)
    return excerpt(text)
