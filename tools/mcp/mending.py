"""Completes what is nearly MCP before the SDK checks it: one odd part must not cost the others."""

import logging
from typing import Any

import mcp.types as T
from mcp_types.methods import validate_server_result
from pydantic import TypeAdapter, ValidationError

from agent.util.json_text import as_text
from tools.mcp.answers import excerpt
from tools.mcp.schemas import SchemaError, mend_schema
from tools.sanitize import clean_line

log = logging.getLogger(__name__)

MAX_BLOCKS = 1000
"""Content blocks of one result; a last one says how many more there were."""
STRUCTURED_KEY = "agent.structured_content"
"""Key of a result's ``_meta`` that holds its structured content as the server sent it."""
_LISTS = {
    "tools/list": "tools", "resources/list": "resources", "resources/read": "contents",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts", "prompts/get": "messages",
}  # fmt: skip
_BLOCK: TypeAdapter[Any] = TypeAdapter(T.ContentBlock)
_PARTS = {
    "text": ("text",), "image": ("data", "mimeType"), "audio": ("data", "mimeType"),
    "resource": ("resource",), "resource_link": ("uri", "name"),
}  # fmt: skip
"""The fields of each type of block that it must have."""
_STARTS = {"iVBOR": "image/png", "/9j/": "image/jpeg", "R0lG": "image/gif", "UklG": "image/webp"}
"""Types of images by the beginning of their base64."""


class ResultMender:
    """Mends the results of one connection; keeps what the SDK does not of the definitions of tools."""

    def __init__(self) -> None:
        self.output_schemas: dict[str, dict[str, Any]] = {}
        self.skipped: dict[str, str] = {}
        """Why a tool is left out, by its name: a clause."""

    def mend(self, method: str, result: dict[str, Any], version: str) -> None:
        """Mend the result of a request. Items of a list that cannot be used are left out, unless that
        would leave none without a reason that is shown to the person."""
        if method == "tools/call":
            _mend_call(result)
        key = _LISTS.get(method, "")
        if not isinstance(items := result.get(key), list):
            return
        usable, lacks_reason = [], False
        for number, item in enumerate(items, 1):
            try:
                self._mend_item(method, item, {**result, key: [item]}, version)
                usable.append(item)
            except SchemaError as error:
                if method == "tools/list":
                    name = _tool_name(item)
                    self.skip(name or f"tool {number}", str(error))
                    lacks_reason |= not name
                else:
                    log.warning("left out of %s: %s", key, error)
                    lacks_reason = True
        if usable or not lacks_reason:
            result[key] = usable

    def skip(self, name: str, reason: str) -> None:
        name = excerpt(repr(name) if not name.isprintable() else name)
        log.warning("left out the tool %s: %s", name, reason)
        self.skipped[name] = reason

    def _mend_item(self, method: str, item: Any, page: dict[str, Any], version: str) -> None:
        """Mend one item in place; ``page``: a list of nothing else. Raises SchemaError."""
        match method:
            case "tools/list":
                self._mend_schemas(item)
            case "prompts/get" if isinstance(item, dict):
                item["content"] = mend_block(item.get("content"))
            case "resources/read" if isinstance(item, dict) and "blob" not in item:
                item["text"] = as_text(item.get("text"))
        while True:
            try:
                validate_server_result(method, version, page)
                if method == "tools/list":
                    T.Tool.model_validate(item, by_name=False)
                return
            except KeyError:  # a version that the SDK does not know
                return
            except ValidationError as error:
                path = [part for part in error.errors()[0]["loc"] if part not in ("tools", 0)]
                field = str(path[0]) if path else ""
                if method != "tools/list" or field not in item.keys() - {"name", "inputSchema"}:
                    raise SchemaError(invalid_part(error)) from None
                log.info("ignored %s of the tool %s", field, item["name"])
                del item[field]  # it is one that a tool needs not have

    def _mend_schemas(self, tool: Any) -> None:
        if not (name := _tool_name(tool)):
            raise SchemaError("it has no name")
        output = tool.pop("outputSchema", None)
        self.output_schemas.pop(name, None)
        if isinstance(output, dict):
            try:
                self.output_schemas[name] = mend_schema(output, is_input=False)
            except SchemaError as error:
                log.info("ignored the output schema of %s: %s", name, error)
        tool["inputSchema"] = mend_schema(tool.get("inputSchema"))


def _tool_name(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else ""


def invalid_part(error: ValidationError) -> str:
    """Name the first part of a value that is not as its type demands, and why."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = excerpt(".".join(str(part) for part in first["loc"]))
    if first["type"] == "missing":
        return f"{place} is missing"
    return f"{place}: {clean_line(first['msg']).lower()}"


def _mend_call(result: dict[str, Any]) -> None:
    """Mend a tool's result: each block by itself, so that those that are known are kept. ``_meta`` gets
    structured content that the SDK does not take."""
    if result.get("resultType", "complete") != "complete":
        return  # a question before the result
    content, structured = result.get("content"), result.get("structuredContent")
    if not content and isinstance(structured, dict):
        content = as_text(structured)
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    result["content"] = [mend_block(block) for block in blocks[:MAX_BLOCKS]]
    if (rest := len(blocks) - MAX_BLOCKS) > 0:
        result["content"].append(mend_block(f"[{rest:,} more content blocks are left out]"))
    if "isError" in result:
        result["isError"] = result["isError"] not in (False, None, "false", 0, "")
    if not isinstance(result.get("_meta", {}), dict):
        del result["_meta"]
    if not isinstance(structured, dict | None) and "resultType" not in result:
        # Before 2026-07-28 it is an object, says the specification.
        result["_meta"] = {**result.get("_meta", {}), STRUCTURED_KEY: structured}
        del result["structuredContent"]


def structured_content(result: T.CallToolResult) -> Any:
    """Return the structured content of a result as the server sent it; None: it has none."""
    return (result.meta or {}).get(STRUCTURED_KEY, result.structured_content)


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
            known = (name for begin, name in _STARTS.items() if data.startswith(begin))
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
