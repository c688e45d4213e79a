"""The kinds of servers that can run a model: one module for each, behind the protocol of `base`."""

from __future__ import annotations

from agent.engine.remote.backends.base import RemoteBackend
from agent.engine.remote.backends.llama_server import LlamaServerBackend
from agent.engine.remote.backends.vllm import VllmBackend

BACKENDS: dict[str, RemoteBackend] = {
    backend.name: backend for backend in (LlamaServerBackend(), VllmBackend())
}
"""Backends by the value of ``engine =`` in models.toml."""
