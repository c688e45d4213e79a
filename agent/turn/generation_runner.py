"""Runs the generations of a turn: requests of the engine, whose tokens are decoded as they come."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, takewhile

from agent import events as ev
from agent.conversation.conversation import next_format
from agent.engine import protocol
from agent.formats.protocol import EditableFormat, SegmentKind, SingleMessageFormat, Stop
from agent.turn.constraints import BegunTextError, GenerationStage
from agent.turn.context import TurnContext
from agent.turn.context_usage import explain_overflow
from agent.turn.decoder import GenerationDecoder, Hedge
from agent.turn.endings import EndReason, TurnFailedError
from agent.turn.further_calls import MAX_CALLS_IN_A_ROW, FurtherCall
from agent.turn.options import TurnOptions
from agent.turn.token_choices import OTHER_CHOICES
from agent.turn.tool_calls import ToolCallRunner
from agent.util.process import EXIT_USAGE


def _alternatives(options: TurnOptions, hedge: Hedge | None) -> int | None:
    """Alternatives for which the engine reports log probabilities; None: it reports none at all."""
    if not options.token_probabilities:
        return 0 if options.logprobs is None and hedge is not None else options.logprobs
    return max(OTHER_CHOICES + 1, options.logprobs or 0)


class GenerationRunner:
    """Runs the generations of one turn, one after the other."""

    def __init__(self, context: TurnContext, calls: ToolCallRunner, first_entry: int) -> None:
        self._context, self._calls, self._constraints = context, calls, calls.constraints
        self._token_events, self._first_entry = context.runtime.token_events, first_entry
        self.decoders: list[GenerationDecoder] = []
        self.running: GenerationDecoder | None = None
        self._generation: protocol.Generation | None = None
        """The engine's, where it may be continued."""
        self._cut_after: int | None = None
        """Number of finished messages from which on open reasoning cancels it; None: it never does."""
        self.first_unread_entry = first_entry
        """Index of the conversation's first entry that no generation has read."""
        options = context.options
        free = options.answer_form is None and not options.stop
        self._hedge = Hedge(options.hedge_below) if options.hedge_below and free else None
        """None also where a schema or a stop sequence of the client ends the answer."""

    async def run(self, further: FurtherCall | None = None) -> EndReason:
        """Return why the generation ended. ``further``: what is not a further call is dropped."""
        stage = GenerationStage(not self.decoders, bool(further))
        budget = None if further else self._reasoning_budget
        prefix = self._constraints.forced_prefix(first=stage.first)
        if budget == 0:
            prefix = prefix or self._open_answer(stage)
            stage = stage._replace(reasoning_until=len(prefix))
        if (limit := self._context.options.max_output_tokens) is not None:
            limit -= self._context.usage.tokens.output_tokens
        if limit is not None and limit <= 0:
            return EndReason.STOP if further else EndReason.LENGTH
        most = min(filter(None, (limit, budget)), default=None)
        request = await self._request(stage, prefix, most)
        try:
            generation = None if self._ends_in(prefix) else self._context.runtime.generate(request)
        except (protocol.ContextOverflowError, protocol.EngineBusyError) as error:
            if further:
                return EndReason.STOP
            if isinstance(error, protocol.EngineBusyError):
                raise
            if not stage.first:
                return EndReason.CONTEXT
            context, tools = self._context, self._calls.prompt_tools
            why = explain_overflow(error, context.format, context.options, tools, context.interface)
            raise TurnFailedError("invalid_prompt", why, EXIT_USAGE) from error
        self._context.accepted.set()
        decoder = self._new_decoder()
        if further is None:
            self._emit_prompt(request.prompt[: -len(prefix) or None] if stage.first else None)
        self.running = decoder
        decoder.is_prefix = True
        decoder.feed(prefix)
        decoder.is_prefix = False
        if generation is None:
            decoder.was_generated = False
            self._keep(decoder)
            return EndReason.STOP
        if further is None:
            self._generation = generation
            self._cut_after = 0 if self._reasoning_budget == 0 else None
        try:
            # In a task, so that a token does not resume every coroutine of the turn.
            end = await asyncio.create_task(self._decode(generation, decoder, further))
            if further is None and self._reasoning_budget is not None:
                end = await self._continue(stage, request, end, decoder, limit)
        except protocol.EngineBusyError:
            if further is None or further.state == "call":
                raise
            return EndReason.STOP
        finally:
            # Where the engine failed too: what was generated is kept, and every item closed.
            self._generation = self._cut_after = None
            self._keep(decoder)
        return self._count(request, end, decoder, len(prefix), further)

    # --- the end of the reasoning ---

    @property
    def _reasoning_budget(self) -> int | None:
        """Tokens that the reasoning of a generation may have; None: no limit, or no reasoning."""
        context = self._context
        budget = 0 if context.answers_now else context.options.max_reasoning_tokens
        return budget if budget is None or context.format.end_reasoning() else None

    def end_reasoning(self) -> bool:
        """End the reasoning of the generation that runs, at once or as soon as it begins; False: the
        answer is being written, or the model does not reason."""
        decoder = self.running
        if not self._context.format.end_reasoning():
            return False
        if decoder is not None and self._generation is not None:
            if decoder.open_kind is SegmentKind.FINAL:
                return False
            if self._cut_after is None:
                self._cut_after = len(decoder.spans)
            if self._must_end(decoder) or not decoder.ids:
                self._generation.cancel()
        return True

    def _must_end(self, decoder: GenerationDecoder) -> bool:
        """Whether open reasoning has to end; not while white space may follow its written end."""
        is_new = len(decoder.spans) >= (self._cut_after or 0)
        return is_new and decoder.open_kind is SegmentKind.REASONING

    def _call_may_follow(self, stage: GenerationStage) -> bool:
        choice, tools = self._context.options.tool_choice, self._calls.declared.recipients.declared
        has_to = choice == "must" and stage.first
        return bool(tools) and choice != "none" and (has_to or not self._context.answers_now)

    def _open_answer(self, stage: GenerationStage) -> list[int]:
        """The beginning of a generation without reasoning; empty where a grammar leaves it out."""
        # A grammar of headers can forbid reasoning and still allow calls.
        by_grammar = "choice" in self._constraints.supported and self._call_may_follow(stage)
        return [] if by_grammar else self._context.format.open_answer()

    def _reasoning_left(self, decoder: GenerationDecoder, begun: int) -> int:
        """Tokens of the budget that are left; those that were ``begun`` do not count."""
        is_markup, ids = self._context.format.is_markup, decoder.ids[begun:]
        text = takewhile(lambda token: not is_markup(token), reversed(ids))
        count = len(list(text)) if decoder.open_kind is SegmentKind.REASONING else 0
        return max(0, (self._reasoning_budget or 0) - decoder.reasoning_tokens - count)

    async def _continue(
        self,
        stage: GenerationStage,
        request: protocol.Request,
        end: protocol.Finished,
        decoder: GenerationDecoder,
        limit: int | None,
    ) -> protocol.Finished:
        """Continue a generation that was ended only for its reasoning, until it ends otherwise."""
        part, read, begun = end, len(request.prompt), len(decoder.ids) - end.output_tokens
        while not (decoder.stopped or decoder.looped or self._context.stopping.is_set()):
            is_full = part.reason == "length" and part.output_tokens == request.max_tokens
            if not is_full and part.reason != "cancelled":
                break
            left, ids = self._reasoning_left(decoder, begun), list[int]()
            if is_open := not left and self._must_end(decoder):
                # Where it has reasoned again, it is not left to choose a third time.
                calls = stage.reasoning_until is None and self._call_may_follow(stage)
                ids = self._context.format.end_reasoning(before_call=calls)
            elif not decoder.ids:
                ids = self._open_answer(stage)
            if not left:
                self._cut_after = len(decoder.spans) + is_open
                until = stage.reasoning_until
                stage = stage._replace(reasoning_until=len(decoder.ids) if until is None else until)
            output = len(decoder.ids) + len(ids) - begun
            rest = None if limit is None else limit - output
            if rest is not None and rest <= 0:
                return replace(end, reason="length")
            decoder.feed(ids)
            may_reason = decoder.open_kind not in (SegmentKind.FINAL, SegmentKind.TOOL)
            most = min(filter(None, (rest, left * may_reason)), default=None)
            request = await self._request(stage, decoder.ids, most, output)
            try:
                self._generation = generation = self._context.runtime.generate(request)
            except protocol.ContextOverflowError:
                return replace(end, reason="context")
            part = await asyncio.create_task(self._decode(generation, decoder, is_first=False))
            end = replace(
                end,
                reason=part.reason,
                prompt_tokens=read,  # none if it was cancelled before they were read
                output_tokens=end.output_tokens + part.output_tokens,
                decode_seconds=end.decode_seconds + part.decode_seconds,
                drafted_tokens=end.drafted_tokens + part.drafted_tokens,
                accepted_tokens=end.accepted_tokens + part.accepted_tokens,
            )
        return end

    async def _request(
        self, stage: GenerationStage, prefix: Sequence[int], limit: int | None, written: int = 0
    ) -> protocol.Request:
        """The next request. ``written``: generated ids that end the prefix. Raises TurnFailedError."""
        constraints, options = self._constraints, self._context.options
        conversation, prefix = self._context.conversation, list(prefix)
        # Accepting a prefix may wait for grammars that are still being compiled.
        new_constraint = partial(constraints.next_constraint, stage, prefix)
        try:
            constraint = await asyncio.to_thread(new_constraint) if prefix else new_constraint()
        except BegunTextError as error:
            raise TurnFailedError("invalid_prompt", str(error), EXIT_USAGE) from error
        spec = None if constraint is None else partial(constraints.spec, stage, prefix)
        return protocol.Request(
            conversation.prompt(self._context.format) + prefix,
            limit,
            self._context.format.stop_ids,
            options.sampling,
            logprobs=_alternatives(options, self._hedge),
            probabilities=options.token_probabilities,
            continued_tokens=written,
            constraint=constraint,
            constraint_spec=spec,
            report_gaps=constraints.report_gaps,
            continues_turn=not stage.first or written > 0,
            head_tokens=len(conversation.header_ids),
            affinity_tokens=conversation.affinity_tokens,
            private=options.private,
            streamed=options.streamed,
        )

    def _new_decoder(self) -> GenerationDecoder:
        """The decoder of the next generation, with the optional stages that the request needs."""
        context, entries = self._context, self._context.conversation.entries
        # After a result, of this turn or of the client's.
        follows_call = bool(self.decoders) or bool(entries and entries[-1].role == "result")
        decoder = GenerationDecoder(
            context,
            next_format(context.format, entries).parser(self._calls.declared.recipients),
            self._calls.open,
            token_entry=len(entries) - self._first_entry if self._token_events else None,
            hedge=self._hedge,
            hedges_answer=follows_call,
            answer_is_bounded=self._constraints.bounds_answer,
        )
        self.decoders.append(decoder)
        return decoder

    def _count(
        self,
        request: protocol.Request,
        end: protocol.Finished,
        decoder: GenerationDecoder,
        begun_tokens: int,
        further: FurtherCall | None,
    ) -> EndReason:
        usage, options = self._context.usage, self._context.options
        if options.count_cached is not None:
            end = options.count_cached(end, request.prompt, decoder.ids)
        if further and further.state != "call":
            usage.add_auxiliary_generation(end, len(further.undecided_ids), 0)
            return EndReason.STOP
        output = len(decoder.ids) - begun_tokens
        reasoning = min(decoder.reasoning_tokens, output)  # without what was begun
        if (most := options.max_reasoning_tokens) is not None:
            reasoning = min(reasoning, most)  # and without the line break that ends it
        usage.add_generation(end, output, reasoning, continues=further is not None)
        if decoder.looped:
            return EndReason.LOOP
        if decoder.stopped:
            return EndReason.STOP
        unfinished = decoder.incomplete and end.reason == "stop"
        return EndReason.UNFINISHED if unfinished else EndReason(end.reason)

    @property
    def is_unsure_call(self) -> bool:
        """Whether a call that was not demanded gets a hedge: a token of the turn was too unlikely."""
        free = self._context.options.tool_choice == "may"
        return free and self._hedge is not None and self._hedge.is_unsure

    def _ends_in(self, begun: Sequence[int]) -> bool:
        """Whether what a generation begins with is all of it."""
        form = self._context.format
        parsed = form.parser(self._calls.declared.recipients).feed(begun)
        ends = any(isinstance(event, Stop) for event in parsed)
        return ends or (bool(begun) and begun[-1] in form.stop_ids)

    async def run_further_calls(self) -> EndReason:
        """Let a model that ended at a client's call write further ones; why the last one ended."""
        form, calls = self._context.format, self._calls
        functions, end = calls.declared.client_functions, EndReason.STOP
        if isinstance(form, SingleMessageFormat):
            return end  # one generation has all of its calls
        while 0 < (count := len(calls.pending)) < MAX_CALLS_IN_A_ROW and end is EndReason.STOP:
            if self._context.stopping.is_set() or calls.pending[-1].recipient not in functions:
                break
            parser = form.parser(calls.declared.client_recipients)
            earlier = [(call.recipient, call.body) for call in calls.pending]
            may_be_call = form.may_be_call if isinstance(form, EditableFormat) else None
            end = await self.run(FurtherCall(parser, functions, earlier, may_be_call))
            if len(calls.pending) == count:
                break
        return end

    def _emit_prompt(self, ids: Sequence[int] | None) -> None:
        """Emit a prompt's ids, if they are wanted; None: what is new since the generation before."""
        if not self._token_events:
            return
        if ids is None:
            unread = self._context.conversation.entries[self.first_unread_entry :]
            delta = chain.from_iterable(entry.prompt_ids for entry in unread)
            form = next_format(self._context.format, self._context.conversation.entries)
            ids = [*delta, *form.open_assistant()]
        # Ours: nothing to validate.
        self._context.emit(ev.AgentPrompt.model_construct(ids=list(ids)))

    async def _decode(
        self,
        generation: protocol.Generation,
        decoder: GenerationDecoder,
        further: FurtherCall | None = None,
        *,
        is_first: bool = True,
    ) -> protocol.Finished:
        """Decode what the engine generates. ``is_first``: no part of the generation was before."""
        cancel = asyncio.create_task(self._cancel_when_stopped(generation.cancel))
        end: protocol.Finished | None = None
        try:
            async for event in generation:
                match event:
                    case protocol.Prefill(done, total, cached) if is_first:
                        self._context.emit(ev.AgentPrefill(done=done, total=total, cached=cached))
                    case protocol.Waiting(message):
                        self._context.emit(ev.AgentNotice(level="info", message=message))
                    case protocol.Tokens(ids, logprobs):
                        if is_first:
                            self._context.usage.on_token()
                            is_first = False
                        if further is not None:
                            ids, logprobs = further.feed(ids, logprobs)
                            if ids and not decoder.ids:
                                self._emit_prompt(None)
                        decoder.feed(ids, logprobs)
                        over = self._cut_after is not None and self._must_end(decoder)
                        over = over or (further is not None and further.state == "none")
                        if decoder.stopped or decoder.looped or over:
                            generation.cancel()
                    case protocol.Finished():
                        end = event
        finally:
            cancel.cancel()
            generation.cancel()
        assert end is not None, "a generation that does not fail finishes"
        return end

    def _keep(self, decoder: GenerationDecoder) -> None:
        """Close every item, and put what was generated into the conversation."""
        context = self._context
        decoder.finish()
        context.conversation.add_generated(context.format, decoder.ids, decoder.spans)
        self.first_unread_entry = len(context.conversation.entries)
        self.running = None

    async def _cancel_when_stopped(self, cancel: Callable[[], None]) -> None:
        await self._context.stopping.wait()
        cancel()
