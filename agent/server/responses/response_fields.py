"""The fields of a response that repeat its request. Reference:
https://platform.openai.com/docs/api-reference/responses/object"""

from __future__ import annotations

import time
from typing import Any

from agent import events as ev
from agent.runtime.runtime import Runtime
from agent.server.input.schemas import CreateResponse, RequestText, ToolChoice
from agent.server.input.tool_selection import SelectedTools
from agent.turn.options import TurnOptions
from agent.util.ids import new_id


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
