"""Where values lie in the arena, and where threads must meet.

Owns lifetimes, in-place results, offsets and barriers. Pure arithmetic on a recording: the C++ side
checks the outcome against the arena's size and trusts it for the rest.

How threads share work (csrc/forward.cpp): all operations but these split their rows evenly, so a
thread finds in its own rows what it wrote there itself. Products split the columns of their result
and read all rows; `Attend` writes keys and values by rows, meets, and splits the rest in its own
way; `Mix` reads all rows, meets, and writes its result by rows. A barrier is needed exactly where
one thread could touch what another one has not finished.
"""

from __future__ import annotations

import msgspec

from octavo._native import Rows, View
from octavo.backends.native.operations import (
    IN_PLACE,
    TAKES,
    Add,
    Attend,
    Buffer,
    HeadProducts,
    Mix,
    Operation,
    Product,
    Recording,
    RoundedProduct,
    Value,
    whole,
)

_LINE = 16  # floats in a cache line: rows start at one, so that threads do not share lines
_PRODUCTS = (Product, RoundedProduct, HeadProducts)
# A multiple of 4 KiB would put the same column of all rows into one set of the cache.
_PAGE = 1024


class Storage(msgspec.Struct, frozen=True, eq=False):
    """A piece of the arena that one value, or several in place of each other, live in."""

    rows: Rows
    offset: int  # floats
    stride: int
    num_floats: int

    def overlaps(self, other: Storage) -> bool:
        """Whether the two share memory."""
        return (
            self.offset < other.offset + other.num_floats
            and other.offset < self.offset + self.num_floats
        )


class StepSize(msgspec.Struct, frozen=True):
    """The largest step that will run."""

    max_tokens: int
    wanted_rows: int  # at a time; more are wanted in slices


class Placement(msgspec.Struct, frozen=True):
    """A recording with everything that the C++ side needs to know of memory and threads."""

    recording: Recording
    size: StepSize
    places: dict[Value, tuple[Storage, int]]  # storage and first column
    barriers: tuple[bool, ...]  # parallel to the operations: threads meet before it
    arena_floats: int

    def view(self, buffer: Buffer) -> View:
        """Where a buffer lies."""
        storage, column = self.places[buffer.value]
        return View(storage.offset + column + buffer.column, storage.stride, buffer.width)


def place(recording: Recording, size: StepSize, inputs: tuple[Value, ...] = ()) -> Placement:
    """Lay a recording out for steps of up to `size`.

    `inputs` are values that no operation computes: whoever runs the program fills them before.
    """
    operations, homes = _choose_homes(recording, inputs)
    recording = msgspec.structs.replace(recording, operations=operations)
    spans = _spans(recording, homes, inputs)
    arena = _Arena(size)
    storages = _reserve_all(arena, spans, len(operations))
    places = {value: (storages[home.value], home.column) for value, home in homes.items()}
    return Placement(recording, size, places, _barriers(operations, places), arena.num_floats)


# ---- Lifetimes -----------------------------------------------------------------------------------

Homes = dict[Value, Buffer]  # each value -> the columns of the first value whose memory it uses


def _choose_homes(
    recording: Recording, inputs: tuple[Value, ...]
) -> tuple[tuple[Operation, ...], Homes]:
    """Give each value memory of its own, or that of an input that nobody reads afterwards.

    The operations come back with the overwritten input first.
    """
    reads = _reads(recording)
    homes: Homes = {value: whole(value) for value in inputs}
    residents: dict[Value, list[Value]] = {value: [value] for value in inputs}
    operations: list[Operation] = []
    for index, original in enumerate(recording.operations):
        operation, output = original, original.output
        homes[output] = whole(output)
        for swapped in _orders(original):
            target = _located(swapped.inputs[0], homes)
            if not _is_free(target, index, residents[target.value], homes, reads):
                continue
            operation = swapped
            homes[output] = target
            break
        residents.setdefault(homes[output].value, []).append(output)
        operations.append(operation)
    return tuple(operations), homes


def _orders(operation: Operation) -> list[Operation]:
    """The operation with each input in front that the result may be written over."""
    if not isinstance(operation.kind, IN_PLACE):
        return []
    if not isinstance(operation.kind, Add):
        return [operation]
    a, b = operation.inputs
    return [operation, Operation(operation.kind, (b, a), operation.output)]


def _is_free(
    target: Buffer,
    index: int,
    residents: list[Value],
    homes: Homes,
    reads: dict[Value, list[tuple[int, Buffer]]],
) -> bool:
    """Whether nobody reads these columns after operation `index`, nor itself in another place."""
    for value in residents:
        for reader, buffer in reads.get(value, []):
            located = _located(buffer, homes)
            if reader > index and located.overlaps(target):
                return False
            if reader == index and located.overlaps(target) and located != target:
                return False
    return True


def _located(buffer: Buffer, homes: Homes) -> Buffer:
    home = homes[buffer.value]
    return Buffer(home.value, home.column + buffer.column, buffer.width)


