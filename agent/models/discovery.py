"""Models that other programs keep on this machine: LM Studio, Ollama, llama.cpp, Hugging Face."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from agent.engine.placement import gguf_header
from agent.engine.placement.memory_estimate import parts
from agent.engine.protocol import EngineError
from agent.models.catalog import Model

OLLAMAS = "gptoss"
"""The architecture of Ollama's own gpt-oss files; its tensors are Ollama's own too."""
_QUANT = re.compile(
    r"[-_.](?:ud[-_])?(?:i?q\d\w*|t?q\d\w*|mxfp4\w*|b?f16|f32|fp16)$", re.IGNORECASE
)
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_IMAGE = "application/vnd.ollama.image.model"


@dataclass(frozen=True, slots=True)
class Found:
    """One model in another program's folder."""

    name: str
    """What `--model` takes."""
    path: Path
    source: str
    """The program."""
    size: int
    """Bytes."""
    architecture: str
    title: str
    """What the file calls itself."""
    problem: str | None = None
    """Why it cannot be used here."""


def models(known: dict[str, Model]) -> list[Found]:
    """All that is found, each file once, under names of their own."""
    taken = {name.lower() for model in known.values() for name in (model.name, *model.aliases)}
    ours = {model.path.resolve() for model in known.values() if model.path}
    listed: list[Found] = []
    for source, name, path in _files():
        resolved = path.resolve()
        if resolved in ours or (found := _look(source, name, path)) is None:
            continue
        ours.add(resolved)
        if found.name.lower() in taken:
            slug = source.lower().replace(" ", "").replace(".", "")
            found = replace(found, name=f"{found.name}@{slug}")
        if found.name.lower() not in taken:
            taken.add(found.name.lower())
            listed.append(found)
    return listed


def like(model: Model, known: dict[str, Model]) -> list[Found]:
    """What is found of the same model and can be used."""
    return [found for found in models(known) if found.problem is None and _same(found, model)]


def as_model(found: Found, known: dict[str, Model]) -> Model:
    """It as a model to run, with the settings of the entry that it is one of. Raises EngineError."""
    if found.problem is not None:
        raise EngineError(f"{found.name} of {found.source} cannot be used: {found.problem}.")
    own = Model(name=found.name, path=found.path, description=f"found at {found.path}")
    for model in known.values():
        if _same(found, model):
            return replace(
                own,
                format=model.format,
                sampling=model.sampling,
                wanted=model.wanted,
                keep_alive=model.keep_alive,
            )
    return own


def _same(found: Found, model: Model) -> bool:
    """Both are the same model, in whatever quantisation, by their names."""
    names = {_plain(model.name), _plain(Path(model.file).stem) if model.file else ""} - {""}
    stem = found.path.stem if found.path.suffix == ".gguf" else found.name
    return bool(names & {_plain(stem), _plain(found.name.replace(":", "-"))})


def _plain(name: str) -> str:
    """A model's name without its quantisation, punctuation and case."""
    name = _PART.sub("", name)
    return re.sub(r"[^a-z0-9]", "", _QUANT.sub("", name).lower())


def _files() -> Iterator[tuple[str, str, Path]]:
    """Program, name and file of everything that may be a model."""
    home = Path.home()
    for folder in (home / ".lmstudio/models", home / ".cache/lm-studio/models"):
        yield from _ggufs("LM Studio", folder)
    for folder in _ollama_folders(home):
        yield from _ollama(folder)
    caches = home / "Library/Caches" if sys.platform == "darwin" else home / ".cache"
    caches = Path(os.environ.get("XDG_CACHE_HOME") or caches)
    yield from _ggufs("llama.cpp", Path(os.environ.get("LLAMA_CACHE") or caches / "llama.cpp"))
    hub = os.environ.get("HF_HUB_CACHE") or Path(
        os.environ.get("HF_HOME") or home / ".cache/huggingface", "hub"
    )
    yield from _ggufs("Hugging Face", Path(hub))


def _ollama_folders(home: Path) -> list[Path]:
    if own := os.environ.get("OLLAMA_MODELS"):
        return [Path(own).expanduser()]
    return [home / ".ollama/models", Path("/usr/share/ollama/.ollama/models")]


def _ggufs(source: str, folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Files below a folder; of a split model the first."""
    try:
        paths = sorted(path for path in folder.rglob("*.gguf") if path.is_file())
    except OSError:
        return
    for path in paths:
        if not _PART.search(path.stem) or "-00001-of-" in path.stem:
            yield source, _PART.sub("", path.stem), path


def _ollama(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Ollama's manifests name the blob of each model: manifests/REGISTRY/LIBRARY/NAME/TAG."""
    manifests = folder / "manifests"
    try:
        paths = sorted(path for path in manifests.rglob("*") if path.is_file())
    except OSError:
        return
    for path in paths:
        try:
            layers = json.loads(path.read_text(encoding="utf-8"))["layers"]
            digest = next(layer["digest"] for layer in layers if layer["mediaType"] == _IMAGE)
            blob = folder / "blobs" / str(digest).replace(":", "-")
        except (OSError, ValueError, LookupError, TypeError, StopIteration):
            continue
        *_, name, tag = path.parts
        if blob.is_file():
            yield "Ollama", name if tag == "latest" else f"{name}:{tag}", blob


def _look(source: str, name: str, path: Path) -> Found | None:
    """What a file is; None where it is no language model, or not all of one."""
    try:
        values = gguf_header.read(path, last="general.architecture")
        architecture = str(values.get("general.architecture", ""))
        if architecture in ("", "clip") or not all(part.exists() for part in parts(path)):
            return None
        values = gguf_header.read(path, until="tokenizer.")
        size = sum(part.stat().st_size for part in parts(path))
    except (EngineError, OSError):
        return None
    if values.get("general.type", "model") != "model":
        return None
    problem = None
    if architecture == OLLAMAS:
        problem = "it is in Ollama's own form of gpt-oss, which llama.cpp cannot load"
    title = str(values.get("general.name", ""))
    return Found(name, path, source, size, architecture, title, problem)
