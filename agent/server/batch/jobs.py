"""Runs the lines of OpenAI's batch files side by side. A line is ``{"custom_id", "method": "POST",
"url", "body"}``, its result ``{"id", "custom_id", "response": {"status_code", "request_id", "body"},
"error"}``, in the order in which requests end: https://platform.openai.com/docs/api-reference/batch."""

import asyncio
import fcntl
import hashlib
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Self, TextIO, get_args

import httpx2
from starlette.types import ASGIApp

from agent.server.batch.file_store import Json
from agent.server.chat.requests import ChatTranslation
from agent.server.http.errors import ApiError, invalid
from agent.server.http.request_body import parse_json_object
from agent.server.input.parsing import parse_request
from agent.server.responses.service import ResponseService
from agent.turn.endings import RATE_LIMIT
from agent.util import private_files
from agent.util.ids import new_id

Endpoint = Literal["/v1/responses", "/v1/chat/completions"]
ENDPOINTS: tuple[str, ...] = get_args(Endpoint)
MAX_CUSTOM_ID_CHARACTERS = 512
BUSY_STATUS = 429
TRANSIENT_STATUSES = frozenset({0, 408, BUSY_STATUS, *range(500, 600)})
"""The statuses of requests that may succeed when they are made again; 0: the request was not made."""
FAILURE_STATUSES = {RATE_LIMIT: BUSY_STATUS, "server_error": 500}
"""The HTTP status that the error code of a failed response stands for; all others stand for 400."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.25, 30.0
"""The pause before a request that a busy engine refused is made again; it doubles each time."""
MAX_BUSY_SECONDS = 3600.0
"""Time for which a busy engine may refuse a request; after that, the refusal is its result."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A line of a batch file."""

    custom_id: str
    url: str
    body: Json
    digest: str = ""
    """Digest of the line, by which a later run sees whether it has changed; empty: not known."""


@dataclass(frozen=True, slots=True)
class WrongLine:
    """An invalid line, and why."""

    custom_id: str | None
    """None also where it is an earlier line's."""
    error: ApiError
    number: int | None = None
    """In the file, from 1."""
    digest: str = ""


Line = BatchRequest | WrongLine


def read_lines(lines: Iterable[str], endpoints: Iterable[str] = ENDPOINTS) -> Iterator[Line]:
    """The requests of a batch file; blank lines are left out. ``endpoints``: those that it may ask."""
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        custom_id: str | None = None
        digest = _digest(line.strip())
        try:
            value = parse_json_object(line.encode())
            digest = _digest(json.dumps(value, sort_keys=True))
            if (wanted := _custom_id(value)) in seen:
                raise invalid("custom_id", f"{wanted!r} is the custom_id of an earlier line too.")
            seen.add(custom_id := wanted)
            request = BatchRequest(custom_id, *_target(value, tuple(endpoints)), digest)
        except ApiError as error:
            message = f"Line {number}: {error}"
            named = ApiError(error.status, message, code=error.code, param=error.param)
            yield WrongLine(custom_id, named, number, digest)
        else:
            yield request


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _custom_id(value: Json) -> str:
    custom_id = value.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        message = "A line needs a 'custom_id', a string by which its result is found."
        raise invalid("custom_id", message, "missing_required_parameter")
    if len(custom_id) > MAX_CUSTOM_ID_CHARACTERS:
        message = f"'custom_id' is longer than {MAX_CUSTOM_ID_CHARACTERS} characters."
        raise invalid("custom_id", message, "string_above_max_length")
    return custom_id


def _target(value: Json, endpoints: tuple[str, ...]) -> tuple[str, Json]:
    if value.get("method", "POST") != "POST":
        raise invalid("method", "'method' must be POST.")
    url, body = value.get("url"), value.get("body")
    if url not in endpoints:
        raise invalid("url", f"'url' must be {' or '.join(endpoints)}.", "invalid_url")
    if not isinstance(body, dict):
        raise invalid("body", "'body' must be an object, the body of the request.", "invalid_type")
    for field in ("stream", "background"):
        if body.get(field):
            raise invalid(f"body.{field}", f"A request of a batch cannot have '{field}'.")
    return url, {"store": False, **body}


