"""The address of a server that runs a model in place of this process."""

from __future__ import annotations

from dataclasses import dataclass

from tools import private_files

LOCAL_ENGINE = "llama.cpp"
REMOTE_ENGINES = ("llama-server", "vllm")
"""Values of ``engine =`` in models.toml, and names in `backends.BACKENDS` (which is not imported
here, as this module belongs to the start of the program)."""


@dataclass(frozen=True, slots=True)
class RemoteEndpoint:
    """A server, as an entry of models.toml describes it; str() is its URL without secrets."""

    engine: str
    """The kind of server: one of REMOTE_ENGINES."""
    url: str
    """Without /v1; it may have a user and a password in it."""
    key_env: str | None = None
    """The environment variable with the server's API key."""
    model: str | None = None
    """The model's name there, if the server has several."""
    wait: float | None = None
    """Seconds that a turn waits for a server that cannot answer; None: those of `RemoteTiming`."""

    def __str__(self) -> str:
        return private_files.redact_url(self.url)
