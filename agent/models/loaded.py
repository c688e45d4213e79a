"""A model that is in memory, with what reads and writes its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from agent.engine.protocol import Engine
from agent.formats.protocol import Format


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A loaded engine, the format of its model family, and whose token ids these are."""

    engine: Engine
    format: Format
    vocabulary: str
    """Name of the vocabulary; conversations of models with the same one can be continued."""
    is_constrainable: bool = True
    """Whether the engine takes constraints; a script's output is fixed."""
