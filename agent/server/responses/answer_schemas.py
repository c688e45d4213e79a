"""Models of this server's answers, for ``/openapi.json``; responses are `agent.events.Response`. Tests
hold the plain JSON against these models, and the models against openai-python's types.

No answer is made of them, so that they are values: a field is its type, or that and its default where
an answer may lack it. Types with other models in them are texts, as pydantic reads them."""

from typing import Any, Literal

from pydantic import RootModel, create_model

from agent.events import Item, WireModel
from agent.events import Usage as Usage  # which pydantic looks up here
from agent.server.input.schemas import InputItem


def _model(name: str, /, **fields: Any) -> type[WireModel]:
    return create_model(name, __base__=WireModel, __module__=__name__, **fields)


def _list_of(item: str) -> dict[str, Any]:
    return {"object": Literal["list"], "data": f"list[{item}]"}


def _page_of(item: str) -> dict[str, Any]:
    """The fields of a part of a list; other requests get the rest."""
    return {**_list_of(item), "first_id": str | None, "last_id": str | None, "has_more": bool}


def _deleted(kind: str) -> dict[str, Any]:
    return {"id": str, "object": f"Literal['{kind}']", "deleted": Literal[True]}


ErrorFields = _model("ErrorFields", message=str, type=str, param=str | None, code=str | None)
ErrorAnswer = _model("Error", error="ErrorFields")

# --- chat completions and completions ---


TokensCached = _model("TokensCached", cached_tokens=int)
TokensReasoned = _model("TokensReasoned", reasoning_tokens=int)
# The tokens of all choices, whose prompts are counted once.
CompletionUsage = _model(
    "CompletionUsage",
    prompt_tokens=int,
    completion_tokens=int,
    total_tokens=int,
    prompt_tokens_details="TokensCached",
    completion_tokens_details=("TokensReasoned | None", None),
)
_ALTERNATIVE = {"token": str, "logprob": float, "bytes": list[int] | None}
TokenAlternative = _model("TokenAlternative", **_ALTERNATIVE)
TokenLogprob = _model("TokenLogprob", **_ALTERNATIVE, top_logprobs="list[TokenAlternative]")
ChatLogprobs = _model("ChatLogprobs", content="list[TokenLogprob]", refusal=None)

