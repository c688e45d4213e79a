"""The command-line options that `run`, `chat` and `serve` share. A leaf, for the first paint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The shared options, named and spelled as in `agent/cli/options.py`; None: not passed."""

    model: str | None = None
    engine: str | None = None
    effort: Literal["low", "medium", "high"] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_output_tokens: int | None = None
    max_reasoning_tokens: int | None = None
    max_tool_calls: int | None = None
    context: int | None = None
    compact: bool | None = None
    own_engine: bool = False
    loop_guard: bool = True
    tools: str | None = None
    mcp_config: tuple[Path, ...] = ()
    mcp: tuple[str, ...] = ()
    demo_tools: bool = False
    approve: str | None = None
    mode: Literal["ask", "plan", "accept-edits"] | None = None
    root: Path = Path()
    trust_project: bool | str = False
    """A text: the digest of the project's servers that the person has agreed to."""
    allow_home: bool = False
    system: str | None = None
    project_instructions: bool | None = None
    """Read AGENTS.md files; None: as config.toml says."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    trace: Path | None = None
