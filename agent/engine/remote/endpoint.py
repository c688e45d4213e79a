"""Where a model runs that does not run here."""

from __future__ import annotations

from dataclasses import dataclass

from tools import private_files

LOCAL = "llama.cpp"
REMOTE = ("llama-server", "vllm")
"""What ``engine =`` in models.toml may say."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the model runs."""

    engine: str
    """Which kind of server: one of REMOTE."""
    url: str
    """Without /v1; it may have a user and a password in it."""
    key_env: str | None = None
    """The environment variable that holds its API key."""
    model: str | None = None
    """The model's name there, where it serves several."""
    wait: float | None = None
    """Seconds that a turn waits while it cannot answer; None: as is usual (`remote_state`)."""

    def __str__(self) -> str:
        return private_files.address(self.url)