# A call, or in a chunk a piece of one.
ChatFunctionCall = _model("ChatFunctionCall", name=(str | None, None), arguments=(str | None, None))
ChatCustomCall = _model("ChatCustomCall", name=(str | None, None), input=(str | None, None))
_CALLED = {"function": ("ChatFunctionCall | None", None), "custom": ("ChatCustomCall | None", None)}
ChatCall = _model("ChatCall", id=str, type=Literal["function", "custom"], **_CALLED)
ChatCallDelta = _model(
    "ChatCallDelta",
    index=int,
    id=(str | None, None),
    type=(Literal["function", "custom"] | None, None),
    **_CALLED,
)
UrlCitation = _model("UrlCitation", start_index=int, end_index=int, title=str, url=str)
ChatAnnotation = _model("ChatAnnotation", type=Literal["url_citation"], url_citation="UrlCitation")
_REASONING = {"reasoning_content": (str | None, None), "reasoning": (str | None, None)}
ChatMessageAnswer = _model(
    "ChatMessageAnswer",
    role=Literal["assistant"],
    content=str | None,
    refusal=None,
    annotations="list[ChatAnnotation]",
    **_REASONING,
    tool_calls=("list[ChatCall] | None", None),
)
ChatDelta = _model(
    "ChatDelta",
    role=(Literal["assistant"] | None, None),
    content=(str | None, None),
    annotations=("list[ChatAnnotation] | None", None),
    **_REASONING,
    tool_calls=("list[ChatCallDelta] | None", None),
)
# A mend: its rule, what the answer does not hold of it, and the call that it changed.
ChatRepair = _model("ChatRepair", rule=str, text=str, tool_call_id=(str | None, None))
_FINISH_REASON = Literal["stop", "length", "tool_calls"]
_REPAIRS = ("list[ChatRepair] | None", None)
ChatChoice = _model(
    "ChatChoice",
    index=int,
    message="ChatMessageAnswer",
    logprobs="ChatLogprobs | None",
    finish_reason=_FINISH_REASON,
    repairs=_REPAIRS,
)
ChatChunkChoice = _model(
    "ChatChunkChoice",
    index=int,
    delta="ChatDelta",
    logprobs="ChatLogprobs | None",
    finish_reason=_FINISH_REASON | None,
    repairs=_REPAIRS,
)
_MADE = {"id": str, "created": int, "model": str}
_CHAT = {**_MADE, "system_fingerprint": str, "service_tier": (Literal["default"] | None, None)}
ChatCompletion = _model(
    "ChatCompletion",
    object=Literal["chat.completion"],
    **_CHAT,
    choices="list[ChatChoice]",
    usage="CompletionUsage | None",
    metadata=(dict[str, str] | None, None),
)
ChatCompletionChunk = _model(
    "ChatCompletionChunk",
    object=Literal["chat.completion.chunk"],
    **_CHAT,
    choices="list[ChatChunkChoice]",
    usage=("CompletionUsage | None", None),
)
# The first token of an echoed prompt has no log probability.
CompletionLogprobs = _model(
    "CompletionLogprobs",
    tokens=list[str],
    token_logprobs=list[float | None],
    top_logprobs=list[dict[str, float] | None],
    text_offset=list[int],
)
CompletionTextChoice = _model(
    "CompletionTextChoice",
    index=int,
    text=str,
    logprobs="CompletionLogprobs | None",
    finish_reason=Literal["stop", "length"] | None,
)
Completion = _model(
    "Completion",
    object=Literal["text_completion"],
    **_MADE,
    choices="list[CompletionTextChoice]",
    usage=("CompletionUsage | None", None),
)

# --- messages ---


MessageUsage = _model(
    "MessageUsage",
    input_tokens=int,
    cache_creation_input_tokens=int,
    cache_read_input_tokens=int,
    output_tokens=int,
    service_tier=Literal["standard"],
)
_STOP_REASON = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]
AnthropicMessage = _model(
    "AnthropicMessage",
    id=str,
    type=Literal["message"],
    role=Literal["assistant"],
    model=str,
    content=list[dict[str, Any]],
    stop_reason=_STOP_REASON | None,  # none while the message is being written
    stop_sequence=str | None,
    usage="MessageUsage",
)
_MESSAGE_EVENT = Literal[
    "message_start", "content_block_start", "content_block_delta", "content_block_stop",
    "message_delta", "message_stop", "ping", "error",
]  # fmt: skip
MessageEvent = _model(
    "MessageEvent",
    type=_MESSAGE_EVENT,
    message=("AnthropicMessage | None", None),
    index=(int | None, None),
    content_block=(dict[str, Any] | None, None),
    delta=(dict[str, Any] | None, None),
    usage=("MessageUsage | None", None),
    error=(dict[str, str] | None, None),
)
MessageTokenCount = _model("MessageTokenCount", input_tokens=int)

# --- responses and conversations ---


DeletedResponse = _model("DeletedResponse", **_deleted("response"))
InputTokenCount = _model(
    "InputTokenCount", object=Literal["response.input_tokens"], input_tokens=int
)
CompactedMessage = _model(
    "CompactedMessage",
    id=str,
    type=Literal["message"],
    role=Literal["user"],
    status=Literal["in_progress", "completed", "incomplete"],
    content=list[dict[str, Any]],
)
CompactionItem = _model("CompactionItem", id=str, type=Literal["compaction"], encrypted_content=str)
# A history's latest user messages, and the summary of all of it.
CompactedResponse = _model(
    "CompactedResponse",
    id=str,
    object=Literal["response.compaction"],
    created_at=int,
    output="list[CompactedMessage | CompactionItem]",
    usage="Usage",
)
ConversationObject = _model(
    "ConversationObject",
    id=str,
    object=Literal["conversation"],
    created_at=int,
    metadata=dict[str, str],
)
DeletedConversation = _model("DeletedConversation", **_deleted("conversation.deleted"))


