"""A peer: vLLM on the CPU with the embedded model, as ``make vllm`` installs it.

``python -m tests.bench.vllm_server`` serves it on port 8000 until Ctrl-C.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench import build_vllm
from tests.bench.peer_server import PeerServer

SERVED_MODEL = "tiny"


class VllmServer(PeerServer):
    """Runs vLLM on one thread: ``with VllmServer() as server``."""

    name = "vllm"
    start_seconds = 300.0

    def __init__(
        self,
        *,
        context: int = 4096,
        data_type: str = "float32",
        api_key: str | None = None,
        options: Sequence[str] = (),
        model: Path | None = None,
        variables: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        """`context`: tokens of one request. `options`: more of its command line.

        `model`: another checkpoint. `variables`: more of its environment. `port`: None: a free one.
        """
        super().__init__(port)
        self._context, self._data_type = context, data_type
        self._api_key, self._options = api_key, options
        self._model, self._variables = model or build_vllm.checkpoint(), variables or {}

    def command(self) -> Sequence[str]:
        """Its command line; ``vllm serve`` does not find its version in this distribution."""
        return (
            str(build_vllm.python()), "-m", "vllm.entrypoints.openai.api_server",
            "--host", "127.0.0.1", "--port", str(self.port),
            "--model", str(self._model), "--served-model-name", SERVED_MODEL,
            "--max-model-len", str(self._context), "--dtype", self._data_type,
            "--enforce-eager", "--enable-prompt-tokens-details", *self._options,
        )  # fmt: skip

    def environment(self) -> Mapping[str, str]:
        """One thread and one process, which otherwise wait for each other in loops."""
        return {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "OMP_NUM_THREADS": "1",
            "TIKTOKEN_ENCODINGS_BASE": str(self._model),
            **self._variables,
        } | ({"VLLM_API_KEY": self._api_key} if self._api_key else {})


if __name__ == "__main__":
    build_vllm.install()
    server = VllmServer(port=8000)
    os.execve(server.command()[0], server.command(), {**os.environ, **server.environment()})
