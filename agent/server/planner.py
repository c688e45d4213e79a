"""From a request to the turn that answers it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

from agent import events as ev
from agent.conversation import compaction
from agent.conversation.conversation import Conversation, Developer, Message
from agent.engine.protocol import Busy, EngineError
from agent.formats.protocol import OneMessage
from agent.runtime.runtime import Runtime
from agent.server import input_items as history
from agent.server.client_mcp import guests
from agent.server.errors import ApiError, invalid, too_many, unsupported
from agent.server.input_items import History
from agent.server.response_cache import Memo, Memory, calls_of
from agent.server.response_fields import response
from agent.server.routes_responses import listed
from agent.server.schemas import CreateResponse, InputItem, RequestText, TextFormat
from agent.server.stream_replay import packed
from agent.server.token_limits import tokenised, too_many_tokens
from agent.server.tool_selection import Offer, choose, offer
from agent.store.recorder import as_if_ended
from agent.store.stored_response import Kept
from agent.turn.call_writers import Approved
from agent.turn.constraints import ANSWER, AnswerForm, Unenforceable
from agent.turn.loop import Turn
from agent.turn.options import Options
from agent.turn.output import new_id
from tools.mcp.host import Host
from tools.types import Tool

Effort = Literal["low", "medium", "high"]
EFFORTS: dict[str, Effort] = {
    "none": "low", "minimal": "low", "low": "low", "medium": "medium",
    "high": "high", "xhigh": "high", "max": "high",
}  # fmt: skip
"""gpt-oss knows three; the others are taken as the nearest."""


SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed",
    "presence_penalty", "frequency_penalty", "repeat_penalty",
)  # fmt: skip
LONG = 100_000
"""Characters of instructions or functions whose length is looked at before they are rendered."""
SHORTER = 4
"""Times that functions may be shorter in a prompt than as JSON; no useful schema comes near that."""
AT_ONCE = 100
"""Messages that are rendered before others have their turn."""
LOGPROBS = "message.output_text.logprobs"


@dataclass(frozen=True, slots=True)
class Exposed:
    """What of the operator's tools requests may name; nothing unless he said so."""

    runtime: Runtime
    anything: bool
    private_urls: bool = False
    """Servers that a request brings may lie at any address."""

    def servers(self) -> list[str]:
        states = self.runtime.host.servers() if self.anything else []
        return [state.name for state in states if state.status != "disabled"]

    def tools(self, host: Host) -> Sequence[Tool]:
        """Those, and what the request's own servers have."""
        own = {state.name for state in self.runtime.host.servers()}
        exposed = self.anything
        return [tool for tool in host.tools() if exposed or tool.server not in own]


@dataclass(slots=True)
class Plan:
    """A turn that can start, and what will be kept of it."""

    turn: Turn
    request: CreateResponse
    history: History
    store: bool
    _inputs: tuple[dict[str, Any], ...] | None = None
    """As they are listed, with the ids that those without one were given."""

    @property
    def background(self) -> bool:
        """It goes on without its client."""
        return self.request.background is True

    def kept(self) -> Kept:
        """What a next request needs of it; while it runs, as far as that is known."""
        response, known, talk = self.turn.response, self.history, self.turn.conversation
        entries = talk.view()
        if response.status == "in_progress":  # what there is of it, should this process be killed
            response = response.model_copy(update={"output": self.turn.output.items})
            entries = as_if_ended(self.turn)
        done = History(
            instructions=known.instructions,
            calls={**known.calls, **calls_of(response)},
            asked=known.asked | {
                item.id: Approved(item.id, item.server_label, item.name, item.arguments)
                for item in response.output
                if isinstance(item, ev.McpApprovalRequestItem)
            },
            unanswered=calls_of(response) if response.status == "completed" else {},
            listed=known.listed | {
                item.server_label
                for item in response.output
                if isinstance(item, ev.McpListToolsItem) and item.error is None
            },
        )  # fmt: skip
        if self._inputs is None:
            self._inputs = listed(self.request.sent)
        return Kept(
            response,
            tuple(entries),
            done,
            history.input_items(response.output),
            self._inputs,
            self.request.sent_bytes,
            talk.id,
            talk.vocabulary,
            packed(self.turn.log) if self.background and response.status != "in_progress" else b"",
        )

    def teach(self, memo: Memo) -> None:
        """After its end: what the model wrote, for clients that send it back."""
        turn = self.turn
        messages = history.written(turn.response.output, turn.host.tools())
        memo.learn(messages, tuple(turn.conversation.entries))


