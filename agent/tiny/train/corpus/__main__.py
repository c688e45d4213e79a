"""Check corpus files and count their requests: python -m agent.tiny.train.corpus [FILES]"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.tiny.train import corpus
from agent.tiny.train.corpus import slots

LONGEST_REQUEST = 400
"""Characters."""


def check_intent(entry: corpus.CorpusEntry) -> Iterator[str]:
    """Fill the slots and run the code."""
    rng = random.Random(entry.fields["name"])
    kinds = entry.fields.get("slots", {})
    code = entry.fields["code"].strip()
    if not entry.fields["thought"].endswith("."):
        yield "the thought is no sentence"
    known = set(kinds) | ({"previous"} if entry.table == "follow" else set())
    used = set(corpus.SLOT.findall(code))
    if used - known:
        yield f"code uses unknown slots: {used - known}"
        return
    for request in entry.requests:
        shown = set(corpus.SLOT.findall(request))
        if missing := used - shown - {"previous"}:
            yield f"{request!r} lacks {missing}"
        if shown - known:
            yield f"{request!r} has unknown slots {shown - known}"
    if code.count("\n") > 5:
        yield "more than six lines of code"
    errors = 0
    for _ in range(8):
        values = slots.fill(rng, kinds)
        filled = code
        for name, value in values.items():
            filled = filled.replace(f"{{{name}}}", value.code)
        after = {"text": "'kiwi'", "list": "[4, 8, 15]"}.get(entry.fields.get("after", ""), "42")
        filled = filled.replace("{previous}", after)
        try:
            if len(shown_result := corpus.run_code(filled)) > 200:
                yield f"a long result: {shown_result[:60]} …"
        except Exception as error:
            errors += 1
            if errors == 1:
                yield f"code fails with { ({n: v.code for n, v in values.items()}) }: {error!r}"


def check_function(entry: corpus.CorpusEntry) -> Iterator[str]:
    """Compare the marked arguments with the schema."""
    schema = json.loads(entry.fields["parameters"])
    properties, required = schema["properties"], set(schema.get("required", []))
    if not corpus.split_lines(entry.fields["results"]):
        yield "no results"
    for request in entry.requests:
        yield from check_arguments(request, corpus.parse_marks(request), [(properties, required)])


def check_arguments(
    request: str, marked: corpus.MarkedRequest, calls: list[tuple[dict[str, Any], set[str]]]
) -> Iterator[str]:
    """Compare a request's arguments with the parameters of its calls."""
    if "{" in marked.text or "}" in marked.text:
        yield f"{request!r}: a brace is left"
    for index, (properties, required) in enumerate(calls):
        arguments = marked.arguments(index)
        if missing := required - arguments.keys():
            yield f"{request!r} lacks {missing} of call {index + 1}"
        for name, value in arguments.items():
            if name not in properties:
                yield f"{request!r}: {name} is no parameter"
                continue
            try:
                corpus.convert_argument(properties[name], value)
            except (ValueError, KeyError) as error:
                yield f"{request!r}: {name}: {error}"


def check_sequence(
    entry: corpus.CorpusEntry, functions: dict[str, dict[str, Any]]
) -> Iterator[str]:
    """Compare the arguments of each call."""
    calls = []
    for name in entry.fields["functions"]:
        if name not in functions:
            yield f"{name} is no function of this file"
            return
        schema = json.loads(functions[name]["parameters"])
        calls.append((schema["properties"], set(schema.get("required", []))))
    for request in entry.requests:
        yield from check_arguments(request, corpus.parse_marks(request), calls)


def check_chain(entry: corpus.CorpusEntry, functions: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Compare what a request and the first result give with what the two calls need."""
    names = entry.fields["functions"]
    if unknown := set(names) - functions.keys():
        yield f"{unknown} is no function of this file"
        return
    schemas = [json.loads(functions[name]["parameters"]) for name in names]
    (first, needed), (second, needed_next) = (
        (schema["properties"], set(schema.get("required", []))) for schema in schemas
    )
    results = [corpus.parse_marks(line) for line in corpus.split_lines(entry.fields["results"])]
    told = results[0].arguments(1).keys() if results else set[str]()
    for result in results:
        if not told or result.arguments(1).keys() != told or result.arguments(0):
            yield f"{result.text!r} does not tell the same arguments of the second call"
        for name, value in result.arguments(1).items():
            if result.text.count(value) > 1:
                yield f"{result.text!r} has {value!r} twice"
            try:
                corpus.convert_argument(second[name], value)
            except (ValueError, KeyError) as error:
                yield f"{result.text!r}: {name}: {error!r}"
    for request in entry.requests:
        marked = corpus.parse_marks(request)
        if both := told & marked.arguments(1).keys():
            yield f"{request!r} gives {set(both)} too"
        yield from check_arguments(request, marked, [(first, needed), (second, needed_next - told)])


def check_entry(entry: corpus.CorpusEntry, functions: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What is wrong with an entry."""
    match entry.table:
        case "intent" | "follow":
            yield from check_intent(entry)
        case "function":
            yield from check_function(entry)
        case "sequence":
            yield from check_sequence(entry, functions)
        case "chain":
            yield from check_chain(entry, functions)
        case "files":
            allowed = {"read": {"path"}, "list": {"folder"}, "search": {"query", "folder", "path"}}
            for request in entry.requests:
                if extra := set(corpus.SLOT.findall(request)) - allowed[entry.fields["action"]]:
                    yield f"{request!r} has unknown slots {extra}"
        case "described":
            if not entry.fields["content"].strip() or "." not in entry.fields["file"]:
                yield "file and content are needed"
        case "chat":
            if not (entry.fields["thought"] and entry.fields["reply"]):
                yield "thought and reply are needed"
        case _:
            pass


def main() -> None:
    """Check the files that are named, or all."""
    paths = [Path(name) for name in sys.argv[1:]] or sorted(corpus.FOLDER.glob("*.toml"))
    counts: Counter[str] = Counter()
    seen: dict[tuple[str, str], Path] = {}
    faults = 0
    for path in paths:
        try:
            entries = list(corpus.read_file(path))
        except ValueError as error:
            sys.exit(f"{path.name}: {error}")
        functions = {e.fields["name"]: e.fields for e in entries if e.table == "function"}
        for entry in entries:
            label = (
                entry.fields.get("name")
                or entry.fields.get("file")
                or entry.fields.get("functions")
            )
            try:
                problems = list(check_entry(entry, functions))
            except (KeyError, ValueError) as error:
                problems = [f"{type(error).__name__}: {error}"]
            for request in entry.requests:
                key = (entry.table, " ".join(request.lower().split()))
                if key in seen and request.strip():
                    problems.append(f"{request!r} stands in {seen[key].name} already")
                seen[key] = path
                if len(request) > LONGEST_REQUEST and entry.table != "odd":
                    problems.append(f"longer than {LONGEST_REQUEST} characters: {request[:60]} …")
            for problem in problems:
                print(f"{path.name}: {entry.table} {label}: {problem}")
            faults += len(problems)
            counts[f"{entry.table} entries"] += 1
            counts[f"{entry.table} requests"] += len(entry.requests)
    for name, count in sorted(counts.items()):
        print(f"{count:7} {name}")
    total = sum(count for name, count in counts.items() if name.endswith("requests"))
    print(f"{total:7} requests, {faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
