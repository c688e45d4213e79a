"""A GGUF's vocabulary: bytes from its header (keys ``tokenizer.ggml.*`` of
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, ``enum llama_token_type`` of
https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h), text tokenised by llama.cpp."""

import ctypes
import os
from pathlib import Path

from agent.engine.placement import gguf_header
from agent.engine.protocol import EngineError
from agent.util.gpt2_bytes import byte_letters

_NORMAL_TYPE, _UNKNOWN_TYPE, _CONTROL_TYPE, _USER_DEFINED_TYPE, _BYTE_TYPE = 1, 2, 3, 4, 6
_SPECIAL_TYPES = (_UNKNOWN_TYPE, _CONTROL_TYPE, _USER_DEFINED_TYPE)
_SENTENCEPIECE_SPACE = "▁"


class GgufVocabulary:
    """The vocabulary of a model file."""

    def __init__(
        self, path: Path, values: dict[str, gguf_header.MetadataValue] | None = None
    ) -> None:
        """Load it, in half a second; ``values``: the file's header, if read. Raises EngineError."""
        values = gguf_header.read_metadata(path) if values is None else values
        tokens, types = values.get("tokenizer.ggml.tokens"), values.get("tokenizer.ggml.token_type")
        self._is_sentencepiece = values.get("tokenizer.ggml.model") != "gpt2"
        if not isinstance(tokens, list):
            raise EngineError(f"{path} has no vocabulary.")
        self._tokens = [token for token in tokens if isinstance(token, bytes)]
        self.size = len(self._tokens)
        kinds = types if isinstance(types, list) else []
        self._types = kinds + [_NORMAL_TYPE] * (self.size - len(kinds))
        self.specials = {
            spelling: token
            for token, kind in enumerate(self._types)
            if kind in _SPECIAL_TYPES
            and len(spelling := self._tokens[token].decode("utf-8", "replace")) > 1
            and spelling.replace(_SENTENCEPIECE_SPACE, " ").strip()
        }
        ids = self.specials.values()
        self.control_ids = frozenset(t for t in ids if self._types[t] == _CONTROL_TYPE)
        from agent.engine.llama.bindings import lib  # here: it loads the native library

        self._lib = lib
        params = lib.llama_model_default_params()
        params.vocab_only = True
        self._model = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self._model:
            raise EngineError(f"The vocabulary of {path} cannot be loaded.")
        self._vocabulary = vocabulary = lib.llama_model_get_vocab(self._model)
        self.end_ids = frozenset(t for t in ids if lib.llama_vocab_is_eog(vocabulary, t))
        begin = int(lib.llama_vocab_bos(vocabulary))
        self.begin_id = begin if begin >= 0 and lib.llama_vocab_get_add_bos(vocabulary) else None

    def token_bytes(self, token: int) -> bytes | None:
        if not 0 <= token < len(self._tokens):
            return None
        spelling, kind = self._tokens[token], self._types[token]
        if kind in _SPECIAL_TYPES:
            return spelling
        if kind == _BYTE_TYPE:
            return bytes([int(spelling[3:5], 16)]) if spelling.startswith(b"<0x") else spelling
        text = spelling.decode("utf-8", "replace")
        if self._is_sentencepiece:
            return text.replace(_SENTENCEPIECE_SPACE, " ").encode()
        return b"".join(GPT2_BYTES.get(character) or character.encode() for character in text)

    def encode(self, text: str) -> list[int]:
        """Tokenise a text that spells no special token, with llama.cpp."""
        raw, vocabulary = text.encode(), self._vocabulary
        room, count = len(raw) + 8, -1
        while count < 0:
            ids = (ctypes.c_int32 * room)()
            count = self._lib.llama_tokenize(vocabulary, raw, len(raw), ids, room, False, False)
            room = -count
        return list(ids[:count])


GPT2_BYTES = {letter: bytes([byte]) for byte, letter in enumerate(byte_letters())}