async def plan(
    request: CreateResponse,
    runtime: Runtime,
    base: Options,
    exposed: Exposed,
    memory: Memory,
    memo: Memo,
    kind: type[Turn] = Turn,
) -> Plan:
    """Everything that can be wrong is found here, before the first event. Raises ApiError.

    ``base``: the operator's settings, where the request does not say otherwise.
    """
    named_model(request.model, runtime)
    _supported(request)
    async with AsyncExitStack() as until_planned:
        try:
            await until_planned.enter_async_context(runtime.in_use())
        except EngineError as error:
            raise ApiError(503, str(error), code="model_not_available") from error
        named_model(request.model, runtime)  # it may be another by now
        memo.use(runtime.vocabulary)
        earlier = _earlier(request, memory, runtime)
        sent = _input(request)
        brought = guests(request, exposed.servers(), exposed.private_urls)
        host = runtime.host.joined(brought) if brought else runtime.host
        try:
            for one in brought:
                host.begin(one.name)
            if brought:
                await host.settled({one.name for one in brought})
            return await _planned(
                request, sent, runtime, host, base, exposed, memory, memo, kind, earlier
            )
        except BaseException:
            if brought:
                await host.close()
            raise


async def _planned(
    request: CreateResponse,
    sent: str | list[InputItem],
    runtime: Runtime,
    host: Host,
    base: Options,
    exposed: Exposed,
    memory: Memory,
    memo: Memo,
    kind: type[Turn],
    earlier: Kept | None,
) -> Plan:
    """With the servers that the request brings."""
    offered = offer(request, exposed.servers(), exposed.tools(host))
    read = history.read(
        sent,
        earlier.history if earlier else History(),
        host.tools(),
        memory.item,
        first=earlier is None,
    )
    options = _options(request, base, choose(offered, request), read)
    context = runtime.context_length
    most = None if options.compact else context
    if len(options.instructions or "") > LONG:
        await tokenised(runtime.format, [Developer(options.instructions or "")], context, memo)
    if not 0 < request.sent_bytes <= LONG:  # of a chat that is not known
        declared = json.dumps([(f.description, f.parameters) for f in options.functions])
        await tokenised(runtime.format, [Developer(declared)], context, memo, SHORTER)
    messages = await tokenised(runtime.format, read.messages, most, memo)
    conversation = Conversation(
        earlier.conversation if earlier else new_id("conv"),
        list(earlier.entries) if earlier else [],
    )
    turn = kind(
        runtime,
        conversation,
        await _into(conversation, runtime, messages, memo, fresh=earlier is None),
        options,
        response(request, runtime, options, offered),
        source="http",
        host=host,
    )
    length = turn.prepare()
    try:
        await turn.constraints.ready()
    except Unenforceable as error:
        param = "text.format.schema" if error.what == ANSWER else "tools"
        raise invalid(param, str(error), "invalid_json_schema") from error
    except Busy as error:
        raise too_many(str(error)) from error
    if options.compact:
        length = compaction.least(runtime, conversation)
    if length >= context:
        raise too_many_tokens(context, length)
    return Plan(turn, request, read, request.store is not False)


def named_model(name: str | None, runtime: Runtime) -> str:
    """The loaded model's name, by whichever of its names it was asked for. Raises ApiError."""
    model = runtime.model
    if name in (None, "default", model.name, *model.aliases):
        return model.name
    message = f"The model '{str(name)[:100]}' does not exist; this server runs '{model.name}'."
    raise ApiError(404, message, code="model_not_found", param="model")


def _supported(request: CreateResponse) -> None:
    if request.background and request.store is False:
        raise invalid("background", "A background response has to be stored ('store': true).")
    if request.conversation is not None:
        raise unsupported("conversation", "conversation")
    if request.prompt is not None:
        raise unsupported("prompt", "prompt")


