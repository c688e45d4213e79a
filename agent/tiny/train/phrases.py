"""What people say, read from prompts/grammar.json: phrasings as small grammars.

`[a|b|c]` chooses one alternative (an empty one is allowed, nesting too), `{0}` is the first value,
`<ask>` a macro of the file. Every string stands for dozens to thousands of sentences: unseen
phrasing was what a small model failed at first, so breadth matters more than elegance.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.tiny.train.tools import Tool

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
CHAT: dict[str, list[str]] = _GRAMMAR["chat"]
REPLY: dict[str, list[str]] = _GRAMMAR["replies"]
"""For each kind of chat the thought and the answer."""
DECLINE: list[str] = _GRAMMAR["decline"]
OTHER: list[str] = _GRAMMAR["other"]
"""Requests that no tool of the data serves."""
INSTRUCTIONS: list[str] = _GRAMMAR["instructions"]
ARITHMETIC: dict[str, dict[str, list[str]]] = {
    key: _GRAMMAR["arithmetic"][key] for key in ("words", "follow")
}
MANY: list[str] = _GRAMMAR["arithmetic"]["many"]
FORMS: dict[str, list[str]] = _GRAMMAR["arithmetic"]["forms"]
"""For each form of the code what is said."""
SYMBOLS: list[str] = _GRAMMAR["arithmetic"]["symbols"]
WORDS: dict[str, Any] = json.loads((PROMPTS / "words.json").read_text(encoding="utf-8"))
"""Word lists, separated by spaces or by `|`."""


def listed(name: str) -> list[str]:
    """A word list of the file."""
    text: str = WORDS[name]
    return text.split("|") if "|" in text else text.split()


def unseen(rng: random.Random, tool: Tool) -> tuple[str, bool]:
    """A sentence for a new tool, and whether it has the tool's name or only its description."""
    verb, noun = tool.verb, tool.noun
    article = "an" if noun[0] in "aeiou" else "a"
    count = len(tool.params)
    named = [f"{p.name.replace('_', ' ')} {{{i}}}" for i, p in enumerate(tool.params)]
    bare = [f"{{{i}}}" for i in range(count)]
    mode = rng.random()
    spoken = tool.name.replace("__", " ").replace("_", " ")
    short = tool.name.split("__")[-1]
    args = " and ".join(named if rng.random() < 0.5 else bare)
    link = rng.choice([" with ", " with ", " for ", " on ", ": "]) if count else ""
    if mode < 0.32:
        called = rng.choice(
            [
                tool.name,
                tool.name,
                short,
                f"the {short} tool",
                f"the tool {tool.name}",
                f"the {spoken} tool",
                tool.name,
            ]
        )
        return (
            ASK
            + rng.choice(["use ", "call ", "run ", "try ", "invoke ", "use "])
            + called
            + link
            + args
            + END
        ), True
    body = rng.choice(
        [
            f"{verb} the {noun}",
            f"{verb} {article} {noun}",
            f"{verb} {noun}",
            f"{verb} my {noun}",
            f"{verb} this {noun}",
        ]
    )
    if count == 0:
        return ASK + body + END, False
    if count == 1 and rng.random() < 0.7:
        tail = rng.choice(
            [
                " {0}",
                " {0}",
                ": {0}",
                " for {0}",
                " of {0}",
                " named {0}",
                " called {0}",
                " with {0}",
            ]
        )
        if rng.random() < 0.15:
            return rng.choice(
                [
                    f"which {noun} do you {verb} for {{0}}?",
                    f"{{0}}: {verb} the {noun}",
                    f"i want to {verb} {article} {noun}, {{0}}",
                    f"i need {article} {noun} to {verb}: {{0}}",
                ]
            ), False
        return ASK + body + tail + END, False
    return ASK + body + link + args + END, False