class BatchRunner:
    """Makes requests of batches, several at a time; repeats those that a busy engine refuses."""

    def __init__(
        self,
        app: ASGIApp,
        parallel: int,
        *,
        first_pause: float = FIRST_PAUSE_SECONDS,
        max_busy: float = MAX_BUSY_SECONDS,
    ) -> None:
        self.parallel = parallel
        self._first_pause, self._max_busy = first_pause, max_busy
        self._client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app, raise_app_exceptions=False),
            base_url="http://localhost",
            timeout=None,
        )

    async def run(self, requests: Iterable[Line], on_result: Callable[[Json], None]) -> None:
        """Make all requests and pass on each result; cancellable. Raises what ``on_result`` raises."""
        queue = iter(requests)

        async def work() -> None:
            for request in queue:
                on_result(await self._answer_when_taken(request))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.parallel):
                    group.create_task(work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _answer_when_taken(self, request: Line) -> Json:
        pause, began = self._first_pause, time.monotonic()
        while True:
            result = await self.answer(request)
            if status_of(result) != BUSY_STATUS or time.monotonic() - began >= self._max_busy:
                return result
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def answer(self, request: Line) -> Json:
        if isinstance(request, WrongLine):
            return _result(request.custom_id, request.error.status, {"error": request.error.body})
        # Encoded here: httpx2 raises at numbers such as 1e400, which the server refuses.
        body = json.dumps(request.body).encode()
        headers = {"content-type": "application/json"}
        answer = await self._client.post(request.url, content=body, headers=headers)
        return _result(request.custom_id, answer.status_code, answer.json())

    async def close(self) -> None:
        await self._client.aclose()


class ResultLog:
    """A file of results: what it has already, and what is added to it, line by line."""

    def __init__(self, path: Path, *, own: bool = False) -> None:
        """Read what an earlier run wrote, without a line that was cut off. ``own``: this program named
        the file, so that a single such line is ours. Raises OSError (BlockingIOError: it is in use),
        and ValueError where a line is not a result."""
        self.path = path
        self.failed = 0
        self._final: dict[str, bytes] = {}
        """Results that stay, by custom_id: their lines, until the file is opened to write."""
        self._file: TextIO | None = None
        self._locked = open(path, "a+b", opener=private_files.opener)  # noqa: SIM115
        try:
            _lock(self._locked)
            self._locked.seek(0)
            data = self._locked.read()
            *lines, cut_off = data.split(b"\n")
            for line in lines or filter(None, [] if own else [cut_off]):
                self._read_line(line)
        except BaseException:
            self._locked.close()
            raise
        self._is_clean = data == self._final_lines()

    def _read_line(self, line: bytes) -> None:
        result = json.loads(line)
        try:
            if is_final(result):
                self._final[result["custom_id"]] = line
                self.failed += status_of(result) != 200
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("no result of a batch") from error

    def _final_lines(self) -> bytes:
        return b"".join(line + b"\n" for line in self._final.values())

    def forget_changed(self, lines: Iterable[Line]) -> int:
        """Forget results of changed lines before the file is opened to write; return how many."""
        count = 0
        for line in lines:
            result = json.loads(self._final.get(line.custom_id or "", b"{}"))
            if result.get("request_digest", line.digest) != line.digest:
                del self._final[result["custom_id"]]
                self.failed -= status_of(result) != 200
                self._is_clean = False
                count += 1
        return count

    def missing(self, lines: Iterable[Line]) -> list[Line]:
        """The lines that have no result, or one that may be another now."""
        return [line for line in lines if line.custom_id not in self._final]

    def add(self, result: Json) -> None:
        assert self._file is not None
        self.failed += status_of(result) != 200
        self._file.write(json.dumps(result, ensure_ascii=False) + "\n")
        self._file.flush()
        if result["custom_id"] is not None:  # also of one that a later run asks again
            self._final[result["custom_id"]] = b""

    def add_expired(self, lines: Iterable[Line]) -> None:
        """Write results of all lines that have none, as their time is over. Raises OSError."""
        error = {"code": "batch_expired", "message": "The time of the batch was over before."}
        for line in self.missing(lines):
            result = {"id": new_id("batch_req"), "custom_id": line.custom_id}
            self.add({**result, "response": None, "error": error})

    def __enter__(self) -> Self:
        if not self._is_clean:
            # Replaced as a whole: a stop meanwhile, or a full disk, loses no result.
            private_files.write_text(self.path, self._final_lines().decode())
        self._final = dict.fromkeys(self._final, b"")
        self._file = self.path.open("a", encoding="utf-8", errors="replace")
        if not self._is_clean:
            _lock(self._file)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._file is not None
        try:
            self._file.close()
        finally:
            self._locked.close()


def _lock(file: IO[Any]) -> None:
    """Keep other programs from a file of results. Raises BlockingIOError where one has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # a file system without locks


def _result(custom_id: str | None, status: int, body: Json) -> Json:
    return {
        "id": new_id("batch_req"),
        "custom_id": custom_id,
        "response": {"status_code": status, "request_id": new_id("req"), "body": body},
        "error": None,
    }


def status_of(result: Json) -> int:
    """The HTTP status of a result or of its failed response; 0: the request was not made."""
    if not (response := result["response"]):
        return 0
    body = response["body"]
    if body.get("status") == "failed":
        return FAILURE_STATUSES.get(str((body.get("error") or {}).get("code")), 400)
    return int(response["status_code"])


def is_final(result: Json) -> bool:
    """Whether the request would have the same result again, as far as is known."""
    return result.get("custom_id") is not None and status_of(result) not in TRANSIENT_STATUSES


def output_tokens(result: Json) -> int:
    usage = result["response"]["body"].get("usage") or {}
    return int(usage.get("output_tokens") or usage.get("completion_tokens") or 0)


async def count_tokens(service: ResponseService, request: BatchRequest) -> int:
    """Tokens of a request's prompt; nothing is generated. Raises ApiError."""
    body = json.dumps(request.body).encode()
    if request.url == "/v1/responses":
        wanted = parse_request(body, lenient=service.options.lenient)
        return len(await service.prompt_ids(wanted))
    chat = ChatTranslation(parse_json_object(body), service)
    with chat.params():
        return len(await service.prompt_ids(chat.request))