class ListedItem(RootModel[Item | InputItem]):
    """An item as it was sent, with an id, or as the model wrote it."""


ItemPage = _model("ItemPage", **_page_of("ListedItem"))

# --- models, files and batches ---


# Facts of a model that is loaded on this machine, as llama.cpp's server names them.
ModelFacts = _model(
    "ModelFacts", n_vocab=int, n_ctx_train=int | None, n_embd=int | None, n_params=int, size=int
)
# Whether a model is in memory, as llama-server's router says it.
ModelStatus = _model("ModelStatus", value=Literal["loaded", "loading", "unloaded"])
ModelObject = _model(
    "ModelObject",
    id=str,
    object=Literal["model"],
    created=int,
    owned_by=str,
    root=str,
    parent=None,
    aliases=list[str],
    context_length=int | None,
    max_model_len=int | None,
    status="ModelStatus",
    capabilities=list[Literal["completion", "tools", "thinking"]],
    meta=("ModelFacts | None", None),
)
# The models, the first one under each of its names that clients may use.
ModelPage = _model("ModelPage", **_list_of("ModelObject"))
# The answer to a load or an unload that is done.
ModelChange = _model("ModelChange", success=Literal[True])
FileObject = _model(
    "FileObject",
    id=str,
    object=Literal["file"],
    bytes=int,
    created_at=int,
    expires_at=int | None,
    filename=str,
    purpose=Literal["batch", "batch_output"],
    status=Literal["processed"],
    status_details=None,
)
FilePage = _model("FilePage", **_page_of("FileObject"))
DeletedFile = _model("DeletedFile", **_deleted("file"))
BatchFault = _model("BatchFault", code=str | None, message=str, param=str | None, line=int | None)
BatchFaults = _model("BatchFaults", **_list_of("BatchFault"))
RequestCounts = _model("RequestCounts", total=int, completed=int, failed=int)
_BATCH_STATUS = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling",
    "cancelled",
]  # fmt: skip
BATCH_TIMES = (
    "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at",
    "cancelling_at", "cancelled_at",
)  # fmt: skip
BatchObject = _model(
    "BatchObject",
    id=str,
    object=Literal["batch"],
    endpoint=str,
    errors="BatchFaults | None",
    input_file_id=str,
    completion_window=str,
    status=_BATCH_STATUS,
    output_file_id=str | None,
    error_file_id=str | None,
    created_at=int,
    **dict.fromkeys(BATCH_TIMES, int | None),
    request_counts="RequestCounts",
    metadata=dict[str, str] | None,
)
BatchPage = _model("BatchPage", **_page_of("BatchObject"))

# --- tokens and the server ---


# A token's text, or its bytes where they are a part of a character.
TokenPiece = _model("TokenPiece", id=int, piece=str | list[int])
TokenizedText = _model(
    "TokenizedText",
    count=int,
    max_model_len=int,
    tokens="list[int | TokenPiece]",
    token_strs=(list[str] | None, None),
)
# The same text under the names of both servers that have this endpoint.
DetokenizedText = _model("DetokenizedText", prompt=str, content=str)
GenerationDefaults = _model("GenerationDefaults", n_ctx=int, params=dict[str, Any])
# Facts of the loaded model, as llama.cpp's server names them.
ServerProperties = _model(
    "ServerProperties",
    default_generation_settings="GenerationDefaults",
    total_slots=int,
    model_alias=str,
    modalities=dict[str, bool],
    is_sleeping=bool,
    build_info=str,
)
ServerHealth = _model("ServerHealth", status=Literal["ok", "asleep", "loading"], running=int)
