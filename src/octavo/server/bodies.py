"""Request bodies: read with a limit, decoded into a struct, errors that name the field.

Answers go out through `json_response`, those with long lists through `response_of_lists`.
"""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from octavo.errors import InvalidRequestError
from octavo.foundation.field_faults import LONGEST_NAME, FieldFault, fault_of, known_at
from octavo.server.errors import PayloadTooLargeError, UnsupportedMediaTypeError
from octavo.server.json_errors import not_json
from octavo.server.long_texts import LongTexts, Span

S = TypeVar("S")
LARGE_BODY = 2**18  # bytes: from here on decoding takes milliseconds
# Of a body, as its signs tell. While values are made no other thread runs, not even the loop's:
# either limit stands for about twenty milliseconds.
MAX_VALUES = 2**20
MAX_COSTLY_VALUES = 2**17  # texts, names among them, fractions, lists, objects
_COSTLY_SIGNS = (b"{", b"[", b".", b"e", b"E")
_PIECE = 2**16  # bytes
_AT_ONCE = 2**19  # characters of a text
# The rules' names in pydantic's words, as in vLLM's errors.
_RULE_NAMES = {"<=": "less_than_equal", ">=": "greater_than_equal"}
_FORM = "application/x-www-form-urlencoded"  # what curl says when nobody tells it otherwise


async def read_json(
    request: Request, kind: type[S], max_bytes: int, *, takes_form_type: bool = False
) -> S:
    """The body as a struct.

    With `takes_form_type` JSON may call itself a form, as in Ollama's documentation, unless a
    browser sends it: pages of strangers can send forms, and say so in `Origin`.

    A large body is decoded in a thread. Raises PayloadTooLargeError beyond `max_bytes` (before
    anything is decoded), UnsupportedMediaTypeError, and InvalidRequestError with the path of the
    offending field, or for more than `MAX_VALUES` or `MAX_COSTLY_VALUES` values.
    """
    content_type = request.headers.get("content-type", "application/json").partition(";")[0]
    known = ["application/json", "text/json", ""]
    if takes_form_type and "origin" not in request.headers:
        known.append(_FORM)
    if content_type.strip().lower() not in known:
        message = f"Content-Type must be application/json, got {content_type!r}"
        raise UnsupportedMediaTypeError(message, param=None)
    return await decoded(await read_bytes(request, max_bytes), kind)


async def decoded(body: bytes, kind: type[S]) -> S:
    """A body as a struct, or as what else msgspec makes of JSON. See `read_json`."""
    if len(body) < LARGE_BODY:
        return _decoded(body, kind)
    return await asyncio.to_thread(_decoded_large, body, kind)


def check_uncompressed(request: Request) -> None:
    """Raises UnsupportedMediaTypeError for a body that is compressed."""
    coding = request.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity"):
        message = (
            f"Content-Encoding {coding[:LONGEST_NAME]!r}: compression of bodies is not supported; "
            "send the body as it is"
        )
        raise UnsupportedMediaTypeError(message, param=None)


async def read_bytes(request: Request, max_bytes: int) -> bytes:
    """The body, up to `max_bytes`, without a byte order mark before it.

    Raises PayloadTooLargeError, and UnsupportedMediaTypeError for one that is compressed.
    """
    check_uncompressed(request)
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        pieces.append(piece)
    if size < LARGE_BODY:
        return b"".join(pieces).removeprefix(BOM_UTF8)
    joined = await asyncio.to_thread(b"".join, pieces)  # lets other threads run
    return joined.removeprefix(BOM_UTF8)


def json_response(content: object, headers: dict[str, str] | None = None) -> Response:
    """A struct or plain data as a JSON answer."""
    return Response(msgspec.json.encode(content), headers=headers, media_type="application/json")


def written(values: list[Any]) -> bytes:
    """Values as JSON without the brackets of their list."""
    return msgspec.json.encode(values)[1:-1]


def response_of_lists(
    fields: Mapping[str, object], lists: Mapping[str, Sequence[bytes] | None]
) -> Response:
    """An object of some fields, and of lists from parts that were `written`; None is null.

    The parts are sent as they are: to join a hundred megabytes would hold up the event loop.
    """
    pieces = [msgspec.json.encode(fields)[:-1]]
    for name, parts in lists.items():
        pieces.append(b',"%b":' % name.encode())
        if parts is None:
            pieces.append(b"null")
            continue
        pieces += [b"[" + parts[0] if parts else b"[", *(b"," + part for part in parts[1:]), b"]"]
    pieces.append(b"}")
    return response_of_pieces(pieces)


def written_text(text: str) -> list[bytes]:
    """A text as JSON, in pieces: while one is made no other thread runs."""
    stretches = [text[place : place + _AT_ONCE] for place in range(0, len(text), _AT_ONCE)]
    return [b'"', *(msgspec.json.encode(one)[1:-1] for one in stretches), b'"']


