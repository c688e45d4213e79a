"""/openapi.json beside the types of openai-python: the same names, of the same JSON types."""

from collections.abc import Iterator
from typing import Any, get_args

import openai
import pytest
from openai.types import Batch, Completion, FileDeleted, FileObject, Model, conversations, responses
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
        - .access_programs
        .background_options.completion_window: | '2h' '8h'
        - .background_options.continuation_id
        + .client_metadata
        .context_management[].type: 'compaction' | string
        + .enable_response_messages
        + .frequency_penalty
        - .image
        - .input[].acknowledged_safety_checks
        - .input[].async
        - .input[].background
        - .input[].caller
        - .input[].container_id
        - .input[].content[].annotations
        - .input[].content[].detail
        - .input[].content[].logprobs
        - .input[].content[].prompt_cache_breakpoint
        .input[].content[].type: string | constants
        - .input[].environment
        - .input[].fingerprint
        - .input[].max_output_length
        - .input[].output[].detail
        - .input[].output[].outcome
        - .input[].output[].prompt_cache_breakpoint
        + .input[].output[].refusal
        - .input[].output[].stderr
        - .input[].output[].stdout
        .input[].output[].type: string | constants
        - .input[].output_format
        - .input[].pending_safety_checks
        - .input[].quality
        - .input[].size
        + .input[].summary[].file_data
        + .input[].summary[].file_id
        + .input[].summary[].file_url
        + .input[].summary[].filename
        + .input[].summary[].refusal
        .input[].summary[].type: string | constants
        - .input[].svg_usage
        .input[].text.format.type: 'json_object' |
        + .input[].tools[].environment
        + .input[].tools[].execution
        .input[].tools[].allowed_callers[]: | 'programmatic'
        - .input[].tools[].annotations
        - .input[].tools[].async
        .input[].tools[].connector_id: string | constants
        - .input[].tools[].filters
        - .input[].tools[].input_schema
        - .input[].tools[].output_schema
        .input[].tools[].tools[].allowed_callers[]: | 'programmatic'
        - .input[].tools[].tools[].async
        - .input[].tools[].tools[].output_schema
        - .input[].tools[].tunnel_id
        .input[].tools[].type: string | constants
        - .input[].tools[].user_location
        + .logit_bias
        + .min_p
        - .moderation
        + .presence_penalty
        - .prompt
        - .prompt_cache_options.comparison_response_id
        .prompt_cache_options.mode: | 'explicit'
        - .prompt_cache_options.prewarm
        - .prompt_cache_options.ttl
        + .reasoning.max_tokens
        .reasoning.mode: 'standard' | string
        + .repeat_penalty
        + .seed
        + .stop
        .tool_choice.type: string | constants
        .tools[].allowed_callers[]: | 'programmatic'
        - .tools[].async
        .tools[].connector_id: string | constants
        + .tools[].environment
        + .tools[].execution
        - .tools[].filters
        - .tools[].output_schema
        .tools[].tools[].allowed_callers[]: | 'programmatic'
        - .tools[].tools[].async
        - .tools[].tools[].output_schema
        - .tools[].tunnel_id
        .tools[].type: string | constants
        - .tools[].user_location
        + .top_k
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
        - .include
        - .items[].acknowledged_safety_checks
        - .items[].async
        - .items[].background
        - .items[].caller
        - .items[].container_id
        - .items[].content[].annotations
        - .items[].content[].detail
        - .items[].content[].logprobs
        - .items[].content[].prompt_cache_breakpoint
        .items[].content[].type: string | constants
        - .items[].environment
        - .items[].fingerprint
        - .items[].max_output_length
        - .items[].output[].detail
        - .items[].output[].outcome
        - .items[].output[].prompt_cache_breakpoint
        + .items[].output[].refusal
        - .items[].output[].stderr
        - .items[].output[].stdout
        .items[].output[].type: string | constants
        - .items[].output_format
        - .items[].pending_safety_checks
        - .items[].quality
        - .items[].size
        + .items[].summary[].file_data
        + .items[].summary[].file_id
        + .items[].summary[].file_url
        + .items[].summary[].filename
        + .items[].summary[].refusal
        .items[].summary[].type: string | constants
        - .items[].svg_usage
        .items[].text.format.type: 'json_object' |
        .items[].tools[].allowed_callers[]: | 'programmatic'
        - .items[].tools[].annotations
        - .items[].tools[].async
        .items[].tools[].connector_id: string | constants
        + .items[].tools[].environment
        + .items[].tools[].execution
        - .items[].tools[].filters
        - .items[].tools[].input_schema
        - .items[].tools[].output_schema
        .items[].tools[].tools[].allowed_callers[]: | 'programmatic'
        - .items[].tools[].tools[].async
        - .items[].tools[].tools[].output_schema
        - .items[].tools[].tunnel_id
        .items[].tools[].type: string | constants
        - .items[].tools[].user_location
    """,
    "Response": """
        - .access_programs
        .completed_at: integer | number
        .created_at: integer | number
        .error.code: string | constants
        - .error.misalignment
        - .error.param
        - .error.type
        + .frequency_penalty
        - .image
        .incomplete_details.reason: | 'max_messages'
        + .input_messages
        - .input_transformations
        .instructions: | array
        - .instructions[]
        - .moderation
        - .output[].acknowledged_safety_checks
        - .output[].actions
        - .output[].approve
        - .output[].async
        - .output[].background
        - .output[].caller
        - .output[].content[].refusal
        .output[].content[].type: | 'refusal'
        - .output[].created_by
        .output[].error: | object
        - .output[].error.code
        - .output[].error.message
        - .output[].error.moderation_details
        - .output[].error.param
        - .output[].error.type
        - .output[].fingerprint
        - .output[].max_output_length
        .output[].output: | array
        - .output[].output[]
        - .output[].output_format
        - .output[].pending_safety_checks
        - .output[].quality
        - .output[].queries
        - .output[].reason
        - .output[].result
        - .output[].results
        - .output[].revised_prompt
        .output[].role: | 'critic' 'developer' 'discriminator' 'system' 'tool' 'unknown'
            'user'
        - .output[].size
        .output[].status: | 'generating'
        - .output[].svg_usage
        .output[].type: | 'additional_tools' 'apply_patch_call_output'
            'computer_call' 'computer_call_output' 'custom_tool_call_output'
            'file_search_call' 'function_call_output' 'image_generation_call'
            'local_shell_call' 'local_shell_call_output' 'mcp_approval_response' 'program'
            'program_output' 'shell_call_output'
        + .output_messages
        + .presence_penalty
        - .prompt
        - .prompt_cache_diagnostics
        - .prompt_cache_options
        .reasoning.context: string | constants
        .reasoning.effort: string | constants
        - .reasoning.generate_summary
        + .reasoning.max_tokens
        - .reasoning.mode
        .reasoning.summary: string | constants
        + .repairs
        .service_tier: string | constants
        + .stop_sequence
        + .store
        - .tool_usage
        - .usage.input_tokens_details.cache_write_tokens_details
    """,
    "CompactedResponse": """
        - .image
        - .output[].acknowledged_safety_checks
        - .output[].action
        - .output[].actions
        - .output[].approval_request_id
        - .output[].approve
        - .output[].arguments
        - .output[].async
        - .output[].background
        - .output[].call_id
        - .output[].caller
        - .output[].code
        - .output[].container_id
        - .output[].created_by
        - .output[].environment
        - .output[].error
        - .output[].execution
        - .output[].fingerprint
        - .output[].input
        - .output[].max_output_length
        - .output[].name
        - .output[].namespace
        - .output[].operation
        - .output[].output
        - .output[].output_format
        - .output[].outputs
        - .output[].pending_safety_checks
        - .output[].phase
        - .output[].quality
        - .output[].queries
        - .output[].reason
        - .output[].result
        - .output[].results
        - .output[].revised_prompt
        .output[].role: | 'assistant' 'critic' 'developer' 'discriminator' 'system' 'tool'
            'unknown'
        - .output[].server_label
        - .output[].size
        .output[].status: | 'calling' 'failed' 'generating' 'interpreting' 'searching'
        - .output[].summary
        - .output[].svg_usage
        - .output[].tools
        .output[].type: | 'additional_tools' 'apply_patch_call' 'apply_patch_call_output'
            'code_interpreter_call' 'computer_call' 'computer_call_output'
            'custom_tool_call' 'custom_tool_call_output' 'file_search_call' 'function_call'
            'function_call_output' 'image_generation_call' 'local_shell_call'
            'local_shell_call_output' 'mcp_approval_request' 'mcp_approval_response'
            'mcp_call' 'mcp_list_tools' 'program' 'program_output' 'reasoning' 'shell_call'
            'shell_call_output' 'tool_search_call' 'tool_search_output' 'web_search_call'
        - .usage.input_tokens_details.cache_write_tokens_details
    """,
    "ItemPage": """
        - .data[].acknowledged_safety_checks
        - .data[].async
        - .data[].background
        - .data[].caller
        .data[].content: string | constants
        - .data[].content[].detail
        - .data[].content[].prompt_cache_breakpoint
        .data[].content[].type: string | constants
        - .data[].created_by
        - .data[].fingerprint
        - .data[].max_output_length
        - .data[].output[].created_by
        - .data[].output[].detail
        - .data[].output[].outcome
        - .data[].output[].prompt_cache_breakpoint
        + .data[].output[].refusal
        - .data[].output[].stderr
        - .data[].output[].stdout
        .data[].output[].type: string | constants
        - .data[].output_format
        - .data[].pending_safety_checks
        - .data[].quality
        .data[].role: | 'critic' 'discriminator' 'tool' 'unknown'
        - .data[].size
        + .data[].summary[].file_data
        + .data[].summary[].file_id
        + .data[].summary[].file_url
        + .data[].summary[].filename
        + .data[].summary[].refusal
        .data[].summary[].type: string | constants
        - .data[].svg_usage
        .data[].text.format.type: 'json_object' |
        .data[].tools[].allowed_callers[]: | 'programmatic'
        .data[].tools[].tools[].allowed_callers[]: | 'programmatic'
        - .data[].tools[].tools[].async
        - .data[].tools[].tools[].output_schema
        .data[].type: 'compaction_trigger' 'item_reference' |
    """,
    "ChatCompletion": """
        .choices[].finish_reason: | 'content_filter' 'function_call'
        .choices[].logprobs.refusal: | array
        - .choices[].logprobs.refusal[]
        - .choices[].message.audio
        - .choices[].message.function_call
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
        - .choices[].delta.function_call
        + .choices[].delta.reasoning
        + .choices[].delta.reasoning_content
        - .choices[].delta.refusal
        .choices[].delta.role: | 'developer' 'system' 'tool' 'user'
        + .choices[].delta.tool_calls[].custom
        .choices[].delta.tool_calls[].type: 'custom' |
        .choices[].finish_reason: | 'content_filter' 'function_call'
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


@pytest.mark.sampled(6)
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
    commands = {kind for kind in unlike if kind.startswith("response.shell_call_command.")}
    assert all(unlike.pop(kind)[0] == {"item_id"} for kind in commands)
    # OpenAI's reference has it, openai-python does not.
    assert unlike == {"response.function_call_arguments.done": ({"name"}, set())}
