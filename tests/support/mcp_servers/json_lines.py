"""MCP over stdio by hand, for servers that are started often: the SDK's import takes 0.9 s of CPU."""

import inspect
import json
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

TYPES = {str: "string", int: "integer"}
UNKNOWN_METHOD, UNKNOWN_TOOL = -32601, -32602
Prompts = dict[str, Callable[..., str]]


class LineServer:
    """A server of tools, each of which runs in a thread of its own, as those of SDK servers do."""

    def __init__(self, name: str, page_size: int = 10_000) -> None:
        self.name, self.page_size, self.instructions = name, page_size, ""
        self.definitions: list[dict[str, Any]] = []
        self.prompts: Prompts = {}
        self.resources: dict[str, str] = {}
        """The text of each address."""
        self._functions: dict[str, Callable[..., Any]] = {}
        self._writing = threading.Lock()
        self._progress_token: dict[int, Any] = {}
        """By thread: what the client wants progress reported with."""

    def add_tool(self, function: Callable[..., Any], name: str = "", **definition: Any) -> None:
        """Add a tool; what it returns that is no text is its structured content.

        An exception is a failed call. ``definition``: fields of the tool's definition.
        """
        name = name or function.__name__
        self.definitions.append(
            {
                "name": name,
                "description": inspect.getdoc(function) or "",
                "inputSchema": definition.pop("inputSchema", None) or _input_schema(function),
                **definition,
            }
        )
        self._functions[name] = function

    def tool(self, **definition: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return `add_tool` as a decorator."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self.add_tool(function, **definition)
            return function

        return add

    def notify(self, method: str, **params: Any) -> None:
        self._send({"method": f"notifications/{method}", "params": params})

    def report_progress(self, done: int, total: int | None, message: str) -> None:
        """Report the progress of the call whose thread this is, where its client wants that."""
        token = self._progress_token.get(threading.get_ident())
        if token is not None:
            wanted = {"progressToken": token, "progress": done, "message": message}
            self.notify("progress", **wanted, **({} if total is None else {"total": total}))

    def serve(self) -> None:
        """Answer until stdin ends."""
        for line in sys.stdin:
            request = json.loads(line)
            if "id" in request and "method" in request:
                threading.Thread(target=self._answer, args=(request,), daemon=True).start()

    def _answer(self, request: dict[str, Any]) -> None:
        result = self._result(request["method"], request.get("params", {}))
        self._send({"id": request["id"], **result})

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                offers = {"tools": {"listChanged": True}}
                offers |= {"prompts": {}} if self.prompts else {}
                offers |= {"resources": {}} if self.resources else {}
                result: dict[str, Any] = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": offers,
                    "serverInfo": {"name": self.name, "version": "1"},
                }
                result |= {"instructions": self.instructions} if self.instructions else {}
            case "ping":
                result = {}
            case "tools/list":
                start = int(params.get("cursor", 0))
                end = start + self.page_size
                more = end < len(self.definitions)
                result = {"tools": self.definitions[start:end]}
                result |= {"nextCursor": str(end)} if more else {}
            case "tools/call":
                if params["name"] not in self._functions:
                    return _error(UNKNOWN_TOOL, f"Unknown tool: {params['name']}")
                result = self._call(params)
            case "prompts/list":
                result = {"prompts": [_prompt(*each) for each in self.prompts.items()]}
            case "prompts/get":
                text = self.prompts[params["name"]](**params.get("arguments", {}))
                message = {"role": "user", "content": {"type": "text", "text": text}}
                result = {"messages": [message]}
            case "resources/list":
                result = {"resources": [{"uri": uri, "name": uri} for uri in self.resources]}
            case "resources/templates/list":
                result = {"resourceTemplates": []}
            case "resources/read":
                uri = params["uri"]
                result = {"contents": [{"uri": uri, "text": self.resources[uri]}]}
            case _:
                return _error(UNKNOWN_METHOD, f"Method not found: {method}")
        return {"result": result}

    def _call(self, params: dict[str, Any]) -> dict[str, Any]:
        thread = threading.get_ident()
        self._progress_token[thread] = params.get("_meta", {}).get("progressToken")
        try:
            value = self._functions[params["name"]](**params.get("arguments") or {})
        except Exception as error:
            traceback.print_exc()
            text = f"Error executing tool {params['name']}: {error}"
            return {"content": [{"type": "text", "text": text}], "isError": True}
        finally:
            del self._progress_token[thread]
        if isinstance(value, str):
            return {"content": [{"type": "text", "text": value}]}
        text = json.dumps(value, indent=2)
        return {"content": [{"type": "text", "text": text}], "structuredContent": value}

    def _send(self, message: dict[str, Any]) -> None:
        with self._writing:
            print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def _input_schema(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    properties = {each.name: {"type": TYPES[each.annotation]} for each in parameters}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _prompt(name: str, function: Callable[..., str]) -> dict[str, Any]:
    names = inspect.signature(function).parameters
    return {"name": name, "arguments": [{"name": each, "required": True} for each in names]}
