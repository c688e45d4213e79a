"""``GET /``: the page for browsers, the endpoints for programs; and the page's other files."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from agent.server.http.json_response import JsonResponse
from agent.server.responses.service import ResponseService

FOLDER = Path(__file__).parent
FILES = {"/page/app.js": "text/javascript", "/page/style.css": "text/css"}
HEADERS = {
    # No inline script, nothing from elsewhere, no markup made of text.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
    "vary": "accept",
}


def index(request: Request) -> Response | None:
    """The page, where a browser asks for it."""
    if "text/html" not in request.headers.get("accept", ""):
        return None
    return FileResponse(FOLDER / "index.html", headers=HEADERS, media_type="text/html")


def routes(service: ResponseService) -> list[Route]:
    async def file(request: Request) -> Response:
        path = request.url.path
        target = FOLDER / path.rpartition("/")[2]
        return FileResponse(target, headers=HEADERS, media_type=FILES[path])

    async def servers(request: Request) -> Response:
        """GET /page/servers: the operator's MCP servers that a request may name."""
        exposed = service.runtime.host.tools() if service.options.expose_tools else ()
        return JsonResponse({"data": sorted({tool.server for tool in exposed})})

    # Parts of the page, not of the API that /openapi.json describes.
    handlers = {**dict.fromkeys(FILES, file), "/page/servers": servers}
    return [Route(path, handler, include_in_schema=False) for path, handler in handlers.items()]
