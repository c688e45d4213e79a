"""The models that can be run: the entries of models.toml, and any GGUF by its path."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.config import Places
from agent.engine.base import EngineError, Sampling

EMBEDDED = "tiny"
DEFAULT_CONTEXT = 32768
_SPLIT = re.compile(r"(?P<name>.+)-00001-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class Model:
    """One model as models.toml describes it."""

    name: str
    description: str = ""
    embedded: bool = False
    path: Path | None = None
    """Where its GGUF lies, when that is known."""
    repo: str | None = None
    file: str | None = None
    format: str = "auto"
    """The family's way of writing; ``auto``: as its file tells."""
    context: int = DEFAULT_CONTEXT
    sampling: Sampling = field(default_factory=Sampling)
    aliases: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """All files of a model that is split: NAME-00001-of-00003.gguf, and so on."""
        split = _SPLIT.fullmatch(self.file or "")
        if split is None:
            return (self.file,) if self.file else ()
        count = int(split["count"])
        return tuple(
            f"{split['name']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)
        )

    @property
    def installed(self) -> bool:
        if self.embedded or self.path is None:
            return self.embedded
        parts = self.files if self.file and self.path.name == self.file else (self.path.name,)
        return all((self.path.parent / part).exists() for part in parts)


def _shipped() -> Path:
    """models.toml: beside the packages in a checkout, inside the package in a wheel."""
    inside = Path(__file__).with_name("models.toml")
    return inside if inside.exists() else Path(__file__).parent.parent / "models.toml"


def _model(name: str, entry: dict[str, Any], where: Places) -> Model:
    path = entry.get("path")
    file = entry.get("file")
    if path is None and file is not None:
        path = where.cache / "models" / name / file
    return Model(
        name=name,
        description=entry.get("description", ""),
        embedded=entry.get("source") == "embedded",
        path=Path(path).expanduser() if path else None,
        repo=entry.get("repo"),
        file=file,
        format=entry.get("format", "auto"),
        context=int(entry.get("context", DEFAULT_CONTEXT)),
        sampling=Sampling(**entry.get("sampling", {})),
        aliases=tuple(entry.get("aliases", ())),
    )


def known(where: Places) -> dict[str, Model]:
    """All entries: ours, then the user's, which win. Raises EngineError naming a broken file."""
    entries: dict[str, Any] = {}
    for path in (_shipped(), where.config / "models.toml"):
        try:
            entries |= tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise EngineError(f"Cannot read {path}: {error}") from error
    models: dict[str, Model] = {}
    for name, entry in entries.items():
        try:
            models[name] = _model(name, entry, where)
        except (TypeError, ValueError, AttributeError) as error:
            raise EngineError(f"The entry [{name}] of models.toml is wrong: {error}") from error
    return models


def choose(name: str | None, where: Places, *, scripted: bool = False) -> Model:
    """The model that is meant: a name of models.toml, an alias, or a path; none: the best installed.

    ``scripted``: its file need not be there.
    """
    models = known(where)
    if name is None:
        real = [m for m in models.values() if m.installed and not m.embedded]
        return real[0] if real else models[EMBEDDED]
    for model in models.values():
        if name == model.name or name in model.aliases:
            if not model.installed and not scripted:
                raise EngineError(
                    f"The model {name} is not installed; pull it with: agent models pull {name}"
                )
            return model
    path = Path(name).expanduser()
    if path.exists() or path.suffix == ".gguf" or "/" in name:
        return Model(name=path.stem, path=path, aliases=(name,))
    raise EngineError(
        f"There is no model {name}; known are {', '.join(models)}, or a path to a GGUF."
    )
