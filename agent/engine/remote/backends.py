"""How servers that run a model for many are spoken to: token ids in, token ids out.

llama-server: its /completion (tools/server/README.md of llama.cpp; run against the build of
llama-cpp-python 0.3.36). vLLM: /v1/completions with ``return_token_ids`` (CompletionRequest in
vllm/entrypoints/openai/completion/protocol.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from agent.engine.protocol import EngineError, Logprob, Prefill, Reason, Request

FAR = 1000.0
"""Added to the scores of the only tokens that may be said: more than scores lie apart."""

Json = dict[str, Any]


@dataclass(slots=True)
class Chunk:
    """What one message of a server's stream says."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)
    """One per id, where they were asked for."""
    text: str = ""
    """Theirs; where `count` says that ids before them were left out, with the text of those."""
    count: int | None = None
    """Tokens generated so far, where the server counts them."""
    prefill: Prefill | None = None
    cached: int | None = None
    """Prompt tokens that were in the server's memory."""
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server says of the model it runs."""

    model: str
    """Its name there."""
    context: int | None
    """Tokens that prompt and output together may have."""


class Server(Protocol):
    """One kind of server."""

    name: str
    path: str
    """Where completions are made."""
    silent: bool
    """It can read a prompt without saying anything."""
    measures_last: bool
    """How much of a prompt it knew is told after the last token."""

    def about(self, model: str | None) -> Sequence[str]:
        """Paths whose answers `facts` reads. ``model``: as models.toml names it."""
        ...

    def facts(self, answers: Sequence[Json], model: str | None) -> Facts: ...

    def tokenize(self, text: str, model: str) -> Json:
        """The body for /tokenize, which answers with ``tokens``; specials are what they spell."""
        ...

    def body(
        self, request: Request, prompt: list[int], most: int, model: str, among: list[int] | None
    ) -> Json:
        """The body of a completion of at most so many tokens; streamed, unless it may only say one of
        ``among``."""
        ...

    def read(self, message: Json) -> Chunk: ...


class LlamaServer:
    """llama.cpp's own server."""

    name: str = "llama-server"
    path: str = "/completion"
    silent: bool = True
    measures_last: bool = False

    def about(self, model: str | None) -> Sequence[str]:
        # A router (llama-server without a model of its own) loads the one that is named.
        query = f"?model={quote(model, safe='')}" if model else ""
        return f"/props{query}", "/v1/models"

    def facts(self, answers: Sequence[Json], model: str | None) -> Facts:
        props, models = answers
        names = [each["id"] for each in models["data"]]
        if props.get("role") == "router":
            raise EngineError(
                f"The server has several models: set model in models.toml to one of"
                f" {', '.join(names) or 'them'}."
            )
        if model is not None and not any(
            model in (each["id"], *each.get("aliases", ())) or "status" in each  # a router's
            for each in models["data"]
        ):
            raise EngineError(f"The server does not serve {model}; it has {', '.join(names)}.")
        return Facts(model or names[0], props["default_generation_settings"]["n_ctx"])

    def tokenize(self, text: str, model: str) -> Json:
        return {"model": model, "content": text, "add_special": False, "parse_special": True}

    def body(
        self, request: Request, prompt: list[int], most: int, model: str, among: list[int] | None
    ) -> Json:
        sampling = request.sampling
        bias: list[list[Any]] = [[token, value] for token, value in sampling.logit_bias]
        bias += [[token, FAR] for token in among or ()]
        return {
            "model": model,  # to a router; others do not read it
            "prompt": prompt,
            "n_predict": most,
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

    def read(self, message: Json) -> Chunk:
        if (progress := message.get("prompt_progress")) is not None:
            done, total, cached = progress["processed"], progress["total"], progress["cache"]
            return Chunk(prefill=Prefill(done, total, cached), cached=cached)
        chunk = Chunk(message["tokens"], text=message["content"], count=message["tokens_predicted"])
        for token in message.get("completion_probabilities", ()):
            top = tuple((each["id"], each["logprob"]) for each in token["top_logprobs"])
            chunk.logprobs.append(Logprob(token["id"], token["logprob"], top))
        if message.get("stop"):
            full = message.get("truncated") or message["stop_type"] == "limit"
            chunk.reason = "length" if full else "stop"
            chunk.cached = message.get("timings", {}).get("cache_n")
        return chunk


class Vllm:
    """vLLM's OpenAI-compatible server."""

    name: str = "vllm"
    path: str = "/v1/completions"
    silent: bool = False
    measures_last: bool = True

    def about(self, model: str | None) -> Sequence[str]:
        return ("/v1/models",)

    def facts(self, answers: Sequence[Json], model: str | None) -> Facts:
        served = {each["id"]: each for each in answers[0]["data"]}
        name = model or next(iter(served))
        if name not in served:
            raise EngineError(f"The server does not serve {name}; it has {', '.join(served)}.")
        card = served[name]
        base = served.get(card.get("parent"), {})  # a LoRA's card has no length of its own
        return Facts(name, card.get("max_model_len") or base.get("max_model_len"))

    def tokenize(self, text: str, model: str) -> Json:
        return {"model": model, "prompt": text, "add_special_tokens": False}

    def body(
        self, request: Request, prompt: list[int], most: int, model: str, among: list[int] | None
    ) -> Json:
        sampling = request.sampling
        return {
            "model": model,
            "prompt": prompt,
            "max_tokens": most,
            "stream_options": {"include_usage": True} if among is None else None,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "skip_special_tokens": False,
            "stop_token_ids": sorted(request.stop),
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "seed": sampling.seed,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "repetition_penalty": sampling.repeat_penalty,
            "logit_bias": {str(token): value for token, value in sampling.logit_bias} or None,
            "logprobs": request.logprobs,
            "allowed_token_ids": among,
        }

    def read(self, message: Json) -> Chunk:
        chunk = Chunk()
        if usage := message.get("usage"):
            chunk.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        for choice in message.get("choices", ())[:1]:
            if choice.get("text") and choice.get("token_ids") is None:
                raise EngineError(
                    "The server sends text without token ids: a newer vLLM is needed."
                )
            chunk.ids = list(choice.get("token_ids") or ())
            if (found := choice.get("logprobs")) is not None:
                chunk.logprobs = [
                    Logprob(token, logprob, _top(top))
                    for token, logprob, top in zip(
                        chunk.ids, found["token_logprobs"], found["top_logprobs"], strict=False
                    )
                ]
            match choice.get("finish_reason"):
                case None:
                    pass
                case "stop":
                    chunk.reason = "stop"
                    stop = choice.get("stop_reason")
                    if isinstance(stop, int) and chunk.ids[-1:] != [stop]:
                        chunk.ids.append(stop)
                case "length":
                    chunk.reason = "length"
                case other:
                    raise EngineError(f"The server ended the generation ({other}).")
        return chunk


def _top(found: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
    """Of ``{"token_id:7": -0.1}``; best first."""
    pairs = [(int(name.rpartition(":")[2]), value) for name, value in (found or {}).items()]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def message(text: str) -> str:
    """What an error's body says, in short."""
    try:
        found = json.loads(text)
        found = found.get("error", found)
        text = found.get("message", text) if isinstance(found, dict) else str(found)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:300] or "nothing"


SERVERS: dict[str, Server] = {server.name: server for server in (LlamaServer(), Vllm())}
"""By what ``engine =`` in models.toml says."""
