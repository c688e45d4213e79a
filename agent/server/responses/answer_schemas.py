"""Models of this server's answers, for ``/openapi.json``; responses are `agent.events.Response`. Tests
hold the plain JSON against these models, and the models against openai-python's types."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

from pydantic import RootModel

from agent.events import Item, Usage, WireModel
from agent.server.input.schemas import InputItem

BatchStatus = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling",
    "cancelled",
]  # fmt: skip

T = TypeVar("T")


class Listing(WireModel, Generic[T]):
    """All of a kind."""

    object: Literal["list"]
    data: list[T]


class CursorPage(Listing[T]):
    """Some of a list, whose others other requests get."""

    first_id: str | None
    last_id: str | None
    has_more: bool


# --- chat completions and completions ---


class TokensCached(WireModel):
    """Tokens of the prompt that were in the prefix cache."""

    cached_tokens: int


class TokensReasoned(WireModel):
    """Generated tokens that are reasoning."""

    reasoning_tokens: int


class CompletionUsage(WireModel):
    """The tokens of all choices, whose prompts are counted once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: TokensCached
    completion_tokens_details: TokensReasoned | None = None


class TokenAlternative(WireModel):
    """A token with its log probability and its bytes."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TokenAlternative):
    """A token of the answer, and the most probable ones in its place."""

    top_logprobs: list[TokenAlternative]


class ChatLogprobs(WireModel):
    """The answer's tokens."""

    content: list[TokenLogprob]
    refusal: None


class ChatFunctionCall(WireModel):
    """A function's name, and its arguments as JSON; in a chunk, what comes of them."""

    name: str | None = None
    arguments: str | None = None


class ChatCustomCall(WireModel):
    """A custom tool's name, and its input; in a chunk, what comes of them."""

    name: str | None = None
    input: str | None = None


class ChatCall(WireModel):
    """A call that the client runs."""

    id: str
    type: Literal["function", "custom"]
    function: ChatFunctionCall | None = None
    custom: ChatCustomCall | None = None


class ChatCallDelta(WireModel):
    """A piece of a call."""

    index: int
    id: str | None = None
    type: Literal["function", "custom"] | None = None
    function: ChatFunctionCall | None = None
    custom: ChatCustomCall | None = None


class UrlCitation(WireModel):
    """A citation: which characters of the text cite which page."""

    start_index: int
    end_index: int
    title: str
    url: str


class ChatAnnotation(WireModel):
    """A citation of a web search."""

    type: Literal["url_citation"]
    url_citation: UrlCitation


class ChatMessageAnswer(WireModel):
    """The model's message."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    annotations: list[ChatAnnotation]
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ChatCall] | None = None
    function_call: ChatFunctionCall | None = None


class ChatDelta(WireModel):
    """A piece of a message."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    annotations: list[ChatAnnotation] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ChatCallDelta] | None = None
    function_call: ChatFunctionCall | None = None


ChatFinishReason = Literal["stop", "length", "tool_calls", "function_call"]


class ChatRepair(WireModel):
    """One mend: its rule, what the answer does not hold of it, and the call that it changed."""

    rule: str
    text: str
    tool_call_id: str | None = None


class ChatChoice(WireModel):
    """One answer."""

    index: int
    message: ChatMessageAnswer
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason
    repairs: list[ChatRepair] | None = None


class ChatChunkChoice(WireModel):
    """A piece of an answer."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None
    repairs: list[ChatRepair] | None = None


class ChatCompletion(WireModel):
    """The body of ``POST /v1/chat/completions``."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    service_tier: Literal["default"] | None = None
    choices: list[ChatChoice]
    usage: CompletionUsage | None
    metadata: dict[str, str] | None = None


class ChatCompletionChunk(WireModel):
    """An event of a streamed chat completion."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    service_tier: Literal["default"] | None = None
    choices: list[ChatChunkChoice]
    usage: CompletionUsage | None = None


# --- messages ---


class MessageUsage(WireModel):
    """The tokens of a message; those that were cached are counted apart."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    service_tier: Literal["standard"]


class MessageEnd(WireModel):
    """The reason for a message's end; None while it is being written."""

    stop_reason: (
        Literal[
            "end_turn",
            "max_tokens",
            "stop_sequence",
            "tool_use",
            "model_context_window_exceeded",
        ]
        | None
    )
    stop_sequence: str | None


