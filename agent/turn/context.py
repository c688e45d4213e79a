"""The state that a turn's parts share, and the protocol of a turn for those who watch or record it."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from agent import events as ev
from agent.conversation.conversation import Conversation, Entry
from agent.conversation.messages import Message
from agent.engine.protocol import Finished
from agent.formats.protocol import Format
from agent.runtime.runtime import Runtime
from agent.turn.endings import StopReason, TurnCancelledError
from agent.turn.log import EventLog
from agent.turn.options import Interface, TurnOptions
from agent.turn.output import Output
from tools.mcp.host import Host
from tools.policy.approvals import Policy

T = TypeVar("T")


class UsageMeter:
    """Counts tokens and time while a turn runs. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.tokens = ev.Usage()
        """Tokens of the turn's own generations: the response's ``usage``."""
        self.auxiliary = ev.Usage()
        """Tokens of generations that are not part of the response: summaries, MCP sampling."""
        self.tool_seconds = 0.0
        self._started = time.monotonic()
        self._first_token: float | None = None
        self._prefilled = self._decoded = 0
        self._decode_seconds = 0.0
        self._drafted = self._accepted = 0

    def on_token(self) -> None:
        """Note the time of the first token; later calls do nothing."""
        self._first_token = self._first_token or time.monotonic()

    def add_generation(
        self, end: Finished, output_tokens: int, reasoning_tokens: int, *, continues: bool = False
    ) -> None:
        """Count a generation; ``output_tokens``: those used. ``continues``: its prompt was counted."""
        usage = self.tokens
        if not continues:
            usage.input_tokens += end.prompt_tokens
            usage.input_tokens_details.cached_tokens += end.cached_tokens
        usage.output_tokens += output_tokens
        usage.output_tokens_details.reasoning_tokens += reasoning_tokens
        usage.total_tokens = usage.input_tokens + usage.output_tokens
        self._prefilled += end.prompt_tokens - end.cached_tokens
        self._decoded += end.output_tokens
        self._decode_seconds += end.decode_seconds
        self._drafted += end.drafted_tokens
        self._accepted += end.accepted_tokens

    def add_auxiliary_generation(
        self, end: Finished, output_tokens: int, reasoning_tokens: int
    ) -> None:
        self.auxiliary.input_tokens += end.prompt_tokens
        self.auxiliary.output_tokens += output_tokens

    def stats(self) -> ev.AgentStats:
        now, usage = time.monotonic(), self.tokens
        speed = self._decoded / self._decode_seconds if self._decode_seconds else 0.0
        return ev.AgentStats(
            prefill_tokens=self._prefilled,
            cached_tokens=usage.input_tokens_details.cached_tokens,
            output_tokens=usage.output_tokens,
            aside_input_tokens=self.auxiliary.input_tokens,
            aside_output_tokens=self.auxiliary.output_tokens,
            drafted_tokens=self._drafted,
            accepted_tokens=self._accepted,
            tokens_per_second=round(speed, 1),
            time_to_first_token_ms=round(((self._first_token or now) - self._started) * 1e3, 1),
            tool_ms=round(self.tool_seconds * 1e3, 1),
            total_ms=round((now - self._started) * 1e3, 1),
        )


class TurnContext(ABC):
    """Settings, events, response and stop request of a turn, as its parts share them."""

    format: Format
    """The loaded model's, once the turn is prepared."""

    def __init__(
        self,
        runtime: Runtime,
        conversation: Conversation,
        options: TurnOptions,
        response: ev.Response,
        interface: Interface,
        host: Host,
        policy: Policy,
    ) -> None:
        self.runtime, self.conversation, self.options = runtime, conversation, options
        self.interface, self.host, self.policy = interface, host, policy
        self.log, self.usage = EventLog(), UsageMeter()
        self.output = Output(self.emit, host.builtins.source)
        self.response = response
        """As the request fixed it; the final one once the turn has ended."""
        self.awaits_client = False
        """The client continues this turn of the conversation, whose reasoning stays until then."""
        self.prefetches = False
        """The prompt that its job has left is prefetched, whatever the interface does after answers."""
        self.steering: list[str] = []
        """The user's messages since the turn started that no generation has read yet."""
        self.is_steered = False
        """A further turn continues this one, which ends before its next generation."""
        self.incomplete_reason: ev.IncompleteReason = "max_output_tokens"
        self.accepted = asyncio.Event()
        """Set once the engine has accepted a generation, or the turn did something else, or ended."""
        self.answers_now = False
        self.stop_reason: StopReason | None = None
        self.stopping = asyncio.Event()
        self._sequence_number = 0
        self._has_ended = False

    @abstractmethod
    async def run_child(self, messages: Sequence[Message], options: TurnOptions) -> ev.Response:
        """Run a turn in a conversation of its own; its tokens count as auxiliary ones of this turn."""

    # --- events ---

    def emit(self, event: ev.Event) -> None:
        """Append an event to the log; official ones are numbered. After the end events are dropped."""
        if self._has_ended:
            return  # progress of work that is no longer awaited
        if self.response.status == "queued" and isinstance(
            event, ev.AgentPrefill | ev.OutputItemAdded
        ):
            self.mark_in_progress()
        if isinstance(event, ev.AgentRepair):
            repair = ev.ResponseRepair(rule=event.rule, text=event.text, item_id=event.item_id)
            self.response.repairs = [*(self.response.repairs or ()), repair]
        if isinstance(event, ev.OfficialEvent):
            # An assignment would be checked by pydantic, in three times the time.
            event.__dict__["sequence_number"] = self._sequence_number
            self._sequence_number += 1
        self.log.append(event)

    def mark_in_progress(self) -> None:
        self.response = self.response.model_copy(update={"status": "in_progress"})
        self.emit(ev.ResponseInProgress(response=self.response.model_copy()))

    # --- stopping ---

    def stop(self, reason: StopReason = "cancelled") -> None:
        self.stop_reason = self.stop_reason or reason
        self.stopping.set()

    async def until_stopped(self, work: Awaitable[T]) -> T:
        """The work's result; cancels it and raises TurnCancelledError once the turn is stopped."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise TurnCancelledError
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


class RunningTurn(Protocol):
    """A turn that was started, as those see it who watch, steer, stop or record it."""

    log: EventLog
    source: str
    """The name of the `Interface` that it came through."""
    response: ev.Response
    """The response as the request fixed it; once the turn has ended, the final one."""
    conversation: Conversation
    prompt: Sequence[Message]
    """The messages that are new since the conversation's last turn."""

    @property
    def items(self) -> list[ev.Item]:
        """The output items that are done."""

    @property
    def first_entry(self) -> int:
        """Position of the turn's first message among the conversation's entries."""

    async def done(self) -> ev.Response:
        """Wait until the turn has ended and return the final response."""

    def stop(self, reason: StopReason = "cancelled") -> None:
        """Ask the turn to end: at its next token, or at once while a tool runs."""

    def answer_now(self) -> bool:
        """End the reasoning, also any that follows in the turn, and have it answer; False: it has
        ended, is answering, or its model does not reason."""

    def steer(self, text: str) -> None:
        """Queue a message of the user; the turn's next generation reads it."""

    def queued_steering(self) -> list[str]:
        """The messages of `steer` that no generation has read yet, oldest first."""

    def take_back_steering(self) -> str | None:
        """Remove and return the newest queued message; None if none is queued."""

    def pending_entries(self) -> list[Entry]:
        """The entries if the turn ended now, without reasoning; what is open is cut off or aborted."""
