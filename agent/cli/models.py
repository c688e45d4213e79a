"""`agent models …`: lists, pulls, removes and chooses models. The docstrings are the help texts."""

import json
import shutil
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.completion import complete_model
from agent.cli.options import flag
from agent.cli.trust import can_ask
from agent.config.paths import Paths, user_paths
from agent.config.settings import save_setting
from agent.engine.placement.planner import format_bytes
from agent.engine.protocol import EngineError
from agent.errors import UserError, user_errors
from agent.models import hub, resolve
from agent.models.catalog import Model, find_entry, load_catalog, pulled_folder
from agent.models.discovery import discover, find_copy
from agent.models.download import estimate_pull, find_pullable
from agent.models.download import pull as download
from agent.models.hub import Quantisation
from agent.models.listing import estimate_row, list_models
from agent.models.loader import ModelLoader
from agent.models.machine import inspect_machine
from agent.models.resolve import resolve_model
from agent.util import private_files
from agent.util.sanitize import echo, echo_row, sanitize

app = typer.Typer(rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="NAME", autocompletion=complete_model)]


@app.command("list", epilog="Example: agent models list --json | jq -r '.[].name'")
def list_(as_json: bool = flag("--json", help="Print a JSON array.")) -> None:
    """List the models: those of models.toml, then those of other programs.

    A star marks the default. Each is fast, usable or slow on this machine (from 20 and 4 tokens a
    second on), or too big for its free memory.
    """
    rows, machine = list_models(user_paths()), inspect_machine()
    fits = [estimate_row(row, machine) for row in rows]
    if as_json:
        estimates = [{"fits": fit and fit.fits, "speed": fit and fit.speed} for fit in fits]
        objects = [row.as_json() | fit for row, fit in zip(rows, estimates, strict=True)]
        echo(json.dumps(objects, indent=2))
        return
    speeds = ["–" if fit is None else fit.speed if fit.fits else "too big" for fit in fits]
    lines = [replace(row, name=_line(row.name), description=_line(row.description)) for row in rows]
    width = max(len(row.name) for row in lines)
    for row, speed in zip(lines, speeds, strict=True):
        star, size = "*" if row.default else " ", _format_size(row.size)
        draft = f" (draft model: {row.draft})" if row.draft else ""
        start = f"{star} {row.name:{width}}  {size:>8}  {row.state:14}  {speed:7}  "
        echo_row(f"{start}{row.description}{draft}", len(start))


def _line(text: str) -> str:
    """A file's name may have line breaks."""
    return " ".join(sanitize(text).split("\n"))


def _format_size(size: int | None) -> str:
    return "–" if size is None else format_bytes(size)


@app.command("path", epilog="Example: agent models path tiny")
def path(name: Name) -> None:
    """Print the path of a model's GGUF; the embedded one is expanded first."""
    paths = user_paths()
    with user_errors(EngineError):
        echo(ModelLoader(resolve_model(name, paths), paths).gguf_path(lambda fraction: None))


@app.command("show", epilog="Example: agent models show gpt-oss-20b")
def show(name: Name, as_json: bool = flag("--json", help="Print a JSON object.")) -> None:
    """Show a model's file, its placement on this machine, and how it writes messages.

    The example is a thought, a message and a call. A model whose calls cannot be parsed gets no tools.
    """
    from agent.models.details import describe_messages, describe_model

    paths = user_paths()
    with user_errors(EngineError):
        model = find_entry(load_catalog(paths), name) or resolve_model(name, paths)
        facts = [("Name", model.name), *describe_model(model, paths)]
        facts += describe_messages(model, paths)
    if as_json:
        echo(json.dumps({key.lower().replace(" ", "_"): text for key, text in facts}, indent=2))
        return
    for label, text in facts:
        echo(f"{label:17}  " + text.replace("\n", f"\n{'':19}"))


