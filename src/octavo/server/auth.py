"""Keys: every path wants one except the few that probes read.

Closed by default: a route that is added is guarded without anybody thinking of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.config.api_keys import KeyScope
from octavo.server.error_shapes import shaped
from octavo.server.errors import error_body, headers_of
from octavo.server.keys import Caller, KeyRing
from octavo.server.pages import OPEN_PAGE_PATHS
from octavo.server.paths import path_of
from octavo.server.quotas import QuotaExceededError, Quotas
from octavo.server.sse import send_json

OPEN_PATHS = frozenset({"/health", "/ping", "/ready"}) | OPEN_PAGE_PATHS
METRICS_PATH = "/metrics"
ADMIN_PATHS = frozenset({"/debug/kv", "/reset_prefix_cache"})
BATCH_PATHS = ("/v1/files", "/v1/batches")
_FAILED = Caller("", frozenset())


class KeyGuard:
    """ASGI middleware: who asks, whether they may, and how often.

    The name of the caller's tenant is put into `scope["state"]["tenant"]`, so that prompts of
    different keys never share cached blocks. Admin paths want an administrator's key; where none
    can be given they are closed, unless no key at all is asked for and `is_private` says that only
    this machine reaches the server.
    """

    def __init__(
        self,
        app: ASGIApp,
        ring: KeyRing,
        quotas: Quotas,
        *,
        is_private: bool = False,
        open_paths: Iterable[str] = OPEN_PATHS,
    ) -> None:
        self._app = app
        self._ring, self._quotas = ring, quotas
        self._is_private = is_private
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope) if scope["type"] == "http" else None
        if path is None or path in self._open_paths:
            await self._app(scope, receive, send)
            return
        await self._ring.refresh()
        caller = self._caller(scope)
        wanted = scope_of(path)
        asks = self._ring.asks or (wanted == "admin" and self._ring.asks_admins)
        if asks and caller is None:
            body = shaped(scope, 401, error_body(401, _NO_KEY))
            await send_json(send, 401, body, headers=[(b"www-authenticate", b"Bearer")])
            return
        is_open = wanted != "admin" or self._is_private
        if not ((caller or _FAILED).may(wanted) if asks else is_open):
            message = _NOT_FOR_ALL if wanted == "admin" else _OTHER_SCOPE.format(wanted)
            await send_json(send, 403, shaped(scope, 403, error_body(403, message)))
            return
        if caller is None or not self._ring.asks:
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["tenant"] = caller.tenant
        await self._within_limits(caller, scope, receive, send)

    async def _within_limits(
        self, caller: Caller, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Count what costs something; tell what is left."""
        record = caller.record
        if record is None or not record.has_limits or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                left = self._quotas.headers(record)
                message = {**message, "headers": [*message["headers"], *left]}
            await send(message)

        with ExitStack() as running:
            try:
                running.enter_context(self._quotas.one_request(record))
            except QuotaExceededError as error:
                body = shaped(scope, 429, error_body(429, str(error), code=error.code))
                await send_json(counted, 429, body, headers=headers_of(error))
                return
            await self._app(scope, receive, counted)

    def _caller(self, scope: Scope) -> Caller | None:
        """Whose the best of the keys is that were sent; None without any that is known."""
        found = [self._ring.caller(key) for key in _given_keys(scope)]
        known = [caller for caller in found if caller is not None]
        return max(known, key=lambda caller: caller.is_admin, default=None)


def scope_of(path: str) -> KeyScope:
    """What a key must open for this path."""
    if path in ADMIN_PATHS:
        return "admin"
    if path == METRICS_PATH:
        return "metrics"
    if any(path == begin or path.startswith(begin + "/") for begin in BATCH_PATHS):
        return "batches"
    return "inference"


_NO_KEY = "a valid key is needed: send 'Authorization: Bearer KEY' or 'X-Api-Key: KEY'"
_NOT_FOR_ALL = (
    "this path is for administrators: start the server with --admin-api-key KEY, or give a key of "
    "--api-keys-file the scope admin, and send that key"
)
_OTHER_SCOPE = "this key does not have the scope {}, which this path asks for"


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
