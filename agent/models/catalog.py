"""The models that can be run: the entries of models.toml, what other programs keep, any GGUF's path."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from agent.config.settings import Places, settings
from agent.engine.placement.memory_estimate import parts
from agent.engine.placement.placement import KvType
from agent.engine.placement.planner import Wanted
from agent.engine.protocol import EngineError, Sampling
from agent.engine.remote.endpoint import LOCAL, REMOTE, Address

EMBEDDED = "tiny"
SHOWN_CONTEXT = 32_768
"""Tokens of context that stand for a model's until it is known what fits."""
_NAME = re.compile(r"[\w:.@+-]+")
_PLACEMENT = ("gpu_layers", "cpu_experts", "flash_attention", "extra_buffers", "overcommit")
_THERE = ("url", "key_env", "model", "wait")
"""What is said only of a model that runs on a server."""
_TEXTS = ("source", "description", "path", "repo", "file", "format", "engine", *_THERE[:3])
_KEYS = {*_TEXTS, *_THERE, "sampling", "aliases", "keep_alive", "context", "kv_type", *_PLACEMENT}


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
    sampling: Sampling = field(default_factory=Sampling)
    aliases: tuple[str, ...] = ()
    wanted: Wanted = field(default_factory=Wanted)
    """How it shall be laid out in memory."""
    keep_alive: float | None = None
    """Seconds without a turn after which it is unloaded; None: as config.toml says."""
    address: Address | None = None
    """The server that runs it; None: it runs here."""
    problem: str | None = None
    """Why it cannot be used: what is wrong with its entry, in one sentence."""

    @property
    def context(self) -> int:
        """Tokens of context, before it is known what fits."""
        return self.wanted.context or SHOWN_CONTEXT

    @property
    def files(self) -> tuple[str, ...]:
        """All files of a model that is split: NAME-00001-of-00003.gguf, and so on."""
        return tuple(part.name for part in parts(Path(self.file))) if self.file else ()

    @property
    def installed(self) -> bool:
        if self.embedded or self.address is not None:
            return True
        if self.path is None:
            return False
        return all(part.exists() for part in parts(self.path))

    @property
    def size(self) -> int | None:
        """Bytes of its files; None while they are not here."""
        if self.path is None or self.address is not None or not self.installed:
            return None
        return sum(part.stat().st_size for part in parts(self.path))


def _shipped() -> Path:
    """models.toml: beside the packages in a checkout, inside the package in a wheel."""
    package = Path(__file__).parents[1]
    inside = package / "models.toml"
    return inside if inside.exists() else package.parent / "models.toml"


def folder(where: Places) -> Path:
    """Where pulled models lie, each in a folder of its name."""
    return where.cache / "models"


def _model(name: str, entry: dict[str, Any], where: Places) -> Model:
    if not _NAME.fullmatch(name) or set(name) == {"."}:
        raise ValueError("its name has other characters than letters, digits and :.@+-_")
    if unknown := entry.keys() - _KEYS:
        raise ValueError(f"there is no setting {min(unknown)}")
    for key in _TEXTS:
        if not isinstance(entry.get(key, ""), str):
            raise ValueError(f"{key} is a text in quotes")
    path = entry.get("path")
    file = entry.get("file")
    if path is None and file is not None:
        path = folder(where) / name / file
    return Model(
        name=name,
        description=entry.get("description", ""),
        embedded=entry.get("source") == "embedded",
        path=Path(path).expanduser() if path else None,
        repo=entry.get("repo"),
        file=file,
        format=entry.get("format", "auto"),
        sampling=_sampling(entry.get("sampling", {})),
        aliases=_aliases(entry),
        wanted=_wanted(entry),
        keep_alive=_seconds(entry, "keep_alive"),
        address=_address(entry),
    )


def _wrong(name: str, entry: object, path: Path, error: Exception) -> Model:
    """What stands for an entry that cannot be used: whoever names it reads why."""
    problem = f"The entry [{name}] of {path} is wrong: {error}."
    try:
        aliases = _aliases(entry) if isinstance(entry, dict) else ()
    except ValueError:
        aliases = ()
    return Model(name, aliases=aliases, problem=problem)


def _aliases(entry: dict[str, Any]) -> tuple[str, ...]:
    found = entry.get("aliases", [])
    if not isinstance(found, list) or not all(isinstance(alias, str) for alias in found):
        raise ValueError("aliases is a list of names")
    return tuple(found)


