"""Renders a chat template of unknown origin, as a program with limits (`template_process`): reads JSON
lines, ``{"source"}``, then requests (`render_template`); answers ``{"text"}`` or ``{"error"}``."""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from datetime import date
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_ADDRESS_SPACE_BYTES = 512 << 20
"""Bytes of address space that the program may take (RLIMIT_AS)."""
RENDER_CPU_SECONDS = 2
"""CPU time that one rendering may take, in seconds (RLIMIT_CPU)."""
MAX_TEXT_CHARS = 4 << 20
"""Characters that a template may write."""
_GENERATION_TAG = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
TEMPLATE_ERRORS = (
    *(TemplateError, TypeError, ValueError, AttributeError, AssertionError, SyntaxError),
    *(LookupError, ArithmeticError, RecursionError, MemoryError),
)
"""Exceptions of templates, which are programs of the model's makers."""


def compile_template(source: str) -> Template:
    """Compile a template for Jinja's sandbox. Raises one of `TEMPLATE_ERRORS`."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    # Training frameworks mark what the model writes with tags that Jinja does not know.
    return environment.from_string(_GENERATION_TAG.sub("", source))


def render_template(
    template: Template,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    day: str,
    generate: bool,
    begin: str,
    end: str,
) -> str:
    """Render. ``day``: ISO 8601. ``begin``, ``end``: BOS and EOS. Raises one of `TEMPLATE_ERRORS`."""
    today = date.fromisoformat(day)
    return template.render(
        messages=messages,
        tools=tools,
        bos_token=begin,
        eos_token=end,
        add_generation_prompt=generate,
        enable_thinking=True,
        tools_in_user_message=False,
        date_string=today.strftime("%d %b %Y"),
        strftime_now=today.strftime,
    )


def error_text(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "it takes too much memory"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _tojson(value: object, indent: int | None = None, **_: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(reason: str) -> None:
    raise TemplateError(reason)


def _limit_time() -> None:
    """Give the next rendering its share of CPU time."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(usage.ru_utime + usage.ru_stime) + RENDER_CPU_SECONDS
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard))


def _limit_memory() -> None:
    import resource

    with suppress(ValueError, OSError):  # macOS has no such limit
        limit = (MAX_ADDRESS_SPACE_BYTES, MAX_ADDRESS_SPACE_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, limit)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _main() -> None:
    _limit_memory()
    template: Template | None = None
    for line in sys.stdin:
        _limit_time()
        answer: dict[str, str]
        try:
            if template is None:
                template, answer = compile_template(**json.loads(line)), {"text": ""}
            else:
                answer = {"text": render_template(template, **json.loads(line))}
                if len(answer["text"]) > MAX_TEXT_CHARS:
                    answer = {"error": "it writes too much"}
        except TEMPLATE_ERRORS as error:
            answer = {"error": error_text(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main()
