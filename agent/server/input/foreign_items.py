"""Items of a history that began at another server, as the calls and results that the model reads: a
``shell_call`` is a call of ``shell`` with its ``action`` as arguments. Clients send these items back as
they got them, so that nothing in them is an error. Reference:
https://platform.openai.com/docs/api-reference/responses/create (``input``)"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agent.events import qualified_name
from agent.server.input.schemas import (
    InputForeignItem,
    RequestCustom,
    RequestFunction,
    RequestNamespace,
    RequestTool,
)
from agent.util.images import CANNOT_SEE
from tools.types import error_text

UNSEEN_IMAGE = f"[There was an image here; {CANNOT_SEE}.]"
CALLS: dict[str, tuple[str, Callable[[InputForeignItem], Any]]] = {
    "apply_patch_call": ("apply_patch", lambda item: item.operation),
    "computer_call": ("computer", lambda item: item.actions or item.action),
    "file_search_call": ("file_search", lambda item: {"queries": item.queries}),
    "image_generation_call": ("image_generation", lambda item: {"prompt": item.revised_prompt}),
    "local_shell_call": ("local_shell", lambda item: item.action),
    "program": ("program", lambda item: item.code),
    "shell_call": ("shell", lambda item: item.action),
    "tool_search_call": ("tool_search", lambda item: item.arguments),
}
"""Types of calls: the tool that the model reads of, and its arguments."""
_TOOL: TypeAdapter[RequestTool] = TypeAdapter(RequestTool)


def call_text(value: object) -> tuple[str, bool]:
    """The arguments of a call as text, and whether that is JSON."""
    if isinstance(value, str):
        return value, False
    return json.dumps({} if value is None else value, ensure_ascii=False), True


def own_result(item: InputForeignItem) -> str | None:
    """The result in the item of the call itself; None where an item of its own has it."""
    match item:
        case InputForeignItem(type="file_search_call", results=[*results]):
            return "\n\n".join(
                f"{result.get('filename')}: {result.get('text')}"
                for result in results
                if isinstance(result, dict)
            )
        case InputForeignItem(type="file_search_call"):
            return "[The results of this search were not sent.]"
        case InputForeignItem(type="image_generation_call", error={"message": str(message)}):
            return error_text(message)
        case InputForeignItem(type="image_generation_call"):
            return UNSEEN_IMAGE
    return None


def output_text(item: InputForeignItem) -> str:
    match item:
        case InputForeignItem(type="computer_call_output"):
            return UNSEEN_IMAGE
        case InputForeignItem(type="tool_search_output"):
            return f"Found: {', '.join(_names(searched_tools(item))) or 'nothing'}."
        case InputForeignItem(type="shell_call_output", output=[*parts]):
            return "\n".join(map(_shell_text, parts))
        case InputForeignItem(type="apply_patch_call_output"):
            return "\n".join(filter(None, (value_text(item.status), value_text(item.output))))
        case InputForeignItem(type="program_output"):
            return value_text(item.result)
    return value_text(item.output)


def searched_tools(item: InputForeignItem) -> Sequence[RequestTool]:
    """The tools of a ``tool_search_output`` that the client can run, from then on callable."""
    tools = []
    for value in item.tools if isinstance(item.tools, list) else ():
        try:
            tool = _TOOL.validate_python(_loaded(value), extra="ignore")
        except ValidationError:
            continue  # it cannot be called from here
        if isinstance(tool, RequestFunction | RequestCustom | RequestNamespace):
            tools.append(tool)
    return tools


def _names(tools: Iterable[RequestTool]) -> Iterator[str]:
    for tool in tools:
        if isinstance(tool, RequestNamespace):
            yield from (qualified_name(part.name, tool.name) for part in tool.tools)
        elif isinstance(tool, RequestFunction | RequestCustom):
            yield tool.name


def _loaded(tool: object) -> object:
    """A tool's definition, which is not deferred any more."""
    if not isinstance(tool, dict):
        return tool
    parts = tool.get("tools")
    inner = {"tools": [_loaded(part) for part in parts]} if isinstance(parts, list) else {}
    return {name: value for name, value in tool.items() if name != "defer_loading"} | inner


def _shell_text(part: object) -> str:
    if not isinstance(part, dict):
        return value_text(part)
    texts = [value_text(part.get("stdout")), value_text(part.get("stderr"))]
    match part.get("outcome"):
        case {"type": "exit", "exit_code": code}:
            texts.append(f"Exit code: {code}")
        case {"type": "timeout"}:
            texts.append("It ran out of time.")
    return "\n".join(filter(None, texts))


def value_text(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
    return json.dumps(value, ensure_ascii=False)
