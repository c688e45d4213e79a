"""Answers requests with turns and tracks the turns that run. Knows nothing of HTTP.

The life of a response, by whichever route it came::

    begin ──▶ plan ──▶ Turn.start ──▶ admitted by the engine ──▶ running ──▶ finish
      │         │                           │                         │
      └─────────┴───────── ApiError ────────┘    abandon: stop, finish when it has ended

A route calls ``begin``, writes what ``turn.log`` has, and calls ``finish`` before its client sees the
terminal event, so that a following request finds the response; if its client left, ``abandon``."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agent.observability.metrics import Metrics
from agent.server.http.errors import ApiError, rate_limited
from agent.server.http.options import ServerOptions
from agent.server.http.request_body import BodyBudget
from agent.server.input.files import DocumentReader
from agent.server.input.schemas import CreateResponse
from agent.server.input.stored_responses import ResponseCache
from agent.server.input.token_memo import TokenMemo
from agent.server.responses.conversations import Conversations, storing
from agent.server.responses.models import ServedModels
from agent.server.responses.request_planner import TurnPlan, TurnPlanner, refuse_contradictions
from agent.store.conversations import Store
from agent.store.recorder import TurnRecorder
from agent.store.records import prompt_of
from agent.store.responses import ResponseStore
from agent.turn.endings import RATE_LIMIT
from agent.turn.jobs import TurnJob
from agent.turn.loop import Turn

MAX_RUNNING_RESPONSES = 256
"""Responses that run or wait for the engine; further requests are refused with status 429."""
MAX_RUNNING_BYTES = 64 * 1024 * 1024
"""Bytes of their requests' bodies together, after which further requests are refused likewise."""


