"""`/metrics`: what this process did, in Prometheus's text format."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from agent import events as ev
from agent.runtime.runtime import Runtime
from agent.turn.loop import Turn

CONTENT_TYPE = CONTENT_TYPE_LATEST
SPEEDS = (1, 2, 5, 10, 20, 35, 50, 75, 100, 150, 200, 300, 500, 1000)
"""Tokens per second."""
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
GUEST = "guest"
"""Stands for the servers that requests bring: there is no end of their names."""


class Metrics:
    """Counts the turns of every face from now on."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._following: set[asyncio.Task[None]] = set()
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a line each that nobody reads
        self._registry = to = CollectorRegistry()
        ProcessCollector(registry=to)
        self._turns = Counter("agent_turns", "Turns that ended.", ["status"], registry=to)
        self._tokens = Counter(
            "agent_tokens",
            "Read: prefilled, or cached (still in memory); written: reasoning, or other output.",
            ["kind"],
            registry=to,
        )
        self._speed = Histogram(
            "agent_decode_tokens_per_second", "Of one turn.", registry=to, buckets=SPEEDS
        )
        self._first = Histogram(
            "agent_time_to_first_token_seconds", "Of one turn.", registry=to, buckets=SECONDS
        )
        self._tools = Histogram(
            "agent_tool_seconds", "One call of a tool.", ["server"], registry=to, buckets=SECONDS
        )
        self._repairs = Counter(
            "agent_repairs", "Malformed markup that was mended.", ["rule"], registry=to
        )
        self._gauge(
            "agent_turns_running",
            "Turns that have not ended, and requests that are being read.",
            lambda: runtime.running,
        )
        self._gauge(
            "agent_engine_requests",
            "Generations that run or wait for a sequence of the engine.",
            lambda: runtime.engine.unfinished if runtime.loaded else 0,
        )
        self._gauge("agent_model_loaded", "1 while the model is in memory.", lambda: runtime.loaded)
        runtime.hub.listen(self._listen)

    def _gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        Gauge(name, about, registry=self._registry).set_function(value)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def _listen(self, turn: Turn) -> None:
        task = asyncio.create_task(self._follow(turn))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _follow(self, turn: Turn) -> None:
        began: dict[str, float] = {}
        async for batch in turn.log.follow():
            for event in batch:
                match event:
                    case ev.AgentStats():
                        self._measured(event, turn)
                    case ev.AgentRepair(rule=rule):
                        self._repairs.labels(rule).inc()
                    case (
                        ev.McpCallArgumentsDone(item_id=id)
                        | ev.AgentApprovalResolved(item_id=id, decision="approved")
                        | ev.CodeInterpreterCallInterpreting(item_id=id)
                        | ev.WebSearchCallSearching(item_id=id)
                    ):
                        began[id] = time.monotonic()
                    case ev.AgentApprovalResolved(item_id=id):
                        began.pop(id, None)
                    case ev.OutputItemDone(item=item) if item.id in began:
                        seconds = time.monotonic() - began.pop(item.id)
                        self._tools.labels(self._server(item)).observe(seconds)
        self._turns.labels(turn.response.status).inc()

    def _server(self, call: ev.Item) -> str:
        match call:
            case ev.McpCallItem(server_label=label):
                own = {server.name for server in self._runtime.host.servers()}
                return label if label in own else GUEST
            case ev.CodeInterpreterCallItem():
                return "code_interpreter"
            case _:
                return "browser"

    def _measured(self, stats: ev.AgentStats, turn: Turn) -> None:
        reasoning = turn.measures.usage.output_tokens_details.reasoning_tokens
        for kind, number in (
            ("prefilled", stats.prefill_tokens),
            ("cached", stats.cached_tokens),
            ("reasoning", reasoning),
            ("output", stats.output_tokens - reasoning),
        ):
            self._tokens.labels(kind).inc(number)
        if stats.output_tokens:
            self._speed.observe(stats.tokens_per_second)
            self._first.observe(stats.time_to_first_token_ms / 1e3)
