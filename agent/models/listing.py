"""Lists the models of models.toml and those that other programs keep on this machine."""

from dataclasses import asdict, dataclass
from typing import Any

from agent.config.paths import Paths
from agent.engine.protocol import EngineError
from agent.errors import user_errors
from agent.models.catalog import Model, load_catalog, pulled_folder
from agent.models.discovery import discover
from agent.models.machine import FitEstimate, Machine, estimate_fit
from agent.models.resolve import default_name

EMBEDDED_BYTES = 78_000_000
"""About the size of the embedded model's file, which is made when it first runs."""
_STATES = {
    "pulled": "installed", "file": "installed", "hub": "not downloaded", "server": "on a server",
    "wrong": "wrong entry",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model as it is listed to people and by ``agent models list --json``."""

    name: str
    aliases: tuple[str, ...]
    default: bool
    """It runs where no other model is named."""
    runnable: bool
    """It can run now: its file is on this machine, or a server has it."""
    size: int | None
    """Bytes on this machine; None: it is not here."""
    source: str
    """embedded, pulled, file, server, missing, or the program that keeps it (Ollama …);
    hub: it not downloaded; wrong: its entry cannot be used."""
    path: str | None
    """The file or the server's address; None: neither is known."""
    description: str
    download_size: int | None = None
    """Approximate bytes of its download; None: it is here, or the size is unknown."""
    draft: str | None = None

    @property
    def state(self) -> str:
        return _STATES.get(self.source, self.source)

    def as_json(self) -> dict[str, Any]:
        return {"usable" if n == "runnable" else n: value for n, value in asdict(self).items()}


def list_models(paths: Paths) -> list[ModelRow]:
    """All models: the entries of models.toml, then other programs' files. Raises UserError."""
    with user_errors(EngineError):
        catalog = load_catalog(paths)
    default_model = default_name(paths, catalog)
    return [
        ModelRow(
            name=model.name,
            aliases=model.aliases,
            default=default_model in (model.name, *model.aliases)
            or (model.program != "" and default_model.lower() == model.name.lower()),
            runnable=model.installed and model.problem is None,
            size=model.size,
            source=_source(model, paths),
            path=model.location,
            description=_describe(model),
            download_size=None if model.installed else model.download_size,
            draft=model.draft,
        )
        for model in (*catalog.values(), *discover(catalog))
    ]


def _describe(model: Model) -> str:
    if model.problem is None:
        return model.description
    return f"cannot be used: {model.problem}" if model.program else model.problem


def estimate_row(row: ModelRow, machine: Machine) -> FitEstimate | None:
    """Estimate memory and speed of a model on a machine; None: its size is not known."""
    size = EMBEDDED_BYTES if row.source == "embedded" else row.size or row.download_size
    if size is None or row.source == "wrong":
        return None
    return estimate_fit(row.name, size, machine)


def _source(model: Model, paths: Paths) -> str:
    if model.program:
        return model.program
    if model.problem is not None:
        return "wrong"
    if model.embedded:
        return "embedded"
    if model.endpoint is not None:
        return "server"
    if not model.installed:
        return "hub" if model.repo else "missing"
    return "pulled" if pulled_folder(model, paths) else "file"
