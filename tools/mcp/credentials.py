"""Stores logins to MCP servers: in the system's keyring if one works, else in a file (mode 0600)."""

import contextlib
import importlib
import json
import logging
from functools import cached_property
from pathlib import Path
from typing import Any

from agent.util import private_files

log = logging.getLogger(__name__)

KEYRING_SERVICE = "agent-local mcp"


class CredentialStore:
    """Stores one JSON object for each server's URL. All methods may block."""

    def __init__(self, path: Path | None) -> None:
        """``path``: the file that is used without a keyring; None stores nothing at all."""
        self._path = path

    @cached_property
    def _keyring(self) -> Any:
        """The ``keyring`` package if it is installed and has a backend, else None."""
        if self._path is None:
            return None
        try:
            # An optional dependency.
            keyring = importlib.import_module("keyring")
            return keyring if keyring.get_keyring().priority > 0 else None
        except Exception:
            return None

    def load(self, url: str) -> dict[str, Any]:
        """Return the credentials for a URL; empty if there are none."""
        text = None
        if self._keyring is not None:
            with contextlib.suppress(Exception):
                text = self._keyring.get_password(KEYRING_SERVICE, url)
        try:
            credentials = json.loads(text) if text else self._read_file().get(url)
        except ValueError:
            return {}
        return credentials if isinstance(credentials, dict) else {}

    def save(self, url: str, credentials: dict[str, Any]) -> None:
        """Store the credentials for a URL; empty ones delete them. Raises OSError."""
        if self._keyring is not None and self._save_in_keyring(url, credentials):
            credentials = {}  # and no older one stays behind in the file
        if self._path is None or not (credentials or url in self._read_file()):
            return
        with private_files.locked(self._path):
            data = self._read_file()
            data.pop(url, None)
            if credentials:
                data[url] = credentials
            private_files.write_text(self._path, json.dumps(data, indent=1))

    def renewing(self) -> contextlib.AbstractContextManager[None]:
        """Be the only program that renews a login. Raises BlockingIOError if another does, OSError."""
        if self._path is None:
            return contextlib.nullcontext()
        return private_files.locked(self._path.with_name("renewal"), wait=False)

    def _save_in_keyring(self, url: str, credentials: dict[str, Any]) -> bool:
        try:
            if credentials:
                self._keyring.set_password(KEYRING_SERVICE, url, json.dumps(credentials))
            elif self._keyring.get_password(KEYRING_SERVICE, url) is not None:
                self._keyring.delete_password(KEYRING_SERVICE, url)
        except Exception as error:  # each backend raises exceptions of its own
            log.warning("the keyring does not work: %s", error)
            return False
        return True

    def _read_file(self) -> dict[str, Any]:
        try:
            data = json.loads(self._path.read_text(encoding="utf-8")) if self._path else {}
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}
