"""What the ids of a vocabulary mean, and text as ids."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from agent.formats.tokenizer_text import parts, whole


class Vocabulary(Protocol):
    """A model's tokens."""

    size: int
    """How many ids there are."""
    specials: dict[str, int]
    """Ids that are more than their text, by their spelling: ``<|im_end|>``, ``<tool_call>``."""
    controls: frozenset[int]
    """Specials that stand for no text."""
    ends: frozenset[int]
    """Ids that end what the model says, as its file has them."""
    begin: int | None
    """The id that begins every prompt, if there is one."""

    def raw(self, token: int) -> bytes | None:
        """The bytes of an id; None for one that does not exist or that stands for no text."""
        ...

    def encode(self, text: str) -> list[int]:
        """Text that holds no spelling of a special id."""
        ...


class Bytes:
    """One id a byte, then the specials: for scripts and tests without a model."""

    def __init__(self, specials: Iterable[str]) -> None:
        self.specials = {spelling: 256 + i for i, spelling in enumerate(specials)}
        self.size = 256 + len(self.specials)
        self.controls = frozenset(
            token for spelling, token in self.specials.items() if spelling.startswith("<|")
        )
        self.ends: frozenset[int] = frozenset()
        self.begin: int | None = None
        self._texts = {token: spelling.encode() for spelling, token in self.specials.items()}

    def raw(self, token: int) -> bytes | None:
        return bytes([token]) if 0 <= token < 256 else self._texts.get(token)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


class Encoder:
    """Text and markup as ids: in markup the specials that are spelled count, in text they do not."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        longest_first = sorted((s for s in vocabulary.specials if s), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def markup(self, text: str) -> list[int]:
        ids: list[int] = []
        done = 0
        for found in self._special.finditer(text):
            ids += self._ordinary(text[done : found.start()])
            ids.append(self._vocabulary.specials[found[0]])
            done = found.end()
        return ids + self._ordinary(text[done:])

    def text(self, text: str) -> list[int]:
        """What people and tools wrote. A tokenizer may take a spelled special for the special itself,
        even when told not to: so no piece that it gets holds one."""
        text = whole(text)
        ids: list[int] = []
        done = at = 0
        while found := self._special.search(text, at):
            at = found.start() + 1
            ids += self._ordinary(text[done:at])
            done = at
        return ids + self._ordinary(text[done:])

    def harmless(self, text: str) -> str:
        """The text with a space in every spelled special: for what a template puts into markup."""
        at = 0
        while found := self._special.search(text, at):
            at = found.start() + 1
            text = f"{text[:at]} {text[at:]}"
        return whole(text)

    def _ordinary(self, text: str) -> list[int]:
        return [token for part in parts(text) for token in self._vocabulary.encode(part)]
