"""Downloading a model of models.toml from the hub: resumed, checked, never half installed."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent.config.settings import places
from agent.engine.protocol import EngineError
from agent.errors import UserError
from agent.models.catalog import Model, folder, known
from tools import private_files

_SHA256 = re.compile(r"[0-9a-f]{64}")
SPARE = 1 << 30
"""Bytes that are left free on the disk."""


Report = Callable[[int, int], None]
"""Bytes that are here, and all of them."""


def pull(model: Model, report: Report | None = None) -> Path:
    """Download all files of a model from `find`; the path of the first. Raises UserError.

    A download that was stopped goes on where it was; each file's size and sha256 are what the hub
    says of it. HF_ENDPOINT and HF_TOKEN are honoured.
    """
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return _pull(model, folder(places()) / model.name, report)
    except (HfHubHTTPError, httpx2.HTTPError, ValueError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"Pulling {model.name} from {model.repo} failed: {reason.rstrip('.')}."
            " What has come is kept: begun again, it goes on from there."
        ) from error


def find(name: str) -> Model:
    """The entry of models.toml that can be pulled. Raises UserError."""
    try:
        models = known(places())
    except EngineError as error:
        raise UserError(str(error)) from error
    for model in models.values():
        if name in (model.name, *model.aliases):
            if model.problem is not None:
                raise UserError(model.problem)
            if model.repo and model.file:
                return model
    choices = ", ".join(model.name for model in models.values() if model.repo)
    raise UserError(f"There is nothing to pull for {name}; these can be pulled: {choices}.")


@dataclass(frozen=True, slots=True)
class Part:
    """One file, as the hub has it now."""

    path: Path
    """Where it will lie."""
    url: str
    size: int
    etag: str
    """Of large files: the sha256."""

    @property
    def partial(self) -> Path:
        """What has come of it so far."""
        return self.path.with_name(f".{self.path.name}.{self.etag[:12]}.part")

    @property
    def checked(self) -> Path:
        """Tells that it was compared with its etag."""
        return self.path.with_name(f".{self.path.name}.checked")

    @property
    def whole(self) -> bool:
        return self.path.exists() and self.path.stat().st_size == self.size

    @property
    def here(self) -> int:
        """Bytes."""
        if self.whole:
            return self.size
        return self.partial.stat().st_size if self.partial.exists() else 0


def _pull(model: Model, into: Path, report: Report | None) -> Path:
    plan = [_look(model, file, into / file) for file in model.files]
    private_files.folder(into)
    total = sum(part.size for part in plan)
    _need(into, total - sum(part.here for part in plan))
    for part in plan:
        if not part.whole:
            before = sum(other.here for other in plan if other is not part)
            _fetch(part, _bar(report, before, total) if report else None)
        if not part.checked.exists() or part.checked.read_text() not in ("", part.etag):
            _check(part)
            part.checked.write_text(part.etag)
    return plan[0].path


def _look(model: Model, file: str, path: Path) -> Part:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    assert model.repo is not None
    found = get_hf_file_metadata(hf_hub_url(model.repo, file))
    if found.size is None or found.etag is None:
        raise OSError(f"the hub does not say how large {file} is.")
    return Part(path, found.location, found.size, found.etag)


def _fetch(part: Part, bar: Any) -> None:
    """The rest of it. (The hub's own client begins a stopped download anew.)"""
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    headers = dict(build_hf_headers())
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if urlsplit(part.url).netloc != urlsplit(endpoint).netloc:
        headers.pop("authorization", None)  # a signed address elsewhere
    with part.partial.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise OSError(f"{part.path.name} is being pulled by another process.") from error
        http_get(
            part.url,
            file,
            resume_size=file.tell(),
            headers=headers,
            expected_size=part.size,
            displayed_filename=part.path.name,
            tqdm_class=bar,
        )
    part.partial.rename(part.path)


def _bar(report: Report, before: int, total: int) -> Any:
    """A bar that is reported instead of painted; ``before``: bytes of other files that are here."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **{**settings, "file": io.StringIO()})
            report(before + int(self.n), total)

        def update(self, n: float | None = 1) -> bool | None:
            self.n += n or 0
            report(before + int(self.n), total)
            return None

    return Bar


def _need(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size + SPARE > free:
        raise UserError(
            f"The download takes {size / 1e9:.1f} GB and {folder} has {free / 1e9:.1f} GB free;"
            " free some space there, or set AGENT_HOME to a folder on a larger disk."
        )


def _check(part: Part) -> None:
    """A file of the hub's large storage is named by its sha256."""
    if not _SHA256.fullmatch(part.etag):
        return
    print(f"checking {part.path.name} …", file=sys.stderr)
    with part.path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != part.etag:
        part.path.unlink()
        raise OSError(f"{part.path.name} is damaged (sha256 {found[:12]}…): it was removed.")
