"""Completes what servers send that is nearly MCP, before the SDK checks it: one odd tool, or one odd
block of a result, must not cost the others."""

import json
import logging
from typing import Any

import mcp.types as T
from mcp_types.methods import validate_server_result
from pydantic import TypeAdapter, ValidationError

from tools.mcp.answers import excerpt
from tools.mcp.schemas import SchemaError, mend_schema
from tools.sanitize import clean_line

log = logging.getLogger(__name__)

_LISTS = {
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "resources/read": "contents",
    "prompts/list": "prompts",
    "prompts/get": "messages",
}
_BLOCK: TypeAdapter[Any] = TypeAdapter(T.ContentBlock)
_PARTS = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource": ("resource",),
    "resource_link": ("uri", "name"),
}
"""The fields of each type of block that it must have."""
_BEGINNINGS = {
    "iVBOR": "image/png",
    "/9j/": "image/jpeg",
    "R0lG": "image/gif",
    "UklG": "image/webp",
}
"""Types of images by the beginning of their base64."""


class OfferedTools:
    """The parts of a server's definitions that the SDK does not keep."""

    def __init__(self) -> None:
        self.output_schemas: dict[str, dict[str, Any]] = {}
        self.skipped: dict[str, str] = {}
        """Why a tool is left out, by its name: a clause."""

    def mend(self, result: dict[str, Any], version: str) -> None:
        """Mend the definitions of a page of the list, and leave out those that cannot be used."""
        if not isinstance(tools := result.get("tools"), list):
            return
        usable, unnamed = [], ""
        for number, tool in enumerate(tools):
            name = tool.get("name") if isinstance(tool, dict) else None
            try:
                if not isinstance(name, str) or not name:
                    raise SchemaError("it has no name")
                usable.append(self._mended(tool, {**result, "tools": [tool]}, version))
            except SchemaError as error:
                if isinstance(name, str) and name:
                    self.skip(name, str(error))
                else:
                    unnamed = self.skip(f"tool {number + 1}", str(error))
        if usable or not unnamed:
            result["tools"] = usable

    def skip(self, name: str, reason: str) -> str:
        name = excerpt(repr(name) if not name.isprintable() else name)
        log.warning("left out the tool %s: %s", name, reason)
        self.skipped[name] = reason
        return name

    def _mended(self, tool: dict[str, Any], page: dict[str, Any], version: str) -> dict[str, Any]:
        """Mend one tool in place; ``page``: a list of nothing else. Raises SchemaError."""
        output = tool.pop("outputSchema", None)
        self.output_schemas.pop(tool["name"], None)
        if isinstance(output, dict):
            try:
                self.output_schemas[tool["name"]] = mend_schema(output, is_input=False)
            except SchemaError as error:
                log.info("ignored the output schema of %s: %s", tool["name"], error)
        tool["inputSchema"] = mend_schema(tool.get("inputSchema"))
        while True:
            try:
                validate_server_result("tools/list", version, page)
                T.Tool.model_validate(tool, by_name=False)
                return tool
            except KeyError:
                return tool
            except ValidationError as error:
                path = [part for part in error.errors()[0]["loc"] if part not in ("tools", 0)]
                field = str(path[0]) if path else ""
                if field not in tool or field in ("name", "inputSchema"):
                    raise SchemaError(invalid_part(error)) from None
                log.info("ignored %s of the tool %s", field, tool["name"])
                del tool[field]  # it is one that a tool needs not have


def invalid_part(error: ValidationError) -> str:
    """Name the first part of a value that is not as its type demands, and why."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = excerpt(".".join(str(part) for part in first["loc"]))
    if first["type"] == "missing":
        return f"{place} is missing"
    return f"{place}: {clean_line(first['msg']).lower()}"


def mend_list(method: str, result: dict[str, Any], version: str) -> None:
    """Leave out the items of a list of resources or prompts that are not valid, or mend them."""
    key = _LISTS.get(method)
    if key is None or not isinstance(items := result.get(key), list):
        return
    usable = []
    for item in items:
        if method == "prompts/get" and isinstance(item, dict):
            item["content"] = mend_block(item.get("content"))
        if method == "resources/read" and isinstance(item, dict) and "blob" not in item:
            item["text"] = as_text(item.get("text"))
        try:
            validate_server_result(method, version, {**result, key: [item]})
            usable.append(item)
        except KeyError:
            usable.append(item)
        except ValidationError as error:
            log.warning("left out of %s: %s", key, invalid_part(error))
    if usable or not items:
        result[key] = usable


def mend_result(result: dict[str, Any]) -> None:
    """Mend a tool's result: each block by itself, so that those that are known are kept."""
    if result.get("resultType", "complete") != "complete":
        return  # a question before the result
    match result.get("content"):
        case list() as content:
            blocks = content
        case None:
            blocks = []
        case other:
            blocks = [other]
    result["content"] = [mend_block(block) for block in blocks]
    if "isError" in result:
        result["isError"] = result["isError"] not in (False, None, "false", 0, "")
    if not isinstance(result.get("_meta", {}), dict):
        del result["_meta"]


def mend_block(block: Any) -> dict[str, Any]:
    """Return a block that is valid; one of an unknown type becomes a text that shows its beginning."""
    if not isinstance(block, dict):
        return {"type": "text", "text": as_text(block)}
    if "type" in block and _is_valid(block):
        return block
    kind = block.get("type", "text" if "text" in block else None)
    parts = _PARTS.get(kind, ()) if isinstance(kind, str) else ()
    mended = {"type": kind, **{key: block[key] for key in parts if key in block}}
    match kind:
        case "text":
            mended["text"] = as_text(block.get("text"))
        case "image" | "audio" if not isinstance(block.get("mimeType"), str):
            data = str(block.get("data"))
            known = (name for begin, name in _BEGINNINGS.items() if data.startswith(begin))
            mended["mimeType"] = next(known, "application/octet-stream")
        case "resource" if isinstance(resource := block.get("resource"), dict):
            wanted = {key: resource.get(key) for key in ("uri", "text", "blob", "mimeType")}
            mended["resource"] = {key: v for key, v in wanted.items() if isinstance(v, str)}
            mended["resource"].setdefault("uri", "")
        case "resource_link":
            mended.setdefault("name", block.get("uri"))
    if _is_valid(mended):
        return mended
    label = excerpt(kind) if isinstance(kind, str) else "unknown block"
    return {"type": "text", "text": f"[{label} {excerpt(as_text(block))}]"}


def _is_valid(block: dict[str, Any]) -> bool:
    try:
        _BLOCK.validate_python(block, by_name=False)
    except ValidationError:
        return False
    return True


def as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
