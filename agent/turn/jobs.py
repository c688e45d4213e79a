"""Jobs of turns that do not answer: compact the conversation, prefill its prompt, write a summary.
``Turn(runtime, conversation, [], options, job=CompactionJob()).start()`` has a log, can be stopped and
ends like any other; its notices say what was done."""

from __future__ import annotations

from agent.conversation.compaction import NotCompactedError, compact, summary_message
from agent.conversation.summary import NoSummaryError, summarise
from agent.turn.endings import TurnFailedError
from agent.turn.loop import Turn
from agent.util.process import EXIT_FAILED


class CompactionJob:
    """Compacts the conversation, as a person asked for."""

    prefetches = True

    async def run(self, turn: Turn) -> None:
        """Summarise all turns but the last. Raises TurnFailedError where that is not possible."""
        work = compact(
            turn.generator,
            turn.conversation,
            turn.options.sampling,
            turn.emit,
            turn.usage.add_auxiliary_generation,
        )
        try:
            await turn.until_stopped(work)
        except NotCompactedError as error:
            raise TurnFailedError("invalid_prompt", str(error), EXIT_FAILED) from error


class PrefillJob:
    """Prefetches the prompt of a turn that the client will ask for next."""

    prefetches = True

    async def run(self, turn: Turn) -> None:
        """Leave the conversation's turn open; the turn's end prefetches it."""
        turn.awaits_client = True


class SummaryJob:
    """Writes a summary of the conversation, which stays as it is."""

    prefetches = False

    def __init__(self) -> None:
        self.text = ""
        """The summary, once the turn is completed."""

    async def run(self, turn: Turn) -> None:
        """Write the summary to ``text``. Raises TurnFailedError where the model writes none."""
        turn.started_generating.set()
        form, conversation = turn.format, turn.conversation
        work = summarise(
            turn.generator,
            conversation.header_ids,
            conversation.prompt_entries(),
            lambda text: form.developer_message(summary_message(text)),
            turn.options.sampling,
            turn.emit,
            turn.usage.add_generation,
        )
        try:
            self.text = await turn.until_stopped(work)
        except NoSummaryError as error:
            message = f"No summary was made: {error}."
            raise TurnFailedError("no_summary", message, EXIT_FAILED) from error
