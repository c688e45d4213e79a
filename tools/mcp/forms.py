"""The form of an elicitation: its fields, their defaults, and what is wrong with a value, by a flat
JSON Schema
(https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#requested-schema)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from agent.errors import AgentError
from agent.util.json_schema import find_violation
from tools.sanitize import clean_line

Kind = Literal["text", "integer", "number", "boolean", "choice", "choices", "json"]
"""json: none of the kinds that the specification knows; its value is typed as JSON."""
_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
_FORMATS = {
    "email": "an e-mail address",
    "uri": "a whole address, as https://example.org/",
    "date": "a date, as 2026-01-31",
    "date-time": "a date and time, as 2026-01-31T12:00:00Z",
}
_DESCRIBED_KEYWORDS = (
    *("type", "enum", "oneOf", "anyOf", "items", "minimum", "maximum"),
    *("minLength", "maxLength", "minItems", "maxItems"),
)
"""Keywords that a field's ``rule``, its choices and its kind describe."""
_EMAIL = re.compile(r"[^\s@]+@[^\s@.]+(\.[^\s@.]+)*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
_BOOLEANS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


class FormError(AgentError):
    """A value does not fit; the message is a sentence that begins with the field's title."""

    def __init__(self, field: FormField, problem: str) -> None:
        super().__init__(f"{field.title}: {problem}.")
        self.field_name = field.name


@dataclass(frozen=True, slots=True)
class FormField:
    """One property of the form."""

    name: str
    kind: Kind
    schema: Mapping[str, Any]
    title: str
    description: str = ""
    required: bool = False
    default: Any = None
    """None: it has none."""
    choices: tuple[tuple[str, Any], ...] = ()
    """Title and value of each choice, of the kinds choice and choices."""
    nullable: bool = False
    """Whether null is allowed in addition to the values of its kind."""

    @property
    def blank(self) -> dict[str, Any]:
        """The answer where the person leaves the field empty."""
        return {self.name: None} if self.required and self.nullable else {}

    @property
    def initial(self) -> dict[str, Any]:
        """The answer where the person does not change the field: its default, if there is one."""
        return self.blank if self.default is None else {self.name: self.default}

    def filled(self, value: Any) -> dict[str, Any]:
        """The answer for a value; null, which is not valid in MCP's answers, only where required."""
        return {self.name: value} if value is not None or self.required else {}

    @property
    def rule(self) -> str:
        """The constraints on a value, as a phrase; empty: any value of its kind."""
        schema, rules = self.schema, list[str]()
        match self.kind:
            case "integer" | "number":
                rules.append("a whole number" if self.kind == "integer" else "a number")
                rules.append(_range(schema, "minimum", "maximum", ""))
            case "text":
                rules.append(_FORMATS.get(str(schema.get("format")), ""))
                rules.append(_range(schema, "minLength", "maxLength", " characters"))
            case "choices":
                rules.append(_range(schema, "minItems", "maxItems", " of them") or "any of them")
            case "json":
                rules.append("JSON")
        return ", ".join(filter(None, rules))

    def parse(self, text: str) -> Any:
        """Read what was typed: choices by value, title or number, with commas. Raises FormError."""
        match self.kind:
            case "text":
                return text
            case "boolean":
                if text.lower() not in _BOOLEANS:
                    raise FormError(self, "answer y or n")
                return _BOOLEANS[text.lower()]
            case "choice":
                return self._choice(text)
            case "choices":
                words = (word.strip() for word in text.split(","))
                return [self._choice(word) for word in words if word]
            case "integer" | "number":
                try:
                    return int(text) if self.kind == "integer" else float(text)
                except ValueError:
                    raise FormError(self, f"must be {self.rule}") from None
        try:
            return json.loads(text)
        except ValueError:
            raise FormError(self, "must be JSON") from None

    def _choice(self, text: str) -> Any:
        for title, value in self.choices:
            if text in (_as_text(value), title):
                return value
        if text.isascii() and text.isdigit() and 0 < int(text) <= len(self.choices):
            return self.choices[int(text) - 1][1]
        raise FormError(self, f"must be one of {self._options}")

    def resolve_titles(self, value: Any) -> Any:
        """Replace each title of a choice in a value by that choice's value, if it is unambiguous."""
        if self.kind == "choices" and isinstance(value, list):
            return [self._value_of(each) for each in value]
        return self._value_of(value) if self.kind == "choice" else value

    def _value_of(self, answer: Any) -> Any:
        titled = [value for title, value in self.choices if title == answer]
        return titled[0] if len(titled) == 1 and not self._offers(answer) else answer

    def describe(self, value: Any) -> str:
        titles = {json.dumps(value): title for title, value in self.choices}
        match self.kind:
            case "boolean":
                return "yes" if value else "no"
            case "choice":
                return titles[json.dumps(value)]
            case "choices":
                return ", ".join(titles[json.dumps(each)] for each in value)
            case "json":
                return clean_line(json.dumps(value, ensure_ascii=False))
        return clean_line(str(value))

    def check(self, value: Any) -> None:
        if value is None and self.nullable:
            return
        schema = self.schema
        if self.kind == "choices" and isinstance(value, list) and not all(map(self._offers, value)):
            raise FormError(self, f"must be some of {self._options}")
        described = {key: schema[key] for key in _DESCRIBED_KEYWORDS if key in schema}
        is_number = not isinstance(value, float) or math.isfinite(value)
        if self.kind != "json" and (not is_number or find_violation(described, value)):
            kinds = {"boolean": "true or false", "text": "a text"}
            rule = self.rule or kinds.get(self.kind, f"one of {self._options}")
            raise FormError(self, f"must be {rule}")
        if not _has_format(value, schema.get("format")):
            raise FormError(self, f"must be {_FORMATS[schema['format']]}")
        if not _matches(value, schema.get("pattern")):
            raise FormError(self, f"must match {schema['pattern']}")
        # Rules that no form of the specification has: a limit that is excluded, a multiple, a constant.
        if problem := find_violation(schema, value):
            raise FormError(self, problem)

    @property
    def _options(self) -> str:
        """The values, each with its title where that is another text."""
        values = [(clean_line(_as_text(value)), title) for title, value in self.choices]
        return ", ".join(text if text == title else f"{text} ({title})" for text, title in values)

    def _offers(self, value: Any) -> bool:
        return any(type(value) is type(each) and value == each for _, each in self.choices)


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of an elicitation, in the server's order."""

    fields: tuple[FormField, ...]

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any] | None) -> Form:
        """Read the schema of an elicitation; whatever cannot be read is a field for JSON."""
        schema = schema or {}
        properties, required = schema.get("properties"), schema.get("required")
        names = required if isinstance(required, list) else ()
        items = properties.items() if isinstance(properties, dict) else ()
        fields = (_read_field(str(k), *_resolve(about, schema), k in names) for k, about in items)
        return cls(tuple(fields))

    @property
    def defaults(self) -> dict[str, Any]:
        """The answer where the person changes nothing."""
        return {name: value for field in self.fields for name, value in field.initial.items()}

    @property
    def needs_input(self) -> bool:
        """Whether the defaults alone are not a valid answer."""
        return any(field.required and not field.initial for field in self.fields)

    def resolve_titles(self, content: Mapping[str, Any]) -> dict[str, Any]:
        fields = {field.name: field for field in self.fields}
        return {
            name: fields[name].resolve_titles(value) if name in fields else value
            for name, value in content.items()
        }

    def check(self, content: Mapping[str, Any]) -> None:
        """Raise FormError for the first field whose value is missing, or unknown, or does not fit."""
        names = [field.name for field in self.fields]
        for name in content:
            if name not in names:
                field = FormField(name, "json", {}, name)
                raise FormError(field, f"is not a field; the form has {', '.join(names) or 'none'}")
        for field in self.fields:
            if field.name in content:
                field.check(content[field.name])
            elif field.required:
                raise FormError(field, "is required")


