"""llama.cpp's server (build of llama-cpp-python 0.3.36), by its endpoint /completion:
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from agent.engine.protocol import EngineError, Logprob, Prefill, Request
from agent.engine.remote.backends.base import CompletionChunk, Json, ServerMetadata

FORCING_BIAS = 1000.0
"""Added to the logits of the only tokens that are allowed: more than logits differ."""


class LlamaServerBackend:
    """llama-server, also as a router of several models."""

    name: str = "llama-server"
    completion_path: str = "/completion"
    prefill_without_sampling: bool = True
    usage_last: bool = False

    def metadata_paths(self, model: str | None) -> Sequence[str]:
        """Return /props and /v1/models; a router loads the model that the query names."""
        query = f"?model={quote(model, safe='')}" if model else ""
        return f"/props{query}", "/v1/models"

    def parse_metadata(self, answers: Sequence[Json], model: str | None) -> ServerMetadata:
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
        return ServerMetadata(model or names[0], props["default_generation_settings"]["n_ctx"])

    def tokenize_body(self, text: str, model: str) -> Json:
        return {"model": model, "content": text, "add_special": False, "parse_special": True}

    def completion_body(self, request: Request, max_tokens: int, allowed: list[int] | None) -> Json:
        """Make the body for /completion; allowed ids are forced by a bias: it has no list of them."""
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
