"""Plans the turn that answers a request; what can be refused is refused here, before the first event.

1. The model named is loaded (`models`), and no unsupported field is used.
2. ``previous_response_id`` or ``conversation`` is looked up: the conversation that the turn continues.
3. The MCP servers that the request brings are connected (`declared_tools`).
4. ``tools``, those that items add, and ``tool_choice`` become the turn's tools (`tool_selection`).
5. ``input`` becomes messages (`input_items`): those that a client resends are put into the
   conversation, those that the model has not answered are the turn's prompt.
6. Long texts are tokenised bit by bit (`token_memo`); the prompt has to fit into the context.
7. The grammars of strict schemas are compiled."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Container, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agent import events as ev
from agent.conversation import compaction
from agent.conversation.conversation import Conversation
from agent.conversation.messages import Developer, Message, ToolCallMessage, ToolResultMessage
from agent.engine.protocol import EngineBusyError
from agent.formats.protocol import Format, SingleMessageFormat
from agent.runtime.runtime import Runtime
from agent.server.http.clients import Client, current_client
from agent.server.http.errors import (
    client_param,
    client_params,
    context_length_exceeded,
    invalid,
    missing,
    rate_limited,
)
from agent.server.http.options import ServerOptions
from agent.server.input import items as input_items
from agent.server.input import tool_selection
from agent.server.input.begun_item import begin_with_message, split_begun_item
from agent.server.input.declared_tools import (
    DeclaredTool,
    client_servers,
    declared_tools,
    refuse_unauthorized,
)
from agent.server.input.files import DocumentReader
from agent.server.input.items import InputHistory
from agent.server.input.listed_items import list_input
from agent.server.input.schemas import (
    CreateResponse,
    InputCompactionTrigger,
    InputItem,
    InputMcpListTools,
    RequestMcp,
    RequestText,
)
from agent.server.input.stored_responses import Continued, ResponseCache, history_of, served_json
from agent.server.input.token_memo import TokenMemo, pretokenise
from agent.server.input.turn_options import initial_response, turn_options
from agent.server.responses.conversations import Conversations, list_new_inputs, referenced_items
from agent.server.responses.models import ServedModels
from agent.store.event_codec import pack_official
from agent.store.records import ServedTurn
from agent.turn.constraints import ANSWER_SUBJECT, UnenforceableSchemaError
from agent.turn.jobs import CompactionJob, SummaryJob, TurnJob
from agent.turn.loop import Turn
from agent.turn.options import HTTP, ApprovedCall, TurnOptions
from agent.util.ids import new_id
from tools.mcp.host import Host
from tools.types import Tool

log = logging.getLogger(__name__)

LONG_TEXT_CHARACTERS = 100_000
"""Instructions or functions longer than this have their tokens counted before they are rendered."""
MAX_SCHEMA_SHRINK_FACTOR = 4
"""Largest ratio of functions' length as JSON to that in a prompt; no useful schema comes near it."""
RENDER_BATCH_MESSAGES = 100
"""Messages that are rendered before the event loop runs other tasks."""


@dataclass(slots=True)
class TurnPlan:
    """A turn that can start, and what is stored of its request."""

    turn: Turn
    request: CreateResponse
    input_history: InputHistory
    inputs: tuple[dict[str, Any], ...]
    """The input items as ``/input_items`` lists them."""
    store: bool
    """Whether the response can be looked up and continued."""
    ignored: tuple[str, ...]
    """Paths of what is passed over of the request."""
    prompt_tokens: int
    client: Client = field(default_factory=current_client)
    deleted: bool = False
    """Whether a client has deleted the response while it runs."""

    @property
    def background(self) -> bool:
        """Whether the turn continues when its client disconnects."""
        return self.request.background is True

    def history_after(self, response: ev.Response) -> InputHistory:
        history, called = self.input_history.copy(), _call_names(response)
        history.call_names |= called
        history.answered_calls -= called.keys()
        history.pending_calls = _call_names(response, complete=True)
        for item in response.output:
            match item:
                case ev.McpApprovalRequestItem(id=name, server_label=server):
                    call = ApprovedCall(name, server, item.name, item.arguments)
                    history.pending_approvals[name] = call
                case ev.McpListToolsItem(error=None):
                    history.listed_servers.add(item.server_label)
        return history

    def served(self, response: ev.Response) -> dict[str, Any]:
        size, owner = self.request.origin.sent_bytes, self.client.name
        return served_json(self.history_after(response), self.inputs, size, owner)

    def served_turn(self) -> ServedTurn:
        turn = self.turn
        events = pack_official(turn.log.events) if self.background else b""
        return ServedTurn(turn.response, turn.conversation, self.served(turn.response), events)

    def remember_tokens(self, memo: TokenMemo) -> None:
        """Remember the ids of what the model wrote, for clients that send it back, but for what is
        rendered in another way, cut off or repaired."""
        turn, form = self.turn, self.turn.format
        entries = memo.of(turn.conversation.vocabulary or "")
        output = [
            item for item in turn.response.output if getattr(item, "status", "") != "incomplete"
        ]
        for item in output:
            if isinstance(item, ev.FunctionCallItem):
                memo.remember_arguments(item.call_id, item.arguments)
        messages = input_items.messages_by_item(output, turn.host.tools())
        for entry in turn.conversation.entries:
            if (message := messages.get(entry.item or "")) is not None:
                rendered = Conversation("")
                rendered.add(form, message)
                ids = rendered.entries[-1].ids
                if ids == entry.ids or _spelling(form, ids) == _spelling(form, entry.ids):
                    entries.remember(message, entry)
                elif (
                    isinstance(message, ToolCallMessage)
                    and message.call_id
                    and message.arguments.encode() in _spelling(form, entry.ids)[0]
                ):
                    entries.remember(message, entry, message.call_id)


