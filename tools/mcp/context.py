"""What all connections of a host share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tools.mcp.credentials import Tokens
from tools.results import Results


@dataclass(frozen=True, slots=True)
class Around:
    results: Results
    roots: tuple[Path, ...]
    """Folders that servers are told they may work in."""
    tokens: Tokens
    """Earlier logins."""
    listeners: list[Callable[[str], None]] = field(default_factory=list)
    """Told of a server that is ready, or ready again, or offers something else."""
