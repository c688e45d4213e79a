"""Runs the generations of a turn: requests of the engine, whose tokens are decoded as they come."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from agent import events as ev
from agent.engine.protocol import (
    ContextOverflowError,
    EngineBusyError,
    Finished,
    Generation,
    Prefill,
    Request,
    Tokens,
    Waiting,
)
from agent.formats.protocol import EditableFormat, Format, SingleMessageFormat, Stop
from agent.turn.constraints import BegunTextError, TurnConstraints
from agent.turn.context import TurnContext, TurnRuntime
from agent.turn.decoder import GenerationDecoder
from agent.turn.endings import TurnFailedError
from agent.turn.further_calls import MAX_CALLS_IN_A_ROW, FurtherCall
from agent.turn.options import TurnOptions
from agent.turn.token_choices import OTHER_CHOICES
from agent.turn.tool_calls import ToolCallRunner
from agent.util.process import EXIT_USAGE


def _alternatives(options: TurnOptions) -> int | None:
    """With how many alternatives the engine reports log probabilities; None: not at all."""
    if not options.token_probabilities:
        return 0 if options.logprobs is None and options.hedge_below else options.logprobs
    return max(OTHER_CHOICES + 1, options.logprobs or 0)


class GenerationRunner:
    """Runs the generations of one turn, one after the other."""

    def __init__(
        self,
        context: TurnContext,
        runtime: TurnRuntime,
        calls: ToolCallRunner,
        constraints: TurnConstraints,
        *,
        stop: asyncio.Event,
        on_accepted: Callable[[], None],
        token_events: bool,
        first_entry: int,
    ) -> None:
        """``stop``: set once the turn is to end. ``on_accepted``: called when the engine has accepted a
        generation. ``token_events``: emit ``agent.prompt`` and ``agent.tokens``."""
        self._context, self._runtime, self._calls = context, runtime, calls
        self._constraints, self._stop, self._on_accepted = constraints, stop, on_accepted
        self._token_events, self._first_entry = token_events, first_entry
        self.decoders: list[GenerationDecoder] = []
        """Of all generations so far."""
        self.running: GenerationDecoder | None = None
        """Of the generation that runs."""
        self.first_unread_entry = first_entry
        """Index of the conversation's first entry that no generation has read."""

    async def run(self, further: FurtherCall | None = None) -> str:
        """Run one generation and decode it as it comes; why it ended. ``further``: what turns out to be
        no further call is dropped."""
        context, constraints, options = self._context, self._constraints, self._context.options
        form, conversation, usage = context.format, context.conversation, context.usage
        first = not self.decoders
        prefix = constraints.forced_prefix(first=first)
        prompt = conversation.prompt(form)
        remaining = None
        if options.max_output_tokens is not None:
            remaining = options.max_output_tokens - usage.tokens.output_tokens
            if remaining <= 0:
                return "stop" if further else "length"
        # Accepting a forced prefix may wait for grammars that are still being compiled.
        new_constraint = partial(constraints.next_constraint, first=first, further=bool(further))
        try:
            constraint = await asyncio.to_thread(new_constraint) if prefix else new_constraint()
        except BegunTextError as error:
            raise TurnFailedError("invalid_prompt", str(error), EXIT_USAGE) from error
        request = Request(
            prompt + prefix,
            remaining,
            form.stop_ids,
            options.sampling,
            logprobs=_alternatives(options),
            probabilities=options.token_probabilities,
            constraint=constraint,
            recipe=None
            if constraint is None
            else partial(constraints.recipe, first=first, further=bool(further)),
            report_gaps=constraints.report_gaps,
            continues_turn=not first,
            head_tokens=len(conversation.header_ids),
            affinity_tokens=conversation.affinity_tokens,
            private=options.private,
            streamed=options.streamed,
        )
        is_over = self._ends_in(prefix)
        try:
            generation = None if is_over else self._runtime.generate(request)
        except (ContextOverflowError, EngineBusyError) as error:
            if further:
                return "stop"
            if isinstance(error, EngineBusyError):
                raise
            if not first:
                return "context"
            raise TurnFailedError("invalid_prompt", str(error), EXIT_USAGE) from error
        self._on_accepted()
        decoder = GenerationDecoder(
            context,
            form.parser(self._calls.declared.recipients),
            self._calls.open,
            token_events=self._token_events,
            entry=len(conversation.entries) - self._first_entry,
            least_logprob=0.0 if first else self.decoders[-1].least_logprob,
            hedge_below=self._hedge_below if self._is_after_call else -math.inf,
            answer_is_bounded=constraints.bounds_answer,
        )
        self.decoders.append(decoder)
        if further is None:
            self._emit_prompt(form, prompt if first else None)
        self.running = decoder
        decoder.feed(prefix)
        if generation is None:
            decoder.was_generated = False
            self._keep(decoder)
            return "stop"
        try:
            end = await self._decode(generation, decoder, further)
        except EngineBusyError:
            if further is None or further.is_call:
                raise
            return "stop"
        if options.count_cached is not None:
            end = options.count_cached(end, request.prompt, decoder.ids)
        if further and not further.is_call:
            usage.add_auxiliary_generation(end, further.undecided_tokens, 0)
            return "stop"
        output = len(decoder.ids) - len(prefix)
        reasoning = min(decoder.reasoning_tokens, output)  # without what was begun
        usage.add_generation(end, output, reasoning, continues=further is not None)
        if decoder.looped:
            return "loop"
        if decoder.stopped:
            return "stop"
        return "unfinished" if decoder.incomplete and end.reason == "stop" else end.reason

    @property
    def is_unsure_call(self) -> bool:
        """Whether a call that nobody demanded gets a hedge: a token of the turn was too unlikely."""
        free = self._context.options.tool_choice == "may"
        return free and self.decoders[-1].least_logprob < self._hedge_below

    @property
    def _is_after_call(self) -> bool:
        """Whether what is generated next follows a result, of this turn or of the client's."""
        entries = self._context.conversation.entries
        return bool(self.decoders) or bool(entries and entries[-1].role == "result")

    @property
    def _hedge_below(self) -> float:
        """The log probability below which an answer gets a hedge: never where its end is the client's
        to say, by a schema or a stop sequence."""
        options = self._context.options
        if not options.hedge_below or options.answer_form is not None or options.stop:
            return -math.inf
        return math.log(options.hedge_below)

    def _ends_in(self, begun: Sequence[int]) -> bool:
        """Whether what a generation begins with is all of it."""
        form = self._context.format
        parsed = form.parser(self._calls.declared.recipients).feed(begun)
        ends = any(isinstance(event, Stop) for event in parsed)
        return ends or (bool(begun) and begun[-1] in form.stop_ids)

    async def run_further_calls(self) -> str:
        """Let a model that ended at a client's call write further ones; why the last one ended."""
        form, calls = self._context.format, self._calls
        functions, end = calls.declared.client_functions, "stop"
        if isinstance(form, SingleMessageFormat):
            return end  # one generation has all of its calls
        while 0 < (count := len(calls.pending)) < MAX_CALLS_IN_A_ROW and end == "stop":
            if self._stop.is_set() or calls.pending[-1].recipient not in functions:
                break
            parser = form.parser(calls.declared.client_recipients)
            earlier = [(call.recipient, call.body) for call in calls.pending]
            may_be_call = form.may_be_call if isinstance(form, EditableFormat) else None
            end = await self.run(FurtherCall(parser, functions, earlier, may_be_call))
            if len(calls.pending) == count:
                break
        return end

    def _emit_prompt(self, form: Format, ids: list[int] | None) -> None:
        """Emit a prompt's ids, if they are wanted; None: what is new since the generation before."""
        if not self._token_events:
            return
        if ids is None:
            unread = self._context.conversation.entries[self.first_unread_entry :]
            delta = chain.from_iterable(entry.prompt_ids for entry in unread)
            ids = [*delta, *form.open_assistant()]
        self._context.emit(ev.AgentPrompt.model_construct(ids=ids))  # ours: nothing to validate

    async def _decode(
        self,
        generation: Generation,
        decoder: GenerationDecoder,
        further: FurtherCall | None,
    ) -> Finished:
        cancel = asyncio.create_task(self._cancel_when_stopped(generation.cancel))
        end: Finished | None = None
        try:
            async for event in generation:
                match event:
                    case Prefill(done, total, cached):
                        self._context.emit(ev.AgentPrefill(done=done, total=total, cached=cached))
                    case Waiting(message):
                        self._context.emit(ev.AgentNotice(level="info", message=message))
                    case Tokens(ids, logprobs):
                        self._context.usage.on_token()
                        if further is not None:
                            ids, logprobs = further.feed(ids, logprobs)
                            if ids and not decoder.ids:
                                self._emit_prompt(self._context.format, None)
                        decoder.feed(ids, logprobs)
                        over = further is not None and further.state == "none"
                        if decoder.stopped or decoder.looped or over:
                            generation.cancel()
                    case Finished():
                        end = event
        finally:
            cancel.cancel()
            generation.cancel()
            # Where the engine failed too: what was generated is kept, and every item closed.
            self._keep(decoder)
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
        await self._stop.wait()
        cancel()