class AnthropicMessage(MessageEnd):
    """The body of ``POST /v1/messages``."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    usage: MessageUsage


class MessageEvent(WireModel):
    """An event of a streamed message."""

    type: Literal[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ]
    message: AnthropicMessage | None = None
    index: int | None = None
    content_block: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    usage: MessageUsage | None = None
    error: dict[str, str] | None = None


class MessageTokenCount(WireModel):
    """The length of a prompt in tokens."""

    input_tokens: int


class CompletionLogprobs(WireModel):
    """The tokens of a text; the first of an echoed prompt has no log probability."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionTextChoice(WireModel):
    """One text, or a piece of it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class Completion(WireModel):
    """The body of ``POST /v1/completions``, and an event of its stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionTextChoice]
    usage: CompletionUsage | None = None


# --- responses and conversations ---


class DeletedResponse(WireModel):
    """The answer to a deletion."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputTokenCount(WireModel):
    """The length of a prompt in tokens."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class CompactedMessage(WireModel):
    """A user's message as it was sent."""

    id: str
    type: Literal["message"]
    role: Literal["user"]
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[dict[str, Any]]


class CompactionItem(WireModel):
    """The summary, as a token that stands for the history in a request's input."""

    id: str
    type: Literal["compaction"]
    encrypted_content: str


class CompactedResponse(WireModel):
    """A history's latest user messages, and the summary of all of it."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[CompactedMessage | CompactionItem]
    usage: Usage


class ConversationObject(WireModel):
    """A conversation."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class DeletedConversation(WireModel):
    """The answer to a deletion."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: Literal[True]


class ListedItem(RootModel[Item | InputItem]):
    """An item as it was sent, with an id, or as the model wrote it."""


class ItemPage(CursorPage[ListedItem]):
    """Items of a conversation, or of a request."""


# --- models and tokens ---


class ModelFacts(WireModel):
    """Facts of a model that is loaded on this machine, as llama.cpp's server names them."""

    n_vocab: int
    n_ctx_train: int | None
    n_embd: int | None
    n_params: int
    size: int


class ModelObject(WireModel):
    """A model's name and limits."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: None
    aliases: list[str]
    context_length: int | None
    max_model_len: int | None
    meta: ModelFacts | None = None


class ModelPage(Listing[ModelObject]):
    """The model, under each of its names that clients may use."""


class FileObject(WireModel):
    """A file that a client uploaded, or that a batch made."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"]
    status_details: None


class FilePage(CursorPage[FileObject]):
    """Files of a list."""


class DeletedFile(WireModel):
    """The answer to a deletion."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


class BatchFault(WireModel):
    """An error in a line of a batch's file."""

    code: str | None
    message: str
    param: str | None
    line: int | None


class BatchFaults(Listing[BatchFault]):
    """Why a batch failed."""


class RequestCounts(WireModel):
    """Requests of a batch: all, those that were answered and those that were not."""

    total: int
    completed: int
    failed: int


class BatchObject(WireModel):
    """A batch as it is now."""

    id: str
    object: Literal["batch"]
    endpoint: str
    errors: BatchFaults | None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    metadata: dict[str, str] | None


class BatchPage(CursorPage[BatchObject]):
    """Batches of a list."""


class TokenPiece(WireModel):
    """A token with its text, or its bytes where they are a part of a character."""

    id: int
    piece: str | list[int]


class TokenizedText(WireModel):
    """The tokens of a text."""

    count: int
    max_model_len: int
    tokens: list[int | TokenPiece]
    token_strs: list[str] | None = None


class DetokenizedText(WireModel):
    """The text of tokens, under both servers' names."""

    prompt: str
    content: str


class GenerationDefaults(WireModel):
    """Defaults of requests without settings."""

    n_ctx: int
    params: dict[str, Any]


class ServerProperties(WireModel):
    """Facts of the loaded model, as llama.cpp's server names them."""

    default_generation_settings: GenerationDefaults
    total_slots: int
    model_alias: str
    modalities: dict[str, bool]
    is_sleeping: bool
    build_info: str


class ServerHealth(WireModel):
    """Whether the model is loaded, and how many turns run."""

    status: Literal["ok", "asleep", "loading"]
    running: int
