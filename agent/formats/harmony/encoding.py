"""Loads openai-harmony's encoding with the model's own vocabulary, without a download. openai-harmony
reads ``o200k_base.tiktoken`` from the folder in ``TIKTOKEN_ENCODINGS_BASE`` and checks its SHA-256
(https://github.com/openai/harmony, ``src/tiktoken_ext/public_encodings.rs``); a GPT-OSS GGUF has the
same byte strings in GPT-2's spelling."""

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

from agent.config.paths import user_paths
from agent.engine.placement import gguf_header
from agent.engine.protocol import EngineError
from agent.formats.harmony.token_ids import FIRST_SPECIAL_ID
from agent.util import private_files
from agent.util.gpt2_bytes import byte_letters
from agent.util.temporary_folders import process_folder

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""The checksum that openai-harmony demands of ``o200k_base.tiktoken``."""
RANKS_FILE = "o200k_base.tiktoken"
_TOKENS_KEY = "tokenizer.ggml.tokens"
_SPELLINGS_SIZE = 3_619_252
_SPELLINGS_SHA256 = "6bba98859f84dadb76c684fe1c24d218b52dc14f41f292e16f35f29abd44eb58"
"""Bytes of the same tokens as a GGUF has them, with their lengths, and their checksum."""
_BASE_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"

_lock = threading.Lock()
_loaded: list[HarmonyEncoding] = []


def load_encoding(
    ranks: bytes | Callable[[], bytes], folder: Path | None = None
) -> HarmonyEncoding:
    """Return the encoding, loaded once per process (0.2 s: call it in a thread). ``ranks``: the content
    of o200k_base.tiktoken, needed only if ``folder`` (by default in the user's cache) lacks the file,
    which is cached there. Raises EngineError for other ranks, or without a temporary file."""
    with _lock:
        if not _loaded:
            _loaded.append(_load(ranks, folder or user_paths().cache / "vocabulary"))
        return _loaded[0]


def _load(ranks: bytes | Callable[[], bytes], folder: Path) -> HarmonyEncoding:
    from openai_harmony import HarmonyError  # here: importing the native library takes a moment

    if (folder / RANKS_FILE).is_file():
        with suppress(HarmonyError):  # damaged: written again below
            return _load_from(folder)
    data = ranks() if callable(ranks) else ranks
    if hashlib.sha256(data).hexdigest() != RANKS_SHA256:
        raise EngineError("The vocabulary is not o200k_harmony's: its checksum differs.")
    try:
        with tempfile.TemporaryDirectory(dir=process_folder()) as temporary:
            file = Path(temporary, RANKS_FILE)
            file.write_bytes(data)
            encoding = _load_from(file.parent)
            _cache_file(file, folder)
    except OSError as error:
        raise EngineError(
            f"The vocabulary needs a temporary file, which cannot be written: {error.strerror}."
        ) from error
    return encoding


def _cache_file(file: Path, folder: Path) -> None:
    """Copy the file into ``folder`` atomically, if that can be written."""
    part = folder / f"{RANKS_FILE}.{os.getpid()}"
    try:
        private_files.make_folder(folder)
        part.write_bytes(file.read_bytes())
        part.replace(folder / RANKS_FILE)
    except OSError:
        with suppress(OSError):
            part.unlink()


def _load_from(folder: Path) -> HarmonyEncoding:
    # Here for the same reason as in `_load`.
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    before = os.environ.get(_BASE_VARIABLE)
    os.environ[_BASE_VARIABLE] = str(folder)
    try:
        return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    finally:
        if before is None:
            del os.environ[_BASE_VARIABLE]
        else:
            os.environ[_BASE_VARIABLE] = before


def has_known_tokens(path: Path) -> bool:
    """Return whether the tokens of a GGUF are byte for byte those of o200k_harmony: 3 ms of
    CPU time, where `ranks_from_gguf` takes 290. Raises EngineError if the file is not a GGUF."""
    start = gguf_header.read_array_start(path, _TOKENS_KEY, _SPELLINGS_SIZE)
    return hashlib.sha256(start).hexdigest() == _SPELLINGS_SHA256


def ranks_from_gguf(path: Path) -> bytes:
    """Rebuild o200k_base.tiktoken from a GGUF. Raises EngineError if its tokenizer is another one."""
    spellings = gguf_header.read_metadata(path, last=_TOKENS_KEY).get(_TOKENS_KEY)
    if isinstance(spellings, list) and len(spellings) > FIRST_SPECIAL_ID:
        joined = b"\n".join(t for t in spellings[:FIRST_SPECIAL_ID] if isinstance(t, bytes))
        letters = {ord(letter): byte for byte, letter in enumerate(byte_letters())}
        text = joined.decode("utf-8", "replace").translate(letters | {10: 0x2028})
        tokens = (token.encode("latin-1", "replace") for token in text.split("\u2028"))
        encode = base64.b64encode
        data = b"".join(b"%b %d\n" % (encode(token), rank) for rank, token in enumerate(tokens))
        if hashlib.sha256(data).hexdigest() == RANKS_SHA256:
            return data
    raise EngineError(f"The tokenizer of {path} is not o200k_harmony: choose a GPT-OSS model.")
