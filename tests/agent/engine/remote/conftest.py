"""Real servers with the embedded model, and engines that use them."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.placement import Placement, ThreadCounts
from agent.engine.remote.client import RemoteTiming
from agent.engine.remote.endpoint import RemoteEndpoint
from agent.engine.remote.engine import RemoteEngine
from agent.formats.harmony.format import HarmonyFormat
from tests.bench import BenchmarkSkippedError, build_llama, build_vllm
from tests.bench.llama_server import LlamaServer
from tests.bench.peer_server import PeerServer
from tests.bench.vllm_server import VllmServer

CONTEXT = 2048
API_KEY = "the-servers-key"


@pytest.fixture(scope="session")
def llama_server_built() -> None:
    if not build_llama.is_built():
        pytest.skip("llama-server is not built: make peer")


@dataclass
class RunningPeer:
    """A server, and how an entry of models.toml names its kind."""

    kind: str
    server: PeerServer

    @property
    def url(self) -> str:
        return self.server.url

    def endpoint(self, **more: str) -> RemoteEndpoint:
        return RemoteEndpoint(self.kind, self.url, "PEER_KEY", **more)

    def engine(self, form: HarmonyFormat, timing: RemoteTiming | None = None) -> RemoteEngine:
        return RemoteEngine(self.endpoint(), form, api_key=API_KEY, timing=timing)


@pytest.fixture(
    scope="module",
    params=[
        "llama-server",
        pytest.param("vllm", marks=[pytest.mark.long, pytest.mark.timeout(1500)]),
    ],
)
def running_peer(request: pytest.FixtureRequest, tiny_gguf: Path) -> Iterator[RunningPeer]:
    """llama-server and vLLM, each with a key, where they are installed."""
    server: PeerServer
    if request.param == "vllm":
        if not build_vllm.is_built():
            pytest.skip("vLLM is not installed: make vllm")
        server = VllmServer(context=CONTEXT, api_key=API_KEY)
    else:
        request.getfixturevalue("llama_server_built")
        server = LlamaServer(
            tiny_gguf,
            context=CONTEXT,
            streams=2,
            threads=ThreadCounts(1, 1),
            options=["--api-key", API_KEY],
        )
    try:
        server.start()
    except BenchmarkSkippedError as error:  # it is another's program: CI names it and goes on
        pytest.skip(str(error))
    yield RunningPeer(request.param, server)
    server.stop()


@pytest.fixture
def peer(running_peer: RunningPeer) -> RunningPeer:
    """The server, started again where the test before has ended it."""
    if not running_peer.server.is_running:
        running_peer.server.start()
    return running_peer


@pytest.fixture
async def remote(peer: RunningPeer, form: HarmonyFormat) -> AsyncIterator[RemoteEngine]:
    engine = peer.engine(form)
    await engine.load()
    yield engine
    await engine.close()


@pytest.fixture
async def local(tiny_gguf: Path) -> AsyncIterator[LlamaEngine]:
    engine = LlamaEngine(tiny_gguf, placement=Placement(CONTEXT), threads=ThreadCounts(1, 1))
    await engine.load()
    yield engine
    await engine.close()
