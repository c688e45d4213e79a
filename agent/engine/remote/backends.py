"""The kinds of servers that can run a model: what is requested of each, and how its answers are read.
They make and read JSON; `RemoteClient` and `RemoteGeneration` make the requests. Each names the paths
whose answers describe the model (``model``: as models.toml names it), that of completions, whether it
prefills without sampling, and whether it reports the cached prompt tokens after the last token."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from agent.engine.protocol import EngineError, FinishReason, Logprob, Prefill, Request

Json = dict[str, Any]
FORCING_BIAS = 1000.0
"""Added to the logits of the only tokens that are allowed: more than logits differ."""
MAX_VLLM_TEMPERATURE = 2.0
MAX_VLLM_SEED = 1 << 63
"""Seeds from this one on are refused."""


@dataclass(slots=True)
class CompletionChunk:
    """The content of one message of a server's stream."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)
    """One per id, if they were requested."""
    text: str = ""
    """The text of the ids, and of earlier ids that the server left out (`count` says so)."""
    count: int | None = None
    """Tokens generated so far, if the server counts them."""
    prefill: Prefill | None = None
    cached: int | None = None
    """Prompt tokens that were in the server's KV cache."""
    reason: FinishReason | None = None


class LlamaServerBackend:
    """llama.cpp's server (build of llama-cpp-python 0.3.36), also as a router of several models, by its
    endpoint /completion: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md."""

    name = "llama-server"
    completion_path = "/completion"
    prefill_without_sampling = True
    usage_last = False

    def metadata_paths(self, model: str | None) -> Sequence[str]:
        """Return /props and /v1/models; a router loads the model that the query names."""
        query = f"?model={quote(model, safe='')}" if model else ""
        return f"/props{query}", "/v1/models"

    def parse_metadata(self, answers: Sequence[Json], model: str | None) -> tuple[str, int | None]:
        """Read the model's name, and the tokens of its context if reported. Raises EngineError if it is
        not served; KeyError, IndexError, TypeError or StopIteration: another kind of server."""
        props, models = answers
        names = [card["id"] for card in models["data"]]
        if props.get("role") == "router":
            raise EngineError(
                f"The server has several models: set model in models.toml to one of"
                f" {', '.join(names) or 'them'}."
            )
        if model is not None and not any(
            model in (card["id"], *card.get("aliases", ())) or "status" in card  # a router's
            for card in models["data"]
        ):
            raise EngineError(f"The server does not serve {model}; it has {', '.join(names)}.")
        return model or names[0], props["default_generation_settings"]["n_ctx"]

    def tokenize_body(self, text: str, model: str) -> Json:
        return {"model": model, "content": text, "add_special": False, "parse_special": True}

    def completion_body(self, request: Request, max_tokens: int, allowed: list[int] | None) -> Json:
        """Make the body without ``model`` and ``prompt``. ``allowed``: the only ids that may come next,
        None: any; a bias forces them, as the server takes no list of them."""
        sampling = request.sampling
        bias: list[list[Any]] = [[token, value] for token, value in sampling.logit_bias]
        bias += [[token, FORCING_BIAS] for token in allowed or ()]
        return {
            "n_predict": max_tokens,
            "cache_prompt": True,
            "return_tokens": True,
            "return_progress": True,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "samplers": ["penalties", "temperature", "top_k", "top_p", "min_p"],
            "seed": -1 if sampling.seed is None else sampling.seed % 2**31,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "repeat_penalty": sampling.repeat_penalty,
            "repeat_last_n": 64,
            "logit_bias": bias,
            "n_probs": 0 if request.logprobs is None else max(request.logprobs, 1),
        }

    def parse_chunk(self, message: Json) -> CompletionChunk:
        if (progress := message.get("prompt_progress")) is not None:
            done, total, cached = progress["processed"], progress["total"], progress["cache"]
            return CompletionChunk(prefill=Prefill(done, total, cached), cached=cached)
        chunk = CompletionChunk(
            message["tokens"], text=message["content"], count=message["tokens_predicted"]
        )
        for token in message.get("completion_probabilities", ()):
            top = tuple((choice["id"], choice["logprob"]) for choice in token["top_logprobs"])
            chunk.logprobs.append(Logprob(token["id"], token["logprob"], top))
        if message.get("stop"):
            is_full = message.get("truncated") or message["stop_type"] == "limit"
            chunk.reason = "length" if is_full else "stop"
            chunk.cached = message.get("timings", {}).get("cache_n")
        return chunk


