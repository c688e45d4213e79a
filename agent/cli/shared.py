"""The options that every command has which runs turns. A leaf: read before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Shared:
    """Names as on the command line; None is: not given."""

    model: str | None = None
    engine: str | None = None
    effort: Literal["low", "medium", "high"] = "medium"
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    context: int | None = None
    compact: bool | None = None
    tools: str | None = None
    mcp_config: tuple[Path, ...] = ()
    mcp: tuple[str, ...] = ()
    approve: str | None = None
    root: Path = Path()
    trust_project: bool | str = False
    """A text: the digest of the servers that a person was shown and agreed to."""
    system: str | None = None
    log_level: str = "warning"
    trace: Path | None = None
    """Where every token and event is written, with its time."""