def _seconds(entry: dict[str, Any], key: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ValueError(f"{key} is a number of seconds")
    return float(value)


def _sampling(given: object) -> Sampling:
    if not isinstance(given, dict):
        raise ValueError("sampling is a table, as in { temperature = 1.0 }")
    if unknown := given.keys() - {each.name for each in fields(Sampling)}:
        raise ValueError(f"sampling has no setting {min(unknown)}")
    try:
        bias = tuple((int(token), float(value)) for token, value in given.get("logit_bias", ()))
    except (TypeError, ValueError):
        raise ValueError("logit_bias is a list of [token, number]") from None
    return Sampling(**{**given, "logit_bias": bias})


def _address(entry: dict[str, Any]) -> Address | None:
    engine, url = entry.get("engine", LOCAL), entry.get("url")
    if engine == LOCAL:
        if out_of_place := [key for key in _THERE if key in entry]:
            raise ValueError(f"{out_of_place[0]} needs engine = {' or '.join(map(repr, REMOTE))}")
        return None
    if engine not in REMOTE:
        raise ValueError(f"engine is one of {', '.join((LOCAL, *REMOTE))}")
    if not isinstance(url, str) or not re.fullmatch(r"https?://[^/?#]+(/[^?#]*)?", url):
        raise ValueError("url is where its server is, as in http://127.0.0.1:8000")
    url = url.rstrip("/").removesuffix("/v1")
    wait = _seconds(entry, "wait")
    return Address(engine, url, entry.get("key_env"), entry.get("model"), wait)


def _wanted(entry: dict[str, Any]) -> Wanted:
    kinds = {"gpu_layers": int, "cpu_experts": int, "context": int}
    given = {key: entry[key] for key in (*_PLACEMENT, "context", "kv_type") if key in entry}
    for key, value in given.items():
        kind = kinds.get(key, bool)
        if key == "kv_type":
            if value not in get_args(KvType):
                raise ValueError(f"kv_type is one of {', '.join(get_args(KvType))}")
        elif type(value) is not kind or (kind is int and value < 0):
            right = "a number" if kind is int else "true or false"
            raise ValueError(f"{key} is {right}")
    return Wanted(**given)


def known(where: Places) -> dict[str, Model]:
    """All entries: ours, with the settings that the user's change, and the user's own. One that is
    wrong has a ``problem`` and takes nothing from the others.

    Raises EngineError naming a file that cannot be read.
    """
    entries: dict[str, Any] = {}
    written: dict[str, Path] = {}
    for path in (_shipped(), where.config / "models.toml"):
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise EngineError(f"Cannot read {path}: {error}") from error
        for name, entry in found.items():
            both = isinstance(entry, dict) and isinstance(entries.get(name), dict)
            entries[name] = entries[name] | entry if both else entry
            written[name] = path
    models: dict[str, Model] = {}
    for name, entry in entries.items():
        try:
            if not isinstance(entry, dict):
                raise ValueError(f"it is no table: begin it with [{name}]")
            models[name] = _model(name, entry, where)
        except (ValueError, RuntimeError) as error:  # RuntimeError: ~somebody who is not known
            models[name] = _wrong(name, entry, written[name], error)
    return models


def default(where: Places, models: dict[str, Model] | None = None) -> str:
    """The model where none is named: config.toml's, the first installed real one, or ours."""
    if (name := settings(where).model) is not None:
        return name
    models = known(where) if models is None else models
    return next((m.name for m in models.values() if m.installed and not m.embedded), EMBEDDED)


def choose(name: str | None, where: Places, *, scripted: bool = False) -> Model:
    """The model that is meant: a name of models.toml, an alias, one that another program keeps, or a
    path; none: the default.

    ``scripted``: its file need not be there. Raises EngineError, UserError.
    """
    models = known(where)
    name = default(where, models) if name is None else name
    for model in models.values():
        if name == model.name or name in model.aliases:
            if model.problem is not None:
                raise EngineError(model.problem)
            if not model.installed and not scripted:
                raise EngineError(_not_installed(model, models))
            return model
    path = Path(name).expanduser()
    if not path.exists():
        from agent.models import discovery as found

        for other in found.models(models):
            if name.lower() == other.name.lower():
                return found.as_model(other, models)
    if path.exists() or path.suffix == ".gguf" or "/" in name:
        return Model(name=path.stem, path=path, aliases=(name,))
    raise EngineError(
        f"There is no model {name}; known are {', '.join(models)}, what agent models list has found,"
        " or a path to a GGUF."
    )


def _not_installed(model: Model, models: dict[str, Model]) -> str:
    from agent.models import discovery as found

    for other in found.like(model, models):
        return (
            f"The model {model.name} is not installed, but {other.source} has it:"
            f" --model {other.name} runs that file."
        )
    if model.repo is None:
        return f"The model {model.name} is not at {model.path}: correct its path in models.toml."
    return f"The model {model.name} is not installed; pull it with: agent models pull {model.name}"