class VllmBackend:
    """vLLM's server, by /v1/completions with ``return_token_ids``:
    https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html, and CompletionRequest in
    https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/openai/completion/protocol.py."""

    name = "vllm"
    completion_path = "/v1/completions"
    prefill_without_sampling = False
    usage_last = True

    def metadata_paths(self, model: str | None) -> Sequence[str]:
        return ("/v1/models",)

    def parse_metadata(self, answers: Sequence[Json], model: str | None) -> tuple[str, int | None]:
        """Read what `LlamaServerBackend.parse_metadata` reads; raises as it does."""
        served = {card["id"]: card for card in answers[0]["data"]}
        name = model or next(iter(served))
        if name not in served:
            raise EngineError(f"The server does not serve {name}; it has {', '.join(served)}.")
        card = served[name]
        base = served.get(card.get("parent"), {})  # a LoRA's card has no length of its own
        return name, card.get("max_model_len") or base.get("max_model_len")

    def tokenize_body(self, text: str, model: str) -> Json:
        return {"model": model, "prompt": text, "add_special_tokens": False}

    def completion_body(self, request: Request, max_tokens: int, allowed: list[int] | None) -> Json:
        """Make the body for /v1/completions. Raises EngineError for what vLLM refuses."""
        sampling = request.sampling
        if sampling.temperature > MAX_VLLM_TEMPERATURE:
            raise EngineError(
                f"vLLM takes temperatures up to {MAX_VLLM_TEMPERATURE:g}, not {sampling.temperature:g}."
            )
        greedy = sampling.top_p == 0  # which vLLM refuses: the likeliest token alone is left
        return {
            "max_tokens": max_tokens,
            "stream_options": {"include_usage": True} if allowed is None else None,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "skip_special_tokens": False,
            "stop_token_ids": sorted(request.stop_ids),
            "temperature": 0.0 if greedy else sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": 1.0 if greedy else sampling.top_p,
            "min_p": sampling.min_p,
            "seed": None if sampling.seed is None else sampling.seed % MAX_VLLM_SEED,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "repetition_penalty": sampling.repeat_penalty,
            "logit_bias": {str(token): value for token, value in sampling.logit_bias} or None,
            "logprobs": request.logprobs,
            "allowed_token_ids": allowed,
        }

    def parse_chunk(self, message: Json) -> CompletionChunk:
        """Read a message: tokens, the end, or the usage. Raises EngineError for text without ids."""
        chunk = CompletionChunk()
        if usage := message.get("usage"):
            chunk.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        for choice in message.get("choices", ())[:1]:
            if choice.get("text") and choice.get("token_ids") is None:
                raise EngineError(
                    "The server sends text without token ids: a newer vLLM is needed."
                )
            chunk.ids = list(choice.get("token_ids") or ())
            if (logprobs := choice.get("logprobs")) is not None:
                values, tops = logprobs["token_logprobs"], logprobs["top_logprobs"]
                rows = zip(chunk.ids, values, tops, strict=False)
                chunk.logprobs = [Logprob(id, value, _parse_top(top)) for id, value, top in rows]
            match choice.get("finish_reason"):
                case None | "abort":  # it is being stopped: nothing follows
                    pass
                case "stop":
                    chunk.reason = "stop"
                    stop_id = choice.get("stop_reason")
                    if isinstance(stop_id, int) and chunk.ids[-1:] != [stop_id]:
                        chunk.ids.append(stop_id)
                case "length":
                    chunk.reason = "length"
                case other:
                    raise EngineError(f"The server ended the generation ({other}).")
        return chunk


RemoteBackend = LlamaServerBackend | VllmBackend
BACKENDS: dict[str, RemoteBackend] = {
    LlamaServerBackend.name: LlamaServerBackend(),
    VllmBackend.name: VllmBackend(),
}
"""Backends by the value of ``engine =`` in models.toml."""


def _parse_top(top_logprobs: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
    """Read ``{"token_id:7": -0.1}`` as (id, logprob) pairs, best first."""
    pairs = [(int(name.rpartition(":")[2]), value) for name, value in (top_logprobs or {}).items()]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def error_message(text: str) -> str:
    """Return the message in the body of an error, shortened to one line of 300 characters."""
    try:
        body = json.loads(text)
        body = body.get("error", body)
        text = body.get("message", text) if isinstance(body, dict) else str(body)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:300] or "nothing"
