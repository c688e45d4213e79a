"""The o200k_harmony vocabulary for openai-harmony, from the model itself: nothing is downloaded.

openai-harmony wants the file ``o200k_base.tiktoken`` and accepts exactly one, by its sha256. A
GPT-OSS GGUF holds the same byte strings in another spelling, so the file can be written from it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config.settings import places
from agent.engine.placement import gguf_header
from agent.engine.protocol import EngineError
from tools import private_files

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of o200k_base.tiktoken, whoever wrote it."""
ORDINARY = 199_998
"""Ids below are byte strings; special tokens follow."""
FILE = "o200k_base.tiktoken"
_BASE = "TIKTOKEN_ENCODINGS_BASE"

_lock = threading.Lock()
_loaded: list[HarmonyEncoding] = []


def encoding(ranks: bytes | Callable[[], bytes], folder: Path | None = None) -> HarmonyEncoding:
    """The encoding, loaded once per process (0.2 s, call it in a thread).

    `ranks` is the content of o200k_base.tiktoken, or what gives it and is only called when
    `folder` (by default in the user's cache) does not hold it yet. A folder that cannot be
    written is done without. Raises EngineError when the ranks are not o200k_base's.
    """
    with _lock:
        if not _loaded:
            _loaded.append(_load(ranks, folder or places().cache / "vocabulary"))
        return _loaded[0]


def _load(ranks: bytes | Callable[[], bytes], folder: Path) -> HarmonyEncoding:
    from openai_harmony import HarmonyError

    if (folder / FILE).is_file():
        try:
            return _load_from(folder)
        except HarmonyError:
            pass  # damaged: written again below
    data = ranks() if callable(ranks) else ranks
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise EngineError("The vocabulary is not o200k_harmony's: its checksum differs.")
    with tempfile.TemporaryDirectory(prefix="agent-vocabulary-") as temporary:
        written = Path(temporary, FILE)
        written.write_bytes(data)
        found = _load_from(written.parent)
        _keep(written, folder)
    return found


def _keep(file: Path, folder: Path) -> None:
    """Leave a copy in `folder` if that can be written, whole or not at all."""
    part = folder / f"{FILE}.{os.getpid()}"
    try:
        private_files.folder(folder)
        part.write_bytes(file.read_bytes())
        part.replace(folder / FILE)
    except OSError:
        with suppress(OSError):
            part.unlink()


def _load_from(folder: Path) -> HarmonyEncoding:
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    before = os.environ.get(_BASE)
    os.environ[_BASE] = str(folder)
    try:
        return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    finally:
        if before is None:
            del os.environ[_BASE]
        else:
            os.environ[_BASE] = before


def ranks_from_gguf(path: Path) -> bytes:
    """The content of o200k_base.tiktoken, rebuilt from a GGUF's tokens.

    Raises EngineError when the file's tokenizer is not o200k_harmony.
    """
    found = gguf_header.read(path, last="tokenizer.ggml.tokens").get("tokenizer.ggml.tokens")
    if isinstance(found, list) and len(found) > ORDINARY:
        tokens = _byte_strings([token for token in found[:ORDINARY] if isinstance(token, bytes)])
        encode = base64.b64encode
        data = b"".join(b"%b %d\n" % (encode(token), rank) for rank, token in enumerate(tokens))
        if hashlib.sha256(data).hexdigest() == SHA256:
            return data
    raise EngineError(f"The tokenizer of {path} is not o200k_harmony: choose a GPT-OSS model.")


def _byte_strings(tokens: list[bytes]) -> list[bytes]:
    """Undo GPT-2's spelling, in which every byte is a printable character."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {256 + i: byte for i, byte in enumerate(others)} | {10: 0x2028}
    text = b"\n".join(tokens).decode("utf-8", "replace").translate(table)
    return [token.encode("latin-1", "replace") for token in text.split("\u2028")]
