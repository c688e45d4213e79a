"""Downloading a model of models.toml from the hub."""

from __future__ import annotations

from pathlib import Path

from agent.config import places
from agent.errors import UserError
from agent.models import known


def pull(name: str) -> Path:
    """Download a model's file into the cache; a stopped download goes on. Raises UserError."""
    where = places()
    model = known(where).get(name)
    if model is None or model.repo is None or model.file is None:
        choices = ", ".join(m.name for m in known(where).values() if m.repo)
        raise UserError(f"There is nothing to pull for {name}; these can be pulled: {choices}.")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    folder = where.cache / "models" / name
    try:
        return Path(hf_hub_download(model.repo, model.file, local_dir=folder))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"Pulling {model.file} of {model.repo} failed: {reason}") from error
