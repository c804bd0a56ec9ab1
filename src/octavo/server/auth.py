"""Keys: every path wants one except the few that probes and scrapers read.

Closed by default: a route that is added is guarded without anybody thinking of it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.error_shapes import shaped
from octavo.server.errors import error_body
from octavo.server.paths import path_of
from octavo.server.sse import send_json

OPEN_PATHS = frozenset({"/health", "/ping", "/ready", "/metrics", "/version"})
ADMIN_PATHS = frozenset({"/debug/kv", "/reset_prefix_cache"})


class KeyGuard:
    """ASGI middleware. Keys are compared as hashes in constant time; all of them, always.

    The name of the matching key's tenant is put into `scope["state"]["tenant"]`, so that prompts of
    different keys never share cached blocks. Admin paths want an admin key; where none is
    configured they are closed, unless no key at all is asked for and `is_private` says that only
    this machine reaches the server.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Iterable[str],
        admin_keys: Iterable[str] = (),
        *,
        is_private: bool = False,
    ) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]
        self._admin_digests = [_digest(key.encode()) for key in admin_keys]
        self._is_private = is_private

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or path_of(scope) in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        digest, is_known, is_admin = self._judge(scope)
        is_for_admins = path_of(scope) in ADMIN_PATHS
        asks = bool(self._digests or (is_for_admins and self._admin_digests))
        if asks and not is_known:
            message = "a valid key is needed: send 'Authorization: Bearer KEY' or 'X-Api-Key: KEY'"
            body = shaped(scope, 401, error_body(401, message))
            await send_json(send, 401, body, headers=[(b"www-authenticate", b"Bearer")])
            return
        if is_for_admins and not is_admin and (asks or not self._is_private):
            await send_json(send, 403, shaped(scope, 403, error_body(403, _NOT_FOR_ALL)))
            return
        if self._digests and is_known:
            scope.setdefault("state", {})["tenant"] = digest.hex()[:16]
        await self._app(scope, receive, send)

    def _judge(self, scope: Scope) -> tuple[bytes, bool, bool]:
        """(digest of the best key that was sent, whether it is known, whether an admin's)."""
        best = (b"", False, False)
        for key in _given_keys(scope):
            digest = _digest(key)
            is_admin = _matches(digest, self._admin_digests)
            is_known = _matches(digest, self._digests) or is_admin
            if (is_admin, is_known) > (best[2], best[1]) or not best[0]:
                best = digest, is_known, is_admin
        return best


_NOT_FOR_ALL = (
    "this path is for administrators: start the server with --admin-api-key KEY and send that key"
)


def _given_keys(scope: Scope) -> tuple[bytes, bytes]:
    """The key of OpenAI's header, and that of Anthropic's; empty where there is none."""
    bearer = other = b""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            bearer = key if scheme.lower() == b"bearer" else b""
        elif name == b"x-api-key":
            other = value
    return bearer, other


def _matches(digest: bytes, known: Iterable[bytes]) -> bool:
    found = False
    for other in known:
        found |= hmac.compare_digest(digest, other)
    return found


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
