"""One error, three shapes: OpenAI's, Anthropic's below /v1/messages, Ollama's below /api/.

Owns which paths speak which dialect when something goes wrong. Does not know statuses' reasons.
"""

from __future__ import annotations

from typing import Any

from starlette.types import Scope

from octavo.server.paths import path_of

MESSAGES_PATH = "/v1/messages"
OLLAMA_PREFIX = "/api/"
MESSAGE_ID = "message_request_id"  # in scope["state"]; see dialects/request_ids.py
# https://docs.anthropic.com/en/api/errors
ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


def speaks_anthropic(path: str) -> bool:
    """Whether Anthropic's clients ask for this path."""
    return path == MESSAGES_PATH or path.startswith(MESSAGES_PATH + "/")


def shaped(scope: Scope, status: int, body: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's error body as the clients of the path in `scope` expect it."""
    path = path_of(scope)
    if speaks_anthropic(path):
        request_id = scope.get("state", {}).get(MESSAGE_ID)
        return anthropic_error(status, body["error"]["message"], request_id)
    if path.startswith(OLLAMA_PREFIX):
        return ollama_error(body["error"]["message"])
    return body


def anthropic_error(status: int, message: str, request_id: str | None = None) -> dict[str, Any]:
    """Anthropic's error object; it has no field for the parameter, so the message names it."""
    kind = ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    body: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": message}}
    if request_id is not None:
        body["request_id"] = request_id
    return body


def ollama_error(message: str) -> dict[str, Any]:
    """Ollama's: one text."""
    return {"error": message}
