"""Writes grammars of messages for llguidance, from the family's syntax and the tools' JSON Schemas.

The grammar allows one way to write each value, also where the parser reads several. In tags it enforces
the types of values, enumerations, and the schemas of numbers, lists and objects, but not patterns and
lengths of strings: the arguments are validated when the call has ended.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import Any

from agent.engine.grammars import ANY_OBJECT, CompiledGrammar, Grammar, GrammarCompiler
from agent.formats.markup import coerce
from agent.formats.markup.chat_template import NAMESPACE
from agent.formats.markup.syntax import ANY, CallSyntax, MessageSyntax
from agent.formats.protocol import GenerationConstraints
from agent.formats.recipients import PYTHON_TOOL

_BASE_RULES = """gap: GAP?
GAP: /[ \\t\\n]{1,8}/
id: /[A-Za-z0-9_-]{0,24}[0-9]{1,8}/
key: /[A-Za-z_][A-Za-z0-9_-]{0,63}/
scalar: %json {"type": ["number", "boolean", "null"]}
any: string | scalar | list | object
list: "[" gap (any (gap "," gap any)*)? gap "]"
object: "{" gap (pair (gap "," gap pair)*)? gap "}"
"""
_UNQUOTED, _LINE = r"((?s:.*)[^\x22\x27\x60])?", r"((?s:.*)\n)?[ \t]*"
"""Text before a tag, and before an object that is a call."""
_PYTHON_STRING = r"""/'([^'\\]|\\[\\'"nrt])*'|"([^"\\]|\\[\\'"nrt])*"/"""
_PYTHON_WORDS = {"boolean": ' | "True" | "False"', "null": ' | "None"'}
_NO_STRING = '("number" | "integer" | "boolean" | "null" | "array" | "object")'


def _words(values: Collection[Any]) -> str:
    texts = (one if isinstance(one, str) else json.dumps(one) for one in values)
    return f"({' | '.join(map(json.dumps, texts))})"


def pattern(text: str) -> str:
    """A regular expression of exactly this text."""
    return "".join(c if c.isascii() and c.isalnum() else rf"\x{{{ord(c):x}}}" for c in text)


class MessageGrammar:
    """The rules of the messages of one generation."""

    def __init__(
        self,
        syntax: MessageSyntax,
        specials: Mapping[str, int],
        stop_ids: frozenset[int],
        constraints: GenerationConstraints,
        tool_names: Iterable[str],
        grammars: GrammarCompiler,
    ) -> None:
        self.message, self._specials, self.stop_ids = syntax, specials, stop_ids
        self.constraints, self.grammars = constraints, grammars
        self._syntax = syntax.calls[0] if syntax.calls else CallSyntax()
        given = constraints.argument_grammars
        self._tools = {name: given.get(name, ANY_OBJECT) for name in tool_names}
        self.may_call = bool(syntax.calls and self._tools) and constraints.calls != "none"
        self.is_structured = constraints.calls == "must" or constraints.answer_grammar is not None
        """Whether not every text is a message."""
        used = [special for special in specials if special in syntax.markup and special.strip()]
        tags = "|".join(map(re.escape, (*sorted(used, key=len, reverse=True), NAMESPACE, ANY)))
        self._tags = re.compile(tags)
        self._pieces = re.compile(rf"(?P<gap>\s*\n\s*|(?<=[>\])])\s*(?=[<\[]))|{tags}")
        self._rules: dict[tuple[str, str], str] = {}
        """The names of rules, by their attributes and what they are."""
        self._named: dict[str, str] = {}
        self._schemas: dict[str, tuple[Future[CompiledGrammar], Future[CompiledGrammar]]] = {}
        self._root: Mapping[str, Any] = {}
        self._bodies: dict[str, str] = {}
        """The rules of the tools' arguments."""
        self._call_end = ""

    def source(self, start: str, *, exact: bool = True) -> Grammar:
        """Return the grammar once all schemas are compiled. ``exact`` False: only types of values."""
        lines = [f"start: {start}", _BASE_RULES]
        named = (((name, ""), body) for name, body in self._named.items())
        rules = (((name, attributes), body) for (attributes, body), name in self._rules.items())
        for (name, attributes), body in (*named, *rules):
            if name in self._schemas:
                of_schema, of_type = self._schemas[name]
                usable = exact and of_schema.exception() is None
                body = (of_schema if usable else of_type).result().lark_body
            lines.append(f"{name}{attributes}: {body}")
        return Grammar("lark", "\n".join(lines), trusted=True)

    @property
    def anything(self) -> Grammar:
        ids = ",".join(map(str, sorted({*self._specials.values()} - {*self.stop_ids})))
        other = f" (<[{ids}]> TEXT?)*" if ids else ""
        return Grammar("lark", f"start: TEXT?{other}\nTEXT: /(?s:.+)/", trusted=True)

    # --- texts --------------------------------------------------------------------------------------

    def _rule(self, body: str, attributes: str = "") -> str:
        return self._rules.setdefault((attributes, body), f"r{len(self._rules)}")

    def _text(self, unless: str = "") -> str:
        """Any text that this regular expression does not match."""
        body = "/(?s:.+)/" + (f" & ~/{unless}/" if unless else "")
        return self._rules.setdefault(("", body), f"TEXT{len(self._rules)}")

    def literal(self, text: str) -> str:
        """The markup, with any white space between its tags, up to a token that ends a message."""
        parts, at = list[str](), 0
        for match in self._pieces.finditer(text):
            parts.append(json.dumps(text[at : match.start()]) if match.start() > at else "")
            at, token = match.end(), self._specials.get(match[0])
            if token in self.stop_ids:
                break
            tag = json.dumps(match[0]) if token is None else f"<[{token}]>"
            parts.append("gap" if match["gap"] is not None else "id" if match[0] == ANY else tag)
        else:
            parts.append(json.dumps(text[at:]) if text[at:] else "")
        return " ".join(filter(None, parts))

    def special_in(self, tag: str) -> re.Match[str] | None:
        """Where a tag has a special token; None: it is text."""
        return next((m for m in self._tags.finditer(tag) if m[0] in self._specials), None)

    def until(self, tag: str, never: str = "") -> str:
        """Any text up to the first such tag, and the tag. ``never``: what the text has not."""
        special = self.special_in(tag)
        head = tag[: special.start()] if special else tag
        never = f"(?s:.*)({never})(?s:.*)" if never else ""
        if not head:
            return f"{self._text(never)}? {self.literal(tag)}"
        unless = f" & ~/{never}/" if never else ""
        lazy = self._rule(f"(/(?s:.*){pattern(head)}/{unless})", "[lazy]")
        return f"{lazy}+ {self.literal(tag[len(head) :])}" if special else lazy

    # --- messages -----------------------------------------------------------------------------------

    @cached_property
    def entries(self) -> dict[str, str]:
        """The tags that begin a call, and what follows each in the grammar; empty: no call does."""
        message, call, found, at = self.message, self._syntax, dict[str, str](), 0
        opening = call.section_open + self._opening
        for tag in call.openings if message.calls else ():
            at = opening.index(tag, at) + len(tag)
            if tag not in message.ends and tag[0] != "{":
                found[tag] = f"{self.literal(opening[at:])} call rest"
        if message.code_tag and not (self.may_call and PYTHON_TOOL in self._tools):
            found[message.code_tag] = 'gap "{" gap call' if call.body == "object" else ""
        return found

    @property
    def _opening(self) -> str:
        return self._syntax.open + "{" * (self._syntax.body == "object")

    def write(self, before: str, *, thinks: bool, thought: bool) -> str:
        """Write the rules of a message after this markup; return its start. ``thinks``: it may begin
        with reasoning, of which only the tag is part; ``thought``: it has had some."""
        message, answer, parts = self.message, self.constraints.answer_grammar, list[str]()
        ignored = " | ".join(map(self.literal, message.ignored))
        lead = f"gap (({ignored}) gap)?" if ignored else "gap"
        must = self.constraints.calls == "must"
        if message.think and thinks and not (thought and self.is_structured):
            before_thought = lead if self.is_structured else "gap"  # free text has the ignored tags
            parts.append(f"{before_thought} {self.literal(message.think)} {self._text()}?")
        if self.may_call and not self._named:
            self._write_calls()
        if self.may_call and self.is_structured:
            called = f"{self.literal(self._syntax.section_open + self._opening)} call rest"
            again = f"({lead} {self._rule(called)})*" if answer else "free"
            parts.append(f"{lead} {self._rule(called)} {again}")
        if answer and not must:
            self._named["answer"], self._schemas["answer"] = "", (answer, answer)
            parts.append(f"{lead} answer {lead}")
        if not self.is_structured:
            parts.append("free")
        if not answer:
            self._write_prose(thinks)
        return f"{self.literal(before)} ({' | '.join(parts)})"

    def _write_prose(self, thinks: bool) -> None:
        """Write the rule ``free``: text with calls, of which a tag in quotes begins none."""
        ids = {*self._specials.values()} - set(self.stop_ids)
        ids -= set() if thinks else {self._specials.get(self.message.think, -1)}
        begins, tags = list[str](), list[str]()
        for tag, rest in self.entries.items():
            special = self.special_in(tag)
            if special:
                ids.discard(self._specials[special[0]])
                begin = self.literal(tag[special.start() :])
            else:
                tags.append((_UNQUOTED if self.may_call else "(?s:.*)") + pattern(tag))
                begin = self._rule(f"/{tags[-1]}/", "[lazy]")
            begins += [f"{begin} {rest}"] if rest else []
        if self.message.bare_calls:
            tags.append(_LINE + self._bare_call(r"[^\"\n]*"))
            for name in self._bodies if self.may_call else ():
                header = self._rule(f"/{_LINE}{self._bare_call(pattern(name))}/", "[lazy]")
                begins.append(f'{header} gap {self._bodies[name]} gap "}}"')
        text = self._text(f"({'|'.join(tags)})(?s:.*)" if tags else "")
        other = f" (<[{','.join(map(str, sorted(ids)))}]> {text}?)*" if ids else ""
        prose = self._rule(f"{text}?{other}")
        calls = f"({prose} ({' | '.join(begins)}))* " if begins and self.may_call else ""
        self._named["free"] = calls + prose

    def _bare_call(self, name: str) -> str:
        """A regular expression of a call without tags, up to its arguments."""
        keys = "|".join(sorted({"arguments", "parameters", self._syntax.arguments_key}))
        parts = (r"\{", f'"{self._syntax.name_key}"', ":", f'"{name}"', ",", f'"({keys})"', ":")
        return r"[ \t\n]*".join(parts)

    def _write_calls(self) -> None:
        """Write the rules ``call`` (from its name or object on) and ``rest`` (all that follows)."""
        syntax, calls = self._syntax, list[str]()
        is_python = syntax.body == "python"
        quote = f"{self.literal(syntax.quote)} {self.until(syntax.quote)}"
        self._named["string"] = _PYTHON_STRING if is_python else quote
        self._named["pair"] = f'{"string gap" if is_python else "key"} ":" gap any'
        for name, grammar in self._tools.items():
            grammar = grammar if grammar.syntax == "json" else ANY_OBJECT
            schema = json.loads(grammar.text)
            self._root = schema if isinstance(schema, dict) else {"type": "object"}
            # Compiled in any case: `argument_gap` tells what of it cannot be enforced.
            compiled = self.grammars.submit(grammar)
            if (written := self._body(self._root)) is None:
                written = grammar.text
                self._schemas[self._rule(written)] = compiled, self.grammars.submit(ANY_OBJECT)
            self._bodies[name] = body = self._rule(written)
            if syntax.body == "object":
                keys = (syntax.name_key, name, syntax.arguments_key)
                name_key, quoted, arguments_key = map(_quoted, keys)
                before = after = ""
                if syntax.other_keys:
                    key = " | ".join(map(_quoted, syntax.other_keys))
                    value = self._json({}, {"string", "number"})
                    other = self._rule(f'({key}) gap ":" gap {value}')
                    before, after = f'({other} gap "," gap)?', f'("," gap {other} gap)?'
                calls.append(
                    f'gap {before} {name_key} gap ":" gap {quoted} gap "," gap'
                    f' {arguments_key} gap ":" gap {body} gap {after} "}}"'
                )
            else:
                calls.append(f"{json.dumps(name)} {self.literal(syntax.after_name)} gap {body}")
        close, end = (self.literal(t.rstrip()) for t in (syntax.close, syntax.section_close))
        opening = self.literal(self._opening)
        again = f"(gap {self.literal(syntax.separator)} gap {opening} call)*"
        self._named["call"] = f"({' | '.join(map(self._rule, calls))}) gap {close}"
        self._named["rest"] = f"{again} gap {end}" if end else '""'

    def _body(self, schema: Mapping[str, Any]) -> str | None:
        """Arguments; None: they are plain JSON."""
        syntax = self._syntax
        if syntax.body in ("tags", "nested"):
            # The parser takes this in a string for the end of the call, or of the value.
            tags = "|".join(map(pattern, dict.fromkeys((*syntax.closings, *syntax.openings))))
            self._call_end = rf"({tags})[ \t\r\n]*({tags})"
            if syntax.value_close.startswith("\n"):
                self._call_end += "|" + pattern(f"\n{syntax.key_open}")
            return self._members(schema, self._tagged, "gap")
        if syntax.body == "python":
            return self._members(schema, self._keyword, '"," gap') + ' gap ")"'
        if syntax.body == "json" and syntax.bare_keys:
            return self._term(schema)
        return None

    # --- values -------------------------------------------------------------------------------------

    def _json(self, schema: Mapping[str, Any], types: Collection[str]) -> str:
        of_type = {"type": sorted(types)}
        shared = {key: self._root[key] for key in ("$defs", "definitions") if key in self._root}
        grammar = Grammar.from_schema({**shared, **of_type, **schema, **of_type})
        name = self._rule(grammar.text)
        submit = self.grammars.submit
        self._schemas[name] = submit(grammar), submit(Grammar.from_schema(of_type))
        return name

    def _value(self, schema: Mapping[str, Any], types: Collection[str]) -> str:
        """JSON; booleans and null also as Python writes them."""
        words = "".join(word for kind, word in _PYTHON_WORDS.items() if kind in types)
        return f"({self._json(schema, types)}{'' if ANY in self._syntax.key_close else words})"

    def _members(
        self,
        schema: Mapping[str, Any],
        write: Callable[[str | None, Mapping[str, Any]], str],
        separator: str,
    ) -> str:
        """The properties in their order; ``write`` writes one, or (None) one of any name."""
        properties, required = schema.get("properties") or {}, schema.get("required") or ()
        if not properties:
            closed = schema.get("additionalProperties") is False or self._syntax.body == "nested"
            one = "" if closed else self._rule(write(None, {}))
            return f"({one} ({separator} {one})*)?" if one else ""
        if self._syntax.bare_keys:  # as Gemma's template sorts them
            properties = {key: properties[key] for key in sorted(properties, key=str.lower)}
        rest, firsts = "", list[str]()
        for key, of_key in reversed(properties.items()):
            one = self._rule(write(key, of_key if isinstance(of_key, Mapping) else {}))
            firsts = [*(() if key in required else firsts), f"{one} {rest}"]
            rest = self._rule(f"({separator} {one}){'' if key in required else '?'} {rest}")
        return f"({' | '.join(firsts)}){'' if {*required} & {*properties} else '?'}"

    def _tagged(self, key: str | None, schema: Mapping[str, Any]) -> str:
        """A key and its value in tags; in ``nested``, tags with the key's name."""
        syntax, types = self._syntax, coerce.schema_types(schema, self._root)
        begin, end = syntax.key_open, syntax.value_close.strip()
        nested, name = syntax.body == "nested", "key" if key is None else json.dumps(key)
        if nested:
            begin, end, name = begin.replace(ANY, key or ""), end.replace(ANY, key or ""), ""
        edge, close = '"\\n"?' if syntax.value_close.startswith("\n") else "", self.literal(end)
        choices = _choices(schema)
        strings = [one for one in choices if isinstance(one, str)]
        others = [one for one in choices if not isinstance(one, str)]
        texts, values = list[str](), list[str]()
        if strings:
            texts = [f"{edge} {_words(strings)} {edge} {close}"]
        elif not choices and ("string" in types or not types):
            texts = [self.until(end, self._call_end)]
            if syntax.wrap[0]:
                wrap, unwrap = self.literal(syntax.wrap[0]), self.until(syntax.wrap[1] + end)
                texts = [f"{wrap} {unwrap}", f"{self._rule('/[^<]+/')}? {close}"]
        is_json = not choices and (not texts or ANY in syntax.key_close)
        rest = types - {"string"} if is_json else set[str]()
        if others:
            values = [_words(others)]
        if nested and "array" in rest:
            item = self._rule(self._tagged("item", schema.get("items") or {}))
            empty = "" if schema.get("minItems") else '"[]" | '
            values.append(f"{empty}{item} (gap {item})*")
        if nested and "object" in rest:
            values.append(self._members(schema, self._tagged, "gap").removesuffix("?") or '"{}"')
        if rest := rest - {"array", "object"} if nested else rest:
            values.append(self._value(schema, rest))
        before, typed, after = syntax.key_close.rstrip("\n").partition(ANY)
        words = ('"true"', '"false"') if "string=" in before else ('"string"', _NO_STRING)
        written = [f"{words[0] if typed else ''} {self.literal(after)} {text}" for text in texts]
        if values:
            word = words[1] if typed else ""
            written.append(f"{word} {self.literal(after)} gap ({' | '.join(values)}) gap {close}")
        return f"{self.literal(begin)} {name} {self.literal(before)} ({' | '.join(written)})"

    def _keyword(self, key: str | None, schema: Mapping[str, Any]) -> str:
        return f'{"key" if key is None else json.dumps(key)} "=" {self._term(schema)}'

    def _pair(self, key: str | None, schema: Mapping[str, Any]) -> str:
        if key is None:
            return "pair"
        bare = self._syntax.body != "python" and re.fullmatch(r"[\w$.-]+", key)
        return f'{json.dumps(key if bare else json.dumps(key))} gap ":" gap {self._term(schema)}'

    def _term(self, schema: Mapping[str, Any]) -> str:
        """A value with the syntax's own strings."""
        types = coerce.schema_types(schema, self._root)
        if choices := _choices(schema):
            quotes = "\"'" if self._syntax.body == "python" else [self._syntax.quote]
            words = [json.dumps(json.dumps(one)[1:-1]) for one in choices if isinstance(one, str)]
            options = [
                f"{self.literal(q)} {word} {self.literal(q)}" for word in words for q in quotes
            ]
            options += [_words([one]) for one in choices if not isinstance(one, str)]
            return f"({' | '.join(options)})"
        options = ["string"] if "string" in types else []
        if "array" in types:
            items = schema.get("items")
            item = self._rule(self._term(items)) if isinstance(items, Mapping) else "any"
            options.append(f'"[" gap ({item} (gap "," gap {item})*)? gap "]"')
        if "object" in types:
            members = self._members(schema, self._pair, 'gap "," gap')
            options.append(f'"{{" gap {members} gap "}}"')
        if scalars := types - {"string", "array", "object"}:
            options.append(self._value(schema, scalars))
        return f"({' | '.join(options) or 'any'})"


def _quoted(text: str) -> str:
    return json.dumps(json.dumps(text, ensure_ascii=False), ensure_ascii=False)


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    """The values that a schema enumerates; empty: it does not, or not only simple ones."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return [] if any(isinstance(one, list | dict) for one in values) else values
