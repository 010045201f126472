"""Routes of the chat page's files, held in memory, with a strict content security policy."""

from __future__ import annotations

from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

# The page loads nothing but its own files and talks to its own server only.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_TYPES = {"css": "text/css", "js": "text/javascript"}
_FILES = {
    "/": ("index.html", "text/html"),
    "/favicon.ico": ("icon.svg", "image/svg+xml"),
    **{
        f"/console/{name}": (name, _TYPES[name.rpartition(".")[2]])
        for name in (
            "answer.js",
            "chat.css",
            "chat.js",
            "markdown.js",
            "settings.css",
            "settings.js",
            "stream.js",
            "tokens.js",
            "turn.js",
        )
    },
}


def console_routes() -> list[Route]:
    """One route per file."""
    return [_route(path, name, media_type) for path, (name, media_type) in _FILES.items()]


def _route(path: str, name: str, media_type: str) -> Route:
    content = resources.files(__package__).joinpath(name).read_bytes()

    async def serve(request: Request) -> Response:
        return Response(content, headers=_HEADERS, media_type=media_type)

    return Route(path, serve, methods=["GET"])