@app.command(
    "pull",
    epilog="Examples: agent models pull gpt-oss-20b\n\nagent models pull Qwen/Qwen3-4B-GGUF:Q8_0\n\n"
    "HF_ENDPOINT names another hub; HF_TOKEN is used if it is set.",
)
def pull(
    name: str = typer.Argument(metavar="NAME|OWNER/REPO[:QUANT]", autocompletion=complete_model),
    force: bool = flag("--force", help="Download even if another program has the model here."),
) -> None:
    """Download a model of models.toml, or from any GGUF repository on Hugging Face.

    An interrupted download resumes. If another program has the model on this machine, that file is
    offered instead. A repository's model is added to models.toml: --model NAME runs it.
    """
    repository = hub.parse_repository(name)
    if repository is not None:
        model = _choose_from_repository(*repository)
    elif not force and (path := _offer_discovered(name)) is not None:
        echo(path)
        return
    else:
        model = find_pullable(name)
    estimate = estimate_pull(model)
    estimate.require_disk_space()
    if estimate.remaining:
        echo(f"Downloading {estimate.title}\n{estimate.figures}", file=sys.stderr)
    if repository is not None:
        hub.register(model, user_paths())
    path = download(model)
    if repository is not None:
        echo(f"Run it with --model {model.name}", file=sys.stderr)
    echo(path)


def _choose_from_repository(repo: str, name: str | None) -> Model:
    """Return the named, chosen or best quantisation. Raises UserError, EngineError."""
    paths = user_paths()
    quantisations = hub.list_quantisations(repo)
    if name is not None:
        return hub.hub_model(repo, hub.named_quantisation(repo, quantisations, name), paths)
    if len(quantisations) == 1:
        return hub.hub_model(repo, quantisations[0], paths)
    machine = inspect_machine()
    best = hub.best_quantisation(repo, quantisations, machine)
    width = max(len(quantisation.name) for quantisation in quantisations)
    for each in quantisations:
        mark = "*" if each is best else " "
        fit = hub.rate(repo, each, machine)
        echo(f"{mark} {each.name:{width}}  {_format_size(each.size):>8}  {fit}", file=sys.stderr)
    if can_ask():
        answer = typer.prompt("Which one?", default=best.name if best else None, err=True)
        chosen = hub.named_quantisation(repo, quantisations, answer.strip())
    elif best is None:
        free = _format_size(machine.free)
        raise UserError(
            f"None of them fits in the {free} of free memory; name one to download it anyway:"
            f" agent models pull {repo}:{quantisations[0].name}"
        )
    else:
        chosen = best
        echo(f"Taking {best.name}, the best that fits in memory.", file=sys.stderr)
    return hub.hub_model(repo, chosen, paths)


@app.command("search", epilog="Example: agent models search qwen3 coder")
def search(
    words: list[str] = typer.Argument(metavar="WORDS"),
    limit: int = typer.Option(10, min=1, max=100, help="Number of repositories to list."),
    as_json: bool = flag("--json", help="Print a JSON array."),
) -> None:
    """Search Hugging Face for GGUF repositories, the most downloaded first.

    A star marks the quantisation that agent models pull takes on this machine. Whether calls of tools
    can be parsed is known where the hub has the chat template.
    """
    repositories = hub.search_repositories(" ".join(words), limit)
    if as_json:
        echo(json.dumps([asdict(repository) for repository in repositories], indent=2))
        return
    if not repositories:
        raise UserError(f"No GGUF repository matches {' '.join(words)!r}.")
    machine = inspect_machine()
    width = max(len(repository.id) for repository in repositories)
    for each in repositories:
        best = hub.best_quantisation(each.id, each.quantisations, machine)
        fits = f"* {best.name} {_format_size(best.size)}" if best else "none fits"
        sizes = _format_sizes(each.quantisations)
        calls = {None: "", True: "  tools", False: "  no tools"}[each.parses_calls]
        echo(f"{each.id:{width}}  {each.downloads:>11,} downloads  {sizes:>17}  {fits}{calls}")


def _format_sizes(quantisations: Sequence[Quantisation]) -> str:
    if not quantisations:
        return "–"
    least, most = (_format_size(quantisations[i].size) for i in (0, -1))
    return least if least == most else f"{least} – {most}"


