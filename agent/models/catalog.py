"""The entries of models.toml: which models there are, and how each is placed and sampled."""

import json
import math
import os
import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, count
from pathlib import Path
from typing import Any, get_args

from agent.config.field_spec import FieldSpec, find_mismatch, is_flag, is_number, is_text
from agent.config.paths import Paths
from agent.engine.placement.memory_estimate import split_files
from agent.engine.placement.placement import KvType, Speculation
from agent.engine.placement.planner import PlacementRequest
from agent.engine.protocol import EngineError, LoopLimits, Sampling
from agent.engine.remote.endpoint import LOCAL_ENGINE, REMOTE_ENGINES, RemoteEndpoint
from agent.errors import describe_cause
from agent.util.user_files import read_text

EMBEDDED = "tiny"
"""Name of the model that is a part of this program."""
EMBEDDED_NOTICE = (
    f"{EMBEDDED} is the embedded demonstration model; for a real one: agent models pull gpt-oss-20b"
)
ASSUMED_CONTEXT_TOKENS = 32_768
"""Tokens of context that a model counts as having until the planner knows what fits."""
GENERAL_EXAMPLES = (
    "What is in this folder?",
    "Explain the difference between TCP and UDP",
    "Write a haiku about a river",
)
SPLIT = re.compile(r"-\d{5}-of-(\d{5})$")
"""The end of a split GGUF's stem, as llama.cpp's gguf-split writes it, with the number of parts."""
_NAME = re.compile(r"[\w:.@+-]+")


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_name_list(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


_TEXT = FieldSpec("a text in quotes", is_text)
_SECONDS = FieldSpec("a number of seconds", lambda v: is_number(v) and 0 <= v < math.inf)
_COUNT, _FLAG = FieldSpec("a number", _is_count), FieldSpec("true or false", is_flag)
_URLS = FieldSpec("a text in quotes or a list of them", lambda v: is_text(v) or _is_name_list(v))
_SERVER_FIELDS = {"url": _URLS, "key_env": _TEXT, "model": _TEXT, "wait": _SECONDS}
"""Only models that run on a server have these."""
_PLACEMENT_FIELDS = {
    **dict.fromkeys(("gpu_layers", "cpu_experts", "expert_cache"), _COUNT),
    **dict.fromkeys(("flash_attention", "extra_buffers", "overcommit"), _FLAG),
    "context": _COUNT,
    "kv_type": FieldSpec(f"one of {', '.join(get_args(KvType))}", get_args(KvType).__contains__),
    "speculation": FieldSpec(
        f"one of {', '.join(get_args(Speculation))}", get_args(Speculation).__contains__
    ),
}
_TEXT_FIELDS = (
    "source", "description", "path", "repo", "file", "format", "license", "engine", "draft",
)  # fmt: skip
_COPIED_FIELDS = (
    "description", "repo", "file", "download_size", "license", "format", "draft", "keep_calls",
    "keep_alive",
)  # fmt: skip
"""Fields of an entry that its model has as they are."""
_FIELDS = {
    **dict.fromkeys(_TEXT_FIELDS, _TEXT),
    "response_template": FieldSpec(
        "a table, or the path of a JSON file", lambda value: is_text(value) or type(value) is dict
    ),
    "sampling": FieldSpec("a table, as in { temperature = 1.0 }", lambda v: isinstance(v, dict)),
    "aliases": FieldSpec("a list of names", _is_name_list),
    "examples": FieldSpec("a list of prompts", _is_name_list),
    "download_size": FieldSpec("a number of bytes", _is_count),
    "keep_alive": _SECONDS,
    "loop_guard": FieldSpec(
        "true, false, or a table, as in { min_tokens = 512 }", lambda v: isinstance(v, bool | dict)
    ),
    "hedge_below": FieldSpec(
        "a number from 0 to 1", lambda v: type(v) in (int, float) and 0 <= v <= 1
    ),
    "keep_calls": _FLAG,
    **_PLACEMENT_FIELDS,
    **_SERVER_FIELDS,
}


@dataclass(frozen=True, slots=True)
class Model:
    """One model as models.toml describes it."""

    name: str
    description: str = ""
    embedded: bool = False
    path: Path | None = None
    """Its GGUF, or the first part of it; None: not known."""
    repo: str | None = None
    """The repository on Hugging Face's hub that it is pulled from."""
    file: str | None = None
    """The GGUF in that repository, or its first part."""
    download_size: int | None = None
    """Bytes of its files in that repository, about; None: not known."""
    license: str = ""
    """The licence of its weights, where the header of its file does not say; empty: not known."""
    format: str = "auto"
    """The output format of the model family; ``auto``: detected from its file."""
    response_template: dict[str, Any] | None = field(default=None, hash=False)
    """The syntax of its messages, as in transformers' tokenizer_config.json; None: not given."""
    sampling: Sampling = field(default_factory=Sampling)
    aliases: tuple[str, ...] = ()
    examples: tuple[str, ...] = GENERAL_EXAMPLES
    """Prompts that it answers well, for people who do not know what to ask."""
    placement_request: PlacementRequest = field(default_factory=PlacementRequest)
    """The entry's settings of the placement in memory."""
    draft: str | None = None
    """Name of the model that drafts tokens for it (`agent.models.loader.resolve_draft`)."""
    loop_limits: LoopLimits | None = field(default_factory=LoopLimits)
    """When a reply that repeats itself is stopped; None: never."""
    hedge_below: float = 0.0
    """Probability of a token below which its answer ends with a doubt."""
    keep_calls: bool = False
    """Whether its prompts keep finished turns' calls in the channel of reasoning."""
    keep_alive: float | None = None
    """Seconds without a turn after which it is unloaded; None: config.toml's."""
    endpoint: RemoteEndpoint | None = None
    """The server that runs it; None: it runs here."""
    program: str = ""
    """The other program that keeps its file; empty: models.toml names it."""
    problem: str | None = None
    """Why it cannot be used: the error of its entry, in one sentence; of another program's file in
    words that follow "cannot be used:"."""

    @property
    def context(self) -> int:
        """Tokens of context before placement: the entry's, or an assumption."""
        return self.placement_request.context or ASSUMED_CONTEXT_TOKENS

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all files in the repository; a split model has NAME-00001-of-00003.gguf, …"""
        return tuple(map(Path.as_posix, split_files(Path(self.file)))) if self.file else ()

    @property
    def installed(self) -> bool:
        """Whether it can run now: its files are here, or a server has it."""
        if self.embedded or self.endpoint is not None:
            return True
        return self.path is not None and all(map(os.path.exists, split_files(self.path)))

    @property
    def location(self) -> str | None:
        if self.endpoint is not None:
            return str(self.endpoint)
        return str(self.path) if self.path and self.installed else None

    @property
    def size(self) -> int | None:
        """Bytes of its files; None where they are not on this machine."""
        if self.path is None or self.endpoint is not None or not self.installed:
            return None
        return sum(part.stat().st_size for part in split_files(self.path))


def _shipped_file() -> Path:
    """The program's models.toml: next to the packages in a checkout, inside ``agent`` in a wheel."""
    package = Path(__file__).parents[1]
    inside = package / "models.toml"
    return inside if inside.exists() else package.parent / "models.toml"


def models_folder(paths: Paths) -> Path:
    return paths.cache / "models"


def pulled_folder(model: Model, paths: Paths) -> Path | None:
    """The folder that pulling this model made; None where its file is elsewhere."""
    own = models_folder(paths) / model.name
    return own if model.path is not None and own in model.path.parents else None


def _parse_entry(name: str, entry: dict[str, Any], paths: Paths) -> Model:
    if not _NAME.fullmatch(name) or set(name) == {"."}:
        raise ValueError("its name may have only letters, digits and :.@+-_")
    if unknown := entry.keys() - _FIELDS.keys():
        raise ValueError(f"there is no setting {min(unknown)}")
    if (field_name := find_mismatch(entry, _FIELDS)) is not None:
        raise ValueError(f"{field_name} must be {_FIELDS[field_name].expected}")
    path, file = entry.get("path"), entry.get("file")
    if "repo" in entry and file is not None and (file.startswith("/") or ".." in Path(file).parts):
        raise ValueError("file must be a path in its repository, without ..")
    if "\0" in f"{path}{file}":
        raise ValueError("no path has a NUL in it")
    if path is None and file is not None:
        path = _pulled_path(models_folder(paths) / name, file)
    placement = {key: entry[key] for key in _PLACEMENT_FIELDS if key in entry}
    return Model(
        name=name,
        **{key: entry[key] for key in _COPIED_FIELDS if key in entry},
        embedded=entry.get("source") == "embedded",
        path=Path(path).expanduser() if path else None,
        response_template=_response_template(entry.get("response_template")),
        sampling=_sampling(entry.get("sampling", {})),
        aliases=tuple(entry.get("aliases", ())),
        examples=tuple(entry.get("examples", GENERAL_EXAMPLES)),
        placement_request=PlacementRequest(**placement),
        loop_limits=_loop_limits(entry.get("loop_guard", True)),
        hedge_below=float(entry.get("hedge_below", 0)),
        endpoint=_endpoint(entry),
    )


def _pulled_path(folder: Path, file: str) -> Path:
    """The path of a pulled file; one that was pulled before its repository changed the case of its name
    or merged its parts stays in use."""
    path = folder / file
    pulled = [] if path.exists() else sorted(folder.glob("*.gguf"))
    wanted = SPLIT.sub("", path.stem).lower()
    return next((p for p in pulled if SPLIT.sub("", p.stem).lower() == wanted), path)


def _response_template(setting: dict[str, Any] | str | None) -> dict[str, Any] | None:
    """The table, or that of a JSON file, which may be a whole tokenizer_config.json."""
    if not isinstance(setting, str):
        return setting
    try:
        value = json.loads(read_text(Path(setting).expanduser()))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"response_template: cannot read {setting}: {error}") from error
    match value:
        case {"response_template": dict(template)} | dict(template):
            return template
    raise ValueError(f"response_template: {setting} must hold a JSON object")


