"""The loop of a turn: generate, call tools, generate again, until the answer is complete."""

import asyncio

from agent import events as ev
from agent.conversation.compaction import FULL_SHARE, NotCompactedError, make_room
from agent.conversation.messages import Steering
from agent.turn.call_writers import write_tool_list
from agent.turn.constraints import UnenforceableSchemaError
from agent.turn.context import TurnContext
from agent.turn.context_usage import header_parts, measure_context
from agent.turn.decoder import CALL_HEDGE
from agent.turn.endings import CUT_OFF, EndReason, TurnCancelledError, TurnFailedError
from agent.turn.output import CompactionWriter, MessageWriter
from agent.turn.prepared import PreparedTurn
from agent.util.process import EXIT_FAILED, EXIT_USAGE


class AnswerLoop:
    """Answers the prompt of one turn."""

    def __init__(self, context: TurnContext, prepared: PreparedTurn) -> None:
        self._context, self._prepared = context, prepared
        self._calls, self._generations = prepared.calls, prepared.generations

    async def run(self) -> bool:
        """Answer; true when a limit cut the answer off, or a further turn continues it."""
        await self._begin()
        try:
            return await self._run_generations()
        finally:
            await self._emit_context()

    async def _begin(self) -> None:
        """List tools, compile grammars, make approved calls pending."""
        context, calls, constraints = self._context, self._calls, self._prepared.constraints
        for event in self._prepared.begun.events:
            context.output.repeat(event)
        states = context.host.server_states()
        unavailable = {s.name: s.error or f"is {s.status}" for s in states if s.status != "ready"}
        for server in context.options.excluded_servers:
            unavailable.setdefault(server, "has tools, but 'allowed_tools' allows none of them")
        for server in context.options.list_tools_of:
            tools = [t for t in calls.declared.server_tools.values() if t.server == server]
            write_tool_list(context.output, server, tools, unavailable.get(server))
        try:
            await context.until_stopped(constraints.compile())
        except UnenforceableSchemaError as error:
            raise TurnFailedError("invalid_prompt", str(error), EXIT_USAGE) from error
        calls.add_approved(context.options.approved_calls)
        if calls.pending or context.options.compact:
            context.accepted.set()

    async def _run_generations(self) -> bool:
        """Generate and run calls until the answer is complete; true when it ends before that."""
        context, calls, generations = self._context, self._calls, self._generations
        was_continued = False
        if await calls.run():
            return False
        while True:
            if context.is_steered:
                context.incomplete_reason, context.awaits_client = "steered", True
                return True
            self._add_steering()
            if context.options.compact:
                await self._compact_if_needed()
            end = await generations.run()
            if end is EndReason.STOP and context.options.further_calls:
                end = await generations.run_further_calls()
            if context.stop_reason:
                raise TurnCancelledError
            if end is not EndReason.STOP:
                self._warn_cut_off(end)
                return True
            if not calls.pending:
                if not self._is_answered():
                    if was_continued:
                        self._warn_cut_off(EndReason.UNANSWERED)
                        return True
                    at = len(generations.decoders[-1].ids)
                    context.emit(ev.AgentRepair(rule="answer_missing", at=at, text=""))
                    was_continued = True
                    continue
                last = generations.decoders[-1]
                for span in last.spans[-1:]:
                    self._prepared.constraints.warn_closed(last.ids[span.start : span.end])
                self._check_answer()
                return False
            is_cut = any(call.cut and call.writer.runs_on_client for call in calls.pending)
            if context.options.ends_at_cut_call and is_cut:
                self._warn_cut_off(EndReason.CUT_CALL)
                return True
            context.awaits_client = calls.awaits_client
            if await calls.run():
                if context.awaits_client and generations.is_unsure_call:
                    hedge = MessageWriter(context.output, "commentary")
                    hedge.delta(CALL_HEDGE)  # as an answer's: the model never reads it
                    hedge.close(True)
                return False  # the client's turn to run its functions, or the calls led nowhere

    def _warn_cut_off(self, end: EndReason) -> None:
        if why := CUT_OFF.get(end):
            self._context.emit(ev.AgentNotice(level="warning", message=why))

    def _check_answer(self) -> None:
        """Report an answer that does not fit its JSON Schema. Raises TurnFailedError."""
        context = self._context
        form, answer = context.options.answer_form, context.output.answer
        text = "".join(part.text for part in answer.content) if answer else ""
        if form is None or (why := self._prepared.constraints.validate_answer(form, text)) is None:
            return
        if form.binding:
            message = f"The answer does not fit its JSON Schema: {why}"
            raise TurnFailedError("server_error", message, EXIT_FAILED)
        at, item = len(self._generations.decoders[-1].ids), answer.id if answer else None
        context.emit(ev.AgentRepair(rule="answer_unfit", at=at, text=why, item_id=item))

    def _is_answered(self) -> bool:
        """Whether there is an answer behind the last call; also one that a stop sequence empties, or
        that a person ended by choosing its last token."""
        last = self._generations.decoders[-1]
        if last.is_cut or not last.was_generated:
            return True
        for item in reversed(self._context.output.items):
            if isinstance(item, ev.MessageItem):
                if item.phase == "final_answer" and any(part.text.strip() for part in item.content):
                    return True
            elif not isinstance(item, ev.ReasoningItem):
                return False
        return False

    def _add_steering(self) -> None:
        context = self._context
        while context.steering and not context.stop_reason:
            text = context.steering.pop(0)
            context.conversation.add(context.format, Steering(text))
            context.emit(ev.AgentSteered(text=text))

    async def _compact_if_needed(self) -> None:
        context, threshold = self._context, self._context.options.compact_threshold
        conversation, before = context.conversation, context.conversation.compacted
        limit = None if threshold is None else int(threshold / FULL_SHARE)
        try:
            await context.until_stopped(make_room(self._prepared.generator, conversation, limit))
            compacted = conversation.compacted
            if threshold is not None and compacted is not None and compacted is not before:
                CompactionWriter(context.output).close(compacted.text)
        except NotCompactedError as error:
            context.emit(ev.AgentNotice(level="warning", message=str(error)))
        except TurnCancelledError:
            message = "Compacting was interrupted; nothing was changed."
            context.emit(ev.AgentNotice(level="warning", message=message))
            raise

    async def _emit_context(self) -> None:
        context, generations = self._context, self._generations
        if not context.interface.reports_context or not generations.decoders:
            return
        form, conversation = context.format, context.conversation
        tools = self._calls.prompt_tools

        def measure() -> ev.AgentContext:
            header = header_parts(form, context.options, tools)
            return measure_context(form, conversation, header, context.runtime.context_length)

        # In a thread, so that who types meanwhile is not kept waiting by a long conversation.
        usage = await asyncio.to_thread(measure)
        if generations.decoders[-1].ids:  # else it ended while its prompt was read
            unread = conversation.entries[generations.first_unread_entry :]
            new = sum(len(entry.prompt_ids) for entry in unread) + len(form.open_assistant())
            usage.cached = usage.tokens - new
        context.emit(usage)
