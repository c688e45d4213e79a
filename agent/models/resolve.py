"""Resolves a name, an alias or a path to the model that it means."""

from dataclasses import replace
from pathlib import Path

from agent.config.paths import Paths
from agent.config.settings import load_settings
from agent.engine.protocol import EngineError
from agent.errors import user_errors
from agent.models import discovery
from agent.models.catalog import EMBEDDED, Model, find_entry, load_catalog
from agent.util.user_files import expand_path


def default_name(paths: Paths, catalog: dict[str, Model] | None = None) -> str:
    """The default model: config.toml's, else the first real one on this machine, not on a server, else
    the embedded one. Raises UserError, and EngineError without ``catalog``."""
    if (name := load_settings(paths).model) is not None:
        return name
    catalog = load_catalog(paths) if catalog is None else catalog
    here = (m.name for m in catalog.values() if m.installed and not m.embedded and not m.endpoint)
    return next(here, EMBEDDED)


def resolve_model(name: str | None, paths: Paths, *, scripted: bool = False) -> Model:
    """Find a name or alias in models.toml, a path (with ``/`` or ``.gguf``), another program's file or
    a file in this folder, in this order; None: the default model. ``scripted``: its file need not be
    there. Raises EngineError, UserError."""
    catalog = load_catalog(paths)
    name = default_name(paths, catalog) if name is None else name
    if (model := find_entry(catalog, name)) is not None:
        if not model.installed and not scripted:
            raise EngineError(_not_installed(model, catalog))
        return model
    path = expand_path(name)
    is_path = "/" in name or path.suffix == ".gguf"
    if not (is_path and path.is_file()):
        for other in discovery.discover(catalog):
            if name.lower() == other.name.lower():
                if other.problem is not None:
                    raise EngineError(
                        f"{other.name} of {other.program} cannot be used: {other.problem}."
                    )
                return replace(other, description=f"found at {other.path}")
    if path.is_file() or (is_path and scripted):
        return Model(name=path.stem, path=path, aliases=(name,))
    if is_path:
        raise EngineError(f"There is no model file {path}.")
    raise EngineError(
        f"There is no model {name or repr(name)}; known: {', '.join(catalog)},"
        " what agent models list has found, or a path to a GGUF."
    )


def runnable_models(paths: Paths) -> list[Model]:
    """All that can run now: models.toml's, then other programs' files. Raises EngineError."""
    catalog = load_catalog(paths)
    models = (*catalog.values(), *discovery.discover(catalog))
    return [model for model in models if model.problem is None and model.installed]


def lasting_name(name: str, paths: Paths) -> str:
    """Its name in any folder: a path becomes absolute. Raises UserError if there is no such model."""
    with user_errors(EngineError):
        model = resolve_model(name, paths)
    is_path = model.path is not None and model.path == Path(name).expanduser()
    return str(Path(name).expanduser().resolve()) if is_path else name


def _not_installed(model: Model, catalog: dict[str, Model]) -> str:
    if (other := discovery.find_copy(model, catalog)) is not None:
        return (
            f"The model {model.name} is not installed, but {other.program} has it:"
            f" --model {other.name} runs that file."
        )
    if model.repo is None and model.path is None:
        return f"The entry [{model.name}] of models.toml has no model: give it a path or a repo."
    if model.repo is None:
        return f"The model {model.name} is not at {model.path}: correct its path in models.toml."
    return (
        f"The model {model.name} is not installed; download it with: agent models pull {model.name}"
    )
