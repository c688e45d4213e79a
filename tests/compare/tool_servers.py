"""MCP servers that all sides are given: ``python -m tests.compare.tool_servers NAME PORT``.

vLLM asks them by SSE, at /sse; this program by streamable HTTP, at /mcp. Nothing that the model writes
is executed.
"""

import ast
import operator
import sys

import uvicorn
from mcp.server import MCPServer
from starlette.responses import Response
from starlette.routing import Route

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculate(node: ast.expr) -> float:
    """The value of a term of numbers. Raises ValueError for anything else."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left, kind, right) if type(kind) in OPERATORS:
            return float(OPERATORS[type(kind)](calculate(left), calculate(right)))
        case ast.Call(args=[term]):  # print(…)
            return calculate(term)
    raise ValueError("only sums")


def python_server() -> MCPServer:
    """The server ``python``, which calculates."""
    server = MCPServer("python")

    @server.tool(structured_output=False)
    def python(code: str) -> str:
        """Run Python code."""
        (*_, last) = ast.parse(code).body
        assert isinstance(last, ast.Expr)
        return f"{calculate(last.value):.12g}"

    return server


def container_server() -> MCPServer:
    """The server ``container``, which has two files."""
    server = MCPServer("container")

    @server.tool(structured_output=False)
    def exec(cmd: list[str]) -> str:
        """Run a command."""
        return "README.md\nsrc\n"

    return server


def main() -> None:
    """Serve one of them on this machine."""
    _, name, port = sys.argv
    server = {"python": python_server, "container": container_server}[name]()
    app = server.streamable_http_app()
    app.routes.extend(server.sse_app().routes)
    app.routes.append(Route("/health", lambda request: Response()))
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
