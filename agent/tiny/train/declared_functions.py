"""Functions of the corpus as clients declare them: which ones, under which names and descriptions."""

from __future__ import annotations

import json
import random
import re
from functools import cache

from agent.tiny.train import corpus, phrases
from agent.tiny.train.corpus import CorpusEntry
from agent.tiny.train.tools import DialogueTool, Param
from agent.tiny.train.words import Split

MAX_DESCRIPTION_WORDS = 7
"""Words that a shortened description keeps."""
SEQUENCE_SHARE = 0.5
"""Of the declarations, those that have the functions of a sequence or a chain."""
CHAIN_SHARE = 0.4
"""Of these, those of a chain."""
CORPUS_FAMILY = "function"
"""The family of the corpus's functions."""


@cache
def argument_values() -> dict[tuple[str, str], tuple[str, ...]]:
    """The strings that stand in requests as they are, by file (or "" for all) and parameter's name."""
    pools: dict[tuple[str, str], set[str]] = {}
    for entry in corpus.entries("function"):
        properties = json.loads(entry.fields["parameters"])["properties"]
        for line in entry.requests:
            for part in corpus.parse_marks(line).parts:
                if isinstance(part, tuple) and part[2] == part[3]:
                    kind = properties[part[1]]
                    if kind["type"] == "string" and "enum" not in kind:
                        for file in ("", entry.path.name):
                            pools.setdefault((file, part[1]), set()).add(part[2])
    return {key: tuple(sorted(values)) for key, values in pools.items()}


def function_tool(entry: CorpusEntry, rng: random.Random | None = None) -> DialogueTool:
    """The declared function of an entry; with ``rng`` as another developer would declare it."""
    schema = json.loads(entry.fields["parameters"])
    name, description = entry.fields["name"], entry.fields["description"]
    if rng is not None:
        name, description = _rename(rng, name), _redescribe(rng, name, description)
        properties = list(schema["properties"].items())
        if rng.random() < 0.4:
            rng.shuffle(properties)
        if rng.random() < 0.3:
            for _, kind in properties:
                kind.pop("description", None)
        schema["properties"] = dict(properties)
    required = set(schema.get("required", []))
    params = tuple(
        Param(param, kind["type"], param in required, kind.get("description", ""))
        for param, kind in schema["properties"].items()
    )
    return DialogueTool(
        CORPUS_FAMILY, name, description, params, entry=entry, parameters=json.dumps(schema)
    )


def _rename(rng: random.Random, name: str) -> str:
    """A function's name, mostly as it is, or in other words or another style."""
    kind = rng.random()
    if kind < 0.45:
        return name
    words = re.findall(r"[A-Za-z][a-z]*|\d+", name)
    parts: list[str] = [word.lower() for word in words]
    if parts[0] in phrases.NAME_VERBS and rng.random() < 0.4:
        parts[0] = rng.choice(phrases.NAME_VERBS[parts[0]])
    if kind < 0.6:
        return parts[0] + "".join(part.title() for part in parts[1:])
    if kind < 0.67:
        return "-".join(parts)
    if kind < 0.73 and len(parts) > 1:
        parts = [*parts[1:], parts[0]]
    return "_".join(parts)


def _redescribe(rng: random.Random, name: str, description: str) -> str:
    """A function's description, mostly as it is, or shorter, or with words around it."""
    kind = rng.random()
    if kind < 0.65:
        return description
    if kind < 0.75:
        return description.rstrip(".")
    if kind < 0.85:
        opening = rng.choice(phrases.DESCRIPTION_OPENINGS)
        return f"{opening} {description[:1].lower()}{description[1:]}"
    if kind < 0.93:
        return _first_words(description) + "."
    return " ".join(re.findall(r"[A-Za-z][a-z]*|\d+", name)).lower()


@cache
def _functions_by_file() -> dict[str, tuple[CorpusEntry, ...]]:
    files: dict[str, list[CorpusEntry]] = {}
    for entry in corpus.entries("function"):
        files.setdefault(entry.path.name, []).append(entry)
    return {name: tuple(entries) for name, entries in files.items()}


def choose_functions(rng: random.Random, split: Split) -> list[DialogueTool]:
    """Some functions of one file; often those of a sequence or a chain."""
    sequences = corpus.requests_of("chain" if rng.random() < CHAIN_SHARE else "sequence", split)
    if sequences and rng.random() < SEQUENCE_SHARE:
        entry, _ = rng.choice(sequences)
        names, file = set(entry.fields["functions"]), entry.path.name
    else:
        names, file = set(), rng.choice(list(_functions_by_file()))
    functions = _functions_by_file()[file]
    chosen = [one for one in functions if one.fields["name"] in names]
    others = [one for one in functions if one.fields["name"] not in names]
    at = rng.randrange(len(others))  # neighbours are of one subject, and easily confused
    near = others[max(0, at - 4) : at + 4] if rng.random() < 0.6 else others
    chosen += rng.sample(near, min(len(near), rng.choice([0, 1, 1, 2, 3, 4])))
    if not chosen:
        chosen = [rng.choice(functions)]
    rng.shuffle(chosen)
    tools = [function_tool(entry, rng if split == "train" else None) for entry in chosen]
    if len({tool.name for tool in tools}) < len(tools):
        return [function_tool(entry) for entry in chosen]
    return tools


def _first_words(description: str) -> str:
    """The first words of a description."""
    for opening in phrases.DESCRIPTION_OPENINGS:  # says nothing of what the function does
        description = description.removeprefix(f"{opening} ")
    first = re.split(r"[.;:,(]", description, maxsplit=1)[0]
    return " ".join(first.split()[:MAX_DESCRIPTION_WORDS])
