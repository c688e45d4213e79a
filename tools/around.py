"""What all connections of a host share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.results import Results
from tools.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Around:
    results: Results
    roots: tuple[Path, ...]
    """Folders that servers are told they may work in."""
    tokens: Tokens
    """Earlier logins."""
