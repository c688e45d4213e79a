"""Jobs of turns that do not answer: compact the conversation, prefill its prompt, write a summary.
``Turn(runtime, conversation, [], options, job=CompactionJob()).start()`` has a log, can be stopped and
ends like any other; its notices say what was done."""

from __future__ import annotations

from dataclasses import replace

from agent.conversation.compaction import NotCompactedError, compact, summary_message
from agent.conversation.summary import NoSummaryError, summarise
from agent.turn.context import TurnContext
from agent.turn.endings import TurnFailedError
from agent.turn.prepared import PreparedTurn
from agent.util.process import EXIT_FAILED


class CompactionJob:
    """Compacts the conversation, as a person asked for."""

    prefetches = True

    async def run(self, context: TurnContext, prepared: PreparedTurn) -> None:
        """Summarise all turns but the last. Raises TurnFailedError where that is not possible."""
        try:
            await context.until_stopped(compact(prepared.generator, context.conversation))
        except NotCompactedError as error:
            raise TurnFailedError("invalid_prompt", str(error), EXIT_FAILED) from error


class PrefillJob:
    """Prefetches the prompt of a turn that the client will ask for next."""

    prefetches = True

    async def run(self, context: TurnContext, prepared: PreparedTurn) -> None:
        """Leave the conversation's turn open; the turn's end prefetches it."""
        context.awaits_client = True


class SummaryJob:
    """Writes a summary of the conversation, which stays as it is."""

    prefetches = False

    def __init__(self) -> None:
        self.text = ""
        """The summary, once the turn is completed."""

    async def run(self, context: TurnContext, prepared: PreparedTurn) -> None:
        """Write the summary to ``text``. Raises TurnFailedError where the model writes none."""
        context.accepted.set()
        form, conversation = context.format, context.conversation
        work = summarise(
            replace(prepared.generator, on_generation=context.usage.add_generation),
            conversation.header_ids,
            conversation.prompt_entries(),
            lambda text: form.developer_message(summary_message(text)),
        )
        try:
            self.text = await context.until_stopped(work)
        except NoSummaryError as error:
            message = f"No summary was made: {error}."
            raise TurnFailedError("no_summary", message, EXIT_FAILED) from error