def _earlier(request: CreateResponse, memory: Memory, runtime: Runtime) -> Kept | None:
    previous = request.previous_response_id
    if previous is None:
        return None
    kept = memory.find(previous)
    if kept is None:
        message = f"Previous response with id '{previous[:80]}' not found."
        raise invalid("previous_response_id", message, "previous_response_not_found")
    if kept.response.status == "in_progress":
        message = f"The response '{previous[:80]}' is still in progress."
        raise invalid("previous_response_id", message)
    if kept.vocabulary not in (None, runtime.vocabulary):
        message = (
            f"The response '{previous[:80]}' was held in the tokens of {kept.vocabulary}:"
            " go on with that model, or send its items again."
        )
        raise invalid("previous_response_id", message)
    return kept


def _input(request: CreateResponse) -> str | list[InputItem]:
    if request.input or (request.input is not None and request.previous_response_id):
        return request.input
    if isinstance(request.input, str):
        return ""
    message = "Missing required parameter: 'input'."
    raise invalid("input", message, "missing_required_parameter")


async def _into(
    conversation: Conversation,
    runtime: Runtime,
    messages: Sequence[Message],
    memo: Memo,
    *,
    fresh: bool,
) -> Sequence[Message]:
    """What a client resends goes into the conversation; what is new is the turn's prompt."""
    new = history.new_since(messages) if fresh else 0
    for place, message in enumerate(messages[:new]):
        if place % AT_ONCE == 0:
            await asyncio.sleep(0)  # others are answered meanwhile
        if (entry := memo.recall(message)) is not None:
            conversation.entries.append(entry)
            continue
        conversation.add(runtime.format, message)
        if not isinstance(runtime.format, OneMessage):  # there it may be part of another one
            memo.keep(message, conversation.entries[-1])
    return messages[new:]


# --- what the turn is told ---


def _options(request: CreateResponse, base: Options, chosen: Offer, read: History) -> Options:
    given = {name: value for name in SAMPLING if (value := getattr(request, name)) is not None}
    if request.logit_bias:
        given["logit_bias"] = tuple((int(key), bias) for key, bias in request.logit_bias.items())
    effort = request.reasoning.effort if request.reasoning else None
    said = base.instructions if request.instructions is None else request.instructions
    parts = (said, *read.instructions, _format_section(request.text))
    return replace(
        base,
        instructions="\n\n".join(part for part in parts if part) or None,
        effort=EFFORTS[effort] if effort else base.effort,
        sampling=replace(base.sampling, **given),
        max_output_tokens=_least(request.max_output_tokens, base.max_output_tokens),
        max_tool_calls=_least(request.max_tool_calls, base.max_tool_calls),
        functions=chosen.functions,
        tools=chosen.tools,
        calls=chosen.calls,
        parallel=request.parallel_tool_calls is not False,
        exact=chosen.exact,
        answer=_answer(request.text),
        logprobs=_logprobs(request),
        listed=tuple(name for name in chosen.servers if name not in read.listed),
        hosted=chosen.hosted,
        messages=request.enable_response_messages is True,
        approved=tuple(read.approved),
        compact=request.truncation == "auto" or (base.compact and request.truncation is None),
    )


def _answer(text: RequestText | None) -> AnswerForm | None:
    match text.format if text else None:
        case TextFormat(type="json_schema", schema_=schema, strict=strict) if schema is not None:
            return AnswerForm(schema, strict=strict is True)
        case TextFormat(type="json_object"):
            return AnswerForm({"type": "object"})
        case _:
            return None


def _logprobs(request: CreateResponse) -> int | None:
    """How many alternatives to each token; None: no log probabilities."""
    wanted = request.top_logprobs or LOGPROBS in (request.include or ())
    return request.top_logprobs or 0 if wanted else None


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _format_section(text: RequestText | None) -> str | None:
    """What the model is told of the form of its answer, in the words that it was trained on."""
    match text.format if text else None:
        case None:
            return None
        case form if form.type == "json_schema":
            if form.schema_ is None:
                message = "Missing required parameter: 'text.format.schema'."
                raise invalid("text.format.schema", message, "missing_required_parameter")
            schema = json.dumps(form.schema_, ensure_ascii=False)
            about = f"// {form.description}\n" if form.description else ""
            return f"# Response Formats\n\n## {form.name or 'output'}\n\n{about}{schema}"
        case form if form.type == "json_object":
            return "# Response Formats\n\n## output\n\nAnswer with one JSON object."
        case _:
            return None
