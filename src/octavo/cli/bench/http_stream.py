"""A lean asynchronous HTTP client: one POST a connection, the body of the answer line by line.

Owns the part of HTTP/1.1 that a stream of server-sent events needs. The load generator shares the
machine with the server that it measures, so it must cost little; standard library only.
Does not know: what the lines mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import SplitResult

from octavo.cli.client import ServerError

_LINE_LIMIT = 1 << 24  # bytes of one line


async def post_lines(
    url: SplitResult, path: str, body: bytes, headers: dict[str, str]
) -> AsyncIterator[bytes]:
    """The lines of the answer as they come, without their ends.

    Raises ServerError for a status other than 200, with the body's text, and for a broken
    connection.
    """
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        reader, writer = await asyncio.open_connection(
            url.hostname, port, ssl=url.scheme == "https" or None, limit=_LINE_LIMIT
        )
    except OSError as error:
        raise ServerError(f"no server at {url.geturl()}: {error}") from error
    try:
        writer.write(_head(url, path, body, headers) + body)
        await writer.drain()
        status, fields = await _read_head(reader)
        pieces = _pieces(reader, fields)
        if status != 200:
            text = b"".join([piece async for piece in pieces])
            shown = " ".join(text[:300].decode("utf-8", "replace").split())
            raise ServerError(f"{status}: {shown}", status)
        async for line in _lines(pieces):
            yield line
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        raise ServerError(f"the connection to the server broke: {error}") from error
    finally:
        writer.close()


def _head(url: SplitResult, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    fields = {
        "Host": url.netloc.rpartition("@")[2],
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {text}" for name, text in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and header fields by lowercase name."""
    status = int((await reader.readline()).split()[1])
    fields: dict[str, str] = {}
    while line := (await reader.readline()).strip():
        name, _, text = line.decode("latin-1").partition(":")
        fields[name.strip().lower()] = text.strip()
    return status, fields


async def _pieces(reader: asyncio.StreamReader, fields: dict[str, str]) -> AsyncIterator[bytes]:
    """The body, in the pieces in which it comes."""
    if "chunked" in fields.get("transfer-encoding", ""):
        while size := int((await reader.readline()).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        return
    left = int(fields.get("content-length", -1))
    while left:
        piece = await reader.read(1 << 16 if left < 0 else min(left, 1 << 16))
        if not piece:
            if left > 0:
                raise asyncio.IncompleteReadError(b"", left)
            return
        left -= len(piece) if left > 0 else 0
        yield piece


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")
    if rest:
        yield rest