def _offer_discovered(name: str) -> Path | None:
    """Offer another program's copy of the model; its file if the person takes it. Raises UserError."""
    paths = user_paths()
    model = find_pullable(name)
    if model.installed:
        if pulled_folder(model, paths) is None:
            raise UserError(f"models.toml says that {model.name} is the file {model.path}.")
        return None
    copy = find_copy(model, load_catalog(paths))
    if copy is None or copy.path is None:
        return None
    offer = f"{copy.program} has {model.name} already: {copy.path} ({_format_size(copy.size)})."
    if not can_ask():
        raise UserError(
            f"{offer} Run it with --model {copy.name}, or download another copy with:"
            f" agent models pull {model.name} --force"
        )
    if not typer.confirm(f"{offer} Use that file?", default=True, err=True):
        return None
    _use_file(paths, model, copy.path)
    return copy.path


def _use_file(paths: Paths, model: Model, path: Path) -> None:
    """Let the person's models.toml name the file of a model. Raises UserError."""
    from agent.util.toml_edit import set_value

    file = paths.config / "models.toml"

    def change(text: str) -> str:
        entry = tomllib.loads(text.removeprefix("\ufeff")).get(model.name, {})
        if entry.get("path", str(path)) != str(path):
            # Entries that they wrote themselves are not overwritten.
            line = set_value("", ["path"], str(path)).strip()
            raise UserError(f"Write into {file} yourself, under [{model.name}]: {line}")
        return set_value(text, [model.name, "path"], str(path))

    private_files.update_text(file, change)


@app.command("rm", epilog="Example: agent models rm gpt-oss-20b")
def remove(
    name: Name, yes: bool = flag("--yes", "-y", help="Do not ask for confirmation.")
) -> None:
    """Delete a downloaded model; other programs' files stay."""
    paths = user_paths()
    model = _require_entry(name, paths)
    folder = pulled_folder(model, paths)
    if model.embedded:
        raise UserError(f"{model.name} is built in and cannot be removed.")
    if folder is None or not folder.is_dir() or folder.is_symlink():
        if model.installed:
            raise UserError(
                f"{model.name} lies at {model.location}, which was not pulled by this program:"
                " delete it there, or take its entry out of models.toml."
            )
        raise UserError(f"{model.name} is not installed.")
    size = sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
    if not yes:
        if not can_ask():
            raise UserError(f"This deletes {folder} ({_format_size(size)}); pass --yes to confirm.")
        typer.confirm(f"Delete {folder} ({_format_size(size)})?", abort=True, err=True)
    with user_errors(OSError, failure=f"Cannot delete {folder}"):
        shutil.rmtree(folder)
    echo(f"Removed {model.name}; {_format_size(size)} are free again.")


@app.command("cache", epilog="Example: agent models cache --clear")
def cache(clear: bool = flag("--clear", help="Delete all of it.")) -> None:
    """Show or empty the prefix cache: prompts as models have read them, kept on disk."""
    from agent.engine.llama import disk_cache

    folder = user_paths().prefix_cache
    if not clear:
        files = disk_cache.cache_files(folder)
        size = sum(stat.st_size for _, stat in files)
        echo(f"{folder}: {_format_size(size)} in {len(files)} files")
        return
    with user_errors(OSError, failure=f"Cannot delete {folder}"):
        size = disk_cache.clear(folder)
    echo(f"Emptied the prefix cache; {_format_size(size)} are free again.")


@app.command("default", epilog="Example: agent models default gpt-oss-20b")
def default(
    name: str | None = typer.Argument(None, metavar="[NAME|PATH]", autocompletion=complete_model),
) -> None:
    """Print or set the default model."""
    paths = user_paths()
    with user_errors(EngineError):
        if name is not None:
            save_setting(paths, "model", resolve.lasting_name(name, paths))
        echo(resolve.default_name(paths))


def _require_entry(name: str, paths: Paths) -> Model:
    """The entry of models.toml with this name or alias; where there is none, UserError says why."""
    with user_errors(EngineError):
        catalog = load_catalog(paths)
        if (model := find_entry(catalog, name)) is not None:
            return model
    for other in discover(catalog):
        if name.lower() == other.name.lower():
            raise UserError(
                f"{other.name} belongs to {other.program}: remove it there ({other.path})."
            )
    raise UserError(f"There is no model {name}; known: {', '.join(catalog)}.")
