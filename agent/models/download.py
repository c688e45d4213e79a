"""Downloads a model of models.toml from the hub: resumed, verified, never half installed. The installed
files stay until all files of another version are verified."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from agent.config.paths import user_paths
from agent.engine.placement.planner import format_bytes
from agent.engine.protocol import EngineError
from agent.errors import UserError, user_errors
from agent.formats.detect import response_template_path
from agent.models.catalog import Model, find_entry, load_catalog, models_folder
from agent.models.machine import FitEstimate, estimate_fit, free_disk, inspect_machine
from agent.util import private_files

log = logging.getLogger(__name__)

_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_CONFIG_MIB = 16
SPARE_DISK_BYTES = 1 << 30
"""Bytes that a download leaves free on the disk: 1 GiB."""

DownloadProgress = Callable[[int, int], None]
"""Called with the bytes that are downloaded, and all of them."""


class PullError(EngineError):
    """A download that cannot begin or has failed; the message is one sentence for people."""


def pull(model: Model, on_progress: DownloadProgress | None = None) -> Path:
    """Download a model from `find_pullable`, resuming, and compare size and sha256; the first file.
    HF_ENDPOINT and HF_TOKEN are honoured. Raises PullError."""
    files = list_files(model)
    with hub_errors(f"Pulling {model.name} from {model.repo} failed", model.repo, files):
        path = _download_all(files, on_progress)
    assert model.repo is not None
    _save_response_template(model.repo, path)
    return path


def _save_response_template(repo: str, path: Path) -> None:
    """Keep the response template of a repository next to its GGUF, or that of the model that it has a
    copy of. It is data that the model runs without: failures are only logged."""
    config = _read_object(f"{repo}/resolve/main/tokenizer_config.json")
    if "response_template" not in config:
        match _read_object(f"api/models/{repo}"):
            case {"cardData": {"base_model": str(base) | [str(base), *_]}} if _REPO.fullmatch(base):
                config = _read_object(f"{base}/resolve/main/tokenizer_config.json")
    if isinstance(template := config.get("response_template"), dict):
        with suppress(OSError):
            private_files.write_text(response_template_path(path), json.dumps(template))


def _read_object(path: str) -> dict[str, Any]:
    """A JSON object of the hub; empty where there is none, which is logged."""
    from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined]

    try:
        with hub_errors(f"Reading {path} failed"):
            url, headers = f"{hub_address()}/{path}", dict(build_hf_headers())
            with get_session().stream("GET", url, headers=headers, timeout=20) as response:
                if response.is_error:
                    raise ValueError(f"the hub answered {response.status_code}")
                chunks = islice(response.iter_bytes(1 << 20), MAX_CONFIG_MIB)
                return dict(json.loads(b"".join(chunks)))
    except (EngineError, UserError, RecursionError) as error:
        log.warning("%s", error)
        return {}


def list_files(model: Model) -> list[ModelFile]:
    """Ask the hub for a model's files, their sizes and hashes. Raises PullError."""
    folder = models_folder(user_paths()) / model.name
    with hub_errors(f"Pulling {model.name} from {model.repo} failed", model.repo):
        return [_file_on_hub(model, name, folder / name) for name in model.files]


