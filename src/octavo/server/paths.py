"""Which of our paths a request names, behind a proxy or not."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


def path_of(scope: Scope) -> str:
    """The path as `app.ROUTES` has it, without the prefix of a proxy (`--root-path`)."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class ProxyPrefix:
    """ASGI middleware of `--root-path`: a proxy may cut its prefix off, or leave it.

    Inside every path has it, as ASGI demands.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app, self._root_path = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path, prefix = scope["path"], self._root_path
            if not f"{path}/".startswith(f"{prefix}/"):
                path = prefix + path
            scope = {**scope, "path": path, "root_path": prefix}
        await self._app(scope, receive, send)