@dataclass(frozen=True, slots=True)
class TurnPlanner:
    """Plans turns on the models of a server."""

    models: ServedModels
    options: ServerOptions
    memo: TokenMemo
    conversations: Conversations
    document_reader: DocumentReader

    def exposed_servers(self) -> list[str]:
        """Names of the operator's servers that a request may name."""
        states = self.models.first.runtime.host.server_states() if self.options.expose_tools else []
        return [state.name for state in states if state.status != "disabled"]

    def _exposed_tools(self, host: Host) -> list[Tool]:
        """The exposed tools, and those of the servers that the request brought to ``host``."""
        own = {state.name for state in self.models.first.runtime.host.server_states()}
        exposed = self.options.expose_tools
        return [tool for tool in host.tools() if exposed or tool.server not in own]

    async def plan(
        self, request: CreateResponse, cache: ResponseCache, job: TurnJob | None = None
    ) -> TurnPlan:
        """Plan a turn, whose host the caller closes if it is not its runtime's. ``cache``: responses
        that it may continue. ``job``: done instead of answering. Raises ApiError."""
        await self.models.find(request.model)
        refuse_contradictions(request)
        async with AsyncExitStack() as until_planned:
            until_planned.enter_context(client_params(request.origin.dropped))
            in_use = self.models.in_use(request.model)
            served, loaded = await until_planned.enter_async_context(in_use)
            runtime = served.runtime
            continued = await self._continued(request, cache, loaded.vocabulary)
            items = _required_input(request)
            if items and isinstance(items[-1], InputCompactionTrigger):
                items, job = items[:-1], job or CompactionJob()
                request.origin.sent_input = request.origin.sent_input[:-1]
            declared = declared_tools(request, items, continued.history.added_tools)
            if not loaded.format.parses_calls:
                request, declared = tool_selection.without_calls(
                    request, declared, lenient=self.options.lenient
                )
            listed = {one.server_label for one in items if isinstance(one, InputMcpListTools)}
            listed |= continued.history.listed_servers
            with_servers = self._host_with(runtime, declared, listed)
            host = await until_planned.enter_async_context(with_servers)
            defaults, memo = served.defaults, self.memo.of(loaded.vocabulary)
            known = dict[str, dict[str, Any]]()
            if (name := request.conversation_id) is not None:
                known = {item["id"]: item for item in await self.conversations.items(name)}
            answered, begun = split_begun_item(items)
            selected = tool_selection.select_tools(request, declared, self._exposed_tools(host))
            history = input_items.ItemReader(
                continued.history.copy(),
                host.tools(),
                (await referenced_items(answered, known, cache)).get,
                leading=continued.is_new,
                refuse_unseen=request.origin.refuses_unseen,
                documents=await self.document_reader.read(items),
                describe=partial(tool_selection.describe_tools, loaded.format),
            ).read(answered, is_answered=not isinstance(job, SummaryJob))
            if history.text_format is not None:
                text = request.text or RequestText()
                text = text.model_copy(update={"format": history.text_format})
                request = request.model_copy(update={"text": text})
            tools = tool_selection.apply_tool_choice(selected, request)
            options = turn_options(request, defaults, tools, history)
            if isinstance(job, CompactionJob):  # of a history that may be too long to answer
                options = replace(options, compact=True)
            has_effort = loaded.format.effort_control or options.effort == defaults.effort
            if not has_effort and request.origin.refuses_unseen:
                message = (
                    f"The model '{runtime.model.name}' has no reasoning effort that can be set."
                )
                raise invalid("reasoning.effort", message)
            input_items.name_calls(history, {tool.model_name for tool in options.functions})
            context = runtime.context_length
            messages = await _pretokenise(loaded.format, request, options, history, context, memo)
            begin = None
            if begun is not None:
                (begun,) = await pretokenise(loaded.format, [begun], context, memo)
                begin = begin_with_message(loaded.format, begun, f"input[{len(items) - 1}]")
            conversation = _continued_conversation(continued, request, history, loaded.format)
            if continued.is_new:
                messages = await add_resent_messages(messages, conversation, loaded.format, memo)
            elif not messages and not conversation.entries and begin is None:
                raise missing("input")
            response = initial_response(request, runtime, options, selected)
            turn = Turn(
                runtime, conversation, messages, options, response,
                interface=HTTP, host=host, job=job, begin=begin,
            )  # fmt: skip
            prompt_tokens = await _check_turn(turn)
            left_out = (*tools.left_out, *([] if has_effort else ["reasoning.effort"]))
            ignored = _ignored_params(request, left_out, history)
            sent = request.origin.sent_input
            if name is None:
                inputs = list_input(sent)
            else:
                sent = sent if begin is None else sent[:-1]  # its answer has it
                inputs = await list_new_inputs(sent, known, cache)
            store = request.store is not False
            return TurnPlan(turn, request, history, inputs, store, ignored, prompt_tokens)

    @asynccontextmanager
    async def _host_with(
        self, runtime: Runtime, declared: Sequence[DeclaredTool], listed: Container[str]
    ) -> AsyncIterator[Host]:
        """A runtime's host with the servers that a request brings, which end where the block fails.
        ``listed``: servers whose tools the client knows. Raises ApiError."""
        own, options = self.exposed_servers(), self.options
        brought = client_servers(
            declared, own, allowed=options.client_servers, private_urls=options.private_urls
        )
        host = runtime.host.with_client_servers(brought) if brought else runtime.host
        try:
            for server in brought:
                host.connect(server.name)
            # Servers that a request names are waited for, like those that a prompt mentions.
            tools = (one.tool for one in declared)
            if labels := {tool.server_label for tool in tools if isinstance(tool, RequestMcp)}:
                await host.wait_started(labels)
            names = {server.name for server in brought}
            states = [state for state in host.server_states() if state.name in names]
            refuse_unauthorized(declared, states, listed)
            yield host
        except BaseException:
            if brought:
                await host.close()
            raise

    async def _continued(
        self, request: CreateResponse, cache: ResponseCache, vocabulary: str
    ) -> Continued:
        """Return the state of the conversation or response that it continues. Raises ApiError."""
        if (name := request.conversation_id) is not None:
            return await self.conversations.continued(name, vocabulary)
        if (stored := await _previous_response(request, cache, vocabulary)) is None:
            return Continued(Conversation(new_id("conv")), InputHistory(), is_new=True)
        entries = [replace(entry) for entry in stored.conversation.entries]
        conversation = replace(stored.conversation, entries=entries, unanswered=[])
        if stored.response.conversation is not None:  # only turns that name it extend it
            conversation = conversation.branch(new_id("conv"), len(conversation.entries))
        return Continued(conversation, history_of(stored))


