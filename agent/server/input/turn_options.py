"""Maps the fields of a request to the options of the turn that answers it, and to the fields of its
response that repeat them: https://platform.openai.com/docs/api-reference/responses/object"""

import sys
import time
from dataclasses import replace
from typing import Any

from agent import events as ev
from agent.engine.protocol import Sampling
from agent.formats.protocol import Effort
from agent.runtime.runtime import Runtime
from agent.server.http.clients import current_client
from agent.server.http.errors import invalid, missing
from agent.server.input.items import InputHistory
from agent.server.input.schemas import (
    CreateResponse,
    RequestReasoning,
    RequestText,
    SamplingFields,
    TextFormat,
    ToolChoice,
)
from agent.server.input.tool_selection import SelectedTools
from agent.turn.options import AnswerForm, TurnOptions, response_format_section
from agent.util.ids import new_id
from agent.util.json_schema import find_schema_error

EFFORTS: dict[str, Effort] = {
    "none": "low", "minimal": "low", "low": "low", "medium": "medium",
    "high": "high", "xhigh": "high", "max": "high",
}  # fmt: skip
"""The API's reasoning efforts as the nearest of the three that models have; low turns the
reasoning of some models off."""
VERBOSITY_SECTIONS = {
    "low": "# Verbosity\n\nAnswer as briefly as you can.",
    "high": "# Verbosity\n\nAnswer at length and in detail.",
}
"""Sections of the developer message by ``text.verbosity``, on which gpt-oss was not trained; ``medium``
has none."""
SAMPLING_FIELDS = (
    "temperature", "top_p", "top_k", "min_p", "seed",
    "presence_penalty", "frequency_penalty", "repeat_penalty",
)  # fmt: skip
MAX_STOP_TEXTS, MAX_STOP_CHARACTERS = 4, 1000
INCLUDE_REASONING = "reasoning.encrypted_content"
INCLUDE_LOGPROBS = "message.output_text.logprobs"


def turn_options(
    request: CreateResponse, defaults: TurnOptions, tools: SelectedTools, history: InputHistory
) -> TurnOptions:
    """Build the options of a turn; a request can lower the operator's ``defaults``, not raise them.
    ``tools``: those that ``tool_choice`` leaves. Raises ApiError."""
    reasoning = request.reasoning or RequestReasoning()
    effort, budget = history.effort or reasoning.effort, reasoning.max_tokens
    style = reasoning.summary or reasoning.generate_summary
    own = defaults.instructions if request.instructions is None else request.instructions
    verbosity = VERBOSITY_SECTIONS.get(request.text.verbosity or "") if request.text else None
    parts = (own, *history.instructions, _format_section(request.text), verbosity)
    include = request.include or ()
    by_default = defaults.compact and request.truncation is None
    managed = request.context_management or ()
    return replace(
        defaults,
        instructions="\n\n".join(part for part in parts if part) or None,
        effort=EFFORTS[effort] if effort else defaults.effort,
        reasoning_summary=style and ("concise" if style == "concise" else "detailed"),
        encrypted_reasoning=INCLUDE_REASONING in include,
        sampling=sampling_of(request, defaults.sampling),
        stop=stop_texts(request.stop),
        max_output_tokens=_lower(request.max_output_tokens, defaults.max_output_tokens),
        max_reasoning_tokens=_lower(budget, defaults.max_reasoning_tokens),
        max_tool_calls=_lower(request.max_tool_calls, defaults.max_tool_calls),
        functions=tuple(tools.functions),
        tools=tuple(tools.tools),
        tool_search="never",  # a request says itself what is deferred
        deferred_servers=tools.deferred,
        tool_choice=tools.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        # OpenAI's reference allows one call of a tool that is named.
        further_calls=request.parallel_tool_calls is True
        and getattr(request.tool_choice, "type", "allowed_tools") == "allowed_tools",
        declared_tools_only=tools.declared_only,
        answer_form=_answer_form(request.text),
        logprobs=request.top_logprobs or (0 if INCLUDE_LOGPROBS in include else None),
        list_tools_of=tuple(name for name in tools.servers if name not in history.listed_servers),
        excluded_servers=tools.excluded,
        hosted_tools=tools.hosted,
        ends_at_cut_call=request.origin.ends_at_cut_call,
        include_messages=request.enable_response_messages is True,
        approved_calls=tuple(history.approved),
        count_cached=prompts.limit if (prompts := current_client().prompts) else None,
        private=defaults.private
        or request.store is False
        or request.prompt_cache_retention == "in_memory",
        streamed=request.stream is True or bool(request.stop),  # read as they come
        compact=request.truncation == "auto" or by_default or bool(managed),
        compact_threshold=_lower(*(each.compact_threshold or sys.maxsize for each in managed)),
    )


