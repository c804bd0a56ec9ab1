"""Keys: every path wants one except the few that probes and scrapers read.

Closed by default: a route that is added is guarded without anybody thinking of it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.errors import error_body
from octavo.server.paths import path_of
from octavo.server.sse import send_json

OPEN_PATHS = frozenset({"/health", "/ping", "/ready", "/metrics", "/version"})


class KeyGuard:
    """ASGI middleware. Keys are compared as hashes in constant time; all of them, always.

    The name of the matching key's tenant is put into `scope["state"]["tenant"]`, so that prompts of
    different keys never share cached blocks.
    """

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or path_of(scope) in OPEN_PATHS or not self._digests:
            await self._app(scope, receive, send)
            return
        tenant = self._tenant(scope)
        if tenant is None:
            body = error_body(401, "a valid key is needed: send 'Authorization: Bearer KEY'")
            await send_json(send, 401, body, headers=[(b"www-authenticate", b"Bearer")])
            return
        scope.setdefault("state", {})["tenant"] = tenant
        await self._app(scope, receive, send)

    def _tenant(self, scope: Scope) -> str | None:
        given = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, key = value.partition(b" ")
                given = key if scheme.lower() == b"bearer" else b""
        digest, found = _digest(given), None
        for known in self._digests:
            if hmac.compare_digest(digest, known):
                found = known.hex()[:16]
        return found


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
