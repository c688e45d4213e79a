"""Turns that answer nothing: they make room, or a summary. Like any turn they have a log, can be
stopped, and end; their notices tell what was done."""

from __future__ import annotations

from agent.conversation.compaction import NotCompacted, compact, told
from agent.conversation.summary import NoSummary, summarise
from agent.turn.endings import EXIT_FAILED, Refused
from agent.turn.loop import Turn


class CompactTurn(Turn):
    """A person asks for room: the conversation is compacted."""

    async def _converse(self) -> bool:
        self.prepare()
        work = compact(
            self.runtime, self.conversation, self.options.sampling, self.emit, self.measures
        )
        try:
            await self.until_stopped(work)
        except NotCompacted as error:
            raise Refused("invalid_prompt", str(error), EXIT_FAILED) from error
        return False

    def _leave(self) -> None:
        super()._leave()
        if self.runtime.loaded:
            self.runtime.lay_ahead(self.conversation.ids())


class WarmTurn(Turn):
    """A client tells beforehand what it will go on from: nothing is said yet."""

    async def _converse(self) -> bool:
        self.prepare()
        self._client_is_next = True
        return False

    def _leave(self) -> None:
        super()._leave()
        self.runtime.lay_ahead(self.conversation.ids())


class SummaryTurn(Turn):
    """A client asks for a summary of all that it sent; the conversation stays as it is."""

    text = ""
    """The summary, once the turn is completed."""

    async def _converse(self) -> bool:
        self.prepare()
        self.admitted.set()
        form, conversation = self.runtime.format, self.conversation
        work = summarise(
            self.runtime,
            conversation.head_ids,
            conversation.view(),
            lambda text: form.developer(told(text)),
            self.options.sampling,
            self.emit,
            self.measures,
        )
        try:
            self.text = await self.until_stopped(work)
        except NoSummary as error:
            message = f"There is no summary of this: {error}."
            raise Refused("no_summary", message, EXIT_FAILED) from error
        return False
