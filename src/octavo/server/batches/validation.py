"""Reads the input of a batch: where each line is, and what is wrong with it.

Owns the checks that OpenAI makes before a batch begins. Does not know how lines are computed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from octavo.errors import InvalidRequestError
from octavo.server.batches.batch_store import BatchStore, Fault, StoredLine
from octavo.server.batches.file_store import FileStore
from octavo.server.batches.lines import read_line

MAX_FAULTS = 50  # that are told of one batch
_LINES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class LineLimits:
    """Bounds of one batch."""

    max_lines: int
    max_line_bytes: int


@dataclass(slots=True)
class _Findings:
    lines: list[StoredLine] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    custom_ids: set[str] = field(default_factory=set)
    num_lines: int = 0


async def validate(
    files: FileStore,
    store: BatchStore,
    *,
    batch_id: str,
    file_id: str,
    endpoint: str,
    limits: LineLimits,
) -> list[Fault]:
    """Keep the lines of a batch; what is wrong with them, if anything."""
    await store.forget_lines(batch_id)
    found = _Findings()
    async for first_byte, data in _lines(files.pieces(file_id), limits.max_line_bytes):
        _check(found, first_byte, data, endpoint, limits)
        if len(found.faults) >= MAX_FAULTS or found.num_lines > limits.max_lines:
            break
        if len(found.lines) >= _LINES_AT_ONCE:
            await store.add_lines(batch_id, found.lines)
            found.lines = []
    if found.num_lines == 0:
        found.faults.append(Fault(code="empty_file", message="the file has no lines"))
    if not found.faults:
        await store.add_lines(batch_id, found.lines)
    return found.faults


def _check(
    found: _Findings, first_byte: int, data: bytes | None, endpoint: str, limits: LineLimits
) -> None:
    """One line more."""
    number = found.num_lines
    found.num_lines += 1
    shown = number + 1

    def wrong(code: str, message: str, param: str | None = None) -> None:
        found.faults.append(Fault(code=code, message=message, param=param, line=shown))

    if found.num_lines > limits.max_lines:
        rule = f"a batch may have at most {limits.max_lines} lines (--max-batch-requests)"
        return wrong("too_many_lines", rule)
    if data is None:
        rule = f"a line may have at most {limits.max_line_bytes} bytes (--max-body-bytes)"
        return wrong("line_too_long", rule)
    try:
        line = read_line(data)
    except InvalidRequestError as error:
        return wrong("invalid_line", error.message, error.param)
    if line.url != endpoint:
        return wrong("mismatched_url", f"url must be the batch's endpoint, {endpoint}", "url")
    if line.custom_id in found.custom_ids:
        return wrong("duplicate_custom_id", "another line has this custom_id", "custom_id")
    found.custom_ids.add(line.custom_id)
    found.lines.append(StoredLine(number, line.custom_id, first_byte, len(data)))
    return None


async def _lines(
    pieces: AsyncIterator[bytes], max_bytes: int
) -> AsyncIterator[tuple[int, bytes | None]]:
    """(place of the first byte, content) of each line that is not blank; None: it is too long."""
    buffer, begin, is_too_long = b"", 0, False
    async for piece in pieces:
        *whole, rest = (buffer + piece).split(b"\n")
        for line in whole:
            if is_too_long or len(line) > max_bytes:
                yield begin, None
            elif line.strip():
                yield begin, line
            begin += len(line) + 1
            is_too_long = False
        buffer = rest
        if len(buffer) > max_bytes:  # do not keep what is refused anyway
            is_too_long = True
            begin, buffer = begin + len(buffer), b""
    if is_too_long:
        yield begin, None
    elif buffer.strip():
        yield begin, buffer
