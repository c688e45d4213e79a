"""Downloading a model of models.toml from the hub: resumed, checked, never half installed."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config import places
from agent.engine.base import EngineError
from agent.errors import UserError
from agent.models import Model, folder, known

if TYPE_CHECKING:
    from huggingface_hub.file_download import DryRunFileInfo

_SHA256 = re.compile(r"[0-9a-f]{64}")
SPARE = 1 << 30
"""Bytes that are left free on the disk."""


def pull(model: Model) -> Path:
    """Download all files of a model from `find`; the path of the first. Raises UserError.

    A download that was stopped goes on where it was; each file's size and sha256 are what the hub
    says of it. HF_ENDPOINT and HF_TOKEN are honoured.
    """
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return _pull(model, folder(places()) / model.name)
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"Pulling {model.name} from {model.repo} failed: {reason}"
            f" Run it again: what is there already is kept."
        ) from error


def find(name: str) -> Model:
    """The entry of models.toml that can be pulled. Raises UserError."""
    try:
        models = known(places())
    except EngineError as error:
        raise UserError(str(error)) from error
    for model in models.values():
        if name in (model.name, *model.aliases) and model.repo and model.file:
            return model
    choices = ", ".join(model.name for model in models.values() if model.repo)
    raise UserError(f"There is nothing to pull for {name}; these can be pulled: {choices}.")


def _pull(model: Model, into: Path) -> Path:
    from huggingface_hub import hf_hub_download

    assert model.repo is not None
    plan = [hf_hub_download(model.repo, file, local_dir=into, dry_run=True) for file in model.files]
    missing = sum(part.file_size or 0 for part in plan if part.will_download)
    _need(into, max(missing - _begun(into), 0))
    for part in plan:
        path = into / part.filename
        checked = path.with_name(f".{path.name}.checked")
        if part.will_download:
            hf_hub_download(model.repo, part.filename, local_dir=into)
        if part.will_download or not checked.exists():
            _check(path, part)
            checked.touch()
    return into / model.files[0]


def _begun(folder: Path) -> int:
    """Bytes of downloads that were stopped on the way."""
    partial = (folder / ".cache").rglob("*.incomplete")
    return sum(path.stat().st_size for path in partial)


def _need(folder: Path, size: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if size + SPARE > free:
        raise UserError(
            f"The download takes {size / 1e9:.1f} GB and {folder} has {free / 1e9:.1f} GB free;"
            " free some space there, or set AGENT_HOME to a folder on a larger disk."
        )


def _check(path: Path, part: DryRunFileInfo) -> None:
    """A file of the hub's large storage is named by its sha256."""
    expected = _etag(path)
    if expected is None:
        return
    print(f"checking {part.filename} …", file=sys.stderr)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        path.unlink()
        raise OSError(f"{part.filename} is damaged (sha256 {found[:12]}…): it was removed.")


def _etag(path: Path) -> str | None:
    """What the hub called the file's content when it was downloaded."""
    note = path.parent / ".cache" / "huggingface" / "download" / f"{path.name}.metadata"
    match note.read_text(encoding="utf-8").split() if note.exists() else []:
        case [_, etag, *_] if _SHA256.fullmatch(etag):
            return str(etag)
    return None
