"""What people say, read from prompts/grammar.json: phrasings as small grammars.

`[a|b|c]` chooses one alternative (an empty one is allowed, nesting too), `{0}` is the first value,
`<ask>` a macro of the file. Every string stands for dozens to thousands of sentences: unseen
phrasing was what a small model failed at first, so breadth matters more than elegance.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PROMPTS = Path(__file__).with_name("prompts")


def _load() -> dict[str, Any]:
    """The file with its macros put in."""
    text = (PROMPTS / "grammar.json").read_text(encoding="utf-8")
    macros = json.loads(text)["macros"]

    def put_in(node: Any) -> Any:
        match node:
            case str():
                for name, body in macros.items():
                    node = node.replace(f"<{name}>", body)
                return node
            case list():
                return [put_in(item) for item in node]
            case dict():
                return {key: put_in(item) for key, item in node.items()}
            case _:
                return node

    loaded: dict[str, Any] = put_in(json.loads(text))
    return loaded


_GRAMMAR = _load()
ASK: str = _GRAMMAR["macros"]["ask"]
END: str = _GRAMMAR["macros"]["end"]
TEMPLATES: dict[str, list[str]] = _GRAMMAR["requests"]
FOLLOW: list[str] = _GRAMMAR["follow"]
CHANGED: list[str] = _GRAMMAR["changed"]
"""The request before with another value, which is said alone: `{0}` is new, `{1}` the old one."""
REPLACED: list[str] = _GRAMMAR["replaced"]
"""The same, with the value that it replaces."""
CHANGED_CONTEXT: list[str] = _GRAMMAR["changed_context"]
"""The same, with words that stood around the old value (`{0}` has them)."""
FILE_REFERENCES: dict[str, list[str]] = _GRAMMAR["file_references"]
"""Files that a result names: the only `one`, the `first`, the `last`, by `ending` (`{0}`)."""
CHAT: dict[str, list[str]] = _GRAMMAR["chat"]
REPLY: dict[str, list[str]] = _GRAMMAR["replies"]
"""For each kind of chat the thought and the answer."""
HEDGE = "I am not sure of this: check the answer, or ask in other words."
"""What the program adds to the answer of an unsure model, as `agent.turn.decoder` has it."""
DECLINE: list[str] = _GRAMMAR["decline"]
OTHER: list[str] = _GRAMMAR["other"]
"""Requests that no tool of the data serves."""
INSTRUCTIONS: list[str] = _GRAMMAR["instructions"]
ARITHMETIC: dict[str, dict[str, list[str]]] = {
    key: _GRAMMAR["arithmetic"][key] for key in ("words", "follow")
}
MANY: list[str] = _GRAMMAR["arithmetic"]["many"]
SYMBOLS: list[str] = _GRAMMAR["arithmetic"]["symbols"]
WORDS: dict[str, Any] = json.loads((PROMPTS / "words.json").read_text(encoding="utf-8"))
"""Word lists, separated by spaces or by `|`."""

NOISE: dict[str, Any] = json.loads((PROMPTS / "noise.json").read_text(encoding="utf-8"))
"""What people say around a request, and what says the same as something else."""
NAME_VERBS: dict[str, list[str]] = NOISE["name_verbs"]
"""Other words for the verb that a function's name begins with."""
DESCRIPTION_OPENINGS: list[str] = NOISE["description_openings"]


def word_list(name: str) -> list[str]:
    """A word list of the file."""
    text: str = WORDS[name]
    return text.split("|") if "|" in text else text.split()