def response_of_pieces(pieces: Sequence[bytes]) -> Response:
    """A JSON answer in pieces, small ones together."""
    joined: list[bytes] = []
    small: list[bytes] = []
    num_small = 0
    for piece in pieces:
        if len(piece) >= _PIECE:
            joined += [b"".join(small), piece]
            small, num_small = [], 0
            continue
        small.append(piece)
        num_small += len(piece)
        if num_small >= _PIECE:
            joined.append(b"".join(small))
            small, num_small = [], 0
    joined.append(b"".join(small))

    async def sent() -> AsyncIterator[bytes]:
        for piece in joined:
            yield piece

    length = str(sum(map(len, joined)))
    return StreamingResponse(
        sent(), headers={"content-length": length}, media_type="application/json"
    )


def _decoded_large(body: bytes, kind: type[S]) -> S:
    spans = _checked_spans(body)
    if not spans:
        return _decoded(body, kind)
    texts = LongTexts(body, spans)
    made: S = texts.put_back(_decoded(texts.short_body, kind))
    return made


def _decoded(body: bytes, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        lenient = _decoded_leniently(body, kind)
        if lenient is None:
            raise located(error, kind, "body") from None
        return lenient
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise not_json("the body", body, error) from None


def _decoded_leniently(body: bytes, kind: type[S]) -> S | None:
    """With numbers and booleans that are written as texts, as vLLM takes them; None: not even so.

    Only for bodies that are wrong otherwise, so that nothing else means two things.
    """
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except msgspec.ValidationError:
        return None


def _checked_spans(body: bytes) -> list[Span]:
    """Where long texts are: all that fill a piece, so none that is shorter than one.

    Refuses more values than may be made at once. They are counted by their signs outside of texts,
    until they are too many, and piece by piece, because no other thread runs while one is looked
    at. Raises InvalidRequestError.
    """
    num_values, num_costly, place, in_text = 0, 0, 0, False
    spans: list[Span] = []
    begin, is_long = 0, False  # of the text that goes on in the next piece
    while place < len(body):
        end = place + _PIECE
        while body[end - 1 : end] == b"\\":  # cut no escape
            end += 1
        piece = body[place:end]
        end = place + len(piece)
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"xx").replace(b'\\"', b"xx")
        parts = piece.split(b'"')
        outside = b"".join(parts[in_text::2])
        num_values += outside.count(b",")
        num_costly += len(parts) // 2 + sum(map(outside.count, _COSTLY_SIGNS))
        if num_values > MAX_VALUES:
            raise _too_many(f"{MAX_VALUES} values")
        if num_costly > MAX_COSTLY_VALUES:
            raise _too_many(f"{MAX_COSTLY_VALUES} texts, fractions, lists and objects")
        if is_long and len(parts) > 1:
            spans.append((begin, place + len(parts[0])))
        is_long = in_text and len(parts) == 1
        in_text ^= len(parts) % 2 == 0
        if in_text and len(parts) > 1:
            begin = end - len(parts[-1])
        place = end
    return spans


def _too_many(limit: str) -> InvalidRequestError:
    return InvalidRequestError(f"the body has more than {limit}; send fewer, in several requests")


def _too_large(max_bytes: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(
        f"the body is larger than {max_bytes} bytes (--max-body-bytes)", param=None
    )


def located(error: msgspec.ValidationError, kind: object, whole: str) -> InvalidRequestError:
    """msgspec's error about a `kind`, called `whole`, in our words: which field, what is right."""
    fault = fault_of(error)
    path = fault.path or whole
    if fault.kind == "unknown":
        return InvalidRequestError(f"{path} is not supported by this server", param=path)
    if fault.kind == "missing":
        return InvalidRequestError(f"{path} is missing", param=path)
    if fault.kind == "other" and not fault.path:
        return InvalidRequestError(f"the {whole} is wrong: {fault.right}")
    return InvalidRequestError(_what_is_right(fault, path, kind), param=path)


def _what_is_right(fault: FieldFault, path: str, kind: object) -> str:
    if fault.kind == "type":
        or_out = "; correct it, or leave it out" if fault.may_be_left_out else ""
        return f"{path} must be {fault.right}, got {fault.got}{or_out}"
    if fault.kind == "limit" and fault.sign in _RULE_NAMES:
        return f"{path} must be {fault.right} ({_RULE_NAMES[fault.sign]})"
    if fault.kind == "choice":
        return f"{path} must be one of {', '.join(known_at(kind, fault.path))}"
    return f"{path}: {fault.right}" if fault.kind == "other" else f"{path} must be {fault.right}"
