"""Counts what this process did, for `/metrics` in Prometheus's text format."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from agent import events as ev
from agent.runtime.runtime import Runtime
from agent.turn.context import RunningTurn

if TYPE_CHECKING:  # it imports the HTTP client, which only a remote model needs
    from agent.engine.remote.replicas import Replicas

ListRuntimes = Callable[[], Sequence[Runtime]]
SPEED_BUCKETS = (1, 2, 5, 10, 20, 35, 50, 75, 100, 150, 200, 300, 500, 1000)
"""Upper bounds, in tokens per second."""
LATENCY_BUCKETS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
CLIENT_SERVER_LABEL = "client"
"""Label of all MCP servers that requests bring: their names are unbounded."""


def replicas_of(runtime: Runtime) -> Replicas | None:
    """The servers that run a model, where this process does not."""
    current = runtime.loaded or runtime.asleep
    return getattr(current.engine, "replicas", None) if current is not None else None


class StateCollector(Collector):
    """Reads the state of the runtimes and of the servers of their models whenever someone scrapes."""

    def __init__(self, runtimes: ListRuntimes) -> None:
        self._runtimes = runtimes

    def collect(self) -> Iterator[Metric]:
        gauge, counter, runtimes = GaugeMetricFamily, CounterMetricFamily, self._runtimes()
        loaded = [runtime.loaded for runtime in runtimes if runtime.loaded is not None]
        turns = sum(runtime.running_turns for runtime in runtimes)
        about_turns = "Turns that have not ended, and requests that are being read."
        yield gauge("agent_turns_running", about_turns, turns)
        unfinished = sum(model.engine.unfinished for model in loaded)
        about_engine = "Generations that run or wait for a sequence of the engine."
        yield gauge("agent_engine_requests", about_engine, unfinished)
        yield gauge("agent_model_loaded", "Models in memory: 1, or 0 while it sleeps.", len(loaded))
        kinds = (
            (gauge, "up", "1 while requests go to this server.", "is_usable"),
            (gauge, "running", "Generations on this server.", "running"),
            (counter, "generations", "Generations that this server was asked for.", "generations"),
            (counter, "failures", "Failures of this server.", "failures"),
        )
        servers = [found for runtime in runtimes if (found := replicas_of(runtime)) is not None]
        if not (replicas := [replica for each in servers for replica in each.all]):
            return
        for family, name, description, field in kinds:
            metric = family(f"agent_server_{name}", description, labels=["server"])
            for replica in replicas:
                metric.add_metric([str(replica.client.endpoint)], getattr(replica, field))
            yield metric


class Metrics:
    """Counts the turns of a runtime, whichever interface they came through."""

    def __init__(self, runtime: Runtime, runtimes: ListRuntimes) -> None:
        """``runtime``: one of the ``runtimes``, whose hub announces all turns."""
        self._host = runtime.host
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # unused descriptions
        self._registry = registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)
        counter = partial(prometheus_client.Counter, registry=registry)
        histogram = partial(prometheus_client.Histogram, registry=registry)
        self._turns = counter("agent_turns", "Turns that ended.", ["status"])
        about = "Read: prefilled, or cached (still in memory); written: reasoning, or other output."
        self._tokens = counter("agent_tokens", about, ["kind"])
        about = "Raw completions that ended, each choice of them."
        self._completions = counter("agent_completions", about, ["status"])
        about = "Drafted tokens of speculative decoding: accepted, or rejected."
        self._drafts = counter("agent_draft_tokens", about, ["outcome"])
        name = "agent_decode_tokens_per_second"
        self._speed = histogram(name, "Decode speed of a turn.", buckets=SPEED_BUCKETS)
        latency = partial(histogram, buckets=LATENCY_BUCKETS_SECONDS)
        name = "agent_time_to_first_token_seconds"
        self._first_token = latency(name, "Time to a turn's first token.")
        self._tools = latency("agent_tool_seconds", "One call of a tool.", ["server"])
        self._repairs = counter("agent_repairs", "Malformed markup that was mended.", ["rule"])
        registry.register(StateCollector(runtimes))
        runtime.hub.subscribe(self.follow)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def follow(self, turn: RunningTurn) -> None:
        """Count a turn's tokens, tools and repairs; a subscriber of ``Hub``. At once: a reader of the
        log would be woken for each token."""
        started: dict[str, float] = {}  # when the calls that run began, by item
        stats: ev.AgentStats | None = None

        def count(event: ev.Event) -> None:
            nonlocal stats
            match event:
                case ev.AgentStats():
                    stats = event
                case ev.AgentRepair(rule=rule):
                    self._repairs.labels(rule).inc()
                case (
                    ev.McpCallArgumentsDone(item_id=id)
                    | ev.AgentApprovalResolved(item_id=id, decision="approved")
                    | ev.CodeInterpreterCallInterpreting(item_id=id)
                    | ev.WebSearchCallSearching(item_id=id)
                ):
                    started[id] = time.monotonic()
                case ev.AgentApprovalResolved(item_id=id):
                    started.pop(id, None)
                case ev.OutputItemDone(item=item) if item.id in started:
                    seconds = time.monotonic() - started.pop(item.id)
                    self._tools.labels(self._server_label(item)).observe(seconds)
                case ev.ResponseCompleted() | ev.ResponseIncomplete() | ev.ResponseFailed():
                    if stats is not None:
                        self._record_stats(stats, event.response.usage or ev.Usage())
                    self._turns.labels(event.response.status).inc()

        for event in turn.log.events:
            count(event)
        turn.log.on_append(count)

    def record_completion(self, status: str, read: int, cached: int, written: int) -> None:
        """Count a raw completion, which is not a turn: tokens of its prompt, those of them in memory,
        and of its text. ``status``: completed, failed or cancelled."""
        self._completions.labels(status).inc()
        self._count_tokens(prefilled=read - cached, cached=cached, output=written)

    def _count_tokens(self, **numbers: int) -> None:
        for kind, number in numbers.items():
            self._tokens.labels(kind).inc(number)

    def _server_label(self, call: ev.Item) -> str:
        match call:
            case ev.McpCallItem(server_label=label):
                configured = {server.name for server in self._host.server_states()}
                return label if label in configured else CLIENT_SERVER_LABEL
            case ev.CodeInterpreterCallItem():
                return "code_interpreter"
        return "browser"

    def _record_stats(self, stats: ev.AgentStats, usage: ev.Usage) -> None:
        reasoning = usage.output_tokens_details.reasoning_tokens
        self._count_tokens(
            prefilled=stats.prefill_tokens,
            cached=stats.cached_tokens,
            reasoning=reasoning,
            output=stats.output_tokens - reasoning,
        )
        self._drafts.labels("accepted").inc(stats.accepted_tokens)
        self._drafts.labels("rejected").inc(stats.drafted_tokens - stats.accepted_tokens)
        if stats.output_tokens:
            self._speed.observe(stats.tokens_per_second)
            self._first_token.observe(stats.time_to_first_token_ms / 1e3)
