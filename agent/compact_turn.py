"""The turn of a person who asks for room: nothing is answered, the conversation is compacted."""

from __future__ import annotations

from agent.compact import NotCompacted, compact
from agent.turn import EXIT_FAILED, Refused, Turn


class CompactTurn(Turn):
    """Like any turn it has a log, can be stopped, and ends; its notices tell what was done."""

    async def _converse(self) -> bool:
        self.prepare()
        work = compact(self.runtime, self.conversation, self.options.sampling, self.emit)
        try:
            await self.until_stopped(work)
        except NotCompacted as error:
            raise Refused("invalid_prompt", str(error), EXIT_FAILED) from error
        return False

    def _leave(self) -> None:
        super()._leave()
        if self.runtime.loaded:
            self.runtime.lay_ahead(self.conversation.ids())
