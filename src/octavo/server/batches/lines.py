"""One line of a batch, in and out: OpenAI's JSONL, as vLLM's run-batch reads and writes it too.

Owns the form. Does not know files, stores or engines.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from octavo.errors import InvalidRequestError
from octavo.server.bodies import located
from octavo.server.json_errors import not_json
from octavo.server.vector_forms import BYTE_ENCODINGS

LONGEST_ID = 512  # characters of a custom_id


class LineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a line asks for."""

    custom_id: str
    url: str
    body: dict[str, Any]
    method: str = "POST"


class LineResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An answer over HTTP, whatever its status."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class _LineResult(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    custom_id: str
    response: LineResponse | None
    error: Any


def read_line(data: bytes) -> LineRequest:
    """The request of a line. Raises InvalidRequestError that names the field."""
    try:
        line = msgspec.json.decode(data, type=LineRequest)
    except msgspec.ValidationError as error:
        raise located(error, LineRequest, "line") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise not_json("the line", data, error) from None
    if line.method != "POST":
        raise InvalidRequestError("method must be POST", param="method")
    if not 1 <= len(line.custom_id) <= LONGEST_ID:
        rule = f"custom_id must have 1 to {LONGEST_ID} characters"
        raise InvalidRequestError(rule, param="custom_id")
    if line.body.get("stream"):
        message = "body.stream must be false: an answer of a batch is one line"
        raise InvalidRequestError(message, param="body.stream")
    if line.body.get("encoding_format") in BYTE_ENCODINGS:
        message = "body.encoding_format must be float or base64: an answer of a batch is JSON"
        raise InvalidRequestError(message, param="body.encoding_format")
    return line


def answered(custom_id: str, status: int, body: bytes, *, repeats_error: bool = False) -> bytes:
    """The line of an answer. `repeats_error` puts the body of a failure into `error` as well."""
    response = LineResponse(
        status_code=status,
        request_id="req_" + os.urandom(12).hex(),
        body=msgspec.Raw(body or b"null"),
    )
    is_failure = status >= 400
    error = msgspec.Raw(body or b"null") if repeats_error and is_failure else None
    return _encoded(custom_id, response, error)


def unanswered(custom_id: str, code: str, message: str) -> bytes:
    """The line of a request that was never made, or got no answer."""
    return _encoded(custom_id, None, {"code": code, "message": message})


def _encoded(custom_id: str, response: LineResponse | None, error: Any) -> bytes:
    result = _LineResult(
        id="batch_req_" + os.urandom(12).hex(),
        custom_id=custom_id,
        response=response,
        error=error,
    )
    return msgspec.json.encode(result) + b"\n"