@contextmanager
def hub_errors(
    failure: str, repo: str | None = None, files: Sequence[ModelFile] = ()
) -> Iterator[None]:
    """Convert errors to PullError, which begins with ``failure``. ``files``: what can be resumed."""
    # Else each program asks the hub for its list of agents, to report which one it is.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import httpx2
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    try:
        yield
    except (httpx2.ConnectError, httpx2.TimeoutException) as error:
        message = f"Cannot reach {hub_host()}: are you online?"
        raise PullError(message + _resume_hint(files)) from error
    except GatedRepoError as error:
        raise PullError(
            f"{repo} is gated: accept its terms at {hub_address()}/{repo} and set HF_TOKEN."
        ) from error
    except RepositoryNotFoundError as error:
        raise PullError(
            f"There is no repository {repo} on {hub_host()}; a private one needs HF_TOKEN."
        ) from error
    except HfHubHTTPError as error:
        answer = f"{error.response.status_code} {error.response.reason_phrase}".strip()
        message = f"{failure}: {hub_host()} answered {answer}."
        raise PullError(message + _resume_hint(files)) from error
    except (KeyError, TypeError) as error:
        raise PullError(f"{failure}: {hub_host()} does not answer as a hub does.") from error
    except (httpx2.HTTPError, ValueError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise PullError(f"{failure}: {reason.rstrip('.')}.{_resume_hint(files)}") from error


def _resume_hint(files: Sequence[ModelFile]) -> str:
    if any(file.downloaded_bytes for file in files):
        return " The partial download is kept; run it again to resume."
    return ""


def hub_host() -> str:
    return urlsplit(hub_address()).netloc


def hub_address() -> str:
    """The address of the hub. Raises UserError where HF_ENDPOINT is not an address."""
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    with suppress(ValueError):
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname:
            return address
    raise UserError(f"HF_ENDPOINT must be the address of a hub, not {address!r}.")


def find_pullable(name: str) -> Model:
    """The entry of models.toml with this name or alias that has a repository. Raises UserError."""
    with user_errors(EngineError):
        models = load_catalog(user_paths())
        if (model := find_entry(models, name)) is not None and model.repo and model.file:
            return model
    choices = ", ".join(model.name for model in models.values() if model.repo)
    raise UserError(f"{name} cannot be downloaded; these can: {choices}.")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a model, as the hub has it now."""

    path: Path
    """Where the complete file is written."""
    url: str
    """Where it is downloaded from, redirects followed."""
    size: int
    """Bytes."""
    etag: str
    """The sha256 of large files; of small ones the git object id."""

    @property
    def partial(self) -> Path:
        """The bytes downloaded so far; its name has the etag, so that no other version is resumed."""
        return self.path.with_name(f".{self.path.name}.{self.etag[:12]}.part")

    @property
    def checksum_record(self) -> Path:
        """A small file with the etag of the installed file, which was compared with its content."""
        return self.path.with_name(f".{self.path.name}.checked")

    @property
    def is_installed(self) -> bool:
        """Whether the file is here, by its size if it was never compared with the hub's."""
        if not self.path.is_file() or self.path.stat().st_size != self.size:
            return False
        return self.checked_etag in ("", self.etag)

    @property
    def checked_etag(self) -> str:
        """The etag of the installed file, once it was compared with its content; empty: not yet."""
        record = self.checksum_record
        return record.read_text(encoding="utf-8") if record.exists() else ""

    @property
    def downloaded_bytes(self) -> int:
        if self.is_installed:
            return self.size
        return self.partial.stat().st_size if self.partial.exists() else 0


@dataclass(frozen=True, slots=True)
class PullEstimate:
    """Size of a download, and memory and speed of the model; for people to decide by."""

    model: Model
    size: int
    """Bytes of all its files."""
    remaining: int
    """Bytes that are not here yet."""
    free_disk: int
    """Bytes."""
    folder: Path
    fit: FitEstimate

    def require_disk_space(self) -> None:
        _require_disk_space(self.folder, self.remaining, self.free_disk)

    @property
    def title(self) -> str:
        return f"{self.model.name} from {self.model.repo}"

    @property
    def figures(self) -> str:
        rest = f", {format_bytes(self.remaining)} to go" if self.remaining < self.size else ""
        return (
            f"Size     {format_bytes(self.size)}{rest}; {format_bytes(self.free_disk)} of disk free\n"
            f"Memory   {format_bytes(self.fit.memory)}; {format_bytes(self.fit.free)} free\n"
            f"Speed    {self.fit}"
        )


def estimate_pull(model: Model) -> PullEstimate:
    """Ask the hub what pulling a model would take, and compare with this machine. Raises PullError."""
    files = list_files(model)
    folder = models_folder(user_paths())
    size = sum(file.size for file in files)
    remaining = size - sum(file.downloaded_bytes for file in files)
    fit = estimate_fit(f"{model.name} {model.repo}", size, inspect_machine())
    return PullEstimate(model, size, remaining, free_disk(folder), folder, fit)


def _download_all(files: list[ModelFile], on_progress: DownloadProgress | None) -> Path:
    for file in files:
        private_files.make_folder(file.path.parent)
    missing = [file for file in files if not _is_installed(file)]
    total = sum(file.size for file in files)
    remaining = sum(file.size - file.downloaded_bytes for file in missing)
    _require_disk_space(files[0].path.parent, remaining, free_disk(files[0].path.parent))
    for file in missing:
        before = total - sum(each.size for each in missing)
        before += sum(other.downloaded_bytes for other in missing if other is not file)
        _fetch(file, _reporting_bar(on_progress, before, total) if on_progress else None)
    for file in missing:  # all at once: parts of two versions do not make a model
        file.checksum_record.unlink(missing_ok=True)
        file.partial.rename(file.path)
        private_files.write_text(file.checksum_record, file.etag)
    return files[0].path


def _is_installed(file: ModelFile) -> bool:
    """Whether the file is here; reads all of one whose hash is not known."""
    if file.is_installed and not file.checked_etag:
        digest = _sha256(file.path, file) if _SHA256.fullmatch(file.etag) else file.etag
        private_files.write_text(file.checksum_record, digest)
    return file.is_installed


def _file_on_hub(model: Model, name: str, path: Path) -> ModelFile:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    assert model.repo is not None
    hub = hub_address()
    remote = get_hf_file_metadata(hf_hub_url(model.repo, name, endpoint=hub), endpoint=hub)
    if remote.size is None or remote.etag is None:
        raise OSError(f"the hub does not say how large {name} is.")
    return ModelFile(path, remote.location, remote.size, remote.etag)


def _fetch(model_file: ModelFile, progress_bar: Any) -> None:
    """Download the rest of a file and check it; huggingface_hub 2 would restart. Raises OSError."""
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    headers = dict(build_hf_headers())
    if urlsplit(model_file.url).netloc != hub_host():
        headers.pop("authorization", None)  # a signed address elsewhere
    with model_file.partial.open("ab") as file:
        if not _lock(file):
            raise OSError(f"{model_file.path.name} is being downloaded by another process.")
        _remove_other_partials(model_file)
        if file.tell() > model_file.size:
            file.truncate(0)
        if file.tell() < model_file.size:
            http_get(
                model_file.url,
                file,
                resume_size=file.tell(),
                headers=headers,
                expected_size=model_file.size,
                displayed_filename=model_file.path.name,
                tqdm_class=progress_bar,
            )
        file.flush()
        os.fsync(file.fileno())
        if _SHA256.fullmatch(model_file.etag):
            digest = _sha256(model_file.partial, model_file)
            if digest != model_file.etag:
                model_file.partial.unlink()
                raise OSError(
                    f"{model_file.path.name} arrived damaged (sha256 {digest[:12]}…): it was removed."
                )


def _lock(file: BinaryIO) -> bool:
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _remove_other_partials(model_file: ModelFile) -> None:
    """Delete what was downloaded of other versions of a file, unless a process is at it."""
    beginning = f".{model_file.path.name}."
    for path in model_file.path.parent.iterdir():
        if path.name.startswith(beginning) and path.suffix == ".part":
            with suppress(OSError), path.open("ab") as file:
                if path != model_file.partial and _lock(file):
                    path.unlink()


def _reporting_bar(on_progress: DownloadProgress, before: int, total: int) -> Any:
    """A tqdm class that calls ``on_progress``. ``before``: bytes of other files that are downloaded."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **{**settings, "file": io.StringIO()})
            on_progress(before + int(self.n), total)

        def update(self, n: float | None = 1) -> bool | None:
            self.n += n or 0
            on_progress(before + int(self.n), total)
            return None

    return Bar


def _require_disk_space(folder: Path, size: int, free: int) -> None:
    """Raise PullError where ``size`` bytes more would fill the disk of which ``free`` are free."""
    if size + SPARE_DISK_BYTES > free:
        raise PullError(
            f"The download takes {format_bytes(size)} and {folder} has {format_bytes(free)} free;"
            " free some space there, or set AGENT_HOME to a folder on a larger disk."
        )


def _sha256(path: Path, file: ModelFile) -> str:
    print(f"checking {file.path.name} …", file=sys.stderr)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
