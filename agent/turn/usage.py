"""The usage of a turn: its tokens, as the response reports them, and its times."""

from __future__ import annotations

import time

from agent.engine.protocol import Finished
from agent.events import AgentStats, Usage


class UsageMeter:
    """Counts tokens and time while a turn runs. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.tokens = Usage()
        """Tokens of the turn's own generations: the response's ``usage``."""
        self.auxiliary = Usage()
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
        """Count a generation that is not part of the response."""
        self.auxiliary.input_tokens += end.prompt_tokens
        self.auxiliary.output_tokens += output_tokens

    def stats(self) -> AgentStats:
        now, usage = time.monotonic(), self.tokens
        speed = self._decoded / self._decode_seconds if self._decode_seconds else 0.0
        return AgentStats(
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
