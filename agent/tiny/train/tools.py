"""The tools of the training data: about ten fixed families and ever new ones."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from agent.tiny import vocabulary
from agent.tiny.train import phrases
from agent.tiny.train.corpus import CorpusEntry
from agent.tiny.train.words import Split, belongs, pool


@dataclass(frozen=True)
class Param:
    """A parameter of a tool."""

    name: str
    kind: str = "string"
    required: bool = True
    description: str = ""


@dataclass(frozen=True)
class DialogueTool:
    """A declared function; `family` tells the data which requests it serves."""

    family: str
    name: str
    description: str
    params: tuple[Param, ...]
    verb: str = ""
    noun: str = ""
    words: tuple[str, ...] = field(default=())
    entry: CorpusEntry | None = None
    """Of a function of the corpus: what it is made of."""
    parameters: str = ""
    """Of a function of the corpus: its JSON Schema, as text."""

    @property
    def path(self) -> Path | None:
        """The file of the corpus that it stands in."""
        return self.entry.path if self.entry else None

    def schema(self) -> dict[str, Any]:
        """Its parameters as JSON Schema."""
        if self.parameters:
            schema: dict[str, Any] = json.loads(self.parameters)
            return schema
        properties: dict[str, Any] = {}
        for param in self.params:
            properties[param.name] = {"type": param.kind}
            if param.description:
                properties[param.name]["description"] = param.description
        required = [p.name for p in self.params if p.required]
        return {"type": "object", "properties": properties, "required": required}


FIXED: dict[str, dict[str, list[str]]] = phrases.WORDS["fixed"]
"""A family's names (the first is the program's own), descriptions (likewise), parameter names."""
FILE_TOOLS = ("read", "list", "search")
EXTRAS = tuple(family for family in FIXED if family not in FILE_TOOLS)


def fixed(rng: random.Random, family: str, usual: float = 0.75) -> DialogueTool:
    """A family's tool, most of the time as the program declares it."""
    names, descriptions, params = FIXED[family].values()
    own = rng.random() < usual
    name = names[0] if own else rng.choice(names)
    if not own and rng.random() < 0.15 and "__" in name:
        name = f"{server(rng, 'train')}__{name.split('__')[1]}"
    text = descriptions[0] if rng.random() < 0.6 else rng.choice(descriptions)
    first = params[0] if own else rng.choice(params)
    about = rng.choice(["", "", "", f"The {first}.", f"{first} to use", f"A {first}, as text."])
    extra: list[Param] = []
    match family:
        case "read":
            if own or rng.random() < 0.5:
                extra = [
                    Param("first_line", "integer", False),
                    Param("last_line", "integer", False),
                ]
        case "list":
            return DialogueTool(family, name, text, (Param(first, "string", False, about),))
        case "search":
            if own or rng.random() < 0.5:
                extra = [Param("path", "string", False)]
        case "sum":
            second = {"a": "b", "x": "y", "first": "second"}[first]
            kind = rng.choice(["number", "number", "integer"])
            return DialogueTool(family, name, text, (Param(first, kind), Param(second, kind)))
        case _:
            pass
    return DialogueTool(family, name, text, (Param(first, "string", True, about), *extra))


VERBS = phrases.word_list("verbs")
NOUNS = phrases.word_list("nouns")
PARAMS = phrases.word_list("parameters")


@cache
def _plain() -> frozenset[str]:
    """Words whose token exists with a space and without."""
    ids = set(vocabulary.tokens())
    lower = (*pool("train")[0], *pool("eval")[0], *VERBS, *NOUNS, *PARAMS)
    return frozenset(
        w for w in lower if w.isascii() and w.encode() in ids and f" {w}".encode() in ids
    )


@cache
def plain(split: Split) -> tuple[str, ...]:
    """Words of a split whose token exists with a space and without."""
    return tuple(sorted(w for w in _plain() if belongs(w, split) and len(w) > 2))


