"""/openapi.json beside the types of openai-python: the same names, of the same JSON types."""

from collections.abc import Iterator
from typing import Any, get_args

import openai
import pytest
from openai.types import (
    Batch,
    Completion,
    FileDeleted,
    FileObject,
    Model,
    conversations,
    responses,
)
from openai.types import completion_create_params as completions
from openai.types.batch_create_params import BatchCreateParams
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat import completion_create_params as chat
from openai.types.conversations import conversation_update_params, item_create_params
from openai.types.responses import response_create_params
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from pydantic import TypeAdapter

from agent.server.input.schemas import ITEM_MODELS
from agent.server.openapi import STREAM_EVENTS
from tests.agent.server.test_openapi import fetch_document
from tests.support.endpoint import Serve

IMPLEMENTED = {
    *ITEM_MODELS,
    "function", "custom", "namespace", "mcp", "code_interpreter", "web_search", "auto",
    "allowed_tools", "text", "grammar", "json_object", "json_schema",
    "input_text", "input_file", "output_text", "reasoning_text", "summary_text", "refusal",
    "logs", "url_citation", "search", "open_page", "find_in_page", "url",
}  # fmt: skip
"""Types of items, parts and tools."""


class Shapes:
    """The JSON types at each path of a schema, of all its alternatives together.

    ``null`` counts as absence, and a string beside constants as a string.
    """

    def __init__(self, schema: dict[str, Any], definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self._open: list[str] = []
        self.types: dict[str, set[str]] = {}
        self._add(schema, "")

    def _add(self, schema: dict[str, Any], path: str) -> None:
        known = self.types.setdefault(path, set())
        if reference := schema.get("$ref"):
            if reference not in self._open:  # filters of a file search are nested in themselves
                self._open.append(reference)
                self._add(self._definitions[reference.rpartition("/")[2]], path)
                self._open.pop()
            return
        for part in schema.get("anyOf") or schema.get("oneOf") or ():
            self._add(part, path)
        tag = schema.get("properties", {}).get("type", {})
        tags = {tag["const"]} if "const" in tag else set(tag.get("enum", ()))
        if tags and not tags & IMPLEMENTED:
            return
        known.update(_types(schema))
        if "string" in known:
            known -= {value for value in known if value.startswith("'")}
        if "items" in schema:
            self._add(schema["items"], f"{path}[]")
        for name, field in schema.get("properties", {}).items():
            self._add(field, f"{path}.{name}")


def _types(schema: dict[str, Any]) -> Iterator[str]:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is not None:
        yield from ("boolean" if isinstance(value, bool) else repr(value) for value in values)
    elif not schema.keys() & {"anyOf", "oneOf"}:
        types = schema.get("type", "any")
        if types == "object" and "properties" not in schema:
            types = "any"  # of any form, as the document says it
        yield from ([types] if isinstance(types, str) else types)


def differences(ours: Shapes, theirs: Shapes) -> list[str]:
    """``+ path``: only the server has it; ``- path``: only OpenAI; else types that only one has, the
    server's before the bar. What is below a path that only one has is left out."""
    result = []
    for path in sorted(ours.types.keys() | theirs.types.keys()):
        parent = path.removesuffix("[]") if path.endswith("[]") else path.rpartition(".")[0]
        sides = (ours.types, theirs.types)
        if any(path and (parent not in side or "any" in side[parent]) for side in sides):
            continue
        known, meant = (side.get(path, set()) - {"null"} for side in sides)
        if path not in theirs.types:
            result.append(f"+ {path}")
        elif path not in ours.types:
            result.append(f"- {path}")
        elif known != meant and "any" not in known | meant:
            only, lacks = sorted(known - meant), sorted(meant - known)
            if only == ["string"] and all(value.startswith("'") for value in lacks):
                lacks = ["constants"]
            result.append(" ".join([f"{path}:", *only, "|", *lacks]))
    return result


OPENAI_VERSION = "3.57.0"
"""The version that `DIFFERENCES` was written beside; a newer one may have more names."""
DIFFERENCES = {
    "CreateBatch": """
        - .output_expires_after
        .endpoint: | '/v1/completions' '/v1/embeddings' '/v1/images/edits'
            '/v1/images/generations' '/v1/moderations' '/v1/videos'
    """,
    "BatchObject": """
        - .model
        - .usage
        .errors.object: 'list' | string
    """,
    "FileObject": """
        .purpose: | 'assistants' 'assistants_output' 'fine-tune' 'fine-tune-results' 'user_data'
            'vision'
        .status: | 'error' 'uploaded'
        .status_details: | string
    """,
    "CreateResponse": """
        + .client_metadata
        + .enable_response_messages
        + .frequency_penalty
        + .input[].output[].refusal
        + .input[].summary[].file_data
        + .input[].summary[].file_id
        + .input[].summary[].file_url
        + .input[].summary[].filename
        + .input[].summary[].refusal
        + .logit_bias
        + .min_p
        + .presence_penalty
        + .reasoning.max_tokens
        + .repeat_penalty
        + .seed
        + .stop
        + .top_k
        - .access_programs
        - .background_options.continuation_id
        - .context_management
        - .image
        - .input[].action
        - .input[].async
        - .input[].caller
        - .input[].container_id
        - .input[].content[].annotations
        - .input[].content[].detail
        - .input[].content[].logprobs
        - .input[].content[].prompt_cache_breakpoint
        - .input[].output[].detail
        - .input[].output[].prompt_cache_breakpoint
        .input[].status: | 'calling' 'failed' 'interpreting' 'searching'
        - .input[].tools
        - .moderation
        - .prompt
        - .prompt_cache_options.comparison_response_id
        - .prompt_cache_options.prewarm
        - .prompt_cache_options.ttl
        - .tools[].async
        - .tools[].filters
        - .tools[].output_schema
        - .tools[].tools[].async
        - .tools[].tools[].format
        - .tools[].tools[].output_schema
        - .tools[].tunnel_id
        - .tools[].user_location
        .background_options.completion_window: | '2h' '8h'
        .input[].content[].type: string | constants
        .input[].output[].type: string | constants
        .input[].summary[].type: string | constants
        .prompt_cache_options.mode: | 'explicit'
        .reasoning.context: | 'all_turns'
        .reasoning.mode: 'standard' | string
        .tool_choice.type: string | constants
        .tools[].allowed_callers[]: | 'programmatic'
        .tools[].connector_id: string | constants
        .tools[].tools[].allowed_callers[]: | 'programmatic'
        .tools[].tools[].type: | 'custom'
        .tools[].type: string | constants
    """,
    "ChatRequest": """
        + .messages[].reasoning
        + .messages[].reasoning_content
        + .min_p
        + .repeat_penalty
        + .thinking_budget_tokens
        + .tool_choice.mode
        + .tool_choice.name
        + .tool_choice.server_label
        + .tool_choice.tools
        + .top_k
        - .messages[].content[].prompt_cache_breakpoint
        - .messages[].tool_calls[].type
        - .prompt_cache_options.ttl
        .messages[].content[].type: string | constants
        .messages[].role: | 'function'
        .tool_choice.type: string | constants
    """,
    "CompletionRequest": """
        + .ignore_eos
        + .min_p
        + .repeat_penalty
        + .skip_special_tokens
        + .top_k
    """,
    "CreateItems": """
        + .items[].output[].refusal
        + .items[].summary[].file_data
        + .items[].summary[].file_id
        + .items[].summary[].file_url
        + .items[].summary[].filename
        + .items[].summary[].refusal
        - .include
        - .items[].action
        - .items[].async
        - .items[].caller
        - .items[].container_id
        - .items[].content[].annotations
        - .items[].content[].detail
        - .items[].content[].logprobs
        - .items[].content[].prompt_cache_breakpoint
        - .items[].output[].detail
        - .items[].output[].prompt_cache_breakpoint
        .items[].status: | 'calling' 'failed' 'interpreting' 'searching'
        - .items[].tools
        .items[].content[].type: string | constants
        .items[].output[].type: string | constants
        .items[].summary[].type: string | constants
    """,
    "Response": """
        + .frequency_penalty
        + .input_messages
        + .output_messages
        + .repairs
        + .stop_sequence
        + .presence_penalty
        + .reasoning.max_tokens
        + .store
        - .access_programs
        - .error.misalignment
        - .error.param
        - .error.type
        - .image
        - .input_transformations
        - .instructions[]
        - .moderation
        - .output[].approve
        - .output[].async
        - .output[].caller
        - .output[].content[].refusal
        - .output[].created_by
        - .output[].output[]
        - .output[].reason
        - .prompt
        - .prompt_cache_diagnostics
        - .prompt_cache_options
        - .reasoning.context
        - .reasoning.generate_summary
        - .reasoning.mode
        - .tool_usage
        - .usage.input_tokens_details.cache_write_tokens_details
        .completed_at: integer | number
        .created_at: integer | number
        .error.code: string | constants
        .incomplete_details.reason: | 'max_messages' 'steered'
        .instructions: | array
        .output[].content[].type: | 'refusal'
        .output[].output: | array
        .output[].type: | 'compaction' 'custom_tool_call_output' 'function_call_output'
            'mcp_approval_response'
        .reasoning.effort: string | constants
        .reasoning.summary: string | constants
        .service_tier: string | constants
    """,
    "CompactedResponse": """
        - .image
        - .output[].action
        - .output[].approval_request_id
        - .output[].approve
        - .output[].arguments
        - .output[].async
        - .output[].call_id
        - .output[].caller
        - .output[].code
        - .output[].container_id
        - .output[].created_by
        - .output[].error
        - .output[].input
        - .output[].name
        - .output[].namespace
        - .output[].output
        - .output[].outputs
        - .output[].phase
        - .output[].reason
        .output[].role: 'user' | 'assistant'
        - .output[].server_label
        .output[].status: | 'calling' 'failed' 'interpreting' 'searching'
        - .output[].summary
        - .output[].tools
        .output[].type: | 'code_interpreter_call' 'custom_tool_call' 'custom_tool_call_output'
            'function_call' 'function_call_output' 'mcp_approval_request' 'mcp_approval_response'
            'mcp_call' 'mcp_list_tools' 'reasoning' 'web_search_call'
        - .usage.input_tokens_details.cache_write_tokens_details
    """,
    "ItemPage": """
        - .data[].async
        - .data[].caller
        .data[].content: string | constants
        - .data[].content[].detail
        - .data[].content[].prompt_cache_breakpoint
        .data[].content[].type: string | constants
        - .data[].created_by
        - .data[].output[].detail
        - .data[].output[].prompt_cache_breakpoint
        + .data[].output[].refusal
        .data[].output[].type: string | constants
        .data[].role: | 'critic' 'discriminator' 'tool' 'unknown'
        + .data[].summary[].file_data
        + .data[].summary[].file_id
        + .data[].summary[].file_url
        + .data[].summary[].filename
        + .data[].summary[].refusal
        .data[].summary[].type: string | constants
        .data[].type: 'item_reference' |
    """,
    "ChatCompletion": """
        .choices[].finish_reason: | 'content_filter'
        .choices[].logprobs.refusal: | array
        - .choices[].logprobs.refusal[]
        - .choices[].message.audio
        + .choices[].message.reasoning
        + .choices[].message.reasoning_content
        .choices[].message.refusal: | string
        + .choices[].repairs
        - .moderation
        .service_tier: | 'auto' 'fast' 'flex' 'priority' 'scale'
        - .usage.completion_tokens_details.accepted_prediction_tokens
        - .usage.completion_tokens_details.audio_tokens
        - .usage.completion_tokens_details.rejected_prediction_tokens
        - .usage.completion_tokens_details.text_tokens
        - .usage.prompt_tokens_details.audio_tokens
        - .usage.prompt_tokens_details.cache_write_tokens
        - .usage.prompt_tokens_details.image_tokens
        - .usage.prompt_tokens_details.text_tokens
    """,
    "ChatCompletionChunk": """
        + .choices[].delta.annotations
        - .choices[].delta.audio
        + .choices[].delta.reasoning
        + .choices[].delta.reasoning_content
        - .choices[].delta.refusal
        .choices[].delta.role: | 'developer' 'system' 'tool' 'user'
        + .choices[].delta.tool_calls[].custom
        .choices[].delta.tool_calls[].type: 'custom' |
        .choices[].finish_reason: | 'content_filter'
        .choices[].logprobs.refusal: | array
        - .choices[].logprobs.refusal[]
        + .choices[].repairs
        - .moderation
        - .obfuscation
        .service_tier: | 'auto' 'fast' 'flex' 'priority' 'scale'
        - .usage.completion_tokens_details.accepted_prediction_tokens
        - .usage.completion_tokens_details.audio_tokens
        - .usage.completion_tokens_details.rejected_prediction_tokens
        - .usage.completion_tokens_details.text_tokens
        - .usage.prompt_tokens_details.audio_tokens
        - .usage.prompt_tokens_details.cache_write_tokens
        - .usage.prompt_tokens_details.image_tokens
        - .usage.prompt_tokens_details.text_tokens
    """,
    "Completion": """
        .choices[].finish_reason: | 'content_filter'
        - .system_fingerprint
        - .usage.completion_tokens_details.accepted_prediction_tokens
        - .usage.completion_tokens_details.audio_tokens
        - .usage.completion_tokens_details.rejected_prediction_tokens
        - .usage.completion_tokens_details.text_tokens
        - .usage.prompt_tokens_details.audio_tokens
        - .usage.prompt_tokens_details.cache_write_tokens
        - .usage.prompt_tokens_details.image_tokens
        - .usage.prompt_tokens_details.text_tokens
    """,
    "ModelObject": """
        + .aliases
        + .capabilities
        + .context_length
        + .max_model_len
        + .meta
        + .parent
        + .root
        + .status
        - .shutdown_date
    """,
}
"""What is not alike, by the schema's name, as `differences` says it; an indented line goes on from the
one before. With ``+``: fields of llama.cpp's and vLLM's servers, parts that are read wherever a part
may stand, and what Open Responses wants. With ``-``: what is refused by name here, or not read."""


def written(name: str) -> set[str]:
    """The lines of `DIFFERENCES`."""
    lines = DIFFERENCES.get(name, "").replace("\n" + " " * 12, " ").splitlines()
    return {line.strip() for line in lines if line.strip()}


TYPES: dict[str, Any] = {
    "CreateResponse": response_create_params.ResponseCreateParamsNonStreaming,
    "ChatRequest": chat.CompletionCreateParamsNonStreaming,
    "CompletionRequest": completions.CompletionCreateParamsNonStreaming,
    "UpdateConversation": conversation_update_params.ConversationUpdateParams,
    "CreateItems": item_create_params.ItemCreateParams,
    "Response": responses.Response,
    "InputTokenCount": InputTokenCountResponse,
    "CompactedResponse": responses.CompactedResponse,
    "ItemPage": conversations.ConversationItemList,
    "ConversationObject": conversations.Conversation,
    "DeletedConversation": conversations.ConversationDeletedResource,
    "ChatCompletion": ChatCompletion,
    "ChatCompletionChunk": ChatCompletionChunk,
    "Completion": Completion,
    "ModelObject": Model,
    "CreateBatch": BatchCreateParams,
    "BatchObject": Batch,
    "FileObject": FileObject,
    "DeletedFile": FileDeleted,
}
"""The schemas of the document, and what openai-python sends or reads."""
REQUESTS = {
    "CreateResponse",
    "ChatRequest",
    "CompletionRequest",
    "UpdateConversation",
    "CreateItems",
    "CreateBatch",
}


@pytest.mark.parametrize("name", TYPES)
async def test_openapi_has_the_names_and_types_of_openai_python(serve: Serve, name: str) -> None:
    _, document = await fetch_document(serve)
    mode: Any = "validation" if name in REQUESTS else "serialization"
    meant = TypeAdapter(TYPES[name]).json_schema(mode=mode)
    schemas = document["components"]["schemas"]
    ours, theirs = Shapes(schemas[name], schemas), Shapes(meant, meant.get("$defs", {}))
    found, known = set(differences(ours, theirs)), written(name)
    if openai.__version__ != OPENAI_VERSION:
        found, known = ({line for line in lines if line[0] == "+"} for lines in (found, known))
    assert found == known


async def test_stream_events_have_the_fields_of_openai_python(serve: Serve) -> None:
    _, document = await fetch_document(serve)
    schemas = document["components"]["schemas"]
    events = [schemas[event.__name__] for event in STREAM_EVENTS]
    ours = {event["properties"]["type"]["const"]: set(event["properties"]) for event in events}
    union = get_args(get_args(responses.ResponseStreamEvent)[0])
    theirs = {get_args(e.model_fields["type"].annotation)[0]: set(e.model_fields) for e in union}
    unlike = {
        kind: (names - theirs[kind], theirs[kind] - names)
        for kind, names in ours.items()
        if names != theirs[kind]
    }
    # OpenAI's reference has it, openai-python does not.
    assert unlike == {"response.function_call_arguments.done": ({"name"}, set())}
