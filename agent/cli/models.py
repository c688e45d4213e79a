"""`agent models`: what is known, installed or found on this machine; pulling, removing, the default."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.errors import UserError
from agent.util.sanitize import say
from tools import private_files

if TYPE_CHECKING:
    from agent.config.settings import Places
    from agent.models.catalog import Model

app = typer.Typer(
    help="The models: what is known, what is installed, what other programs keep here.",
    epilog="Example: agent models pull gpt-oss-20b",
    rich_markup_mode=None,
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(metavar="NAME")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Without asking.")]


_WHERE = {
    "pulled": "installed",
    "file": "installed",
    "hub": "can be pulled",
    "server": "on a server",
    "wrong": "wrong entry",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One model as it is listed."""

    name: str
    aliases: tuple[str, ...]
    default: bool
    usable: bool
    """It can run now."""
    size: int | None
    """Bytes on this machine; None: it is not here."""
    source: str
    """embedded, pulled, file, Ollama …; hub: it can be pulled; wrong: its entry cannot be used."""
    path: str | None
    description: str

    @property
    def where(self) -> str:
        """The source, as people are told of it."""
        return _WHERE.get(self.source, self.source)


@app.command("list", epilog="Example: agent models list --json | jq -r '.[].name'")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON array.")] = False,
) -> None:
    """The models: those of models.toml, then those that other programs keep here.

    The one that runs unless another is named has a star.
    """
    from agent.config.settings import places

    rows = listed(places())
    if as_json:
        say(json.dumps([asdict(row) for row in rows], indent=2))
        return
    width = max(len(row.name) for row in rows)
    for row in rows:
        star, size = "*" if row.default else " ", _size(row.size)
        say(f"{star} {row.name:{width}}  {size:>8}  {row.where:13}  {row.description}")


def listed(where: Places) -> list[Row]:
    """All models. Raises UserError."""
    from agent.engine.protocol import EngineError
    from agent.models import catalog
    from agent.models import discovery as found

    try:
        known = catalog.known(where)
    except EngineError as error:
        raise UserError(str(error)) from error
    chosen = catalog.default(where, known)
    rows = [
        Row(
            name=model.name,
            aliases=model.aliases,
            default=chosen in (model.name, *model.aliases),
            usable=model.installed,
            size=model.size,
            source=_source(model, where),
            path=_place(model),
            description=model.problem or model.description,
        )
        for model in known.values()
    ]
    for other in found.models(known):
        problem = f"cannot be used: {other.problem}" if other.problem else ""
        rows.append(
            Row(
                name=other.name,
                aliases=(),
                default=chosen.lower() == other.name.lower(),
                usable=other.problem is None,
                size=other.size,
                source=other.source,
                path=str(other.path),
                description=problem or other.title or other.architecture,
            )
        )
    return rows


def _place(model: Model) -> str | None:
    if model.address is not None:
        return str(model.address)
    return str(model.path) if model.path and model.installed else None


def _source(model: Model, where: Places) -> str:
    if model.problem is not None:
        return "wrong"
    if model.embedded:
        return "embedded"
    if model.address is not None:
        return "server"
    if not model.installed:
        return "hub" if model.repo else "missing"
    return "pulled" if _ours(model, where) else "file"


def _ours(model: Model, where: Places) -> Path | None:
    """The folder that pulling this model made; None where its file lies elsewhere."""
    from agent.models.catalog import folder

    own = folder(where) / model.name
    return own if model.path is not None and own in model.path.parents else None


def _size(size: int | None) -> str:
    from agent.engine.placement.planner import gigabytes

    return "–" if size is None else gigabytes(size)


@app.command("path", epilog="Example: agent models path tiny")
def path(name: Name) -> None:
    """Print where a model's GGUF lies; the embedded one is expanded first."""
    from agent.bootstrap import model_path

    say(model_path(name))


@app.command(
    "pull",
    epilog="Example: agent models pull gpt-oss-20b\n\n"
    "HF_ENDPOINT names another hub; HF_TOKEN is used if it is set.",
)
def pull(
    name: Name,
    force: Annotated[
        bool, typer.Option("--force", help="Even if another program has the model here.")
    ] = False,
) -> None:
    """Download a model of models.toml; a stopped download goes on where it was.

    Where another program keeps the same model, that is offered instead.
    """
    from agent.models.download import find
    from agent.models.download import pull as download

    if not force and (path := _offered(name)) is not None:
        say(path)
        return
    say(download(find(name)))


