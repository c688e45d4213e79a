"""vLLM's server, by /v1/completions with ``return_token_ids``:
https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html, and CompletionRequest in
https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/openai/completion/protocol.py."""

from __future__ import annotations

from collections.abc import Sequence

from agent.engine.protocol import EngineError, Logprob, Request
from agent.engine.remote.backends.base import CompletionChunk, Json, ServerMetadata

MAX_TEMPERATURE = 2.0
MAX_SEED = 1 << 63
"""Seeds from this one on are refused."""


class VllmBackend:
    """vLLM's server."""

    name: str = "vllm"
    completion_path: str = "/v1/completions"
    prefill_without_sampling: bool = False
    usage_last: bool = True

    def metadata_paths(self, model: str | None) -> Sequence[str]:
        return ("/v1/models",)

    def parse_metadata(self, answers: Sequence[Json], model: str | None) -> ServerMetadata:
        served = {card["id"]: card for card in answers[0]["data"]}
        name = model or next(iter(served))
        if name not in served:
            raise EngineError(f"The server does not serve {name}; it has {', '.join(served)}.")
        card = served[name]
        base = served.get(card.get("parent"), {})  # a LoRA's card has no length of its own
        return ServerMetadata(name, card.get("max_model_len") or base.get("max_model_len"))

    def tokenize_body(self, text: str, model: str) -> Json:
        return {"model": model, "prompt": text, "add_special_tokens": False}

    def completion_body(self, request: Request, max_tokens: int, allowed: list[int] | None) -> Json:
        """Make the body for /v1/completions. Raises EngineError for what vLLM refuses."""
        sampling = request.sampling
        if sampling.temperature > MAX_TEMPERATURE:
            raise EngineError(
                f"vLLM takes temperatures up to {MAX_TEMPERATURE:g}, not {sampling.temperature:g}."
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
            "seed": None if sampling.seed is None else sampling.seed % MAX_SEED,
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
                chunk.logprobs = [
                    Logprob(token, logprob, _parse_top(top))
                    for token, logprob, top in zip(
                        chunk.ids,
                        logprobs["token_logprobs"],
                        logprobs["top_logprobs"],
                        strict=False,
                    )
                ]
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


def _parse_top(top_logprobs: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
    """Read ``{"token_id:7": -0.1}`` as (id, logprob) pairs, best first."""
    pairs = [(int(name.rpartition(":")[2]), value) for name, value in (top_logprobs or {}).items()]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))
