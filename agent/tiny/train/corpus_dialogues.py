"""Turns made of the corpus: its slots are filled, its code is run, its functions are called."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from jsonschema import Draft202012Validator

from agent.tiny import vocabulary
from agent.tiny.train import code_form, corpus, phrases, results, typing_noise
from agent.tiny.train.corpus import CorpusEntry, MarkedRequest, slots
from agent.tiny.train.declared_functions import CORPUS_FAMILY, argument_values
from agent.tiny.train.dialogues import Talker
from agent.tiny.train.tools import DialogueTool, Param
from agent.tiny.train.turns import AGAIN, FITS, DialogueCall, DialogueRequest, DialogueTurn
from agent.tiny.train.words import belongs, folder, path, phrase, query

MAX_RESULT_CHARACTERS = 160
"""Longer results of code are not taken."""
FAILED_CHAIN_SHARE = 0.08
"""Of the chains, those whose first call fails: there is no second."""
TOPIC_WORD = re.compile(r"[a-z]{4,}")
"""Words that tell what a request is about."""
LINKS = "of|for|by|in|into|to|from|with|at|on|until|after|before|over|than"
"""Words before a value that are said again with it, as a pattern."""
NO_UNITS = frozenset(phrases.word_list("no_units"))
"""Words after a value that are not its unit."""

CodeParts = list[tuple[tuple[int, ...], bool]]
"""Tokens of code, in parts, each with whether it is a copy."""


@dataclass(frozen=True, slots=True)
class FilledIntent:
    """An intent with its values, and the text in which they stand."""

    entry: CorpusEntry
    text: str
    values: dict[str, slots.SlotValue]
    thought: str
    code: str
    """With the slots."""


def _rename_file(rng: random.Random, name: str) -> str:
    """A described file's name, half of the time with other joints or another ending."""
    stem, dot, ending = name.rpartition(".")
    if rng.random() < 0.5 or not stem or "/" in name:
        return name
    joint = rng.choice(("_", "-", "", "_"))
    stem = joint.join(re.split(r"[_-]", stem)) if rng.random() < 0.5 else stem
    if ending in ("txt", "md") and rng.random() < 0.5:
        ending = rng.choice(("txt", "md", "md", "txt", "rst", "log"))
    return stem + dot + ending


def value_context(text: str, value: str) -> str:
    """What people say again with a new value: "of {0}", "{0} kg", "{0}%"; "{0}": nothing.

    It tells which of the values before is meant.
    """
    found = re.search(
        rf"(?:(?<!\w)({LINKS}) )?(?<![\w.]){re.escape(value)}(?![\w.,]*\d)(%| ?[a-z]+)?", text, re.I
    )
    if found is None:
        return "{0}"
    link, unit = found.group(1) or "", found.group(2) or ""
    unit = "" if unit.strip().lower() in NO_UNITS else unit.replace("{", "").replace("}", "")
    return f"{link} {{0}}{unit}".strip()


