"""The o200k_harmony token ids, and the text of each."""

from __future__ import annotations

from functools import lru_cache

from openai_harmony import HarmonyEncoding

ENDOFTEXT = 199_999
RETURN = 200_002
CONSTRAIN = 200_003
CHANNEL = 200_005
START = 200_006
END = 200_007
MESSAGE = 200_008
CALL = 200_012

ORDINARY = 199_998
"""Ids below are byte strings; from here on special and reserved tokens."""
LAST = 201_088

ASSISTANT = 173_781
ANALYSIS = 35_644
FINAL = 17_196
COMMENTARY = (12_606, 815)


class Vocabulary:
    """What the ids mean. ``texts`` fills as they are met: most texts use a few thousand ids."""

    def __init__(self, encoding: HarmonyEncoding) -> None:
        self._encoding = encoding
        self.texts: dict[int, str] = {}
        """Ordinary ids met so far whose bytes are whole UTF-8."""

    def raw(self, token: int) -> bytes | None:
        """An ordinary id's bytes, None for any other; a text is remembered if it is whole."""
        if not 0 <= token < ORDINARY:
            return None
        raw = bytes(self._encoding._inner.decode_bytes([token]))
        try:
            self.texts[token] = raw.decode()
        except UnicodeDecodeError:
            pass
        return raw

    def spelled(self, token: int) -> str:
        """The spelling of a special id, empty for ids that do not exist."""
        if not ORDINARY <= token <= LAST:
            return ""
        return bytes(self._encoding._inner.decode_bytes([token])).decode()


@lru_cache(maxsize=1)
def vocabulary(encoding: HarmonyEncoding) -> Vocabulary:
    """The encoding's vocabulary, the same for every parser, since a process has one encoding."""
    return Vocabulary(encoding)
