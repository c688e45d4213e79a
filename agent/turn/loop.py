"""One turn, from its first event to its terminal one, which comes exactly once, whatever happens."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from agent import events as ev
from agent.conversation.conversation import Conversation, Entry
from agent.conversation.harmony_messages import response_messages
from agent.conversation.messages import Message, User
from agent.engine.protocol import EngineBusyError, EngineError
from agent.errors import system_refusal
from agent.runtime.runtime import Runtime
from agent.turn import endings
from agent.turn.answer_loop import AnswerLoop
from agent.turn.constraints import TurnSettings
from agent.turn.context import TurnContext
from agent.turn.continuation import Begin
from agent.turn.decoder import GenerationDecoder
from agent.turn.jobs import TurnJob
from agent.turn.options import APP, RUN, SAMPLING, Interface, TurnOptions
from agent.turn.prepared import PreparedTurn, prepare_turn
from agent.turn.response_builder import terminal_event
from agent.util import process
from agent.util.ids import new_id
from tools.builtin_server import conversation_id as current_conversation
from tools.builtin_server import turn_id as current_turn
from tools.mcp.host import Host
from tools.policy.approvals import Policy

log = logging.getLogger(__name__)


class Turn(TurnContext):
    """One turn of a conversation; ``start()`` it, then read ``log``."""

    def __init__(
        self,
        runtime: Runtime,
        conversation: Conversation,
        prompt: Sequence[Message],
        options: TurnOptions,
        response: ev.Response | None = None,
        *,
        interface: Interface = RUN,
        host: Host | None = None,
        policy: Policy | None = None,
        job: TurnJob | None = None,
        begin: Begin | None = None,
    ) -> None:
        """``prompt``: the new messages. ``response``: as the request fixes it. ``host``, ``policy``:
        instead of the runtime's. ``job``: instead of answering. ``begin``: the answer's beginning."""
        response = response or options.initial_response(runtime.model.name)
        super().__init__(
            runtime, conversation, options, response, interface,
            host or runtime.host, policy or runtime.policy,
        )  # fmt: skip
        self.prompt, self.source = prompt, interface.name
        self.exit_code = process.EXIT_FAILED
        """The exit code of a command that ran this turn, once it has ended."""
        self._job, self._begin = job, begin
        self._prepared: PreparedTurn | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def items(self) -> list[ev.Item]:
        return self.output.items

    @property
    def generations(self) -> list[GenerationDecoder]:
        return self._prepared.generations.decoders if self._prepared is not None else []

    @property
    def first_entry(self) -> int:
        prepared = self._prepared
        return prepared.first_entry if prepared else len(self.conversation.entries)

    @property
    def settings(self) -> TurnSettings:
        """The settings of its generations, for use after its end."""
        prepared = self._prepared
        tools = prepared.calls.declared.server_tools.values() if prepared else ()
        options = replace(self.options, tools=None, approver=None, answerer=None, login=None)
        return TurnSettings(options, tuple(tools), prepared is None or prepared.constraints.applied)

    # --- from outside ---

    def start(self) -> Self:
        """Run the turn in a task of its own, and tell the runtime's subscribers of it."""
        self._task = asyncio.create_task(self._run())
        self.runtime.begin_turn()
        self.runtime.hub.publish(self)
        return self

    def answer_now(self) -> bool:
        is_over, prepared = self.response.status not in ("queued", "in_progress"), self._prepared
        if is_over or self._job or (prepared and not prepared.generations.end_reasoning()):
            return False
        self.answers_now = True
        return True

    def steer(self, text: str) -> None:
        """Queue a message for the next generation; one that comes too late stays queued."""
        self.steering.append(text)

    def queued_steering(self) -> list[str]:
        return list(self.steering)

    def take_back_steering(self) -> str | None:
        return self.steering.pop() if self.steering else None

    async def done(self) -> ev.Response:
        assert self._task is not None, "start() first"
        await asyncio.shield(self._task)
        return self.response

    def pending_entries(self) -> list[Entry]:
        ending = Conversation("")
        prepared = self._prepared
        if prepared is not None and (running := prepared.generations.running) is not None:
            ending.add_generated(self.format, running.ids, running.spans_if_interrupted())
        elif prepared is not None:
            for call in prepared.calls.pending:
                if not call.runs_on_client:
                    why = call.abort_text("the program ended")
                    ending.add_result(self.format, call.recipient, why)
        entries = (*self.conversation.entries, *ending.entries)
        return [entry for entry in entries if not entry.reasoning]

    def prepare(self) -> PreparedTurn:
        """Put the header and new messages into the conversation, once the model is loaded. Raises
        TurnFailedError where that is in the tokens of another vocabulary."""
        if self._prepared is None:
            self._prepared = prepare_turn(self, self.prompt, self._begin)
        return self._prepared

    # --- the turn ---

    async def _run(self) -> None:
        current_conversation.set(self.conversation.id)
        current_turn.set(self.response.id)
        try:
            await self._emit_header()
            await self._load_model()
            incomplete = await self._answer()
            self.exit_code = process.EXIT_INCOMPLETE if incomplete else process.EXIT_DONE
            await self._end("incomplete" if incomplete else "completed")
        except endings.TurnCancelledError:
            self.exit_code = process.EXIT_CANCELLED
            if self.stop_reason == "timeout":
                self.exit_code = process.EXIT_INCOMPLETE
                self.emit(ev.AgentNotice(level="warning", message=endings.TIMED_OUT))
            await self._end("cancelled")
        except (endings.TurnFailedError, EngineBusyError) as error:
            if isinstance(error, EngineBusyError):
                error = endings.TurnFailedError(
                    endings.RATE_LIMIT, str(error), process.EXIT_UNAVAILABLE
                )
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
            self.accepted.set()
            self.runtime.end_turn()
            try:
                is_over = bool(self.generations) and not self.awaits_client
                if self.prefetches or (is_over and self.interface.prefetches):
                    self.runtime.prefetch(self.conversation, private=self.options.private)
            finally:
                self.log.close()

    async def _end(self, status: ev.Status, error: ev.ResponseError | None = None) -> None:
        prepared, conversation = self._prepared, self.conversation
        if prepared is not None:
            prepared.calls.abort("the turn ended")
        self.emit(self.usage.stats())
        limit_reached = ev.IncompleteDetails(reason=self.incomplete_reason)
        changes: dict[str, object] = {
            "status": status,
            "error": error,
            "incomplete_details": limit_reached if status == "incomplete" else None,
            "completed_at": int(time.time()) if status == "completed" else None,
            "output": self.items,
            "usage": self.usage.tokens,
        }
        if self.options.include_messages and prepared is not None:
            changes |= response_messages(self.format, conversation, prepared.first_generated_entry)
        response = self.response.model_copy(update=changes)
        if not self.awaits_client:  # else the client's next request still needs the reasoning
            conversation.end_turn(self.format if prepared is not None else None)
        if prepared is not None:
            conversation.omit_answered_calls(self.format)
        event = terminal_event(response)
        event.sequence_number = self._sequence_number
        self._has_ended = True
        try:
            # The conversation is final before: the recorder writes the turn now.
            await self.log.save(event)
        finally:
            self.response = response
            self.log.append(event)

    async def _emit_header(self) -> None:
        """Emit the first events, which list the tools, once the servers that it needs have started."""
        runtime, offered = self.runtime, self.options.tools
        needed = None if offered is None else {tool.server for tool in offered}
        seconds = None if self.interface.waits_for_servers else runtime.server_wait_seconds
        text = "\n".join(message.text for message in self.prompt if isinstance(message, User))
        try:
            tools = self.host.wait_for_turn(text, needed, timeout=seconds)
            await self.until_stopped(asyncio.gather(tools, runtime.plan_placement()))
            if (offer := self.options.login) is not None:
                await self.until_stopped(self.host.offer_logins(text, offer))
        finally:
            start = ev.AgentStart(
                model=runtime.model.name,
                context_length=runtime.context_length,
                engine=runtime.provider.loader.engine_name,
                tools=[f"{tool.server}.{tool.name}" for tool in self.host.tools()],
                mcp_servers=[
                    ev.ServerStatus(name=s.name, status=s.status, tools=s.tools, error=s.error)
                    for s in self.host.server_states()
                ],
            )
            self.emit(start)
            form = runtime.loaded.format if runtime.loaded else runtime.provider.other_format
            reasoning = self.response.reasoning
            if form is not None and not form.effort_control and reasoning is not None:
                reasoning = reasoning.model_copy(update={"effort": None})
                self.response = self.response.model_copy(update={"reasoning": reasoning})
            self.emit(ev.ResponseCreated(response=self.response.model_copy()))
            if self.response.status == "queued":
                self.emit(ev.ResponseQueued(response=self.response.model_copy()))
            else:
                self.mark_in_progress()

    async def _load_model(self) -> None:
        reported = -1

        def report(fraction: float) -> None:
            nonlocal reported
            if (per_mille := int(fraction * 1000)) > reported:
                reported = per_mille
                self.emit(ev.AgentLoad(done=per_mille, total=1000))

        options = self.options
        offered = self.host.tools() if options.tools is None else options.tools
        # Output that may have to fit a grammar.
        warm_up = bool(options.answer_form or options.functions or offered)
        await self.until_stopped(self.runtime.load(report, warm_up=warm_up))
        self.host.withheld = self.runtime.host.withheld
        offered = self.host.all_tools() if self.options.tools is None else self.options.tools
        if self.host.withheld and offered and self.interface is not APP:
            self.emit(ev.AgentNotice(level="warning", message=self.host.withheld))
        effort, reasoning = self.options.effort, self.response.reasoning
        claims_none = reasoning is not None and reasoning.effort is None
        if claims_none and effort != "medium" and not self.conversation.entries:
            message = f"{self.runtime.model.name} has no reasoning effort: {effort} has no effect."
            self.emit(ev.AgentNotice(level="warning", message=message))
        missing = [s for s in self.host.server_states() if s.required and s.status != "ready"]
        if missing:
            why = f": {missing[0].error}" if missing[0].error else ""
            message = f"The required server {missing[0].name} is not available{why}"
            raise endings.TurnFailedError("server_error", message, process.EXIT_UNAVAILABLE)

    async def _answer(self) -> bool:
        """Answer, or do the turn's job; true when a limit cut the answer off."""
        prepared = self.prepare()
        if self._job is not None:
            await self._job(self, prepared)
            return False
        return await AnswerLoop(self, prepared).run()

    async def run_child(self, messages: Sequence[Message], options: TurnOptions) -> ev.Response:
        conversation = Conversation(new_id("conv"))
        child = Turn(self.runtime, conversation, messages, options, interface=SAMPLING).start()
        try:
            return await self.until_stopped(child.done())
        finally:
            child.stop()
            auxiliary, used = self.usage.auxiliary, child.usage.tokens
            auxiliary.input_tokens += used.input_tokens
            auxiliary.output_tokens += used.output_tokens
