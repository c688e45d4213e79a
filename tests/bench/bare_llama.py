"""A peer: llama.cpp called directly through its bindings, in a bare greedy loop."""

import ctypes
import time
from pathlib import Path

import llama_cpp.llama_cpp as lib
import numpy as np

from agent.engine.llama.model import uses_repacked_weights
from agent.engine.placement.placement import ThreadCounts
from tests.bench import GPU_LAYERS
from tests.bench.models import bench_placement

CONTEXT_TOKENS = 4096


class BareLlama:
    """A model and a context, created with the same parameters as the engine creates them."""

    def __init__(self, path: Path) -> None:
        params = lib.llama_model_default_params()
        params.use_extra_bufts = uses_repacked_weights(bench_placement())
        params.n_gpu_layers = GPU_LAYERS
        self.model = lib.llama_model_load_from_file(bytes(path), params)
        self.vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        options = lib.llama_context_default_params()
        options.n_ctx = CONTEXT_TOKENS
        options.n_batch = options.n_ubatch = 512
        options.n_outputs_max = 1
        options.swa_full = False
        self.context = lib.llama_init_from_model(self.model, options)

    def tokens_per_second(self, prompt: list[int], count: int, threads: ThreadCounts) -> float:
        """Decode `count` tokens greedily after `prompt`; tokens per second without the prefill."""
        context = self.context
        lib.llama_set_n_threads(context, threads.decode, threads.prefill)
        lib.llama_memory_clear(lib.llama_get_memory(context), False)
        ids = (ctypes.c_int32 * len(prompt))(*prompt)
        lib.llama_decode(context, lib.llama_batch_get_one(ids, len(prompt)))
        token = (ctypes.c_int32 * 1)()
        batch = lib.llama_batch_get_one(token, 1)
        logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), (self.vocabulary,))
        start = time.perf_counter()
        for _ in range(count - 1):
            token[0] = int(logits.argmax())
            lib.llama_decode(context, batch)
            lib.llama_synchronize(context)
        logits.argmax()
        return count / (time.perf_counter() - start)

    def close(self) -> None:
        """Free the context and the model."""
        lib.llama_free(self.context)
        lib.llama_model_free(self.model)