def server(rng: random.Random, split: Split) -> str:
    """A server's name."""
    return rng.choice(plain(split))


def bank(rng: random.Random, split: Split, words: list[str], wild: float = 0.4) -> str:
    """A word of a list, or any word of the vocabulary: the structure must do, not the words."""
    while True:
        value = rng.choice(plain(split)) if rng.random() < wild else rng.choice(words)
        if belongs(value, split) and value in _plain():
            return value


def unseen(rng: random.Random, split: Split) -> DialogueTool:
    """A tool that was never declared before."""
    verb, noun = bank(rng, split, VERBS), bank(rng, split, NOUNS)
    style = rng.choice(["vn", "vn", "vn", "nv", "n", "v", "camel"])
    match style:
        case "vn":
            short = f"{verb}_{noun}"
        case "nv":
            short = f"{noun}_{verb}"
        case "n":
            short = noun
        case "v":
            short = verb
        case _:
            short = verb + noun.title()
    name = short if rng.random() < 0.3 else f"{server(rng, split)}__{short}"
    count = rng.choice([1, 1, 1, 1, 2, 2, 0])
    names: list[str] = []
    while len(names) < count:
        candidate = bank(rng, split, PARAMS, 0.3)
        if rng.random() < 0.15:
            candidate = f"{noun}_{candidate}"
        if candidate not in names:
            names.append(candidate)
    params = tuple(
        Param(
            p,
            rng.choice(["string", "string", "string", "integer"]),
            True,
            rng.choice(["", "", "", f"The {p} of the {noun}", f"{p} to {verb}", f"A {p}."]),
        )
        for p in names
    )
    article = "an" if noun[0] in "aeiou" else "a"
    text = rng.choice(
        [
            f"{verb.title()} {article} {noun}.",
            f"{verb.title()} {article} {noun}",
            f"{verb.title()} the {noun}.",
            f"{verb.title()} {noun}.",
            f"Tool to {verb} {article} {noun}.",
            f"{verb.title()}s {article} {noun}.",
            f"{verb.title()} {article} {noun} by {names[0]}."
            if names
            else f"{verb.title()} any {noun}.",
            f"Use this to {verb} the {noun}.",
            f"{noun.title()}: {verb} it.",
        ]
    )
    return DialogueTool("unseen", name, text, params, verb, noun, (style,))


def choose_tools(rng: random.Random, split: Split) -> list[DialogueTool]:
    """A random selection, in random order."""
    tools: list[DialogueTool] = []
    kind = rng.random()
    if kind < 0.3:  # as a fresh installation declares them
        tools = [fixed(rng, family, 1.0) for family in FILE_TOOLS]
        if kind < 0.15:
            return tools
    elif kind < 0.66:
        usual = 1.0 if rng.random() < (0.7 if split == "train" else 0.8) else 0.0
        tools += [fixed(rng, f, usual) for f in FILE_TOOLS if usual or rng.random() < 0.7]
    extras = rng.choice([0, 1, 1, 2, 2, 3, 4, 5, 6])
    own, new = (0.7, 0.8) if split == "train" else (0.85, 0.45)
    tools += [fixed(rng, f, own) for f in rng.sample(EXTRAS, extras)]
    if rng.random() < new:
        tools += [unseen(rng, split) for _ in range(rng.choice([1, 1, 2, 2, 3]))]
    if rng.random() < 0.7:
        rng.shuffle(tools)
    unique: dict[str, DialogueTool] = {}
    for tool in tools:
        unique.setdefault(tool.name, tool)
    return list(unique.values())


def unseen_request(rng: random.Random, tool: DialogueTool) -> tuple[str, bool]:
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
            phrases.ASK
            + rng.choice(["use ", "call ", "run ", "try ", "invoke ", "use "])
            + called
            + link
            + args
            + phrases.END
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
        return phrases.ASK + body + phrases.END, False
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
        return phrases.ASK + body + tail + phrases.END, False
    return phrases.ASK + body + link + args + phrases.END, False