def _offered(name: str) -> Path | None:
    """The file of another program, if there is one and it is taken. Raises UserError."""
    from agent.config.settings import places
    from agent.models import discovery as found
    from agent.models.catalog import known
    from agent.models.download import find

    where = places()
    model = find(name)
    if model.installed:
        if _ours(model, where) is None:
            raise UserError(f"models.toml says that {model.name} is the file {model.path}.")
        return None
    others = found.like(model, known(where))
    if not others:
        return None
    other = others[0]
    there = f"{other.source} has {model.name} already: {other.path} ({_size(other.size)})."
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError(
            f"{there} Run it with --model {other.name}, or download another copy with:"
            f" agent models pull {model.name} --force"
        )
    if not typer.confirm(f"{there} Use that file?", default=True, err=True):
        return None
    _use(where, model, other.path)
    return other.path


def _use(where: Places, model: Model, path: Path) -> None:
    """Let models.toml name the file. Raises UserError."""
    from agent.config.settings import quoted

    file = where.config / "models.toml"
    line = f"path = {quoted(str(path))}\n"
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        entry = tomllib.loads(text).get(model.name)
        if entry is None:
            text = f"{text.rstrip()}\n\n[{model.name}]\n{line}".lstrip()
        elif "path" not in entry:
            head = re.compile(rf"(?m)^\[{re.escape(model.name)}\].*\n")
            text = head.sub(lambda found: found[0] + line, text, count=1)
        if tomllib.loads(text).get(model.name, {}).get("path") != str(path):
            raise UserError(f"Write into {file} yourself, under [{model.name}]: {line.strip()}")
        private_files.folder(file.parent)
        file.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot write {file}: {error}") from error


@app.command("rm", epilog="Example: agent models rm gpt-oss-20b")
def remove(name: Name, yes: Yes = False) -> None:
    """Delete a model that was pulled; other programs' files are left alone."""
    from agent.config.settings import places

    where = places()
    model = _known(name, where)
    own = _ours(model, where)
    if model.embedded:
        raise UserError(f"{model.name} is a part of this program and cannot be removed.")
    if own is None or not own.is_dir() or own.is_symlink():
        if model.installed:
            raise UserError(
                f"{model.name} lies at {_place(model)}, which was not pulled by this program: delete it"
                " there, or take its entry out of models.toml."
            )
        raise UserError(f"{model.name} is not installed.")
    size = sum(file.lstat().st_size for file in own.rglob("*") if not file.is_dir())
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UserError(f"This deletes {own} ({_size(size)}): say --yes.")
        typer.confirm(f"Delete {own} ({_size(size)})?", abort=True, err=True)
    try:
        shutil.rmtree(own)
    except OSError as error:
        raise UserError(f"Cannot delete {own}: {error.strerror}.") from error
    say(f"{model.name} is removed; {_size(size)} are free again.")


@app.command("default", epilog="Example: agent models default gpt-oss-20b")
def default(name: Annotated[str | None, typer.Argument(metavar="[NAME|PATH]")] = None) -> None:
    """Print the model that runs unless another is named, or set it."""
    from agent.config.settings import keep, places
    from agent.engine.protocol import EngineError
    from agent.models import catalog

    where = places()
    try:
        if name is not None:
            model = catalog.choose(name, where)
            chosen = str(model.path.resolve()) if name in model.aliases and model.path else name
            keep(where, "model", chosen)
        say(catalog.default(where))
    except EngineError as error:
        raise UserError(str(error)) from error


def _known(name: str, where: Places) -> Model:
    """An entry of models.toml, or why the name is none. Raises UserError."""
    from agent.engine.protocol import EngineError
    from agent.models import catalog
    from agent.models import discovery as found

    try:
        known = catalog.known(where)
    except EngineError as error:
        raise UserError(str(error)) from error
    for model in known.values():
        if name in (model.name, *model.aliases):
            if model.problem is not None:
                raise UserError(model.problem)
            return model
    for other in found.models(known):
        if name.lower() == other.name.lower():
            raise UserError(
                f"{other.name} belongs to {other.source}: remove it there ({other.path})."
            )
    raise UserError(f"There is no model {name}; known are {', '.join(known)}.")
