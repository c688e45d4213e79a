"""A GGUF's own vocabulary: its ids' bytes from the file, text as ids by llama.cpp."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from agent.engine.placement import gguf_header
from agent.engine.protocol import EngineError

_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
_SPACE = "▁"


class GgufVocabulary:
    """The tokens of one model file; ``values`` is its header, if that was read already."""

    def __init__(self, path: Path, values: dict[str, gguf_header.Value] | None = None) -> None:
        """Reads the file (half a second). Raises EngineError."""
        values = gguf_header.read(path) if values is None else values
        tokens, types = values.get("tokenizer.ggml.tokens"), values.get("tokenizer.ggml.token_type")
        self._pieces = values.get("tokenizer.ggml.model") != "gpt2"
        if not isinstance(tokens, list):
            raise EngineError(f"{path} has no vocabulary.")
        self._tokens = [token for token in tokens if isinstance(token, bytes)]
        self._types = types if isinstance(types, list) else []
        self.size = len(self._tokens)
        self.specials = {
            spelling: token
            for token, kind in enumerate(self._types)
            if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
            and len(spelling := self._tokens[token].decode("utf-8", "replace")) > 1
            and spelling.replace(_SPACE, " ").strip()
        }
        self.controls = frozenset(t for t in self.specials.values() if self._type(t) == _CONTROL)
        self._load(path)

    def _load(self, path: Path) -> None:
        from agent.engine.llama.bindings import lib  # here, since this loads the native library

        self._lib = lib
        params = lib.llama_model_default_params()
        params.vocab_only = True
        self._model = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self._model:
            raise EngineError(f"The vocabulary of {path} cannot be loaded.")
        self._vocabulary = vocabulary = lib.llama_model_get_vocab(self._model)
        self.ends = frozenset(
            token for token in self.specials.values() if lib.llama_vocab_is_eog(vocabulary, token)
        )
        begin = int(lib.llama_vocab_bos(vocabulary))
        self.begin = begin if begin >= 0 and lib.llama_vocab_get_add_bos(vocabulary) else None

    def _type(self, token: int) -> int:
        kind = self._types[token] if token < len(self._types) else 1
        return kind if isinstance(kind, int) else 1

    def raw(self, token: int) -> bytes | None:
        if not 0 <= token < len(self._tokens):
            return None
        written = self._tokens[token]
        match self._type(token):
            case 3 | 4 | 2:
                return written
            case 6:
                return bytes([int(written[3:5], 16)]) if written.startswith(b"<0x") else written
        text = written.decode("utf-8", "replace")
        if self._pieces:
            return text.replace(_SPACE, " ").encode()
        return b"".join(_BYTES.get(character) or character.encode() for character in text)

    def encode(self, text: str) -> list[int]:
        raw = text.encode()
        if not raw:
            return []
        room = len(raw) + 8
        while True:
            ids = (ctypes.c_int32 * room)()
            count = self._lib.llama_tokenize(
                self._vocabulary, raw, len(raw), ids, room, False, False
            )
            if count >= 0:
                return list(ids[:count])
            room = -count


def _byte_table() -> dict[str, bytes]:
    """GPT-2's spelling, in which every byte is a printable character."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): bytes([byte]) for byte in printable}
    return table | {chr(256 + i): bytes([byte]) for i, byte in enumerate(others)}


_BYTES = _byte_table()
