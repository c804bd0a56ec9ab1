"""The files of the chat page and of the API reference: paths, bytes, and the headers they go with.

Everything lies in `ui/` as it is served; nothing is built. The paths are fixed when the process
starts, so a request can name no other file. None of them holds a secret: they are open.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "ui"
CHAT_PATH, DOCS_PATH, OPENAPI_PATH = "/", "/docs", "/openapi.json"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
ASSET_PATHS = tuple(
    f"/ui/{path.name}"
    for path in sorted(FOLDER.iterdir())
    if path.suffix in MEDIA_TYPES and path.suffix != ".html"
)
PAGE_PATHS = frozenset({CHAT_PATH, DOCS_PATH, OPENAPI_PATH, *ASSET_PATHS})
OPEN_PAGE_PATHS = PAGE_PATHS - {DOCS_PATH, OPENAPI_PATH}
"""What a browser gets before it has a key to send; the chat page asks for one."""
# No inline code, no foreign hosts, no frames; text can never become markup.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
SAFE_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",  # asked for again each time, sent again when it has changed
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is sent."""

    content: bytes
    media_type: str
    etag: str


@functools.cache
def page_file(name: str) -> PageFile:
    """A file of the folder by its name, which is one of ours."""
    path = FOLDER / name
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return PageFile(content, MEDIA_TYPES[path.suffix], etag)
