"""The servers that run one model, and the choice among them. A prompt goes to the server with the
highest score, a hash of its address and of the ids that all prompts of the conversation begin with
(rendezvous hashing, https://doi.org/10.1109/90.663936): that holds beyond a restart and for several
programs. A server with more than its share of what runs (bounded loads,
https://arxiv.org/abs/1608.01350) is passed over, and so is one that is away."""

import asyncio
import hashlib
import logging
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import httpx2

from agent.engine.protocol import EngineError, Request
from agent.engine.remote.client import HealthProblem, RemoteClient
from agent.engine.remote.endpoint import RemoteEndpoint

log = logging.getLogger(__name__)

MAX_LOAD_RATIO = 1.25
"""A server may have this many times the mean of what runs on those that are there."""
MIN_BUSY_GENERATIONS = 4
"""With fewer a server is never busy: reading a prompt again costs more than waiting for a few."""
DEFAULT_AFFINITY_TOKENS = 256
"""Tokens at a prompt's beginning that count for requests of no conversation."""


@dataclass(eq=False)
class Replica:
    """One of the servers."""

    client: RemoteClient
    running: int = 0
    """Generations that it runs for this program."""
    generations: int = 0
    """Those that it was ever asked for, without background ones."""
    failures: int = 0
    watch: asyncio.Task[None] | None = None
    """Waits until it answers again; None: it is not known to be away."""

    @property
    def is_usable(self) -> bool:
        return self.client.is_open and self.watch is None


class Replicas:
    """All servers of one entry of models.toml; often it is one."""

    def __init__(self, endpoint: RemoteEndpoint, clients: Sequence[RemoteClient]) -> None:
        self.endpoint = endpoint
        self.all = [Replica(client) for client in clients]

    @property
    def is_open(self) -> bool:
        return any(replica.client.is_open for replica in self.all)

    @property
    def context_length(self) -> int:
        opened = [replica.client for replica in self.all if replica.client.is_open]
        clients = opened or [replica.client for replica in self.all]
        return min(client.context_length for client in clients)

    # --- the connections ---

    async def open(self, progress: Callable[[float], None] | None = None) -> None:
        """Wait until one of them is ready; others join when they are. Raises EngineError."""
        tasks = [asyncio.create_task(each.client.open(progress)) for each in self.all]
        try:
            pending = set(tasks)
            while pending and not self.is_open:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if pending:
                timeout = self.all[0].client.timing.health_timeout
                _, pending = await asyncio.wait(pending, timeout=timeout)
            if not self.is_open:
                await tasks[0]  # raises
            self._require_same_model()
        except BaseException:
            for http in self.detach():
                await http.aclose()
            raise
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for replica, result in zip(self.all, results, strict=True):
            if not replica.client.is_open:
                self.mark_away(replica, str(result) or "it is not ready")

    def _require_same_model(self) -> None:
        served = {each.client.served_model: each.client for each in self.all if each.client.is_open}
        if len(served) > 1:
            (one, client), (other, other_client) = list(served.items())[:2]
            raise EngineError(
                f"{client.endpoint} serves {one} and {other_client.endpoint} {other}: the servers of"
                " one entry of models.toml must serve one model under one name."
            )

    def detach(self) -> list[httpx2.AsyncClient]:
        for replica in self.all:
            if replica.watch is not None:
                replica.watch.cancel()
                replica.watch = None
        return [http for each in self.all if (http := each.client.detach()) is not None]

    # --- the choice ---

    def choose(self, request: Request) -> Replica:
        opened = [replica for replica in self.all if replica.client.is_open]
        return self.choose_another(request, ()) or rank(opened, request)[0]

    def choose_another(self, request: Request, tried: Collection[Replica]) -> Replica | None:
        """Choose one that is not away and was not tried; None: there is none."""
        usable = [each for each in self.all if each.is_usable and each not in tried]
        if not usable:
            return None
        fair_share = (sum(each.running for each in usable) + 1) / len(usable)
        limit = max(MIN_BUSY_GENERATIONS, MAX_LOAD_RATIO * fair_share)
        return next(each for each in rank(usable, request) if each.running < limit)

    def acquire(self, replica: Replica, request: Request) -> None:
        replica.running += 1
        replica.generations += not request.background

    def release(self, replica: Replica) -> None:
        replica.running -= 1

    # --- health ---

    def mark_away(self, replica: Replica, reason: str) -> None:
        """Ask it nothing until it answers again. One that is alone is asked all the same."""
        replica.failures += 1
        if len(self.all) > 1 and replica.watch is None:
            log.warning("%s is left out: %s", replica.client.endpoint, reason)
            replica.watch = asyncio.create_task(self._wait_until_back(replica))

    async def _wait_until_back(self, replica: Replica) -> None:
        client, last = replica.client, ""
        while True:
            try:
                if await client.check_health() is None:
                    await self.rejoin(replica)
                    break
            except EngineError as error:
                if str(error) != last:
                    log.warning("%s stays left out: %s", client.endpoint, error)
                last = str(error)
            await asyncio.sleep(client.timing.retry_poll)
        replica.watch = None
        log.warning("%s is there again", client.endpoint)

    async def rejoin(self, replica: Replica) -> None:
        """Look at what one that was away serves now. Raises EngineError if that is of no use."""
        await replica.client.open()
        self._require_same_model()

    async def find_ready(self, preferred: Replica) -> Replica | HealthProblem:
        """Return one that can answer now, or why ``preferred`` cannot. Raises EngineError."""
        others = [each for each in self.all if each is not preferred and each.client.is_open]
        checks = (each.client.check_health() for each in (preferred, *others))
        problem, *rest = await asyncio.gather(*checks)
        if problem is None:
            return preferred
        ready = (each for each, why in zip(others, rest, strict=True) if why is None)
        return next(ready, problem)

    async def check_health(self) -> HealthProblem | None:
        ready = await self.find_ready(self.all[0])
        return ready if isinstance(ready, HealthProblem) else None

    async def cached_health(self) -> HealthProblem | None:
        problems = await asyncio.gather(*(each.client.cached_health() for each in self.all))
        return problems[0] if all(problems) else None


def rank(replicas: Collection[Replica], request: Request) -> list[Replica]:
    """Sort by score: the first one has the conversation's prompts in its cache."""
    ids = request.prompt[: request.affinity_tokens or DEFAULT_AFFINITY_TOKENS]
    key = array("q", ids).tobytes()

    def score(replica: Replica) -> bytes:
        address = hashlib.blake2b(replica.client.endpoint.url.encode(), digest_size=32).digest()
        return hashlib.blake2b(key, key=address, digest_size=8).digest()

    return sorted(replicas, key=score, reverse=True)