def _unusable(name: str, entry: object, path: Path, error: Exception) -> Model:
    """A placeholder for a wrong entry: its ``problem`` is raised when someone names it."""
    reason = "path names no user" if isinstance(error, RuntimeError) else error
    problem = f"The entry [{name}] of {path} is wrong: {reason}."
    aliases = entry.get("aliases", ()) if isinstance(entry, dict) else ()
    return Model(name, aliases=tuple(aliases) if _is_name_list(aliases) else (), problem=problem)


def _sampling(table: dict[str, Any]) -> Sampling:
    if unknown := table.keys() - {each.name for each in fields(Sampling)}:
        raise ValueError(f"sampling has no setting {min(unknown)}")
    try:
        bias = tuple((int(token), float(value)) for token, value in table.get("logit_bias", ()))
        if not all(math.isfinite(value) for _, value in bias):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ValueError("logit_bias must be a list of [token, number]") from None
    return Sampling(**{**table, "logit_bias": bias})


def _loop_limits(setting: bool | dict[str, Any]) -> LoopLimits | None:
    if isinstance(setting, bool):
        return LoopLimits() if setting else None
    if unknown := setting.keys() - {each.name for each in fields(LoopLimits)}:
        raise ValueError(f"loop_guard has no setting {min(unknown)}")
    if wrong := [name for name, value in setting.items() if type(value) is not int or value < 1]:
        raise ValueError(f"{wrong[0]} of loop_guard must be a number of at least 1")
    return LoopLimits(**setting)


