"""Resolves a name, an alias or a path to the model that it means."""

from __future__ import annotations

from pathlib import Path

from agent.config.paths import Paths
from agent.config.settings import load_settings
from agent.engine.protocol import EngineError
from agent.models import discovery
from agent.models.catalog import EMBEDDED, Model, load_catalog


def default_name(paths: Paths, catalog: dict[str, Model] | None = None) -> str:
    """The model that runs where none is named: config.toml's, else the first real one on this machine,
    else the embedded one. One on a server has to be chosen: prompts would leave this machine.

    Raises UserError, and EngineError where no ``catalog`` is passed."""
    if (name := load_settings(paths).model) is not None:
        return name
    catalog = load_catalog(paths) if catalog is None else catalog
    here = (m.name for m in catalog.values() if m.installed and not m.embedded and not m.endpoint)
    return next(here, EMBEDDED)


def resolve_model(name: str | None, paths: Paths, *, scripted: bool = False) -> Model:
    """The model that ``name`` means, tried in this order: a name or alias in models.toml, a file that
    another program keeps, a path. None means the default model.

    ``scripted``: its file need not be there. Raises EngineError, UserError.
    """
    catalog = load_catalog(paths)
    name = default_name(paths, catalog) if name is None else name
    for model in catalog.values():
        if name == model.name or name in model.aliases:
            if model.problem is not None:
                raise EngineError(model.problem)
            if not model.installed and not scripted:
                raise EngineError(_not_installed(model, catalog))
            return model
    path = Path(name).expanduser()
    if not path.exists():
        for other in discovery.discover(catalog):
            if name.lower() == other.name.lower():
                return discovery.to_model(other, catalog)
    if path.exists() or path.suffix == ".gguf" or "/" in name:
        if not path.is_file() and not scripted:
            raise EngineError(f"There is no model file {path}.")
        return Model(name=path.stem, path=path, aliases=(name,))
    raise EngineError(
        f"There is no model {name}; known: {', '.join(catalog)}, what agent models list has found,"
        " or a path to a GGUF."
    )


def _not_installed(model: Model, catalog: dict[str, Model]) -> str:
    for other in discovery.matching(model, catalog):
        return (
            f"The model {model.name} is not installed, but {other.source} has it:"
            f" --model {other.name} runs that file."
        )
    if model.repo is None:
        return f"The model {model.name} is not at {model.path}: correct its path in models.toml."
    return (
        f"The model {model.name} is not installed; download it with: agent models pull {model.name}"
    )
