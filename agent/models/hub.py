"""GGUF repositories on Hugging Face's hub (https://huggingface.co/docs/hub/api): searched, and their
quantisations listed and chosen. HF_ENDPOINT and HF_TOKEN are honoured."""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from agent.config.paths import Paths
from agent.errors import UserError
from agent.models.catalog import SPLIT, Model, load_catalog, models_folder, unused_name
from agent.models.discovery import QUANTISATION
from agent.models.download import PullError, find_pullable, hub_address, hub_errors, hub_host
from agent.models.machine import FitEstimate, Machine, estimate_fit, inspect_machine
from agent.util import private_files

PREFERRED = ("MXFP4", "Q4_K_M", "UD-Q4_K_XL", "Q4_K_S", "Q4_0", "IQ4_XS")
"""Quantisations that are taken if they fit, the best first: about 4 bits a weight lose little."""
MAX_LISTED_AT_ONCE = 8
MAX_PAGES, TIMEOUT_SECONDS = 20, 20
"""Time for one list, and for each page of it."""
_NO_MODELS = ("mmproj", "imatrix", "mtp-")
"""Prefixes of files that belong to a model but are not models."""
_REPOSITORY = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<quant>.+))?")


@dataclass(frozen=True, slots=True)
class Quantisation:
    """One model of a repository: a GGUF, or all parts of a split one."""

    name: str
    """``Q4_K_M``; the file's name where that does not say."""
    file: str
    """Path in the repository, of the first part."""
    size: int
    """Bytes of all parts."""


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A repository as a search lists it."""

    id: str
    """OWNER/NAME."""
    downloads: int
    """In the last 30 days."""
    quantisations: tuple[Quantisation, ...]
    """Smallest first; empty where they cannot be listed."""
    parses_calls: bool | None = None
    """Whether its calls can be parsed, by its chat template; None: the hub does not have that."""


def parse_repository(text: str) -> tuple[str, str | None] | None:
    """Read ``OWNER/REPO[:QUANT]``; None where the text is not such a name."""
    match = _REPOSITORY.fullmatch(text.removeprefix(f"{hub_address()}/"))
    return (match["repo"], match["quant"]) if match else None


def search_repositories(words: str, limit: int) -> list[HubRepository]:
    """Search repositories with GGUF files, the most downloaded first. Raises PullError."""
    with hub_errors(f"Searching {hub_host()} failed"):
        query = {"search": words, "filter": "gguf", "sort": "downloads", "limit": limit}
        query["expand"] = ["downloads", "gguf"]
        models = [
            (str(model["id"]), int(model.get("downloads") or 0), _parses_calls(model.get("gguf")))
            for model in _get_all("models", query)
        ]
    with ThreadPoolExecutor(MAX_LISTED_AT_ONCE) as pool:
        listed = pool.map(_try_to_list, (id for id, *_ in models))
        return [
            HubRepository(id, downloads, tuple(quantisations), parses_calls)
            for (id, downloads, parses_calls), quantisations in zip(models, listed, strict=True)
        ]


def _parses_calls(gguf: object) -> bool | None:
    template = gguf.get("chat_template") if isinstance(gguf, dict) else None
    # The call of any template that tells the model of tools can be derived.
    return "tools" in template if isinstance(template, str) else None


def _try_to_list(repo: str) -> list[Quantisation]:
    try:
        return list_quantisations(repo)
    except (PullError, UserError):
        return []


def list_quantisations(repo: str) -> list[Quantisation]:
    """List the models of a repository, smallest first. Raises PullError, UserError if there is none."""
    with hub_errors(f"Listing {repo} failed", repo=repo):
        entries = list(_get_all(f"models/{repo}/tree/main", {"recursive": "true"}))
        sizes = {str(e["path"]): int(e["size"]) for e in entries if e["type"] == "file"}
    quantisations = sorted(_group_files(sizes), key=lambda q: (q.size, q.name))
    if not quantisations:
        raise UserError(
            f"There is no GGUF in {repo}: look for a repository that has some with"
            f" agent models search {repo.partition('/')[2]}"
        )
    return quantisations


def _get_all(path: str, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects of all pages; the hub's client tries for half a minute if it is offline."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]

    address, parameters = f"{hub_address()}/api/{path}", query
    for _ in range(MAX_PAGES):
        response = get_session().get(
            address, params=parameters, headers=dict(build_hf_headers()), timeout=TIMEOUT_SECONDS
        )
        hf_raise_for_status(response)
        page = response.json()
        if not isinstance(page, list):
            raise TypeError("the hub answers with lists")
        yield from page
        address, parameters = response.links.get("next", {}).get("url", ""), {}
        if not address or "limit" in query:
            return


def _group_files(sizes: dict[str, int]) -> Iterator[Quantisation]:
    """Yield the models among files, whose sizes are by path; incomplete splits are left out."""
    models: dict[str, list[str]] = {}
    for path in sorted(sizes):
        name = PurePosixPath(path).name.lower()
        is_below = not path.startswith("/") and ".." not in PurePosixPath(path).parts
        if is_below and name.endswith(".gguf") and not name.startswith(_NO_MODELS):
            models.setdefault(SPLIT.sub("", path.removesuffix(".gguf")), []).append(path)
    bases = [PurePosixPath(stem).name for stem in models]
    found = [QUANTISATION.search(stem) for stem in models]
    names = [m[0].lstrip("-_.").upper() if m else b for m, b in zip(found, bases, strict=True)]
    for (stem, files), base, name in zip(models.items(), bases, names, strict=True):
        part = SPLIT.search(files[0].removesuffix(".gguf"))
        if len(files) == (int(part[1]) if part else 1):
            # A path always names one file: folders may have files of the same name.
            longer = base if bases.count(base) == 1 else stem
            unique = name if names.count(name) == 1 else longer
            yield Quantisation(unique, files[0], sum(sizes[file] for file in files))


def rate(repo: str, quantisation: Quantisation, machine: Machine) -> FitEstimate:
    return estimate_fit(f"{repo} {quantisation.file}", quantisation.size, machine)


def best_quantisation(
    repo: str, quantisations: Sequence[Quantisation], machine: Machine
) -> Quantisation | None:
    """The first of `PREFERRED` that fits in memory, else the largest that fits; None if none does."""
    fitting = [q for q in quantisations if rate(repo, q, machine).fits]
    by_name = {q.name: q for q in fitting}
    preferred = (by_name[name] for name in PREFERRED if name in by_name)
    return next(preferred, fitting[-1] if fitting else None)


def named_quantisation(repo: str, quantisations: Sequence[Quantisation], name: str) -> Quantisation:
    """The quantisation of this name, in any case. Raises UserError, which names those there are."""
    named = [q for q in quantisations if q.name.lower() == name.lower()]
    if named:
        return next((q for q in named if q.name == name), named[0])
    known = ", ".join(quantisation.name for quantisation in quantisations)
    raise UserError(f"There is no {name} in {repo}; there are {known}.")


def hub_model(repo: str, quantisation: Quantisation, paths: Paths) -> Model:
    """The entry of models.toml for this file; else one that `register` can add. Raises EngineError."""
    catalog = load_catalog(paths)
    for model in catalog.values():
        if (model.repo, model.file) == (repo, quantisation.file):
            return model
    stem = SPLIT.sub("", PurePosixPath(quantisation.file).stem)
    name, owner = re.sub(r"[^\w:.@+-]", "-", stem), repo.partition("/")[0]
    # In any case of letters: folders of two models must not be the same.
    taken = {known.lower() for m in catalog.values() for known in (m.name, *m.aliases)}
    name = unused_name((name, f"{name}@{owner}", f"{name}@{repo.replace('/', '-')}"), taken)
    return Model(
        name=name,
        description=f"{repo}, {quantisation.name}",
        repo=repo,
        file=quantisation.file,
        path=models_folder(paths) / name / quantisation.file,
        download_size=quantisation.size,
    )


def find_model(name: str, paths: Paths) -> Model:
    """Return the model that pulling ``name`` downloads without a question: an entry of models.toml, or
    of ``OWNER/REPO[:QUANT]`` the best that fits. Raises UserError, EngineError."""
    if (repository := parse_repository(name)) is None:
        return find_pullable(name)
    repo, quant = repository
    quantisations = list_quantisations(repo)
    if quant is not None:
        return hub_model(repo, named_quantisation(repo, quantisations, quant), paths)
    best = best_quantisation(repo, quantisations, inspect_machine())
    return hub_model(repo, best or quantisations[0], paths)


def register(model: Model, paths: Paths) -> None:
    """Add a model of `hub_model` to the person's models.toml, unless it is known. Raises UserError."""
    from agent.util.toml_edit import set_value

    values = {key: getattr(model, key) for key in ("repo", "file", "description", "download_size")}

    def change(text: str) -> str:
        known = load_catalog(paths).get(model.name)
        if known is not None:
            if (known.repo, known.file) != (model.repo, model.file):
                raise UserError(f"{model.name} was just added for another file; pull it again.")
            return text
        for key, value in values.items():
            text = set_value(text, [model.name, key], value)
        return text

    private_files.update_text(paths.config / "models.toml", change)
