"""The address of a server that runs a model in place of this process."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.util import private_files

LOCAL_ENGINE = "llama.cpp"
REMOTE_ENGINES = ("llama-server", "vllm")
"""Values of ``engine =`` in models.toml, as in `backends.BACKENDS`, which is imported later."""


@dataclass(frozen=True, slots=True)
class RemoteEndpoint:
    """A server, or several of one model, of an entry of models.toml; str(): URLs without secrets."""

    engine: str
    """The kind of server: one of REMOTE_ENGINES."""
    url: str
    """Without /v1; it may have a user and a password in it. The first one of several servers."""
    key_env: str | None = None
    """The environment variable with the server's API key."""
    model: str | None = None
    """The model's name there, if the server has several."""
    wait: float | None = None
    """Seconds that a turn waits for a server that cannot answer; None: those of `RemoteTiming`."""
    other_urls: tuple[str, ...] = ()
    """Those of further servers of the same model."""

    def replicas(self) -> list[RemoteEndpoint]:
        return [replace(self, url=url, other_urls=()) for url in (self.url, *self.other_urls)]

    def __str__(self) -> str:
        return ", ".join(map(private_files.redact_url, (self.url, *self.other_urls)))