def _reads(recording: Recording) -> dict[Value, list[tuple[int, Buffer]]]:
    """Who reads which columns of a value, by index. The result is read at the end."""
    reads: dict[Value, list[tuple[int, Buffer]]] = {}
    end = len(recording.operations)
    for index, operation in enumerate(recording.operations):
        for buffer in operation.inputs:
            # Operations over wanted rows run once for each slice, so what they take from the rows
            # of tokens must last until the end.
            repeats = isinstance(operation.kind, TAKES)
            reads.setdefault(buffer.value, []).append((end if repeats else index, buffer))
    reads.setdefault(recording.result.value, []).append((end, recording.result))
    return reads


def _spans(
    recording: Recording, homes: Homes, inputs: tuple[Value, ...]
) -> dict[Value, tuple[int, int]]:
    """For each value with memory of its own: the first and the last operation that touch it."""
    spans: dict[Value, tuple[int, int]] = dict.fromkeys(inputs, (-1, -1))

    def touch(value: Value, index: int) -> None:
        root = homes[value].value
        first, last = spans.get(root, (index, index))
        spans[root] = (first, max(last, index))

    for index, operation in enumerate(recording.operations):
        touch(operation.output, index)
    for value, readers in _reads(recording).items():
        for index, _ in readers:
            touch(value, index)
    return spans


# ---- Offsets -------------------------------------------------------------------------------------


class _Arena:
    """First fit: a storage goes to the lowest gap that holds it."""

    def __init__(self, size: StepSize) -> None:
        self._capacity = {Rows.TOKENS: size.max_tokens, Rows.WANTED: size.wanted_rows}
        self._live: list[Storage] = []  # by offset
        self.num_floats = 0

    def reserve(self, value: Value) -> Storage:
        stride = value.width if value.contiguous else _stride(value.width)
        num_floats = _round_up(self._capacity[value.rows] * stride, _LINE)
        offset, place = 0, 0
        while place < len(self._live) and self._live[place].offset - offset < num_floats:
            offset = self._live[place].offset + self._live[place].num_floats
            place += 1
        storage = Storage(value.rows, offset, stride, num_floats)
        self._live.insert(place, storage)
        self.num_floats = max(self.num_floats, offset + num_floats)
        return storage

    def release(self, storage: Storage) -> None:
        self._live.remove(storage)


def _reserve_all(
    arena: _Arena, spans: dict[Value, tuple[int, int]], num_operations: int
) -> dict[Value, Storage]:
    starts: dict[int, list[Value]] = {}
    ends: dict[int, list[Value]] = {}
    for value, (first, last) in spans.items():
        starts.setdefault(first, []).append(value)
        ends.setdefault(last, []).append(value)
    storages: dict[Value, Storage] = {}
    for index in range(-1, num_operations):
        for value in starts.get(index, []):
            storages[value] = arena.reserve(value)
        for value in ends.get(index, []):
            arena.release(storages[value])
    return storages


def _stride(width: int) -> int:
    stride = _round_up(width, _LINE)
    return stride + _LINE if stride % _PAGE == 0 else stride


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


# ---- Barriers ------------------------------------------------------------------------------------


class _Access(msgspec.Struct, frozen=True):
    """How the threads touch a storage in one operation."""

    storage: Storage
    own_rows: bool  # each thread its own rows, the same ones in every such operation
    writes: bool

    def conflicts(self, other: _Access) -> bool:
        if not (self.writes or other.writes) or not self.storage.overlaps(other.storage):
            return False
        return not (self.own_rows and other.own_rows and self.storage is other.storage)


def _barriers(
    operations: tuple[Operation, ...], places: dict[Value, tuple[Storage, int]]
) -> tuple[bool, ...]:
    """For each operation whether threads must meet before it."""
    barriers: list[bool] = []
    pending: list[_Access] = []  # since the threads met last
    rows = Rows.TOKENS
    for operation in operations:
        if operation.output.rows is not rows:
            rows, pending = operation.output.rows, []  # threads meet before each slice
        first, last = _accesses(operation, places)
        barriers.append(any(a.conflicts(b) for a in first for b in pending))
        if barriers[-1]:
            pending = []
        if isinstance(operation.kind, Attend | Mix):
            pending = []  # threads met inside
        pending += last
    return tuple(barriers)


def _accesses(
    operation: Operation, places: dict[Value, tuple[Storage, int]]
) -> tuple[list[_Access], list[_Access]]:
    """What an operation touches before threads meet inside it, and after that."""
    output = places[operation.output][0]
    sources = [places[buffer.value][0] for buffer in operation.inputs]
    if isinstance(operation.kind, Attend):
        _, k, v = sources
        return [_Access(k, True, False), _Access(v, True, False)], [_Access(output, False, True)]
    if isinstance(operation.kind, Mix):
        # The weights of a row are read when its result is written, behind the last meeting.
        last = [_Access(sources[0], True, False), _Access(output, True, True)]
        return [_Access(source, False, False) for source in sources], last
    reads_own = not isinstance(operation.kind, (*_PRODUCTS, *TAKES))
    writes_own = not isinstance(operation.kind, _PRODUCTS)
    accesses = [_Access(source, reads_own, False) for source in sources]
    accesses.append(_Access(output, writes_own, True))
    return accesses, accesses
