"""The protocols between a turn and its parts (``TurnContext``: tool calls, approval, decoder), the
runtime (``TurnRuntime``), and those who watch or record it (``RunningTurn``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from agent import events as ev
from agent.conversation.conversation import Conversation, Entry
from agent.conversation.messages import Message
from agent.conversation.summary import SummaryCache
from agent.engine.protocol import Generation, Request
from agent.formats.protocol import Format
from agent.models.catalog import Model
from agent.models.loaded import LoadedModel
from agent.turn.endings import StopReason
from agent.turn.log import EventLog
from agent.turn.options import TurnOptions
from agent.turn.output import Output
from agent.turn.usage import UsageMeter
from tools.mcp.host import Host
from tools.policy.approvals import Policy

T = TypeVar("T")


class TurnContext(Protocol):
    """A turn, as its tool calls, approvals and decoders see it."""

    @property
    def options(self) -> TurnOptions: ...

    @property
    def conversation(self) -> Conversation: ...

    @property
    def output(self) -> Output: ...

    @property
    def usage(self) -> UsageMeter: ...

    @property
    def format(self) -> Format: ...

    @property
    def host(self) -> Host: ...

    @property
    def policy(self) -> Policy: ...

    @property
    def max_result_tokens(self) -> int:
        """Tokens that the prompt may have of the tool result that was added last."""

    def emit(self, event: ev.Event) -> None: ...

    async def until_stopped(self, work: Awaitable[T]) -> T:
        """The work's result; cancels it and raises TurnCancelledError once the turn is stopped."""

    async def run_child(self, messages: Sequence[Message], options: TurnOptions) -> ev.Response:
        """Run a turn in a conversation of its own; its tokens count as auxiliary ones of this turn."""


class TurnRuntime(Protocol):
    """The runtime, as a turn sees it."""

    server_wait_seconds: float
    """Time that an optional MCP server may delay a turn of a person or client."""
    token_events: bool
    """Whether turns emit ``agent.prompt`` and ``agent.tokens``."""

    @property
    def model(self) -> Model: ...

    @property
    def engine_name(self) -> str: ...

    @property
    def context_length(self) -> int:
        """Tokens that prompt and output together may have; exact once the model is placed."""

    @property
    def loaded(self) -> LoadedModel | None: ...

    @property
    def summaries(self) -> SummaryCache:
        """Summaries of conversations that clients may resend."""

    @property
    def host(self) -> Host: ...

    @property
    def policy(self) -> Policy: ...

    def begin_turn(self) -> None: ...

    def end_turn(self) -> None: ...

    def publish(self, turn: RunningTurn) -> None: ...

    async def plan_placement(self) -> None:
        """Decide where the model goes, so that the context length is known. Never fails."""

    async def load(
        self, progress: Callable[[float], None] | None = None, *, warm_up: bool = False
    ) -> LoadedModel: ...

    def generate(self, request: Request) -> Generation: ...

    def prefetch(
        self,
        ids: list[int],
        *,
        head_tokens: int = 0,
        affinity_tokens: int = 0,
        private: bool = False,
    ) -> None: ...


class RunningTurn(Protocol):
    """A turn that was started, as those see it who watch, steer, stop or record it."""

    @property
    def log(self) -> EventLog:
        """Its events so far."""

    @property
    def source(self) -> str:
        """The interface that it came through: ``run``, ``app``, ``http``, ``mcp`` or ``sampling``."""

    @property
    def response(self) -> ev.Response:
        """The response as the request fixed it; once the turn has ended, the final one."""

    @property
    def conversation(self) -> Conversation:
        """The conversation that the turn continues."""

    @property
    def prompt(self) -> Sequence[Message]:
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

    def steer(self, text: str) -> None:
        """Queue a message of the user; the turn's next generation reads it."""

    def queued_steering(self) -> list[str]:
        """The messages of `steer` that no generation has read yet, oldest first."""

    def take_back_steering(self) -> str | None:
        """Remove and return the newest queued message; None if none is queued."""

    def pending_entries(self) -> list[Entry]:
        """The entries if the turn ended now, without reasoning; what is open is cut off or aborted."""
