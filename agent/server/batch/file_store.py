"""Files that clients upload, each as its bytes and its description in one folder. Reference:
https://platform.openai.com/docs/api-reference/files"""

import json
import logging
import shutil
import time
from pathlib import Path
from typing import Any, BinaryIO

from agent.server.http.clients import current_client
from agent.server.http.errors import ApiError
from agent.util import private_files
from agent.util.ids import new_id

log = logging.getLogger(__name__)

Json = dict[str, Any]


class ObjectFolder:
    """Objects of the API as JSON files of a folder, which is made when the first one is written."""

    def __init__(self, folder: Path, kind: str) -> None:
        """``kind``: what the objects' ids begin with, before a ``_``."""
        self.folder, self._kind = folder, kind

    def write(self, entry: Json) -> None:
        path = self.path(entry["id"], "json")
        private_files.make_folder(path.parent)
        private_files.write_text(path, json.dumps(entry))

    def find(self, name: str) -> Json:
        """An object of the current client. Raises ApiError, 404."""
        entry = self.load(name)
        if not current_client().owns(entry.get("owner", "")):
            raise self._missing(name)
        return entry

    def load(self, name: str) -> Json:
        """An object of any client. Raises ApiError, 404."""
        try:
            entry: Json = json.loads(self.path(name, "json").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise self._missing(name) from error
        return entry

    def entries(self) -> list[Json]:
        """The current client's objects, as it sees them, the oldest first."""
        owns = current_client().owns
        return [public_fields(entry) for entry in self.load_all() if owns(entry.get("owner", ""))]

    def load_all(self) -> list[Json]:
        found = []
        for path in self.folder.glob(f"{self._kind}_*.json"):
            try:
                found.append(json.loads(path.read_text(encoding="utf-8")))
            except FileNotFoundError:
                continue  # deleted meanwhile
            except ValueError:
                log.warning("%s cannot be read", path)  # cut off by a crash of the machine
        return sorted(found, key=lambda entry: (entry["created_at"], entry["id"]))

    def path(self, name: str, suffix: str) -> Path:
        """A file of an object. Raises ApiError, 404, where no object can have that name."""
        prefix, _, number = name.partition("_")
        if prefix != self._kind or not (number.isascii() and number.isalnum()):
            raise self._missing(name)
        return self.folder / f"{name}.{suffix}"

    def _missing(self, name: str) -> ApiError:
        message = f"No {self._kind} with id '{name[:80]}' found."
        return ApiError(404, message, code=f"{self._kind}_not_found", param="id")


def public_fields(entry: Json) -> Json:
    return {name: value for name, value in entry.items() if name != "owner"}


class FileStore(ObjectFolder):
    """The files of a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "file")

    def add(
        self, filename: str, purpose: str, content: BinaryIO, owner: str, file_id: str | None = None
    ) -> Json:
        """Store a client's open file; its description. ``file_id``: one to replace. Raises OSError."""
        name = file_id or new_id("file")
        private_files.make_folder(self.folder)
        content.seek(0)
        try:
            with open(self.content(name), "wb", opener=private_files.opener) as file:
                shutil.copyfileobj(content, file)
                size = file.tell()
        except OSError:  # as of a full disk
            self.content(name).unlink(missing_ok=True)
            raise
        entry = {
            "id": name,
            "object": "file",
            "bytes": size,
            "created_at": int(time.time()),
            "expires_at": None,
            "filename": filename,
            "purpose": purpose,
            "status": "processed",
            "status_details": None,
            "owner": owner,
        }
        self.write(entry)
        return entry

    def content(self, name: str) -> Path:
        """Where a file's bytes are. Raises ApiError, 404, where no file can have that name."""
        return self.path(name, "bytes")

    def delete(self, name: str) -> None:
        self.find(name)
        self.path(name, "json").unlink()
        self.content(name).unlink(missing_ok=True)
