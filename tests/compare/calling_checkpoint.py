"""The embedded model, made to call the tools of a namespace.

It calls every tool as a function, `functions.exec`, which vLLM takes for a client's. Here the rows of
two tokens are exchanged, in the embeddings and in the output: the model reads "functions" where the
prompt says "container", and writes "container" where it would write "functions".
"""

import json
import shutil
from pathlib import Path

import numpy as np

from tests.bench import CACHE, build_vllm

CONTAINER_ID, FUNCTIONS_ID = 6_896, 44_580
WEIGHTS = "model.safetensors"


def calling_checkpoint() -> Path:
    """The checkpoint, written again."""
    source, folder = build_vllm.checkpoint(), CACHE / "tiny-hf-calling"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    path = folder / WEIGHTS
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        start, _ = header[name]["data_offsets"]
        rows = np.memmap(
            path, np.float32, "r+", offset=8 + size + start, shape=tuple(header[name]["shape"])
        )
        rows[[CONTAINER_ID, FUNCTIONS_ID]] = rows[[FUNCTIONS_ID, CONTAINER_ID]]
        rows.flush()
    return folder
