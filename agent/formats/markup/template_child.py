"""Renders a chat template of unknown origin, as a program with limits (`template_process`): reads JSON
lines, ``{"source"}`` and requests (`render_template`); answers these: ``{"text"}`` or ``{"error"}``."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.sandbox import SandboxedEnvironment

MAX_ADDRESS_SPACE_BYTES = 512 << 20
RENDER_CPU_SECONDS = 2
MAX_TEXT_CHARS = 4 << 20
TEMPLATE_ERRORS = (
    *(TemplateError, TypeError, ValueError, AttributeError, AssertionError, SyntaxError),
    *(LookupError, ArithmeticError, RecursionError, MemoryError),
)
"""Exceptions of templates, which are programs of the model's makers."""


_GENERATION = re.compile(r"(\{%[+-]?\s*)(end)?generation(?=\s*[+-]?%\})")
"""``{% generation %}``, with which training frameworks mark what the model writes: for us, a scope."""


def compile_template(source: str) -> Template:
    """Compile a template for Jinja's sandbox, in the environment that Hugging Face's transformers has,
    but that lists can be changed: they are copies. Raises one of `TEMPLATE_ERRORS`."""
    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    source = _GENERATION.sub(lambda tag: tag[1] + ("endwith" if tag[2] else "with"), source)
    return environment.from_string(source)


def render_template(
    template: Template,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    day: str,
    generate: bool,
    begin: str,
    end: str,
    variables: dict[str, Any],
) -> str:
    """Render. ``day``: ISO 8601. ``begin``, ``end``: BOS and EOS. Raises one of `TEMPLATE_ERRORS`."""
    today = date.fromisoformat(day)
    return template.render(
        messages=messages, tools=tools, documents=None, bos_token=begin, eos_token=end,
        functions=json.dumps(tools or [], ensure_ascii=False, indent=4),
        add_generation_prompt=generate, tools_in_user_message=False, datetime=day,
        date_string=today.strftime("%d %b %Y"), strftime_now=today.strftime, **variables,
    )  # fmt: skip


def error_text(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "it takes too much memory"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if isinstance(value, Iterator):  # of Jinja's filters
        value = list(value)
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(reason: str) -> None:
    raise TemplateError(reason)


def _main() -> None:
    import resource

    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE_BYTES, MAX_ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CPU)
    source, answer = "", dict[str, str]()
    template: Template | None = None
    for line in sys.stdin:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(usage.ru_utime + usage.ru_stime) + RENDER_CPU_SECONDS  # for this line
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard_limit))
        try:
            request = json.loads(line)
            source = request.pop("source", source)
            template = template or compile_template(source)
            text = render_template(template, **request) if request else ""
            fits = len(text) <= MAX_TEXT_CHARS
            answer = {"text": text} if fits else {"error": "it writes too much"}
        except TEMPLATE_ERRORS as error:
            answer = {"error": error_text(error)}
        if request:
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main()
