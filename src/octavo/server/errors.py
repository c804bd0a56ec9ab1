"""Exceptions -> status and body. One table, one form: {"error": {message, type, param, code}}.

Used by: every route, and the middleware that answer before a route is reached.
"""

from __future__ import annotations

import logging
import math
import traceback
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from octavo.errors import (
    ConfigError,
    DeadlineExceededError,
    EngineDeadError,
    InvalidRequestError,
    ModelNotFoundError,
    OctavoError,
    OverloadedError,
)
from octavo.server.closing import CLOSING, ClosingResponse
from octavo.server.error_shapes import shaped

logger = logging.getLogger(__name__)
# An error must never echo a whole body; JSON may need six bytes for a character.
MAX_MESSAGE_CHARACTERS = 1400
MAX_PARAM_CHARACTERS = 150
TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "TimeoutError",
    409: "ConflictError",
    413: "RequestTooLargeError",
    414: "RequestTooLargeError",
    415: "UnsupportedMediaTypeError",
    429: "RateLimitError",
    431: "RequestTooLargeError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}

HTTP_MESSAGES = {
    404: "no such path; the paths of this server are in its documentation",
    405: "this path does not take this method",
}


class PayloadTooLargeError(InvalidRequestError):
    """A body or a header beyond the limit."""


class ResourceNotFoundError(InvalidRequestError):
    """What the request names is not here, or belongs to somebody else."""


class ConflictError(InvalidRequestError):
    """What the request asks for cannot be done in the present state."""


class UnsupportedMediaTypeError(InvalidRequestError):
    """A body that is not JSON by its content type."""


class NotReadyError(OverloadedError):
    """The model is still loading, or the server is ending."""


def shutting_down() -> NotReadyError:
    """For what the server's end left without an answer: a balancer tries it elsewhere."""
    return NotReadyError("the server is shutting down", retry_after_s=5)


def status_of(error: BaseException) -> int:
    """The HTTP status of an exception."""
    match error:
        case PayloadTooLargeError():
            return 413
        case UnsupportedMediaTypeError():
            return 415
        case DeadlineExceededError():
            return 408
        case ModelNotFoundError() | ResourceNotFoundError():
            return 404
        case ConflictError():
            return 409
        case InvalidRequestError() | ConfigError():
            return 400
        case NotReadyError() | EngineDeadError():
            return 503
        case OverloadedError():
            return 429
        case HTTPException():
            return error.status_code
        case _:
            return 500


def error_body(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """OpenAI's error object. The code is the status where there is no word for it."""
    if len(message) > MAX_MESSAGE_CHARACTERS:
        message = message[:MAX_MESSAGE_CHARACTERS] + " ..."
    if param is not None and len(param) > MAX_PARAM_CHARACTERS:
        param = param[:MAX_PARAM_CHARACTERS] + " ..."
    kind = TYPES.get(status, "BadRequestError" if status < 500 else "InternalServerError")
    return {"error": {"message": message, "type": kind, "param": param, "code": code or status}}


def body_of(error: BaseException) -> dict[str, Any]:
    """The error object of an exception; a fault of our own is logged, and not told in detail."""
    status = status_of(error)
    if isinstance(error, HTTPException):
        return error_body(status, HTTP_MESSAGES.get(status, str(error.detail)))
    if status == 500:
        log_fault(error)
        return error_body(status, "internal error; the server's log has the details")
    if isinstance(error, DeadlineExceededError):
        return error_body(status, str(error), "timeout", "deadline_exceeded")
    param = error.param if isinstance(error, InvalidRequestError) else None
    if isinstance(error, ModelNotFoundError) and param is None:
        param = "model"
    return error_body(status, str(error), param)


def log_fault(error: BaseException) -> None:
    """Log a fault of our own: where it happened, not what the text of a stranger's error says.

    That text may repeat a prompt. It is shown at the level debug.
    """
    if isinstance(error, OctavoError):
        logger.error("a request failed inside the server: %s", error)
        return
    frames = "".join(traceback.format_tb(error.__traceback__))
    logger.error("a request failed inside the server: %s\n%s", type(error).__name__, frames)
    logger.debug("its text", exc_info=error)


def headers_of(error: BaseException) -> list[tuple[bytes, bytes]]:
    """What the answer to an exception says to the client's program."""
    headers = []
    if isinstance(error, OverloadedError) and error.retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after_s))).encode()))
    if isinstance(error, DeadlineExceededError):
        headers.append((b"x-should-retry", b"false"))  # OpenAI's clients repeat a 408 otherwise
    if isinstance(error, HTTPException) and error.headers:
        headers += [(k.lower().encode(), v.encode("latin-1")) for k, v in error.headers.items()]
    return headers


def response_of(error: BaseException, scope: Scope) -> Response:
    """The whole answer to an exception, in the shape of the path that was asked."""
    status = status_of(error)
    response = ClosingResponse if status in CLOSING else Response
    answer = response(
        msgspec.json.encode(shaped(scope, status, body_of(error))),
        status_code=status,
        media_type="application/json",
    )
    answer.raw_headers += headers_of(error)
    return answer


async def answer_error(request: Request, error: Exception) -> Response:
    """Starlette's hook for exceptions."""
    return response_of(error, request.scope)