def _resolve(about: Any, root: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """A property without reference and null, and whether it had one; an enumeration's null stays."""
    if not isinstance(about, dict):
        return {}, False
    reference, definitions = str(about.get("$ref", "")), root.get("$defs")
    if reference.startswith("#/$defs/") and isinstance(definitions, dict):
        target = definitions.get(reference.removeprefix("#/$defs/"))
        about = {**(target if isinstance(target, dict) else {}), **about}
    options = about.get("anyOf")
    if isinstance(options, list):
        typed = [o for o in options if isinstance(o, dict) and o.get("type") != "null"]
        if len(typed) == 1 and "const" not in typed[0]:
            rest = {k: v for k, v in about.items() if k != "anyOf"}
            return {**typed[0], **rest}, len(typed) < len(options)
    match about.get("type"):
        case [kind, "null"] | ["null", kind] if None not in (about.get("enum") or ()):
            return {**about, "type": kind}, True
    return dict(about), False


def _read_field(name: str, about: dict[str, Any], nullable: bool, required: bool) -> FormField:
    choices = read_choices(about)
    kind: Any = "choice" if choices else _TYPES.get(str(about.get("type")), "json")
    if about.get("type") == "array" and isinstance(about.get("items"), dict):
        choices = read_choices(about["items"])
        kind = "choices" if choices else "json"
    title = clean_line(str(about.get("title") or name))
    description = clean_line(str(about.get("description") or ""))
    default = about.get("default")
    field = FormField(name, kind, about, title, description, required, default, choices, nullable)
    try:
        if default is not None:
            field.check(default)
    except FormError:
        return replace(field, default=None)
    return field


def read_choices(about: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return title and value of each choice of an enumeration, in any form that MCP has had."""
    titled = about.get("oneOf") or about.get("anyOf")
    if isinstance(titled, list):
        options = [each for each in titled if isinstance(each, dict) and "const" in each]
        pairs = [(each.get("title", each["const"]), each["const"]) for each in options]
    else:
        values = about.get("enum")
        values = values if isinstance(values, list) else []
        names = about.get("enumNames")
        names = names if isinstance(names, list) and len(names) == len(values) else values
        pairs = list(zip(names, values, strict=True))
    return tuple((clean_line(_as_text(title)), value) for title, value in pairs)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _range(schema: Mapping[str, Any], low: str, high: str, unit: str) -> str:
    least, most = schema.get(low), schema.get(high)
    if least is not None and most is not None:
        return f"{least}{unit}" if least == most else f"{least} to {most}{unit}"
    if least is not None:
        return f"at least {least}{unit}"
    return "" if most is None else f"at most {most}{unit}"


def _has_format(text: Any, name: Any) -> bool:
    if not isinstance(text, str):
        return True
    try:
        match name:
            case "email":
                return _EMAIL.fullmatch(text) is not None
            case "uri":
                return bool(urlsplit(text).scheme) and " " not in text
            case "date":
                return bool(_DATE.fullmatch(text) and date.fromisoformat(text))
            case "date-time":
                return bool(_DATE_TIME.fullmatch(text) and datetime.fromisoformat(text.upper()))
    except ValueError:
        return False
    return True


def _matches(text: Any, pattern: Any) -> bool:
    """Match in time that grows with the text alone; a pattern that allows no such match is passed."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        return True
    from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

    try:
        SchemaValidator(core_schema.str_schema(pattern=pattern)).validate_python(text)
    except ValidationError:
        return False
    except SchemaError:
        return True
    return True


def page_host(url: str) -> str | None:
    """The host of a page to visit, in ASCII; None: no web address, or browsers may read another host
    (https://url.spec.whatwg.org/#host-parsing)."""
    import idna

    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if ":" not in host:
            host = idna.encode(host, uts46=True).decode() if not host.isascii() else host
    except ValueError:
        return None
    is_plain = _HOST.fullmatch(host) is not None and "\\" not in parts.netloc
    return host if parts.scheme in ("http", "https") and is_plain else None
