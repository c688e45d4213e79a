"""A model's vocabulary, and an encoder that keeps markup and text apart."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent.formats.markup.chat_template import MessageFrame
from agent.formats.markup.gguf_vocabulary import GgufVocabulary
from agent.formats.tokenizer_text import replace_surrogates, tokenizer_chunks


class ByteVocabulary:
    """One id for each byte, then the special tokens: for scripts and tests without a model."""

    def __init__(self, specials: Iterable[str]) -> None:
        self.specials = {spelling: 256 + i for i, spelling in enumerate(specials)}
        """Special tokens' ids by their text: ``<|im_end|>``, ``<tool_call>``."""
        self.size = 256 + len(self.specials)
        special = self.specials.items()
        self.control_ids = frozenset(token for text, token in special if text.startswith("<|"))
        """Special ids that have no text (GGUF's token type *control*)."""
        self.end_ids: frozenset[int] = frozenset()
        """Ids that end a generation, according to the model's file."""
        self.begin_id: int | None = None
        """The id that begins every prompt (BOS), if the model wants it."""
        self._texts = {token: spelling.encode() for spelling, token in self.specials.items()}

    def token_bytes(self, token: int) -> bytes | None:
        """Return the byte, or a special token's text; None for an id that does not exist."""
        return bytes([token]) if 0 <= token < 256 else self._texts.get(token)

    def encode(self, text: str) -> list[int]:
        """Tokenise a text that spells no special token."""
        return list(text.encode())


MarkupVocabulary = ByteVocabulary | GgufVocabulary


class MarkupEncoder:
    """Tokenises markup, in which spelled special tokens count, and text, in which they do not."""

    def __init__(self, vocabulary: MarkupVocabulary) -> None:
        self._vocabulary = vocabulary
        longest_first = sorted((s for s in vocabulary.specials if s), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def encode_markup(self, text: str) -> list[int]:
        """Tokenise markup: spelled special tokens become their ids."""
        text = replace_surrogates(text)
        ids: list[int] = []
        encoded = 0
        for match in self._special.finditer(text):
            ids += self._encode_ordinary(text[encoded : match.start()])
            ids.append(self._vocabulary.specials[match[0]])
            encoded = match.end()
        return ids + self._encode_ordinary(text[encoded:])

    def encode_text(self, text: str) -> list[int]:
        """Tokenise the text of users and tools: special tokens that it spells stay text. It is cut
        within each, as llama.cpp makes tokens of some even with ``parse_special`` false."""
        return [token for piece in self._cut(text) for token in self._encode_ordinary(piece)]

    def encode_framed(self, frame: MessageFrame, text: str) -> list[int]:
        if frame.escaped:
            text = json.dumps(text, ensure_ascii=False)[1:-1]
        markup = self.encode_markup
        return markup(frame.before) + self.encode_text(text) + markup(frame.after)

    def break_markup(self, value: Any) -> Any:
        """Put a space into every special token that a JSON value's texts spell."""
        match value:
            case str(text):
                return " ".join(self._cut(text))
            case list():
                return [self.break_markup(part) for part in value]
            case Mapping():
                return {self.break_markup(key): self.break_markup(value[key]) for key in value}
            case _:
                return value

    def _cut(self, text: str) -> Iterator[str]:
        """Cut a text behind the first character of each special token that it spells."""
        text, start = replace_surrogates(text), 0
        while match := self._special.search(text, start):
            yield text[start : match.start() + 1]
            start = match.start() + 1
        yield text[start:]

    def _encode_ordinary(self, text: str) -> list[int]:
        encode = self._vocabulary.encode
        return [token for chunk in tokenizer_chunks(text) for token in encode(chunk)]