class ResponseService:
    """Begins, tracks, stores and stops the responses of a server's models."""

    def __init__(
        self, models: ServedModels, options: ServerOptions, store: ResponseStore | None
    ) -> None:
        """``store``: None: responses stay in memory."""
        self.runtime, self.options, self.models = models.first.runtime, options, models
        self.runtime.aliases = options.aliases
        self.max_running, self.max_running_bytes = MAX_RUNNING_RESPONSES, MAX_RUNNING_BYTES
        self.metrics = Metrics(self.runtime, lambda: [model.runtime for model in self.models.known])
        self.cache, self.token_memo = ResponseCache(store), TokenMemo()
        self.body_budget = BodyBudget(options.max_body_bytes)
        in_store = store.store if store is not None else Store(None)
        self._recorder = TurnRecorder(in_store)
        self._stores_responses = store is not None
        document_reader = DocumentReader()
        self.conversations = Conversations(
            self.models,
            in_store,
            self.cache,
            self.token_memo,
            document_reader,
            lenient=options.lenient,
        )
        self.running: dict[Turn, TurnPlan] = {}
        self._other_work = 0
        self.draining = False
        self.started_at = int(time.time())
        self._pending_tasks: set[asyncio.Task[None]] = set()
        self._planner = TurnPlanner(
            self.models, options, self.token_memo, self.conversations, document_reader
        )

    @property
    def exposed_servers(self) -> list[str]:
        return self._planner.exposed_servers()

    def stop_all(self) -> None:
        for turn in list(self.running):
            turn.stop()

    async def wait_idle(self) -> None:
        """Wait until all tracked tasks are done, those of background responses too."""
        while self._pending_tasks:
            await asyncio.wait(self._pending_tasks)

    def track(self, task: asyncio.Task[None]) -> None:
        self._pending_tasks.add(task)
        task.add_done_callback(self._pending_tasks.discard)

    async def begin(
        self,
        request: CreateResponse,
        job: TurnJob | None = None,
        cache: ResponseCache | None = None,
    ) -> Turn:
        """Start the turn that answers a request; the caller calls ``finish`` or ``abandon`` in the end.
        ``job``: done instead. ``cache``: has ``previous_response_id``. Raises ApiError."""
        self._check_capacity()
        refuse_contradictions(request)  # before what it names is looked up
        if (conversation := request.conversation_id) is not None:
            await self.conversations.lock(conversation)
        try:
            plan = await self._planner.plan(request, cache or self.cache, job)
        except BaseException:
            self._unlock(request)
            raise
        try:
            self._check_capacity()  # others were planned meanwhile
        except ApiError:
            self._release(plan)
            raise
        turn = plan.turn.start()
        self.running[turn] = plan
        await self._wait_admitted(turn)
        if plan.store and (self._stores_responses or plan.request.conversation_id is not None):
            # Turns of conversations are written, in memory if nowhere else.
            await self._record(turn, plan)
        if plan.background:
            self.track(asyncio.create_task(self._finish_when_done(turn)))
        return turn

    async def begin_all(self, requests: Sequence[CreateResponse]) -> list[Turn]:
        """Start a turn for each request, or none. Raises ApiError."""
        turns: list[Turn] = []
        try:
            for request in requests:
                turns.append(await self.begin(request))
        except BaseException:
            for turn in turns:
                self.abandon(turn)
            raise
        return turns

    async def _record(self, turn: Turn, plan: TurnPlan) -> None:
        """Have a turn written, or stop it. Raises ApiError where it cannot extend its conversation."""
        try:
            with storing():
                if (conversation := plan.request.conversation_id) is not None:
                    await self.conversations.keep(conversation)
                await self._recorder.record(
                    turn,
                    prompt_of(plan.inputs),
                    start=turn.first_entry,
                    served=plan.served,
                    keep="official" if plan.background else "none",
                )
        except BaseException as error:
            plan.store = not isinstance(error, ApiError)  # or the client has left
            self.abandon(turn)
            raise

    async def prompt_ids(self, request: CreateResponse) -> list[int]:
        """The prompt that a request would have; starts no turn. Raises ApiError."""
        plan = await self._planner.plan(request, self.cache)
        self._close_request_host(plan)
        turn = plan.turn
        return [*turn.conversation.prompt(turn.format), *turn.prepare().begun.ids]

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count other work than a turn among the responses that run. Raises ApiError."""
        self._check_capacity()
        self._other_work += 1
        try:
            yield
        finally:
            self._other_work -= 1

    async def forget(self, turn: Turn) -> None:
        """Store nothing more of a running response, which clients see no more. Raises sqlite3.Error."""
        plan = self.running[turn]
        plan.store, plan.deleted = False, True
        self._recorder.discard(turn.response.id)
        if plan.request.conversation_id is not None:
            store, name = self.conversations.store.store, turn.response.id
            await store.run(lambda: store.discard(turn.conversation, name))

    def abandon(self, turn: Turn) -> None:
        """Stop a turn whose client has left, and finish it once it has ended. No effect after that."""
        if turn not in self.running:
            return
        turn.stop()
        self.track(asyncio.create_task(self._finish_when_done(turn)))

    def finish(self, turn: Turn) -> None:
        """Stop tracking a turn that has ended; its response can be continued. Repeating is harmless."""
        if (plan := self.running.pop(turn, None)) is None:
            return
        plan.remember_tokens(self.token_memo)
        self._release(plan)
        if plan.store:
            self.cache.add(plan.served_turn())
        if not self.running:
            self.cache.prune_when_due()

    def refuse_while_draining(self) -> None:
        """Raises ApiError, 503."""
        if self.draining:
            raise ApiError(503, "This server is shutting down.", code="server_error")

    def _check_capacity(self) -> None:
        """Raises ApiError: 503 while draining, 429 when too many responses run."""
        self.refuse_while_draining()
        running_bytes = sum(plan.request.origin.sent_bytes for plan in self.running.values())
        if (
            len(self.running) + self._other_work >= self.max_running
            or running_bytes > self.max_running_bytes
        ):
            raise rate_limited()

    async def _wait_admitted(self, turn: Turn) -> None:
        """Wait until the engine has taken the turn. Raises ApiError: 429 when its queue is full."""
        try:
            await turn.accepted.wait()
        except BaseException:
            self.abandon(turn)
            raise
        if (error := turn.response.error) is not None and error.code == RATE_LIMIT:
            self._release(self.running.pop(turn))
            raise rate_limited(error.message)

    async def _finish_when_done(self, turn: Turn) -> None:
        try:
            await turn.done()
        finally:
            self.finish(turn)

    def _release(self, plan: TurnPlan) -> None:
        self._close_request_host(plan)
        self._unlock(plan.request)

    def _unlock(self, request: CreateResponse) -> None:
        if request.conversation_id is not None:
            self.conversations.unlock(request.conversation_id)

    def _close_request_host(self, plan: TurnPlan) -> None:
        if plan.turn.host is not plan.turn.runtime.host:
            self.track(asyncio.create_task(plan.turn.host.close()))
