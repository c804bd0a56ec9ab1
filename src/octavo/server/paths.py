"""Which of our paths a request names, behind a proxy or not."""

from __future__ import annotations

from starlette.types import Scope


def path_of(scope: Scope) -> str:
    """The path as `app.ROUTES` has it, without the prefix of a proxy (`--root-path`)."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
