"""Jobs of turns that do not answer: compact the conversation, prefill its prompt, write a summary.
``Turn(runtime, conversation, [], options, job=compact_conversation).start()`` has a log, can be stopped
and ends like any other; its notices say what was done."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from agent.conversation.compaction import NotCompactedError, compact, summary_message
from agent.conversation.conversation import CompactedPrefix
from agent.conversation.summary import NoSummaryError, summarise
from agent.turn.context import TurnContext
from agent.turn.endings import TurnFailedError
from agent.turn.output import CompactionWriter
from agent.turn.prepared import PreparedTurn
from agent.util.process import EXIT_FAILED

TurnJob = Callable[[TurnContext, PreparedTurn], Awaitable[None]]
"""The work of a turn instead of an answer, once the model is loaded. Raises TurnFailedError,
TurnCancelledError, EngineError."""


async def compact_conversation(context: TurnContext, prepared: PreparedTurn) -> None:
    """Summarise all turns but the last, as a person asked for."""
    context.prefetches = True
    try:
        await context.until_stopped(compact(prepared.generator, context.conversation))
    except NotCompactedError as error:
        raise TurnFailedError("invalid_prompt", str(error), EXIT_FAILED) from error


async def prefill(context: TurnContext, prepared: PreparedTurn) -> None:
    """Leave the conversation's turn open, which the client will continue; its end prefetches it."""
    context.prefetches = context.awaits_client = True


class SummaryJob:
    """Writes a summary of the conversation, which stays as it is."""

    failure_code = "no_summary"

    def __init__(self) -> None:
        self.text = ""
        """The summary, once the turn is completed."""

    async def __call__(self, context: TurnContext, prepared: PreparedTurn) -> None:
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
            raise TurnFailedError(self.failure_code, message, EXIT_FAILED) from error


class CompactionJob(SummaryJob):
    """Writes the summary as an item of the response; further turns read that instead."""

    failure_code = "server_error"

    async def __call__(self, context: TurnContext, prepared: PreparedTurn) -> None:
        conversation, form = context.conversation, context.format
        writer = CompactionWriter(context.output)
        try:
            await super().__call__(context, prepared)
        finally:
            writer.close(self.text)
        conversation.end_turn(form)  # which leaves out reasoning
        ids = form.developer_message(summary_message(self.text))
        conversation.compacted = CompactedPrefix(len(conversation.entries), self.text, ids)
