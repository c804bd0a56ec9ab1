"""multipart/form-data (RFC 7578) as it streams in: parts one after the other, none held whole.

Owns the form of the body and the bounds on its heads. Does not know what the parts mean.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from octavo.errors import InvalidRequestError
from octavo.server.errors import UnsupportedMediaTypeError

MAX_HEAD_BYTES = 8 * 2**10
MAX_PARTS = 64
_PARAMETER = re.compile(r';\s*([\w*-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;]*))')


@dataclass(frozen=True, slots=True)
class Part:
    """A field, or a file with the name that it had; `data` is to be read before the next part."""

    name: str
    filename: str | None
    data: AsyncIterator[bytes]


def boundary_of(content_type: str) -> bytes:
    """The boundary of a Content-Type. Raises UnsupportedMediaTypeError, InvalidRequestError."""
    kind, _, rest = content_type.partition(";")
    if kind.strip().lower() != "multipart/form-data":
        message = f"Content-Type must be multipart/form-data, got {kind[:60]!r}"
        raise UnsupportedMediaTypeError(message, param=None)
    boundary = _parameters(";" + rest).get("boundary", "")
    if not 1 <= len(boundary) <= 70 or not boundary.isascii():
        raise InvalidRequestError("Content-Type needs a boundary of 1 to 70 characters")
    return boundary.encode()


async def parts_of(stream: AsyncIterator[bytes], boundary: bytes) -> AsyncIterator[Part]:
    """The parts of a body in their order. Raises InvalidRequestError for what is none."""
    reader = _Reader(stream)
    # The first boundary may stand at the very beginning, without the line end of the others.
    reader.buffer += b"\r\n"
    delimiter = b"\r\n--" + boundary
    async for _ in reader.until(delimiter):  # a preamble means nothing
        pass
    for _ in range(MAX_PARTS):
        after = await reader.take(2)
        if after == b"--":
            return
        if after != b"\r\n":
            raise _broken("a boundary is followed by something else")
        name, filename = _head(await reader.head())
        data = reader.until(delimiter)
        yield Part(name, filename, data)
        async for _ in data:  # what nobody read
            pass
    raise _broken(f"it has more than {MAX_PARTS} parts")


class _Reader:
    """A stream of bytes that is looked into before it is taken."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self.buffer = bytearray()
        self._stream = stream

    async def take(self, count: int) -> bytes:
        while len(self.buffer) < count:
            await self._more()
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    async def head(self) -> bytes:
        """The lines of a part's head, without the blank one."""
        while (end := self.buffer.find(b"\r\n\r\n")) < 0:
            if len(self.buffer) > MAX_HEAD_BYTES:
                raise _broken(f"a part's head has more than {MAX_HEAD_BYTES} bytes")
            await self._more()
        found = bytes(self.buffer[:end])
        del self.buffer[: end + 4]
        return found

    async def until(self, delimiter: bytes) -> AsyncIterator[bytes]:
        """What comes before the delimiter, which is taken as well."""
        keep = len(delimiter) - 1  # may be the begin of it
        while (end := self.buffer.find(delimiter)) < 0:
            if len(self.buffer) > keep:
                ready = bytes(self.buffer[:-keep])
                del self.buffer[:-keep]
                yield ready
            await self._more()
        ready = bytes(self.buffer[:end])
        del self.buffer[: end + len(delimiter)]
        if ready:
            yield ready

    async def _more(self) -> None:
        async for piece in self._stream:
            if piece:
                self.buffer += piece
                return
        raise _broken("it ends in the middle")


def _head(data: bytes) -> tuple[str, str | None]:
    """(name, file's name) of a part."""
    for line in data.split(b"\r\n"):
        header, _, value = line.decode("utf-8", "replace").partition(":")
        kind, _, rest = value.partition(";")
        if header.strip().lower() == "content-disposition" and kind.strip() == "form-data":
            parameters = _parameters(";" + rest)
            if "name" not in parameters:
                break
            return parameters["name"], parameters.get("filename")
    raise _broken("a part has no Content-Disposition with a name")


def _parameters(text: str) -> dict[str, str]:
    """`; name="value"` -> values; browsers escape a quote with % or with a backslash."""
    found = {}
    for name, quoted, plain in _PARAMETER.findall(text):
        value = re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        found[name.lower()] = value.replace("%22", '"')
    return found


def _broken(what: str) -> InvalidRequestError:
    return InvalidRequestError(f"the body is not valid multipart/form-data: {what}")
