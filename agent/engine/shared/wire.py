"""The protocol between programs of a person that share an engine: lines of JSON over a Unix socket.

A connection is one question of a client::

    client  {"op": "info"}                        -> {"pid": 4711, "context_length": 32768, …}
    client  {"op": "generate", "prompt": [ … ]}   -> "accepted"
                                                     {"done": 0, "total": 313, "cached": 0}
                                                     {"ids": [200005, 35644], "logprobs": null}
                                                     {"reason": "stop", "prompt_tokens": 313, …}

A client that closes its side of the connection, or all of it, cancels its generation. Both ends check
that the other is a process of the same user.
"""

import asyncio
import hashlib
import json
import os
import socket
import struct
import sys
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agent.engine import protocol

LINE_BYTES = 64 << 20
"""Bytes of a line: a prompt of a million tokens is 7 MB."""
MAX_SOCKET_PATH = 100
"""Bytes of a Unix socket's path, of the 104 to 108 that systems allow."""
ACCEPTED = "accepted"
"""The first answer to a request: the owner is there, and begins."""
_SHAPES = "2" + repr(
    [[field.name for field in fields(shape)]
     for shape in (protocol.Request, protocol.Sampling, protocol.Prefill, protocol.Waiting,
                   protocol.Tokens, protocol.Logprob, protocol.Finished)]
)  # fmt: skip
"""The version of this protocol and the fields that are sent; programs with others do not meet."""
_UNCHANGED = (
    "max_tokens", "logprobs", "probabilities", "continued_tokens", "continues_turn", "background",
    "auxiliary", "head_tokens", "private", "streamed",
)  # fmt: skip
"""Fields of a request that are sent as they are."""
_LOCAL_PEERCRED, _XUCRED_BYTES = 1, 76
"""The option of macOS and BSD, and its struct xucred, whose second field is the uid."""
_CREDENTIALS = struct.Struct("3i")
"""The pid, uid and gid of SO_PEERCRED (Linux)."""


def socket_path(folder: Path, model: str) -> Path:
    """Where the engine of a model listens: in ``folder``, or in a short one where that is too long."""
    name = hashlib.blake2b((model + _SHAPES).encode(), digest_size=8).hexdigest() + ".sock"
    if len(os.fsencode(folder / name)) > MAX_SOCKET_PATH:
        place = hashlib.blake2b(os.fsencode(folder), digest_size=6).hexdigest()
        folder = Path(tempfile.gettempdir(), f"agent-{os.getuid()}-{place}")
    return folder / name


def is_private(folder: Path) -> bool:
    """Whether a folder is ours alone. Raises OSError where there is none."""
    stat = folder.lstat()
    return stat.st_uid == os.getuid() and not stat.st_mode & 0o077


def is_same_user(peer: socket.socket) -> bool:
    if (option := getattr(socket, "SO_PEERCRED", None)) is not None:
        raw = peer.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
        return bool(_CREDENTIALS.unpack(raw)[1] == os.getuid())
    raw = peer.getsockopt(0, _LOCAL_PEERCRED, _XUCRED_BYTES)
    return int.from_bytes(raw[4:8], sys.byteorder) == os.getuid()


async def send(writer: asyncio.StreamWriter, message: object) -> None:
    writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
    await writer.drain()


async def receive(reader: asyncio.StreamReader) -> Any:
    """Read a line. Raises ConnectionError at the end of the stream, and for invalid JSON."""
    try:
        return json.loads(await reader.readuntil(b"\n"))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise ConnectionError("the other end has gone") from error


def request_message(request: protocol.Request) -> dict[str, Any]:
    return {
        "op": "generate",
        "prompt": list(request.prompt),
        "stop_ids": sorted(request.stop_ids),
        "sampling": asdict(request.sampling),
        "constraint_spec": request.constraint_spec and request.constraint_spec(),
        **{name: getattr(request, name) for name in _UNCHANGED},
    }


def request_of(message: dict[str, Any], constraint: protocol.Constraint | None) -> protocol.Request:
    """The request of a message. Raises KeyError, TypeError, ValueError if it is invalid: the engine's
    thread, which works for others too, trusts its requests."""
    sampling = dict(message["sampling"])
    biases = sampling["logit_bias"]
    sampling["logit_bias"] = tuple((_integer(token), float(value)) for token, value in biases)
    optional = [message[name] for name in ("max_tokens", "logprobs") if message[name] is not None]
    for count in (*optional, message["head_tokens"], message["continued_tokens"]):
        _integer(count)
    return protocol.Request(
        [_integer(token) for token in message["prompt"]],
        stop_ids=frozenset(_integer(token) for token in message["stop_ids"]),
        sampling=protocol.Sampling(**sampling),
        constraint=constraint,
        **{name: message[name] for name in _UNCHANGED},
    )


def _integer(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError(f"no count and no id: {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class Gaps:
    """Parts of a request's constraint that the other process could not enforce, by tool."""

    reasons: dict[str, str]


Event = protocol.Prefill | protocol.Waiting | protocol.Tokens | protocol.Finished | Gaps
_EVENT = TypeAdapter[Event](Event)
"""Each kind of event has fields that no other has."""


def event_of(message: Any) -> Event:
    """The event of a message. Raises the EngineError that it reports, ConnectionError for nonsense."""
    match message:
        case {"error": "busy", "text": str(text)}:
            raise protocol.EngineBusyError(text)
        case {"error": "context", "prompt": int(prompt), "context": int(context)}:
            raise protocol.ContextOverflowError(prompt, context)
        case {"error": _, "text": str(text)}:
            raise protocol.EngineError(text)
    try:
        return _EVENT.validate_python(message)
    except ValidationError:
        raise ConnectionError("an unknown message") from None


def error_message(error: Exception) -> dict[str, object]:
    match error:
        case protocol.EngineBusyError():
            return {"error": "busy", "text": str(error)}
        case protocol.ContextOverflowError(prompt_tokens=prompt, context_length=context):
            return {"error": "context", "prompt": prompt, "context": context}
        case _:
            return {"error": "engine", "text": str(error)}
