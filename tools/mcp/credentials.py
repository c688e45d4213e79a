"""Where logins are kept: the system's keyring where one works, else a file of ours (0600)."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
from functools import cached_property
from pathlib import Path
from typing import Any

from tools import private_files

log = logging.getLogger(__name__)

SERVICE = "agent-local mcp"
"""What the keyring calls them."""


class Tokens:
    """One JSON object for each server's URL. May block: not for the event loop."""

    def __init__(self, path: Path | None) -> None:
        """``path``: the file where there is no keyring; None keeps nothing."""
        self._path = path

    @cached_property
    def _keyring(self) -> Any:
        """The ``keyring`` package, if it is there and has found a place to keep things in."""
        if self._path is None:
            return None
        try:
            keyring = importlib.import_module("keyring")
            return keyring if keyring.get_keyring().priority > 0 else None
        except Exception:
            return None

    def load(self, url: str) -> dict[str, Any]:
        """Empty where there is none."""
        text = None
        if self._keyring is not None:
            with contextlib.suppress(Exception):
                text = self._keyring.get_password(SERVICE, url)
        try:
            found = json.loads(text) if text else self._file().get(url)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def save(self, url: str, kept: dict[str, Any]) -> None:
        """An empty one forgets it; raises OSError."""
        if self._keyring is not None and self._put(url, kept):
            kept = {}  # and no older one stays behind in the file
        data = self._file()
        if data.pop(url, None) is None and not kept:
            return
        if kept:
            data[url] = kept
        if self._path is not None:
            private_files.write(self._path, json.dumps(data, indent=1))

    def _put(self, url: str, kept: dict[str, Any]) -> bool:
        try:
            if kept:
                self._keyring.set_password(SERVICE, url, json.dumps(kept))
            elif self._keyring.get_password(SERVICE, url) is not None:
                self._keyring.delete_password(SERVICE, url)
        except Exception as error:  # each system has its own ways to refuse
            log.warning("the keyring does not work: %s", error)
            return False
        return True

    def _file(self) -> dict[str, Any]:
        try:
            data = json.loads(self._path.read_text(encoding="utf-8")) if self._path else {}
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}
