"""One turn: generate → parse → call tools → generate again, until the answer is complete. All is one
stream of events in its log, which ends with exactly one terminal event, whatever happens."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

from agent import events as ev
from agent.conversation.compaction import NotCompactedError, make_room
from agent.conversation.conversation import Conversation, Entry
from agent.conversation.harmony_messages import response_messages
from agent.conversation.messages import NO_RESULT, Message, Steering, User
from agent.conversation.summary import Generator
from agent.engine.protocol import (
    EngineBusyError,
    EngineError,
)
from agent.errors import system_refusal
from agent.formats.protocol import Format
from agent.turn.call_writers import write_tool_list
from agent.turn.constraints import TurnConstraints, UnenforceableSchemaError
from agent.turn.context import TurnRuntime
from agent.turn.context_usage import header_parts, measure_context
from agent.turn.continuation import Begin, Continuation
from agent.turn.decoder import GenerationDecoder
from agent.turn.endings import (
    CUT_OFF,
    RATE_LIMIT,
    TIMED_OUT,
    EndReason,
    StopReason,
    TurnCancelledError,
    TurnFailedError,
)
from agent.turn.generation_runner import GenerationRunner
from agent.turn.hedge import CALL_HEDGE
from agent.turn.interface import RUN, SAMPLING, Interface
from agent.turn.log import EventLog
from agent.turn.options import DeclaredTools, TurnOptions
from agent.turn.output import MessageWriter, Output
from agent.turn.tool_calls import ToolCallRunner
from agent.turn.turn_settings import TurnSettings
from agent.turn.usage import UsageMeter
from agent.util.ids import new_id
from agent.util.process import (
    EXIT_CANCELLED,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INCOMPLETE,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
)
from tools.builtin_server import conversation_id as current_conversation
from tools.mcp.host import Host
from tools.policy.approvals import Policy
from tools.types import error_text

log = logging.getLogger(__name__)
T = TypeVar("T")

MIN_RESULT_TOKENS = 64
"""Tokens that a shortened result has at least."""


@dataclass(frozen=True, slots=True)
class PreparedTurn:
    """The state of a turn once the model is loaded and its messages are in the conversation."""

    format: Format
    generator: Generator
    calls: ToolCallRunner
    constraints: TurnConstraints
    generations: GenerationRunner
    first_entry: int
    """Index of the turn's first entry in the conversation."""
    first_generated_entry: int
    """Index of the entry after the turn's prompt."""
    begun_ids: Sequence[int]
    """The given first ids of the first generation."""
    begun_events: Sequence[ev.Event]
    """The events of the given first items."""


class TurnJob(Protocol):
    """The work of a turn instead of an answer (see `agent.turn.jobs`)."""

    prefetches: bool
    """The conversation is prefetched afterwards."""

    async def run(self, turn: Turn) -> None:
        """Do it, once the model is loaded. Raises TurnFailedError, TurnCancelledError, EngineError."""


