"""The remote engine: a server runs the model; everything but token ids stays in this process."""

import asyncio
from collections.abc import Callable

from agent.engine.protocol import EngineError, Request
from agent.engine.remote.client import RemoteClient, RemoteTiming, RemoteVocabulary
from agent.engine.remote.endpoint import RemoteEndpoint
from agent.engine.remote.generation import RemoteGeneration
from agent.engine.remote.replicas import Replicas


class RemoteEngine:
    """An Engine whose model a server runs."""

    def __init__(
        self,
        endpoint: RemoteEndpoint,
        vocabulary: RemoteVocabulary,
        *,
        api_key: str | None = None,
        context: int | None = None,
        timing: RemoteTiming | None = None,
    ) -> None:
        """``context``: tokens that the context is limited to; None: the server's."""
        self.name = endpoint.engine
        self.replicas = Replicas(
            endpoint,
            [
                RemoteClient(each, vocabulary, api_key=api_key, max_context=context, timing=timing)
                for each in endpoint.replicas()
            ],
        )
        self._running: set[RemoteGeneration] = set()

    @property
    def context_length(self) -> int:
        return self.replicas.context_length

    @property
    def unfinished(self) -> int:
        return sum(not generation.request.background for generation in self._running)

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        if self.replicas.is_open:
            return
        await self.replicas.open(progress)
        if progress:
            progress(1.0)

    def generate(self, request: Request) -> RemoteGeneration:
        if not self.replicas.is_open:
            raise EngineError("The model is not loaded yet.")
        request.require_room(self.context_length)
        generation = RemoteGeneration(self.replicas, request)
        self._running.add(generation)
        generation.task.add_done_callback(lambda task: self._running.discard(generation))
        return generation

    async def close(self) -> None:
        connections = self.replicas.detach()
        for generation in self._running:
            generation.cancel()
        if self._running:
            await asyncio.wait({generation.task for generation in self._running})
        for http in connections:
            await http.aclose()
