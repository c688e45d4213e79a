"""The token ids of o200k_harmony and their texts: https://cookbook.openai.com/articles/openai-harmony
("Special tokens") and ``src/tiktoken_ext/public_encodings.rs`` of https://github.com/openai/harmony."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

END_OF_TEXT_ID = 199_999
RETURN_ID = 200_002
CONSTRAIN_ID = 200_003
CHANNEL_ID = 200_005
START_ID = 200_006
END_ID = 200_007
MESSAGE_ID = 200_008
CALL_ID = 200_012
STOP_IDS = frozenset({END_ID, RETURN_ID, CALL_ID, END_OF_TEXT_ID})
"""The ids that end a message."""

FIRST_SPECIAL_ID = 199_998
"""Ids below are byte strings; from this id on they are special or reserved tokens."""
LAST_ID = 201_088
"""openai-harmony's last reserved id. The model's own vocabulary is the 201,088 ids below it."""

ASSISTANT_ID = 173_781
ANALYSIS_ID = 35_644
FINAL_ID = 17_196
COMMENTARY_IDS = (12_606, 815)
JSON_ID = 4_108
SPACE_ID = 220
"""The ordinary tokens of a role, of the channels' names and of a content type."""


class HarmonyVocabulary:
    """The bytes and texts of token ids; ``known_texts`` is filled as ids occur: a few thousand."""

    def __init__(self, encoding: HarmonyEncoding) -> None:
        self._encoding = encoding
        self.known_texts: dict[int, str] = {}
        """The texts of ordinary ids that have occurred and whose bytes are valid UTF-8."""
        self._bytes: dict[int, bytes] = {}

    def token_bytes(self, token: int) -> bytes | None:
        """Return an ordinary id's bytes, or None for any other id."""
        if (raw := self._bytes.get(token)) is not None:
            return raw
        if not 0 <= token < FIRST_SPECIAL_ID:
            return None
        raw = self._bytes[token] = bytes(self._encoding._inner.decode_bytes([token]))
        with suppress(UnicodeDecodeError):
            self.known_texts[token] = raw.decode()
        return raw

    def special_text(self, token: int) -> str:
        """Return the text of a special id, such as ``<|end|>``; empty for ids that do not exist."""
        if not FIRST_SPECIAL_ID <= token <= LAST_ID:
            return ""
        return bytes(self._encoding._inner.decode_bytes([token])).decode()


@lru_cache(maxsize=1)
def harmony_vocabulary(encoding: HarmonyEncoding) -> HarmonyVocabulary:
    """Return the vocabulary that all parsers share: a process has one encoding."""
    return HarmonyVocabulary(encoding)