class CorpusTalker:
    """Makes turns of the corpus for one prefix."""

    def __init__(self, talker: Talker, tools: list[DialogueTool]) -> None:
        """``tools``: all that the prefix declares."""
        self.talker, self.tools = talker, tools
        self.rng, self.split, self.encode = talker.rng, talker.split, talker.encode
        self.by_family = {tool.family: tool for tool in tools}
        self.functions = [tool for tool in tools if tool.family == CORPUS_FAMILY]

    # --- python ---

    last_intent: FilledIntent | None = None
    """The intent that :meth:`intent` filled last, so that a follow-up can change a value."""

    def intent(self, table: str = "intent", previous: str | None = None) -> DialogueRequest | None:
        """A request that python answers; ``previous``: what a follow-up refers to, as code."""
        rng = self.rng
        entries = corpus.requests_of(table, self.split)
        if table == "follow":
            sort = _sort_of(previous or "")
            entries = tuple(pair for pair in entries if pair[0].fields.get("after") == sort)
        if not entries:
            return None
        entry, lines = rng.choice(entries)
        values = slots.fill(rng, entry.fields.get("slots", {}))
        text = typing_noise.vary(rng, rng.choice(lines))
        decimals = any("." in value.code for value in values.values()) or "." in (previous or "")
        thought, code = code_form.form(entry, text, decimals)
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", value.text)
        self.last_intent = FilledIntent(entry, text, values, thought, code)
        return self._run(self.last_intent, text, previous)

    def again(self, before: FilledIntent) -> DialogueRequest | None:
        """The same intent with one value changed; the others stay as the request before had them.

        None if it has no slot that can be changed, or its code fails with the new value.
        """
        rng = self.rng
        new = slots.fill(rng, before.entry.fields.get("slots", {}))
        asked = set(corpus.SLOT.findall(before.code))  # this wording may have fewer of them
        changed = [
            name
            for name, value in before.values.items()
            if name in asked
            and value.text in before.text
            and value.text != new[name].text
            and value.code != new[name].code  # "oz" and "ounces" are one value
        ]
        if not changed:
            return None
        name = rng.choice(changed)
        values = {**before.values, name: new[name]}
        forms = phrases.CHANGED if len(values) == 1 or rng.random() < 0.3 else phrases.REPLACED
        if len(values) > 1 and forms is phrases.CHANGED and not self._stands_out(before, name):
            forms = phrases.REPLACED
        said, old = new[name].text, before.values[name].text
        context = value_context(before.text, old)
        others = (value.text for at, value in before.values.items() if at != name)
        if rng.random() < 0.5 and context not in (
            "{0}",
            *(value_context(before.text, v) for v in others),
        ):
            said, forms = context.format(said), phrases.CHANGED_CONTEXT
        text = typing_noise.say(rng, rng.choice(forms), [said, old])
        # Values are copied from where they stand: the new one first, the others from before.
        both = replace(before, text=f"{text}\n{before.text}", values=values)
        request = self._run(both, text)
        if request is not None:
            request.own_thought = "The same with another value. I run python."
        return request

    @staticmethod
    def _stands_out(before: FilledIntent, name: str) -> bool:
        """Whether a slot is the only one of its sort, so that a new value tells which it is."""
        sorts = [spec.split()[0] for spec in before.entry.fields["slots"].values()]
        return sorts.count(before.entry.fields["slots"][name].split()[0]) == 1

    def _run(
        self, filled: FilledIntent, text: str, previous: str | None = None
    ) -> DialogueRequest | None:
        """The call of a filled intent with its result; None if the code fails or writes too much."""
        parts = self._fill_code(filled.code, filled.text, filled.values, previous)
        if parts is None:
            return None
        tokens = vocabulary.tokens()
        code = b"".join(tokens[token] for part, _ in parts for token in part).decode()
        try:
            result = corpus.run_code(code)
        except Exception as error:
            if previous is not None or isinstance(error, TimeoutError):
                return None  # what was before does not suit this follow-up
            result = f"{type(error).__name__}: {error}"
        if len(result) > MAX_RESULT_CHARACTERS:
            return None
        request = self.talker.python_call(text, code, tuple(parts), result)
        thought = filled.thought
        if previous is not None and "{previous}" in thought:
            thought = thought.replace("{previous}", previous)
        elif previous is not None:
            thought = f"{thought.rstrip('.')}: {previous}."
        request.own_thought = f"{thought} I run python."
        return request

    def _fill_code(
        self, template: str, text: str, values: dict[str, slots.SlotValue], previous: str | None
    ) -> CodeParts | None:
        """The code's tokens with the slots' values; None if a value cannot be copied there."""
        parts: CodeParts = []
        rest = template
        while found := corpus.SLOT.search(rest):
            if found.start():
                parts.append((self.encode(rest[: found.start()]), False))
            rest = rest[found.end() :]
            name = found.group(1)
            if name == "previous":
                parts.append((self.encode(previous or ""), True))
                continue
            value = values[name]
            if value.code.startswith("'"):
                for index, word in enumerate(value.code.split(", ")):
                    parts.append((self.encode(", '" if index else "'"), False))
                    ids = self.talker.ids(text, word.strip("'"))
                    parts += [(ids, True), (self.encode(self._close_quote(ids)), False)]
                continue
            ids = self._copied(text, value)
            parts.append((ids, True))
            if self._starts_with_space(ids):
                if not rest.startswith("'"):
                    return None
                parts.append((self.encode(self._close_quote(ids)), False))
                rest = rest[1:]
        if rest:
            parts.append((self.encode(rest), False))
        return parts

    def _copied(self, text: str, value: slots.SlotValue) -> tuple[int, ...]:
        """A value's tokens in the code: as they stand in the request, where they do."""
        if value.code == value.text:
            return self.talker.ids(text, value.text)
        if value.text.replace(",", "") == value.code:  # 1,234 is copied without its commas
            return tuple(token for group in value.text.split(",") for token in self.encode(group))
        return self.encode(value.code)

    @staticmethod
    def _starts_with_space(ids: tuple[int, ...]) -> bool:
        return vocabulary.tokens()[ids[0]].startswith(b" ")

    def _close_quote(self, ids: tuple[int, ...]) -> str:
        """What ends a string in code: a word whose only token has a space is copied with it."""
        return "'.strip()" if self._starts_with_space(ids) else "'"

    # --- files ---

    def files(
        self, follow_tool: DialogueTool | None = None, family: str | None = None
    ) -> DialogueRequest | None:
        """A request that a file tool answers; a follow-up of ``follow_tool`` if that is given.

        ``family``: of the tool; None: any.
        """
        rng = self.rng
        pairs = [
            (entry, lines)
            for entry, lines in corpus.requests_of("files", self.split)
            if entry.fields["action"] in ({family} if family else self.by_family)
            and entry.fields["name"].startswith("follow") == (follow_tool is not None)
            and (follow_tool is None or entry.fields["action"] == follow_tool.family)
        ]
        if not pairs:
            return None
        entry, lines = rng.choices(pairs, [len(lines) for _, lines in pairs])[0]
        tool = self.by_family[entry.fields["action"]]
        text = typing_noise.vary(rng, rng.choice(lines))
        names = corpus.SLOT.findall(text)
        make = {"path": path, "folder": folder, "query": query}
        values = {name: make[name](rng, self.split) for name in dict.fromkeys(names)}
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", value)
        order = {"read": ("path",), "list": ("folder",), "search": ("query", "folder", "path")}
        shown = [values[name] for name in order[tool.family] if name in values]
        if len(shown) > len(tool.params):
            return None
        return self.talker.finish(text, tool, shown)

    def by_description(self) -> DialogueTurn | None:
        """A file that is only described: the folder is listed, then the file is read."""
        rng = self.rng
        if not {"read", "list"} <= self.by_family.keys():
            return None
        entries = corpus.requests_of("described", self.split)
        if not entries:
            return None
        entry, lines = rng.choice(entries)
        wanted, content = _rename_file(rng, entry.fields["file"]), entry.fields["content"].strip()
        if "/" in wanted or wanted.startswith("."):
            return None
        some = rng.sample(entries, min(len(entries), 8))
        others = [_rename_file(rng, one.fields["file"]) for one, _ in some if one is not entry]
        names = [name for name in dict.fromkeys(others) if "/" not in name and name != wanted]
        names = names[: rng.randint(0, 7)] + [
            path(rng, self.split).split("/")[-1] for _ in range(rng.choice([0, 1, 2]))
        ]
        if rng.random() < 0.4:
            names.append(folder(rng, self.split).strip("./").split("/")[0] + "/")
        names.append(wanted)
        names.sort() if rng.random() < 0.7 else rng.shuffle(names)
        list_tool, read_tool = self.by_family["list"], self.by_family["read"]
        listing = DialogueCall(list_tool, [], "\n".join(names))
        argument = (read_tool.params[0].name, "string", self.encode(wanted))
        reading = DialogueCall(read_tool, [wanted], content, [argument])
        thoughts = [
            f"A file is only described. I call {list_tool.name}.",
            f"The file fits: {wanted}. I call {read_tool.name}.",
        ]
        text = typing_noise.vary(rng, rng.choice(lines))
        if rng.random() < 0.25:  # so that it is read and not remembered
            content = results.of(rng, self.split, read_tool, [wanted])
            reading = DialogueCall(read_tool, [wanted], content, [argument])
        return DialogueTurn(text, thoughts, [listing, reading], kind="described", reported_calls=1)

    def file_reference(self, before: DialogueTurn) -> DialogueTurn | None:
        """A file that the result before names is opened by a word such as "it" or "the last one"."""
        rng = self.rng
        call, tool = before.calls[-1], self.by_family.get("read")
        if tool is None or results.is_error(call.result):
            return None
        lines = [line for line in call.result.splitlines() if line.strip()]
        if call.family == "search":
            paths = list(dict.fromkeys(line.split(":")[0] for line in lines if ":" in line))
        else:
            folder_name = call.values[0].strip("/") if call.values else ""
            inside = f"{folder_name}/" if folder_name.strip(".") else ""
            paths = [inside + line for line in lines if not line.endswith("/")]
        if not paths or len(paths) > 8 or any(" " in path for path in paths):
            return None
        at = rng.choice([0, -1, rng.randrange(len(paths))])
        wanted = paths[at]
        ending = wanted.rsplit(".", 1)[-1]
        forms = list(phrases.FILE_REFERENCES["one"]) if len(paths) == 1 else []
        forms += phrases.FILE_REFERENCES["first"] if at == 0 else []
        forms += phrases.FILE_REFERENCES["last"] if at == -1 and len(paths) > 1 else []
        if len(paths) > 1 and [path.rsplit(".", 1)[-1] for path in paths].count(ending) == 1:
            forms += phrases.FILE_REFERENCES["ending"]
        if not forms:
            return None
        text = typing_noise.say(rng, rng.choice(forms), [ending])
        argument = (tool.params[0].name, "string", self.encode(wanted))
        result = results.of(rng, self.split, tool, [wanted])
        thought = f"The file fits: {wanted}. I call {tool.name}."
        return DialogueTurn(
            text, [thought], [DialogueCall(tool, [wanted], result, [argument])], kind="follow"
        )

    # --- functions ---

    def function_again(self, before: DialogueCall, request: str) -> DialogueTurn | None:
        """The same function with one string changed. ``request``: the text before."""
        rng, tool = self.rng, before.tool
        assert tool is not None and tool.entry is not None
        properties = tool.schema()["properties"]
        free = [
            index
            for index, (name, kind, _) in enumerate(before.arguments)
            if kind == "string" and "enum" not in properties[name]
        ]
        if not free:
            return None
        at = rng.choice(free)
        name = before.arguments[at][0]
        pool = argument_values().get((tool.entry.path.name, name), ())
        old = before.values[at]
        others = [value for value in pool if value != old]
        if not others:
            return None
        new = rng.choice(others)
        alone = len(before.arguments) == 1 or rng.random() < 0.3
        forms, said = phrases.CHANGED if alone else phrases.REPLACED, new
        if (context := value_context(request, old)) != "{0}" and rng.random() < 0.4:
            forms, said = phrases.CHANGED_CONTEXT, context.format(new)
        text = typing_noise.say(rng, rng.choice(forms), [said, old])
        arguments = list(before.arguments)
        arguments[at] = (name, "string", self.talker.ids(text, new))
        values = [*before.values[:at], new, *before.values[at + 1 :]]
        result = rng.choice(corpus.split_lines(tool.entry.fields["results"]))
        call = DialogueCall(tool, values, result, arguments)
        return DialogueTurn(text, [AGAIN.format(tool.name)], [call], kind="follow")

    def function(self) -> DialogueRequest | None:
        """A request for one of the declared functions."""
        rng = self.rng
        if not self.functions:
            return None
        tool = rng.choice(self.functions)
        assert tool.entry is not None
        lines = [line for line in tool.entry.requests if belongs(line, self.split)]
        if not lines:
            return None
        marked = corpus.parse_marks(typing_noise.vary(rng, rng.choice(lines)))
        return self._calls(marked, [tool])[0]

    def sequence(self) -> DialogueTurn | None:
        """A request for several calls of declared functions."""
        return self._in_order("sequence")

    def chain(self) -> DialogueTurn | None:
        """A request for two calls, of which the second needs what the first one's result tells."""
        return self._in_order("chain")

    def _in_order(self, table: Literal["sequence", "chain"]) -> DialogueTurn | None:
        rng = self.rng
        by_name = {tool.entry.fields["name"]: tool for tool in self.functions if tool.entry}
        fitting = [
            (entry, lines)
            for entry, lines in corpus.requests_of(table, self.split)
            if set(entry.fields["functions"]) <= by_name.keys()
            and all(entry.path == by_name[name].path for name in entry.fields["functions"])
        ]
        if not fitting:
            return None
        entry, lines = rng.choice(fitting)
        tools = [by_name[name] for name in entry.fields["functions"]]
        marked = corpus.parse_marks(typing_noise.vary(rng, rng.choice(lines)))
        result = None
        if table == "chain":
            result = corpus.parse_marks(rng.choice(corpus.split_lines(entry.fields["results"])))
        calls = self._calls(marked, tools, result)
        order = ["First:", "Now the second:", "Now the third:", "Now the fourth:"]
        count = {2: "Two", 3: "Three", 4: "Four"}.get(len(calls))
        if count is None:
            return None
        thoughts = [f"{order[i]} {one.thought()}" for i, one in enumerate(calls)]
        thoughts[0] = f"{count} things are asked. {thoughts[0]}"
        if table == "chain" and rng.random() < FAILED_CHAIN_SHARE:
            assert tools[0].entry is not None
            answers = corpus.split_lines(tools[0].entry.fields["results"])
            if errors := [line for line in answers if line.startswith("error")]:
                calls[1:], thoughts[1:] = [], []
                calls[0].call.result = rng.choice(errors)
        return DialogueTurn(calls[0].text, thoughts, [one.call for one in calls], kind=table)

    def _calls(
        self,
        marked: MarkedRequest,
        tools: list[DialogueTool],
        first_result: MarkedRequest | None = None,
    ) -> list[DialogueRequest]:
        """The calls of a request, with other values where the request has them word by word.

        ``first_result``: of the first call, where it tells arguments of the second.
        """
        marked = self._vary(marked, tools)
        sources = [marked]
        if first_result is not None:
            sources.append(first_result := self._vary(first_result, tools))
        requests = []
        for index, tool in enumerate(tools):
            assert tool.entry is not None
            shown = {
                part[1]: (part, source)
                for source in sources
                for part in source.parts
                if isinstance(part, tuple) and part[0] == index
            }
            arguments = [
                (param.name, param.kind, self._argument(tool, param, *shown[param.name]))
                for param in tool.params
                if param.name in shown
            ]
            values = [shown[name][0][2] for name, _, _ in arguments]
            lines = corpus.split_lines(tool.entry.fields["results"])
            result = self.rng.choice(lines)
            if self.rng.random() < 0.3:  # so that results are read and not remembered
                result = results.of(self.rng, self.split, tool, values)
            if first_result is not None and index == 0:
                result = first_result.text
            call = DialogueCall(tool, values, result, arguments)
            thought = f"{FITS} {tool.name}."
            requests.append(DialogueRequest(marked.text, call, own_thought=thought))
        return requests

    def _vary(self, marked: MarkedRequest, tools: list[DialogueTool]) -> MarkedRequest:
        parts: list[str | tuple[int, str, str, str]] = []
        marks = [part for part in marked.parts if isinstance(part, tuple)]
        # "Pack 9 of W-603. W-159: as well.": the first 9 could not change alone.
        meant_again = {value for _, _, value, shown in marks if value != shown}
        for part in marked.parts:
            if (
                isinstance(part, tuple)
                and part[2] == part[3]
                and part[2] not in meant_again
                and part[0] < len(tools)
            ):
                entry = tools[part[0]].entry
                assert entry is not None
                kind = json.loads(entry.fields["parameters"])["properties"][part[1]]
                value = self._other_value(part[1], kind, part[2], entry.path.name)
                part = (part[0], part[1], value, value)
            parts.append(part)
        return MarkedRequest(tuple(parts))

    def _other_value(self, name: str, kind: dict[str, Any], value: str, file: str) -> str:
        """Another value that the schema allows; strings are mostly of the same subject."""
        other = self._any_value(name, kind, value, file)
        is_number = kind["type"] in ("integer", "number") and other != value
        valid = not is_number or Draft202012Validator(kind).is_valid(json.loads(other))
        return other if valid else value

    def _any_value(self, name: str, kind: dict[str, Any], value: str, file: str) -> str:
        rng = self.rng
        if rng.random() < 0.35:
            return value
        match kind["type"]:
            case "string" if "enum" in kind:
                return value
            case "string" if rng.random() < 0.06:  # any words: where they stand has to tell
                return phrase(rng, self.split, 3)
            case "string":
                subject = file if rng.random() < 0.7 else ""
                return rng.choice(argument_values().get((subject, name), (value,)))
            case "integer" | "number" if value.isdigit() and not value.startswith("0"):
                low = 10 ** (len(value) - 1)
                return str(rng.randint(low, low * 10 - 1))
            case "number" if re.fullmatch(r"[1-9]\d*\.\d+", value):
                whole, _, rest = value.partition(".")
                low = 10 ** (len(whole) - 1)
                return f"{rng.randint(low, low * 10 - 1)}.{rng.randint(1, 9)}{rest[1:]}"
            case _:
                return value

    def _argument(
        self,
        tool: DialogueTool,
        param: Param,
        part: tuple[int, str, str, str],
        marked: MarkedRequest,
    ) -> tuple[int, ...]:
        """An argument's tokens: as they stand in the request, where they do."""
        _, _, value, shown = part
        if param.kind == "array":
            items = [item.strip() for item in value.split(",")]
            ids = self.encode('["')
            for index, item in enumerate(items):
                ids += self.encode('","') if index else ()
                ids += self.talker.ids(marked.text, item)
            return (*ids, *self.encode('"]'))
        if value == shown and "enum" not in tool.schema()["properties"][param.name]:
            return self.talker.ids(marked.text, value)
        return self.encode(value)

    # --- without a tool ---

    def chat(self) -> DialogueTurn | None:
        """Small talk."""
        entries = corpus.requests_of("chat", self.split)
        if not entries:
            return None
        entry, lines = self.rng.choices(entries, [len(lines) ** 0.5 for _, lines in entries])[0]
        text = typing_noise.vary(self.rng, self.rng.choice(lines))
        return DialogueTurn(
            text, [entry.fields["thought"]], reply=entry.fields["reply"], kind="chat"
        )

    def without_tool(self, table: str, thought: str, reply: str) -> DialogueTurn | None:
        """What no declared tool can do (``decline``), or no request at all (``odd``)."""
        rng = self.rng
        entries = corpus.requests_of(table, self.split)
        if not entries:
            return None
        declared = {
            word
            for tool in self.tools
            for word in TOPIC_WORD.findall(f"{tool.name} {tool.description}".lower())
        }
        for _ in range(4):
            text = rng.choice(rng.choice(entries)[1])
            if table == "decline":
                text = typing_noise.vary(rng, text)
            if declared.isdisjoint(TOPIC_WORD.findall(text.lower())):
                return DialogueTurn(text, [thought], reply=reply, kind=table)
        return None


def _sort_of(previous: str) -> str:
    """What an earlier result is, in the words of the corpus."""
    if previous.startswith("["):
        return "list"
    return "text" if previous.startswith(("'", '"')) else "number"