def _endpoint(entry: dict[str, Any]) -> RemoteEndpoint | None:
    engine, urls = entry.get("engine", LOCAL_ENGINE), entry.get("url", [])
    if engine == LOCAL_ENGINE:
        if misplaced := [key for key in _SERVER_FIELDS if key in entry]:
            engines = " or ".join(map(repr, REMOTE_ENGINES))
            raise ValueError(f"{misplaced[0]} needs engine = {engines}")
        return None
    if engine not in REMOTE_ENGINES:
        raise ValueError(f"engine must be one of {', '.join((LOCAL_ENGINE, *REMOTE_ENGINES))}")
    if "draft" in entry:
        raise ValueError(f"draft needs engine = {LOCAL_ENGINE!r}: set it where the server runs")
    urls = [urls] if isinstance(urls, str) else urls
    if not urls or not all(re.fullmatch(r"https?://[^/?#]+(/[^?#]*)?", url) for url in urls):
        raise ValueError("url must be the server's address, as in http://127.0.0.1:8000")
    url, *others = (url.rstrip("/").removesuffix("/v1") for url in urls)
    if len({url, *others}) < len(urls):
        raise ValueError("url has an address twice")
    return RemoteEndpoint(
        engine, url, entry.get("key_env"), entry.get("model"), entry.get("wait"), tuple(others)
    )


def load_catalog(paths: Paths) -> dict[str, Model]:
    """Read the shipped models.toml and the person's, which changes and adds entries, by name. A wrong
    entry has a ``problem``. Raises EngineError for a file that cannot be read."""
    entries: dict[str, Any] = {}
    sources: dict[str, Path] = {}
    for path in (_shipped_file(), paths.config / "models.toml"):
        try:
            tables = tomllib.loads(read_text(path, accept_pipe=False))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError) as error:
            raise EngineError(f"Cannot read {path}: {describe_cause(error)}") from error
        for name, entry in tables.items():
            mergeable = isinstance(entry, dict) and isinstance(entries.get(name), dict)
            entries[name] = entries[name] | entry if mergeable else entry
            sources[name] = path
    models: dict[str, Model] = {}
    for name, entry in entries.items():
        try:
            if not isinstance(entry, dict):
                raise ValueError(f"it must be a table: begin it with [{name}]")
            models[name] = _parse_entry(name, entry, paths)
        except (ValueError, RuntimeError) as error:  # RuntimeError: the home of an unknown ~user
            models[name] = _unusable(name, entry, sources[name], error)
    return models


def find_entry(models: dict[str, Model], name: str) -> Model | None:
    """The model with this name or alias; None: there is none. Raises EngineError for a wrong entry."""
    found = next((m for m in models.values() if name in (m.name, *m.aliases)), None)
    if found is not None and found.problem is not None:
        raise EngineError(found.problem)
    return found


def unused_name(names: Sequence[str], taken: Collection[str]) -> str:
    """The first name that is not ``taken``, in lower case, or the last one with a number."""
    numbered = (f"{names[-1]}-{number}" for number in count(2))
    return next(name for name in chain(names, numbered) if name.lower() not in taken)