async def _pretokenise(
    format: Format,
    request: CreateResponse,
    options: TurnOptions,
    history: InputHistory,
    context: int,
    memo: TokenMemo,
) -> Sequence[Message]:
    """Tokenise long texts bit by bit. Raises ApiError when all is longer than the context."""
    if len(options.instructions or "") > LONG_TEXT_CHARACTERS:
        await pretokenise(format, [Developer(options.instructions or "")], context, memo)
    # Without a body of known length (a chat completion) the functions may be of any length.
    if not 0 < request.origin.sent_bytes <= LONG_TEXT_CHARACTERS:
        declared = json.dumps([(f.description, f.parameters) for f in options.functions])
        await pretokenise(format, [Developer(declared)], context, memo, MAX_SCHEMA_SHRINK_FACTOR)
    limit = None if options.compact else context
    return await pretokenise(format, history.messages, limit, memo)


def _spelling(form: Format, ids: Sequence[int]) -> tuple[bytes, list[int]]:
    """The text of ids and their markup: equal for ids that differ in how text became tokens only."""
    return b"".join(map(form.token_bytes, ids)), list(filter(form.is_markup, ids))


async def add_resent_messages(
    messages: Sequence[Message], conversation: Conversation, format: Format, memo: TokenMemo
) -> Sequence[Message]:
    """Put resent messages into a new conversation; return those that the model has not answered."""
    start = input_items.unanswered_start(messages)
    for number, message in enumerate(messages[:start]):
        if number % RENDER_BATCH_MESSAGES == 0:
            await asyncio.sleep(0)  # others are answered meanwhile
        if (entry := memo.recall(message)) is not None:
            conversation.entries.append(entry)
            continue
        conversation.add(format, message)
        if not isinstance(format, SingleMessageFormat):  # there it may be part of another one
            memo.remember(message, conversation.entries[-1])
    return messages[start:]


