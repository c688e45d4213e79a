"""Finds other programs' models: GGUF files of LM Studio, llama.cpp and Hugging Face's hub cache, and
Ollama's blobs, which are named by their hash, by its manifests."""

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from agent.engine.placement import gguf_header
from agent.engine.placement.memory_estimate import split_files
from agent.engine.protocol import EngineError
from agent.models.catalog import SPLIT, Model, unused_name

OLLAMA_ARCHITECTURE = "gptoss"
"""The architecture of Ollama's own gpt-oss files; its tensors are Ollama's own too."""
QUANTISATION = re.compile(
    r"[-_.](?:ud[-_])?(?:i?q\d\w*|t?q\d\w*|mxfp4\w*|b?f16|f32|fp16)$", re.IGNORECASE
)
"""The end of a stem that names a quantisation."""
_WEIGHTS = "application/vnd.ollama.image.model"
"""Media type of the layer with the weights in an Ollama manifest."""


INHERITED = (
    "format", "response_template", "sampling", "placement_request", "loop_limits", "hedge_below",
    "keep_calls", "keep_alive",
)  # fmt: skip
"""Settings that a file has from the entry of the same model in models.toml."""


def discover(catalog: dict[str, Model]) -> list[Model]:
    """List other programs' models, each file once, without those of ``catalog``. A name that is taken
    gets ``@`` and the program, and if need be a number."""
    taken_names = {name.lower() for m in catalog.values() for name in (m.name, *m.aliases)}
    seen_files = {os.path.realpath(model.path) for model in catalog.values() if model.path}
    models: list[Model] = []
    for program, name, path in _candidates():
        resolved = os.path.realpath(path)
        if resolved in seen_files or (found := _inspect(program, name, path)) is None:
            continue
        seen_files.add(resolved)
        slug = program.lower().replace(" ", "").replace(".", "")
        found = replace(found, name=unused_name((name, f"{name}@{slug}"), taken_names))
        taken_names.add(found.name.lower())
        if entry := next((m for m in catalog.values() if _is_same(found.name, path, m)), None):
            found = replace(found, **{key: getattr(entry, key) for key in INHERITED})
        models.append(found)
    return models


def find_copy(model: Model, catalog: dict[str, Model]) -> Model | None:
    """Another program's file of a model that can run here; None: there is none."""
    for found in discover(catalog):
        if found.problem is None and found.path and _is_same(found.name, found.path, model):
            return found
    return None


def _is_same(name: str, path: Path, model: Model) -> bool:
    """Whether a file and a model have the same name but for quantisation, punctuation and case."""
    names = {_base_name(model.name), _base_name(Path(model.file).stem) if model.file else ""} - {""}
    stem = path.stem if path.suffix == ".gguf" else name
    return bool(names & {_base_name(stem), _base_name(name.replace(":", "-"))})


def _base_name(name: str) -> str:
    name = SPLIT.sub("", name)
    return re.sub(r"[^a-z0-9]", "", QUANTISATION.sub("", name).lower())


def _candidates() -> Iterator[tuple[str, str, Path]]:
    """Yield program, name and file of everything that may be a model."""
    home = Path.home()
    for folder in (home / ".lmstudio/models", home / ".cache/lm-studio/models"):
        yield from _gguf_files("LM Studio", folder)
    if own := os.environ.get("OLLAMA_MODELS"):
        ollama = [Path(os.path.expanduser(own))]  # noqa: PTH111 (it raises nothing)
    else:
        ollama = [home / ".ollama/models", Path("/usr/share/ollama/.ollama/models")]
    for folder in ollama:
        yield from _ollama_blobs(folder)
    caches = home / "Library/Caches" if sys.platform == "darwin" else home / ".cache"
    caches = Path(os.environ.get("XDG_CACHE_HOME") or caches)
    yield from _gguf_files("llama.cpp", Path(os.environ.get("LLAMA_CACHE") or caches / "llama.cpp"))
    hub = Path(os.environ.get("HF_HOME") or home / ".cache/huggingface", "hub")
    yield from _gguf_files("Hugging Face", Path(os.environ.get("HF_HUB_CACHE") or hub))


def _files(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(path for path in folder.rglob(pattern) if path.is_file())
    except OSError:
        return []


def _gguf_files(source: str, folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield the GGUF files below a folder; of a split model the first part."""
    for path in _files(folder, "*.gguf"):
        if not SPLIT.search(path.stem) or "-00001-of-" in path.stem:
            yield source, SPLIT.sub("", path.stem), path


def _ollama_blobs(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield the weights' blob of each manifest, manifests/REGISTRY/LIBRARY/NAME/TAG."""
    for path in _files(folder / "manifests", "*"):
        try:
            layers = json.loads(path.read_text(encoding="utf-8"))["layers"]
            digest = next(layer["digest"] for layer in layers if layer["mediaType"] == _WEIGHTS)
            blob = folder / "blobs" / str(digest).replace(":", "-")
        except (OSError, ValueError, LookupError, TypeError, StopIteration):
            continue
        *_, name, tag = path.parts
        if blob.is_file():
            yield "Ollama", name if tag == "latest" else f"{name}:{tag}", blob


def _inspect(program: str, name: str, path: Path) -> Model | None:
    """Read a GGUF's header; None where it is not a language model, or a part of one is missing."""
    try:
        values = gguf_header.read_metadata(path, last="general.architecture")
        architecture = str(values.get("general.architecture", ""))
        if architecture in ("", "clip") or not all(part.exists() for part in split_files(path)):
            return None
        values = gguf_header.read_metadata(path, until="tokenizer.")
    except (EngineError, OSError):
        return None
    if values.get("general.type", "model") != "model":
        return None
    problem = None
    if architecture == OLLAMA_ARCHITECTURE:
        problem = "it is in Ollama's own form of gpt-oss, which llama.cpp cannot load"
    title = str(values.get("general.name", "")) or architecture
    return Model(name, title, path=path, program=program, problem=problem)
