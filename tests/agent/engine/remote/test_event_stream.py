"""A server's stream of JSON messages, which is cut anywhere."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from agent.engine.protocol import EngineError
from agent.engine.remote.client import RemoteClient
from agent.engine.remote.endpoint import RemoteEndpoint
from agent.engine.remote.engine import ServerUnavailableError, read_messages
from agent.formats.harmony.format import HarmonyFormat


@pytest.fixture
def client(form: HarmonyFormat) -> RemoteClient:
    return RemoteClient(RemoteEndpoint("vllm", "http://localhost:1"), form)


async def read(client: RemoteClient, data: bytes, size: int) -> list[dict[str, Any]]:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), size):
            yield data[start : start + size]

    request = httpx2.Request("POST", "http://localhost:1")
    response = httpx2.Response(200, content=chunks(), request=request)
    return [message async for message in read_messages(response, client)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_read_messages_of_any_pieces(client: RemoteClient, end: bytes, size: int) -> None:
    """Proxies add comments and take the content type away; an unfinished event is dropped."""
    lines = b': ping\n\nid: 7\ndata: {"a":\ndata: [7]}\n\ndata:{"b": 1}\n\ndata: [DONE]\n\ndata: {}'
    data = lines.replace(b"\n", end)
    assert await read(client, data, size) == [{"a": [7]}, {"b": 1}]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
async def test_read_messages_other_line_separators_are_text(
    client: RemoteClient, separator: str
) -> None:
    data = f'data: {{"text": "a{separator}b"}}\n\n'.encode()
    assert await read(client, data, 5) == [{"text": f"a{separator}b"}]


async def test_read_messages_raises_for_errors(client: RemoteClient) -> None:
    with pytest.raises(EngineError, match="too long"):
        await read(client, b'data: {"error": {"code": 400, "message": "too long"}}\n\n', 100)
    with pytest.raises(ServerUnavailableError, match="went away"):
        await read(client, b'event: error\ndata: {"message": "went away"}\n\n', 100)