def refuse_contradictions(request: CreateResponse) -> None:
    if request.background and request.store is False:
        raise invalid("background", "A background response has to be stored ('store': true).")
    if request.conversation is not None and request.previous_response_id is not None:
        message = (
            "Mutually exclusive parameters: 'previous_response_id', 'conversation'. Ensure you are"
            " only providing one of: 'previous_response_id' or 'conversation'."
        )
        raise invalid("conversation", message, "mutually_exclusive_parameters")


async def _previous_response(
    request: CreateResponse, cache: ResponseCache, current_vocabulary: str
) -> ServedTurn | None:
    if (previous_id := request.previous_response_id) is None:
        return None
    if (stored := await cache.find(previous_id)) is None:
        message = f"Previous response with id '{previous_id[:80]}' not found."
        raise invalid("previous_response_id", message, "previous_response_not_found")
    if stored.response.status in ("queued", "in_progress"):
        message = f"The response '{previous_id[:80]}' is still in progress."
        raise invalid("previous_response_id", message)
    vocabulary = stored.conversation.vocabulary
    if vocabulary not in (None, current_vocabulary):
        message = (
            f"The response '{previous_id[:80]}' has tokens of another vocabulary ({vocabulary}):"
            " continue with that model, or send its items again."
        )
        raise invalid("previous_response_id", message)
    return stored


def _required_input(request: CreateResponse) -> str | list[InputItem]:
    if request.input or (request.input is not None and request.previous_response_id):
        return request.input
    if request.conversation_id is not None:
        return []
    if isinstance(request.input, str):
        return ""
    raise missing("input")


def _continued_conversation(
    continued: Continued, request: CreateResponse, history: InputHistory, format: Format
) -> Conversation:
    conversation = continued.conversation
    # A late result replaces one; another continuation of the same response is unaffected.
    late = any(isinstance(m, ToolResultMessage) and m.late for m in history.messages)
    if request.conversation_id is None and late:
        conversation = conversation.branch(new_id("conv"), len(conversation.entries))
    if any(map(input_items.ends_turn, history.messages)):
        conversation.end_turn(format)  # as if its items had been sent again
    return conversation


def _ignored_params(
    request: CreateResponse, more: Sequence[str], history: InputHistory
) -> tuple[str, ...]:
    """The parameters of the request without effect, which are logged; ``more``: further ones."""
    unread = [client_param(f"input[{at}]", request.origin.dropped) for at in history.unread]
    named = dict.fromkeys(map(request.origin.sent_name, (*more, *unread)))
    ignored = (*request.origin.ignored, *named)
    if ignored:
        log.warning("of the request is passed over: %s", ", ".join(ignored)[:200])
    return ignored


async def _check_turn(turn: Turn) -> int:
    """Prepare a turn and compile its grammars; its prompt's tokens. Raises ApiError."""
    prepared, tokens = turn.prepare(), len(turn.conversation.prompt(turn.format))
    try:
        await prepared.constraints.compile()
    except UnenforceableSchemaError as error:
        param = "text.format.schema" if error.subject == ANSWER_SUBJECT else "tools"
        raise invalid(param, str(error), "invalid_json_schema") from error
    except EngineBusyError as error:
        raise rate_limited(str(error)) from error
    if turn.options.compact:
        tokens = compaction.minimum_prompt_tokens(turn.format, turn.conversation)
    tokens += len(prepared.begun.ids)
    if tokens >= turn.runtime.context_length:
        raise context_length_exceeded(turn.runtime.context_length, tokens)
    return tokens


def _call_names(response: ev.Response, *, complete: bool = False) -> dict[str, str]:
    """The client's functions by call id, as the model knows them; ``complete``: of complete calls."""
    return {
        getattr(item, "call_id", ""): name
        for item in response.output
        if (name := ev.client_tool(item)) is not None
        and (not complete or (getattr(item, "status", None) or response.status) == "completed")
    }