def sampling_of(request: SamplingFields, defaults: Sampling) -> Sampling:
    sent = {name: getattr(request, name) for name in SAMPLING_FIELDS}
    sampling = {name: value for name, value in sent.items() if value is not None}
    if request.logit_bias:
        biases = request.logit_bias.items()
        sampling["logit_bias"] = tuple((int(token), bias) for token, bias in biases)
    return replace(defaults, **sampling)


def stop_texts(stop: str | list[str] | None) -> tuple[str, ...]:
    """The texts of ``stop``; an empty one ends nothing. Raises ApiError."""
    texts = [stop] if isinstance(stop, str) else stop or []
    if len(texts) > MAX_STOP_TEXTS or any(len(text) > MAX_STOP_CHARACTERS for text in texts):
        limits = f"{MAX_STOP_TEXTS} texts of {MAX_STOP_CHARACTERS} characters"
        raise invalid("stop", f"'stop' may have at most {limits}.")
    return tuple(text for text in texts if text)


def _answer_form(text: RequestText | None) -> AnswerForm | None:
    match text.format if text else None:
        case TextFormat(type="json_schema", schema_=schema, strict=strict) if schema is not None:
            return AnswerForm(schema, strict=strict is True, binding=strict is True)
        case TextFormat(type="json_object"):
            return AnswerForm({"type": "object"})
    return None


def _lower(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _format_section(text: RequestText | None) -> str | None:
    """The section of the system prompt about the answer's form, worded as in gpt-oss's training
    ("Structured output" in https://cookbook.openai.com/articles/openai-harmony). Raises ApiError."""
    match text.format if text else None:
        case None:
            return None
        case form if form.type == "json_schema":
            if form.schema_ is None:
                raise missing("text.format.schema")
            if why := find_schema_error(form.schema_):
                message = f"Invalid schema for response_format '{form.name or 'output'}': {why}."
                raise invalid("text.format.schema", message, "invalid_json_schema")
            name, about = form.name or "output", form.description or ""
            return response_format_section(form.schema_, name, about)
        case form if form.type == "json_object":
            return "# Response Formats\n\n## output\n\nAnswer with one JSON object."
    return None


# --- the fields of a response that repeat its request ---


def initial_response(
    request: CreateResponse, runtime: Runtime, options: TurnOptions, selected: SelectedTools
) -> ev.Response:
    conversation, form = request.conversation_id, runtime.format
    return ev.Response(
        id=new_id("resp"),
        created_at=int(time.time()),
        model=runtime.model.name,
        instructions=request.instructions,
        previous_response_id=request.previous_response_id,
        reasoning=ev.Reasoning(
            effort=options.effort if form is None or form.effort_control else None,
            summary=options.reasoning_summary,
            context="current_turn",
            max_tokens=options.max_reasoning_tokens,
        ),
        tools=selected.echo,
        tool_choice=_tool_choice(request.tool_choice),
        parallel_tool_calls=request.parallel_tool_calls is not False,
        max_output_tokens=options.max_output_tokens,
        max_tool_calls=options.max_tool_calls,
        text=_text_field(request.text),
        truncation="auto" if options.compact else "disabled",
        temperature=options.sampling.temperature,
        top_p=options.sampling.top_p,
        presence_penalty=options.sampling.presence_penalty,
        frequency_penalty=options.sampling.frequency_penalty,
        top_logprobs=options.logprobs or 0,
        store=request.store is not False,
        background=request.background is True,
        status="queued" if request.background else "in_progress",
        metadata=request.metadata or {},
        safety_identifier=request.safety_identifier,
        prompt_cache_key=request.prompt_cache_key,
        conversation=None if conversation is None else ev.ConversationReference(id=conversation),
        prompt_cache_retention=request.prompt_cache_retention,
        user=request.user,
    )


def _tool_choice(choice: str | ToolChoice | None) -> str | dict[str, Any]:
    if not isinstance(choice, ToolChoice):
        return choice or "auto"
    mode = {"mode": choice.mode or "auto"} if choice.type == "allowed_tools" else {}
    return {**choice.model_dump(exclude_none=True), **mode}


def _text_field(text: RequestText | None) -> dict[str, Any]:
    format = text.format if text else None
    field: dict[str, Any] = {"type": format.type if format else "text"}
    if format is not None and format.type == "json_schema":
        field = format.model_dump(by_alias=True)
    verbosity = text.verbosity if text else None
    return {"format": field, **({"verbosity": verbosity} if verbosity else {})}
