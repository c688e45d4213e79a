"""One turn: generate → parse → call tools → go on, until the answer is whole; one stream of events.

A turn that was started always ends with exactly one terminal event, whatever model and tools do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from agent import events as ev
from agent.conversation.compaction import NotCompacted, make_room
from agent.conversation.conversation import Conversation, Message, Steering
from agent.engine.protocol import (
    Busy,
    ContextOverflow,
    EngineError,
    Finished,
    Prefill,
    Request,
    Tokens,
    Waiting,
)
from agent.formats.harmony.messages import transcript
from agent.runtime.hub import Log
from agent.runtime.runtime import PATIENCE, Runtime
from agent.turn.constraints import Constraints, Unenforceable
from agent.turn.decoder import Pieces
from agent.turn.endings import (
    EXIT_CUT,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_STOPPED,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    RATE_LIMIT,
    Refused,
    Stopped,
    StopReason,
)
from agent.turn.options import Options
from agent.turn.output import Output, list_tools
from agent.turn.tool_calls import Calls
from agent.turn.usage import Measures
from tools.builtin.base import conversation as current
from tools.mcp.host import Host

log = logging.getLogger(__name__)
T = TypeVar("T")


class Turn:
    """One turn of a conversation; ``start()`` it, then read ``log``."""

    def __init__(
        self,
        runtime: Runtime,
        conversation: Conversation,
        prompt: Sequence[Message],
        options: Options,
        response: ev.Response | None = None,
        *,
        source: str = "run",
        host: Host | None = None,
    ) -> None:
        """``prompt``: what is new since the conversation's last turn.

        ``response``: what the request fixed of it. ``source``: the face that it came through
        (run, app, http), for whoever watches. ``host``: the runtime's, with servers of its own.
        """
        self.runtime, self.conversation, self.source = runtime, conversation, source
        self.prompt, self.options = prompt, options
        self.host = host or runtime.host
        self.log = Log()
        self.output = Output(self.emit, self.host.source)
        self.response = response or options.response(runtime.model.name)
        self.measures = Measures()
        self.stopped: StopReason | None = None
        self.steering: list[str] = []
        """What was said meanwhile, that no generation has read yet."""
        self.exit_code = EXIT_FAILED
        self.generations: list[Pieces] = []
        self.prepared = self._client_is_next = False
        self.writing: Pieces | None = None
        """The generation that comes right now."""
        self._mark = self._begun = self._read = 0
        self._stop = asyncio.Event()
        self.admitted = asyncio.Event()
        """It has a place among those that generate, did something else already, or has ended."""
        self._number = 0
        self._ended = False
        self._task: asyncio.Task[None] | None = None

    @property
    def generated(self) -> list[list[int]]:
        """The ids of each generation; the last may still grow."""
        return [pieces.ids for pieces in self.generations]

    # --- from outside ---

    def start(self) -> Turn:
        self._task = asyncio.create_task(self._run())
        self.runtime.begin_turn()
        self.runtime.hub.announce(self)
        return self

    def stop(self, reason: StopReason = "cancelled") -> None:
        """Ask it to end; it does at the next token, or at once while a tool runs."""
        self.stopped = self.stopped or reason
        self._stop.set()

    def steer(self, text: str) -> None:
        """Say something in the middle of the turn: the next generation reads it. What comes too late
        for that stays in ``steering``."""
        self.steering.append(text)

    async def done(self) -> ev.Response:
        """Wait for the end; the final response."""
        assert self._task is not None, "start() first"
        await asyncio.shield(self._task)
        return self.response

    def prepare(self) -> int:
        """Head and new messages go into the conversation; the length of the prompt in tokens.

        Needs a runtime that is ready. The turn does it by itself where nobody did before.
        """
        form, conversation = self.runtime.format, self.conversation
        if not self.prepared:
            vocabulary = self.runtime.vocabulary
            if conversation.vocabulary not in (None, vocabulary):
                refusal = (
                    f"This conversation was held in the tokens of {conversation.vocabulary}:"
                    " go on with that model, or begin a new one."
                )
                raise Refused("invalid_prompt", refusal, EXIT_USAGE)
            conversation.vocabulary = vocabulary
            self.prepared = True
            self._mark = self._read = len(conversation.entries)
            self.calls = Calls(self)
            self.constraints = Constraints(self)
            conversation.set_head(form, self.options.head(self.calls.tools.values()))
            for message in self.prompt:
                conversation.add(form, message)
            self._begun = len(conversation.entries)
        return len(conversation.prompt(form))

    # --- events ---

    def emit(self, event: ev.Event) -> None:
        if self._ended:
            return  # progress of what nobody waits for any more
        if isinstance(event, ev.Official):
            event.sequence_number = self._number
            self._number += 1
        self.log.append(event)

    # --- the turn ---

    async def _run(self) -> None:
        current.set(self.conversation.id)
        try:
            await self._introduce()
            await self._ready()
            incomplete = await self._converse()
            self.exit_code = EXIT_CUT if incomplete else EXIT_DONE
            self._end("incomplete" if incomplete else "completed")
        except Stopped:
            self.exit_code = EXIT_CUT if self.stopped == "timeout" else EXIT_STOPPED
            self._end("cancelled")
        except (Refused, Busy) as error:
            if isinstance(error, Busy):
                error = Refused(RATE_LIMIT, str(error), EXIT_UNAVAILABLE)
            if self.prepared and not self.generated:
                # What could not be asked would stand in the way of all that follows.
                self.conversation.forget(self._mark)
            self.exit_code = error.exit_code
            self._end("failed", ev.ResponseError(code=error.code, message=str(error)))
        except EngineError as error:
            self._end("failed", ev.ResponseError(code="server_error", message=str(error)))
        except Exception:
            log.exception("the turn broke")
            message = "Something went wrong inside this program; the log file has the details."
            self._end("failed", ev.ResponseError(code="server_error", message=message))
        finally:
            self.admitted.set()
            self.runtime.end_turn()
            try:
                self._leave()
            finally:
                self.log.close()

    def _leave(self) -> None:
        """What the conversation keeps; what the client's call needs stays until it is answered."""
        if not self._client_is_next:
            self.conversation.end_turn()
            if self.generated and self.source != "run":
                self.runtime.lay_ahead(self.conversation.ids())

    def _end(self, status: ev.Status, error: ev.ResponseError | None = None) -> None:
        if self.prepared:
            self.calls.abandon("the turn ended")
        self.emit(self.measures.stats())
        cut = ev.IncompleteDetails(reason="max_output_tokens")
        self.response = self.response.model_copy(
            update={
                "status": status,
                "error": error,
                "incomplete_details": cut if status == "incomplete" else None,
                "completed_at": int(time.time()) if status == "completed" else None,
                "output": list(self.output.items),
                "usage": self.measures.usage,
                **self._transcript(),
            }
        )
        terminal = {"completed": ev.ResponseCompleted, "failed": ev.ResponseFailed}
        self.emit(terminal.get(status, ev.ResponseIncomplete)(response=self.response))
        self._ended = True

    def _transcript(self) -> dict[str, object]:
        told = self.options.messages and self.prepared
        return transcript(self.runtime.format, self.conversation, self._begun) if told else {}

    async def _introduce(self) -> None:
        """The first lines; the tools are named in them, so servers that still start are awaited,
        as far as they are needed and, where a person waits, not for long."""
        runtime, offered = self.runtime, self.options.tools
        needed = None if offered is None else {tool.server for tool in offered}
        patience = None if self.source == "run" else PATIENCE
        try:
            tools = self.host.settled(needed, patience=patience)
            await self.until_stopped(asyncio.gather(tools, runtime.place()))
        finally:
            self.emit(
                ev.AgentStart(
                    model=runtime.model.name,
                    context_length=runtime.context_length,
                    engine=runtime.engine_name,
                    tools=[f"{tool.server}.{tool.name}" for tool in self.host.tools()],
                    mcp_servers=[
                        ev.ServerStatus(name=s.name, status=s.status, tools=s.tools, error=s.error)
                        for s in self.host.servers()
                    ],
                )
            )
            self.emit(ev.ResponseCreated(response=self.response.model_copy()))
            self.emit(ev.ResponseInProgress(response=self.response.model_copy()))

    async def _ready(self) -> None:
        """Model and tools; what the operator calls required must be there."""
        done = -1

        def progress(fraction: float) -> None:
            nonlocal done
            if (now := int(fraction * 1000)) > done:
                done = now
                self.emit(ev.AgentLoad(done=now, total=1000))

        guided = self.options.guided(self.host.tools())
        await self.until_stopped(self.runtime.load(progress, guided=guided))
        missing = [s for s in self.host.servers() if s.required and s.status != "ready"]
        if missing:
            why = f": {missing[0].error}" if missing[0].error else ""
            message = f"The required server {missing[0].name} is not available{why}"
            raise Refused("server_error", message, EXIT_UNAVAILABLE)

    async def _converse(self) -> bool:
        """Until the answer is whole; true when a budget cut it off."""
        self.prepare()
        failed = {
            s.name: s.error or f"is {s.status}" for s in self.host.servers() if s.status != "ready"
        }
        for server in self.options.listed:
            tools = [tool for tool in self.calls.tools.values() if tool.server == server]
            list_tools(self.output, server, tools, failed.get(server))
        try:
            await self.until_stopped(self.constraints.ready())
        except Unenforceable as error:
            raise Refused("invalid_prompt", str(error), EXIT_USAGE) from error
        self.constraints.announce()
        self.calls.resume(self.options.approved)
        if self.calls.pending or self.options.compact:
            self.admitted.set()
        if await self.calls.run():
            return False
        while True:
            self._take_steering()
            if self.options.compact:
                await self._make_room()
            end = await self._generate()
            if self.stopped:
                raise Stopped
            if end != "stop":
                return True
            if not self.calls.pending:
                if why := self.constraints.answer_problem(self.output.answer):
                    message = f"The answer does not fit its JSON Schema: {why}"
                    raise Refused("server_error", message, EXIT_FAILED)
                return False
            self._client_is_next = self.calls.client_is_next
            if await self.calls.run():
                return False  # the client's turn to run its functions, or the calls led nowhere

    def _take_steering(self) -> None:
        while self.steering and not self.stopped:
            text = self.steering.pop(0)
            self.conversation.add(self.runtime.format, Steering(text))
            self.emit(ev.AgentSteered(text=text))

    async def _make_room(self) -> None:
        work = make_room(
            self.runtime, self.conversation, self.options.sampling, self.emit, self.measures
        )
        try:
            await self.until_stopped(work)
        except NotCompacted as error:
            self.emit(ev.AgentNotice(level="warning", message=str(error)))
        except Stopped:
            message = "Stopped while it was compacted: the conversation stays as it was."
            self.emit(ev.AgentNotice(level="warning", message=message))
            raise

    async def _generate(self) -> str:
        """One generation, parsed as it comes; why it ended."""
        opening = self.constraints.opening()
        prompt = self.conversation.prompt(self.runtime.format) + opening
        left = None
        if (most := self.options.max_output_tokens) is not None:
            left = most - self.measures.usage.output_tokens
            if left <= 0:
                return "length"
        options = self.options
        # What is forced may need grammars that are still to be made.
        following = self.constraints.following
        guide = await asyncio.to_thread(following) if opening else following()
        request = Request(
            prompt,
            left,
            self.runtime.format.stop,
            options.sampling,
            logprobs=options.logprobs,
            constraint=guide,
            follows=bool(self.generated),
        )
        try:
            generation = self.runtime.generate(request)
        except ContextOverflow as error:
            if self.generated:
                return "context"
            raise Refused("invalid_prompt", str(error), EXIT_USAGE) from error
        self.admitted.set()
        parser = self.runtime.format.parser(self.calls.recipients)
        pieces = Pieces(self, parser, self.conversation.entries[self._read :])
        self.generations.append(pieces)
        self.writing = pieces
        pieces.feed(opening)
        cancel = asyncio.create_task(self._cancel_when_stopped(generation.cancel))
        end: Finished | None = None
        try:
            async for event in generation:
                match event:
                    case Prefill(done, total, cached):
                        self.emit(ev.AgentPrefill(done=done, total=total, cached=cached))
                    case Waiting(message):
                        self.emit(ev.AgentNotice(level="info", message=message))
                    case Tokens(new, logprobs):
                        self.measures.token_came()
                        pieces.feed(new, logprobs)
                        if pieces.stopped:
                            generation.cancel()
                    case Finished():
                        end = event
        finally:
            cancel.cancel()
            generation.cancel()
            # Also where the engine failed: what was said is kept, and every item closed.
            pieces.finish()
            self.conversation.add_generated(self.runtime.format, pieces.ids, pieces.spans)
            self._read = len(self.conversation.entries)
            self.writing = None
        assert end is not None, "a generation that does not fail finishes"
        self.measures.generated(end, len(pieces.ids) - len(opening), pieces.reasoning_tokens)
        if pieces.stopped:
            return "stop"
        return "length" if pieces.cut else end.reason

    # --- stopping ---

    async def _cancel_when_stopped(self, cancel: Callable[[], None]) -> None:
        await self._stop.wait()
        cancel()

    async def until_stopped(self, work: Awaitable[T]) -> T:
        """The work's result; ends it and raises Stopped when the turn is asked to end."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Stopped
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