class Turn:
    """One turn of a conversation; ``start()`` it, then read ``log``."""

    def __init__(
        self,
        runtime: TurnRuntime,
        conversation: Conversation,
        prompt: Sequence[Message],
        options: TurnOptions,
        response: ev.Response | None = None,
        *,
        interface: Interface = RUN,
        host: Host | None = None,
        job: TurnJob | None = None,
        begin: Begin | None = None,
    ) -> None:
        """``prompt``: the messages that are new. ``response``: as the request fixes it. ``host``: one
        with MCP servers of its own. ``job``: done instead of answering. ``begin``: the answer's
        beginning."""
        self.runtime, self.conversation, self._interface = runtime, conversation, interface
        self.prompt, self.options = prompt, options
        self.host = host or runtime.host
        self.log = EventLog()
        self.output = Output(self.emit, self.host.source)
        self.response = response or options.initial_response(runtime.model.name)
        self.usage = UsageMeter()
        self.stop_reason: StopReason | None = None
        """Why the turn was asked to end; None: it was not."""
        self._steering: list[str] = []
        """The user's messages since the turn started that no generation has read yet."""
        self.exit_code = EXIT_FAILED
        """The exit code of a command that ran this turn, once it has ended."""
        self.awaits_client = False
        """The client continues this turn of the conversation, whose reasoning stays until then."""
        self.started_generating = asyncio.Event()
        """Set once the engine has accepted a generation, or the turn did something else, or ended."""
        self._job, self._token_events, self._begin = job, runtime.token_events, begin
        self._prepared: PreparedTurn | None = None
        self._stop = asyncio.Event()
        self._sequence_number = 0
        self._ended = False
        self._task: asyncio.Task[None] | None = None

    @property
    def source(self) -> str:
        return self._interface.name

    @property
    def items(self) -> list[ev.Item]:
        return list(self.output.items)

    @property
    def generations(self) -> list[GenerationDecoder]:
        return self._prepared.generations.decoders if self._prepared is not None else []

    @property
    def first_entry(self) -> int:
        prepared = self._prepared
        return prepared.first_entry if prepared else len(self.conversation.entries)

    @property
    def format(self) -> Format:
        """The format of the loaded model; the turn has to be prepared."""
        return self._require_prepared().format

    @property
    def max_result_tokens(self) -> int:
        """Half of the context that is free without the last result: the rest is for what follows."""
        added = self.conversation.entries[-1].prompt_ids
        free = self.runtime.context_length - len(self.conversation.ids()) + len(added)
        return max(MIN_RESULT_TOKENS, free // 2)

    @property
    def settings(self) -> TurnSettings:
        """The settings of its generations, for use after its end."""
        prepared = self._prepared
        tools = prepared.calls.declared.server_tools.values() if prepared else ()
        options = replace(self.options, approver=None, answerer=None, login=None)
        return TurnSettings(options, tuple(tools), prepared is None or prepared.constraints.applied)

    @property
    def generator(self) -> Generator:
        """The loaded model, for jobs; the turn has to be prepared."""
        return self._require_prepared().generator

    @property
    def policy(self) -> Policy:
        return self.runtime.policy

    def _require_prepared(self) -> PreparedTurn:
        assert self._prepared is not None, "prepare() first"
        return self._prepared

    # --- from outside ---

    def start(self) -> Self:
        """Run the turn in a task of its own, and tell the runtime's subscribers of it."""
        self._task = asyncio.create_task(self._run())
        self.runtime.begin_turn()
        self.runtime.publish(self)
        return self

    def stop(self, reason: StopReason = "cancelled") -> None:
        self.stop_reason = self.stop_reason or reason
        self._stop.set()

    def steer(self, text: str) -> None:
        """Queue a message for the next generation; one that comes too late stays queued."""
        self._steering.append(text)

    def queued_steering(self) -> list[str]:
        return list(self._steering)

    def take_back_steering(self) -> str | None:
        return self._steering.pop() if self._steering else None

    async def done(self) -> ev.Response:
        assert self._task is not None, "start() first"
        await asyncio.shield(self._task)
        return self.response

    def pending_entries(self) -> list[Entry]:
        ending = Conversation("")
        prepared = self._prepared
        if prepared is not None and (running := prepared.generations.running) is not None:
            ending.add_generated(prepared.format, running.ids, running.spans_if_interrupted())
        elif prepared is not None:
            for recipient, text in prepared.calls.pending_results("the program ended"):
                ending.add_result(prepared.format, recipient, text)
        entries = (*self.conversation.entries, *ending.entries)
        return [entry for entry in entries if not entry.reasoning]

    def prepare(self) -> PreparedTurn:
        """Put the header and new messages into the conversation, once the model is loaded. Raises
        TurnFailedError where that is in the tokens of another vocabulary."""
        if self._prepared is None:
            self._prepared = self._prepare()
        return self._prepared

    def _prepare(self) -> PreparedTurn:
        runtime, conversation, loaded = self.runtime, self.conversation, self.runtime.loaded
        assert loaded is not None, "load the model first"
        form = loaded.format
        if conversation.vocabulary not in (None, loaded.vocabulary):
            refusal = (
                f"This conversation has tokens of another vocabulary: {conversation.vocabulary}:"
                " continue with that model, or begin a new one."
            )
            raise TurnFailedError("invalid_prompt", refusal, EXIT_USAGE)
        conversation.vocabulary = loaded.vocabulary
        first_entry = len(conversation.entries)
        conversation.finished_reasoning = []
        declared = DeclaredTools.resolve(self.options, self.host.tools(), form)
        try:
            begun = self._begin(form) if self._begin else Continuation()
        except ValueError as error:
            raise TurnFailedError("invalid_prompt", f"Not begun: {error}.", EXIT_USAGE) from error
        constraints = TurnConstraints(
            self.options,
            declared,
            form,
            self.emit,
            applied=loaded.is_constrainable,
            begun_ids=begun.ids,
        )
        header = self.options.prompt_header(declared.server_tools.values())
        conversation.set_header(form, header)
        for tool in conversation.unanswered:  # its client was to run them, and did not continue
            recipient = form.canonical_name(tool, function=True)
            conversation.add_result(form, recipient, error_text(NO_RESULT))
        conversation.unanswered.clear()
        for message in self.prompt:
            conversation.add(form, message)
        first_generated_entry = len(conversation.entries)
        conversation.entries += begun.entries
        conversation.omit_answered_calls(form)
        calls = ToolCallRunner(self, declared, constraints)
        generations = GenerationRunner(
            self,
            runtime,
            calls,
            constraints,
            stop=self._stop,
            on_accepted=self.started_generating.set,
            token_events=self._token_events,
            first_entry=first_entry,
        )
        return PreparedTurn(
            format=form,
            generator=Generator(form, runtime.context_length, runtime.generate, runtime.summaries),
            calls=calls,
            constraints=constraints,
            generations=generations,
            first_entry=first_entry,
            first_generated_entry=first_generated_entry,
            begun_ids=begun.ids,
            begun_events=begun.events,
        )

    def prompt_tokens(self) -> int:
        """Tokens of the prompt that the next generation begins with; the turn has to be prepared."""
        return len(self.conversation.prompt(self.format))

    # --- events ---

    def emit(self, event: ev.Event) -> None:
        """Append an event to the log; official ones are numbered. After the end events are dropped."""
        if self._ended:
            return  # progress of work that is no longer awaited
        if self.response.status == "queued" and isinstance(
            event, ev.AgentPrefill | ev.OutputItemAdded
        ):
            self._mark_in_progress()
        if isinstance(event, ev.AgentRepair):
            repair = ev.ResponseRepair(rule=event.rule, text=event.text, item_id=event.item_id)
            self.response.repairs = [*(self.response.repairs or ()), repair]
        if isinstance(event, ev.OfficialEvent):
            # An assignment would be checked by pydantic, in three times the time.
            event.__dict__["sequence_number"] = self._sequence_number
            self._sequence_number += 1
        self.log.append(event)

    # --- the turn ---

    async def _run(self) -> None:
        current_conversation.set(self.conversation.id)
        try:
            await self._emit_header()
            await self._load_model()
            incomplete = await self._run_job()
            self.exit_code = EXIT_INCOMPLETE if incomplete else EXIT_DONE
            await self._end("incomplete" if incomplete else "completed")
        except TurnCancelledError:
            self.exit_code = EXIT_CANCELLED
            if self.stop_reason == "timeout":
                self.exit_code = EXIT_INCOMPLETE
                self.emit(ev.AgentNotice(level="warning", message=TIMED_OUT))
            await self._end("cancelled")
        except (TurnFailedError, EngineBusyError) as error:
            if isinstance(error, EngineBusyError):
                error = TurnFailedError(RATE_LIMIT, str(error), EXIT_UNAVAILABLE)
            if self._prepared is not None and not self.generations:
                # A prompt that could not be run would make every later turn fail too.
                self.conversation.truncate(self._prepared.first_entry)
            self.exit_code = error.exit_code
            await self._end("failed", ev.ResponseError(code=error.code, message=str(error)))
        except EngineError as error:
            await self._end("failed", ev.ResponseError(code="server_error", message=str(error)))
        except Exception as error:
            log.exception("the turn broke")
            message = "Something went wrong inside this program; the log file has the details."
            message = system_refusal(error) or message
            await self._end("failed", ev.ResponseError(code="server_error", message=message))
        finally:
            self.started_generating.set()
            self.runtime.end_turn()
            try:
                self._prefetch_next_turn()
            finally:
                self.log.close()

    def _prefetch_next_turn(self) -> None:
        """Read ahead what the conversation's next turn begins with."""
        answered = bool(self.generations) and self._interface.prefetches and not self.awaits_client
        if answered or (self._job is not None and self._job.prefetches):
            conversation = self.conversation
            self.runtime.prefetch(
                conversation.ids(),
                head_tokens=len(conversation.header_ids),
                affinity_tokens=conversation.affinity_tokens,
                private=self.options.private,
            )

    async def _end(self, status: ev.Status, error: ev.ResponseError | None = None) -> None:
        if self._prepared is not None:
            self._prepared.calls.abort("the turn ended")
        self.emit(self.usage.stats())
        limit_reached = ev.IncompleteDetails(reason="max_output_tokens")
        response = self.response.model_copy(
            update={
                "status": status,
                "error": error,
                "incomplete_details": limit_reached if status == "incomplete" else None,
                "completed_at": int(time.time()) if status == "completed" else None,
                "output": list(self.output.items),
                "usage": self.usage.tokens,
                **self._message_fields(),
            }
        )
        if not self.awaits_client:  # else the client's next request still needs the reasoning
            self.conversation.end_turn()
        if self._prepared is not None:
            self.conversation.omit_answered_calls(self._prepared.format)
        terminal = {"completed": ev.ResponseCompleted, "failed": ev.ResponseFailed}
        event = terminal.get(status, ev.ResponseIncomplete)(response=response)
        event.sequence_number = self._sequence_number
        self._ended = True
        try:
            # The conversation is final before: the recorder writes the turn now.
            await self.log.save(event)
        finally:
            self.response = response
            self.log.append(event)

    def _message_fields(self) -> dict[str, object]:
        """The response's ``input_messages`` and ``output_messages``, where they were asked for."""
        prepared = self._prepared
        if not self.options.include_messages or prepared is None:
            return {}
        return response_messages(prepared.format, self.conversation, prepared.first_generated_entry)

    async def _emit_header(self) -> None:
        """Emit the first events, which list the tools, once the servers that it needs have started."""
        runtime, offered = self.runtime, self.options.tools
        needed = None if offered is None else {tool.server for tool in offered}
        seconds = None if self._interface.waits_for_servers else runtime.server_wait_seconds
        text = "\n".join(message.text for message in self.prompt if isinstance(message, User))
        try:
            tools = self.host.wait_for_turn(text, needed, timeout=seconds)
            await self.until_stopped(asyncio.gather(tools, runtime.plan_placement()))
            if (offer := self.options.login) is not None:
                await self.until_stopped(self.host.offer_logins(text, offer))
        finally:
            self.emit(
                ev.AgentStart(
                    model=runtime.model.name,
                    context_length=runtime.context_length,
                    engine=runtime.engine_name,
                    tools=[f"{tool.server}.{tool.name}" for tool in self.host.tools()],
                    mcp_servers=[
                        ev.ServerStatus(name=s.name, status=s.status, tools=s.tools, error=s.error)
                        for s in self.host.server_states()
                    ],
                )
            )
            self.emit(ev.ResponseCreated(response=self.response.model_copy()))
            if self.response.status == "queued":
                self.emit(ev.ResponseQueued(response=self.response.model_copy()))
            else:
                self._mark_in_progress()

    def _mark_in_progress(self) -> None:
        self.response = self.response.model_copy(update={"status": "in_progress"})
        self.emit(ev.ResponseInProgress(response=self.response.model_copy()))

    async def _load_model(self) -> None:
        reported = -1

        def report(fraction: float) -> None:
            nonlocal reported
            if (per_mille := int(fraction * 1000)) > reported:
                reported = per_mille
                self.emit(ev.AgentLoad(done=per_mille, total=1000))

        warm_up = self.options.needs_grammars(self.host.tools())
        await self.until_stopped(self.runtime.load(report, warm_up=warm_up))
        missing = [s for s in self.host.server_states() if s.required and s.status != "ready"]
        if missing:
            why = f": {missing[0].error}" if missing[0].error else ""
            message = f"The required server {missing[0].name} is not available{why}"
            raise TurnFailedError("server_error", message, EXIT_UNAVAILABLE)

    async def _run_job(self) -> bool:
        """Answer, or do the turn's job; true when a limit cut the answer off."""
        prepared = self.prepare()
        if self._job is not None:
            await self._job.run(self)
            return False
        await self._begin_answer(prepared)
        try:
            return await self._run_generations(prepared)
        finally:
            await self._emit_context(prepared)

    async def _emit_context(self, prepared: PreparedTurn) -> None:
        """Emit what fills the context, where a person reads it."""
        if not self._interface.reports_context or not self.generations:
            return
        form, conversation = prepared.format, self.conversation
        tools = list(prepared.calls.declared.server_tools.values())
        header = header_parts(form, self.options, tools)
        length = self.runtime.context_length
        # In a thread, so that who types meanwhile is not kept waiting by a long conversation.
        context = await asyncio.to_thread(measure_context, form, conversation, header, length)
        if self.generations[-1].ids:  # else it ended while its prompt was read
            unread = conversation.entries[prepared.generations.first_unread_entry :]
            new = sum(len(entry.prompt_ids) for entry in unread) + len(form.open_assistant())
            context.cached = context.tokens - new
        self.emit(context)

    async def _begin_answer(self, prepared: PreparedTurn) -> None:
        """List tools, compile grammars, make approved calls pending."""
        calls, constraints = prepared.calls, prepared.constraints
        for event in prepared.begun_events:
            self.output.repeat(event)
        unavailable = {
            s.name: s.error or f"is {s.status}"
            for s in self.host.server_states()
            if s.status != "ready"
        }
        for server in self.options.excluded_servers:
            unavailable.setdefault(server, "has tools, but 'allowed_tools' allows none of them")
        for server in self.options.list_tools_of:
            tools = [t for t in calls.declared.server_tools.values() if t.server == server]
            write_tool_list(self.output, server, tools, unavailable.get(server))
        try:
            await self.until_stopped(constraints.compile())
        except UnenforceableSchemaError as error:
            raise TurnFailedError("invalid_prompt", str(error), EXIT_USAGE) from error
        constraints.warn_answer_form()
        calls.add_approved(self.options.approved_calls)
        if calls.pending or self.options.compact:
            self.started_generating.set()

    async def _run_generations(self, prepared: PreparedTurn) -> bool:
        """Generate and run calls until the answer is complete; true when a limit cut it off."""
        calls, was_continued = prepared.calls, False
        if await calls.run():
            return False
        while True:
            self._add_steering(prepared)
            if self.options.compact:
                await self._compact_if_needed(prepared)
            end = await prepared.generations.run()
            if end is EndReason.STOP and self.options.further_calls:
                end = await prepared.generations.run_further_calls()
            if self.stop_reason:
                raise TurnCancelledError
            if end is not EndReason.STOP:
                self._warn_cut_off(end)
                return True
            if not calls.pending:
                if not self._is_answered(prepared):
                    if was_continued:
                        self._warn_cut_off(EndReason.UNANSWERED)
                        return True
                    at = len(self.generations[-1].ids)
                    self.emit(ev.AgentRepair(rule="answer_missing", at=at, text=""))
                    was_continued = True
                    continue
                last = self.generations[-1]
                for span in last.spans[-1:]:
                    prepared.constraints.warn_closed(last.ids[span.start : span.end])
                self._check_answer(prepared)
                return False
            if self.options.ends_at_cut_call and calls.has_cut_client_call:
                self._warn_cut_off(EndReason.CUT_CALL)
                return True
            self.awaits_client = calls.awaits_client
            if await calls.run():
                if self.awaits_client and prepared.generations.is_unsure_call:
                    hedge = MessageWriter(self.output, "commentary")
                    hedge.delta(CALL_HEDGE)  # as an answer's: the model never reads it
                    hedge.close(True)
                return False  # the client's turn to run its functions, or the calls led nowhere

    def _warn_cut_off(self, end: EndReason) -> None:
        if why := CUT_OFF.get(end):
            self.emit(ev.AgentNotice(level="warning", message=why))

    def _check_answer(self, prepared: PreparedTurn) -> None:
        """Report an answer that does not fit its JSON Schema. Raises TurnFailedError."""
        form, answer = self.options.answer_form, self.output.answer
        text = "".join(part.text for part in answer.content) if answer else ""
        if form is None or (why := prepared.constraints.validate_answer(form, text)) is None:
            return
        if form.binding:
            message = f"The answer does not fit its JSON Schema: {why}"
            raise TurnFailedError("server_error", message, EXIT_FAILED)
        at, item = len(self.generations[-1].ids), answer.id if answer else None
        self.emit(ev.AgentRepair(rule="answer_unfit", at=at, text=why, item_id=item))

    def _is_answered(self, prepared: PreparedTurn) -> bool:
        """Whether there is an answer behind the last call; also one that a stop sequence empties, or
        that a person ended by choosing its last token."""
        last = prepared.generations.decoders[-1]
        if last.is_cut or not last.was_generated:
            return True
        for item in reversed(self.output.items):
            match item:
                case ev.MessageItem(phase="final_answer"):
                    if any(part.text.strip() for part in item.content):
                        return True
                case ev.MessageItem() | ev.ReasoningItem():
                    pass
                case _:
                    return False
        return False

    def _add_steering(self, prepared: PreparedTurn) -> None:
        while self._steering and not self.stop_reason:
            text = self._steering.pop(0)
            self.conversation.add(prepared.format, Steering(text))
            self.emit(ev.AgentSteered(text=text))

    async def _compact_if_needed(self, prepared: PreparedTurn) -> None:
        work = make_room(
            prepared.generator,
            self.conversation,
            self.options.sampling,
            self.emit,
            self.usage.add_auxiliary_generation,
        )
        try:
            await self.until_stopped(work)
        except NotCompactedError as error:
            self.emit(ev.AgentNotice(level="warning", message=str(error)))
        except TurnCancelledError:
            message = "Compacting was interrupted; nothing was changed."
            self.emit(ev.AgentNotice(level="warning", message=message))
            raise

    async def run_child(self, messages: Sequence[Message], options: TurnOptions) -> ev.Response:
        conversation = Conversation(new_id("conv"))
        child = Turn(self.runtime, conversation, messages, options, interface=SAMPLING).start()
        try:
            return await self.until_stopped(child.done())
        finally:
            child.stop()
            self.usage.add_auxiliary(child.usage.tokens)

    # --- stopping ---

    async def until_stopped(self, work: Awaitable[T]) -> T:
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise TurnCancelledError
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
