"""What only llama-server has: models that it loads by name, and another vocabulary."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.placement import ThreadCounts
from agent.engine.protocol import EngineError
from agent.engine.remote.endpoint import RemoteEndpoint
from agent.engine.remote.engine import RemoteEngine
from agent.formats.harmony.format import HarmonyFormat
from tests.agent.engine.remote.conftest import CONTEXT
from tests.bench.llama_server import LlamaServer
from tests.support.engines import read_generation, user_request


async def test_load_other_vocabulary_raises(
    llama_server_built: None, gguf: Path, form: HarmonyFormat
) -> None:
    server = LlamaServer(gguf, context=512, threads=ThreadCounts(1, 1))
    with server, pytest.raises(EngineError, match="another vocabulary"):
        await RemoteEngine(RemoteEndpoint("llama-server", server.url), form).load()


@pytest.fixture(scope="module")
def router(
    llama_server_built: None, tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of a llama-server without a model of its own, which has one to load."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "small.gguf").symlink_to(tiny_gguf)
    options = ["--models-dir", str(folder)]
    with LlamaServer(None, context=CONTEXT, threads=ThreadCounts(1, 1), options=options) as it:
        yield it.url


async def test_load_model_of_a_router_by_name(
    router: str, local: LlamaEngine, form: HarmonyFormat
) -> None:
    engine = RemoteEngine(RemoteEndpoint("llama-server", router, model="small"), form)
    await engine.load()
    request = user_request(form, "Tell me about yourself, please.", max_tokens=20)
    result, expected = (
        await read_generation(engine.generate(request)),
        await read_generation(local.generate(request)),
    )
    assert result.ids == expected.ids and engine.context_length == CONTEXT
    await engine.close()
    with pytest.raises(EngineError, match=r"set model in models\.toml to one of .*small"):
        await RemoteEngine(RemoteEndpoint("llama-server", router), form).load()
    with pytest.raises(EngineError, match="'other' not found"):
        await RemoteEngine(RemoteEndpoint("llama-server", router, model="other"), form).load()
