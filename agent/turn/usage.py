"""What a turn cost: its tokens, as the response reports them, and its times."""

from __future__ import annotations

import time

from agent.engine.protocol import Finished
from agent.events import AgentStats, Usage


class Measures:
    """Counts while a turn runs; times in seconds on the monotonic clock."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.aside = Usage()
        """Of generations that are no part of the response: summaries, what servers had written."""
        self.tool_seconds = 0.0
        self._began = time.monotonic()
        self._first_token: float | None = None
        self._prefilled = self._decoded = 0
        self._decode_seconds = 0.0

    def token_came(self) -> None:
        self._first_token = self._first_token or time.monotonic()

    def generated(self, end: Finished, output: int, reasoning: int) -> None:
        """A generation ended: ``output`` of its tokens were used, ``reasoning`` of these to think."""
        usage = self.usage
        usage.input_tokens += end.prompt_tokens
        usage.input_tokens_details.cached_tokens += end.cached_tokens
        usage.output_tokens += output
        usage.output_tokens_details.reasoning_tokens += reasoning
        usage.total_tokens = usage.input_tokens + usage.output_tokens
        self._prefilled += end.prompt_tokens - end.cached_tokens
        self._decoded += end.output_tokens
        self._decode_seconds += end.decode_seconds

    def went_aside(self, usage: Usage) -> None:
        """Something else was generated meanwhile."""
        self.aside.input_tokens += usage.input_tokens
        self.aside.output_tokens += usage.output_tokens

    def stats(self) -> AgentStats:
        now, usage = time.monotonic(), self.usage
        speed = self._decoded / self._decode_seconds if self._decode_seconds else 0.0
        return AgentStats(
            prefill_tokens=self._prefilled,
            cached_tokens=usage.input_tokens_details.cached_tokens,
            output_tokens=usage.output_tokens,
            aside_input_tokens=self.aside.input_tokens,
            aside_output_tokens=self.aside.output_tokens,
            tokens_per_second=round(speed, 1),
            time_to_first_token_ms=round(((self._first_token or now) - self._began) * 1e3, 1),
            tool_ms=round(self.tool_seconds * 1e3, 1),
            total_ms=round((now - self._began) * 1e3, 1),
        )
