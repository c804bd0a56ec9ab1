"""Loading weights: in pieces, with the file's pages let go of, the same numbers as at once."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from octavo import _native
from octavo.backends.native import weights as native_weights
from octavo.backends.native.weights import NativeWeights
from octavo.models.registry import model_class
from octavo.runner.native_runner import NativeRunner
from octavo.weights.gguf_checkpoint import open_gguf
from octavo.weights.mapped_file import let_go, map_file
from tests.support.data import smollm2_path
from tests.support.random_checkpoint import RandomCheckpoint
from tests.support.step_driver import RunnerSizes, StepDriver, generate, start_runner

PROMPT = list(range(20))
SIZES = RunnerSizes()


def generated() -> list[int]:
    return generate(
        StepDriver(start_runner(NativeRunner, RandomCheckpoint(), SIZES), SIZES), PROMPT, 8
    )


def test_a_tensor_in_pieces_gives_what_it_gives_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One panel of eight rows at a time, and the rows that are left at its end."""
    at_once = generated()
    monkeypatch.setattr(native_weights, "PIECE_BYTES", 1)
    assert at_once == generated()


def resident_kib(path: Path) -> int:
    """Memory of this process that holds pages of a file."""
    total, is_it = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if "-" in words[0]:  # the first line of a mapping
            is_it = words[-1] == str(path)
        elif is_it and words[0] == "Rss:":
            total += int(words[1])
    return total


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_the_file_takes_no_memory_once_it_is_packed() -> None:
    """Nor while it is: the model is never in memory twice."""
    path = smollm2_path().resolve()
    checkpoint = open_gguf(path)
    weights = NativeWeights(checkpoint.tensors)
    model_class(checkpoint.facts.architecture)(checkpoint.facts, weights, 256)
    seen: list[int] = []
    weights.load(_native.ThreadPool(2, pin=False), lambda share: seen.append(resident_kib(path)))
    assert max(seen) < 1024
    assert resident_kib(path) < 1024


def test_pages_that_were_let_go_of_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = bytes(range(256)) * 64
    path.write_bytes(content)
    view = map_file(path)
    assert content == bytes(view)
    let_go(view[100:200])
    assert content == bytes(view)


def test_bytes_that_lie_in_no_file_stay() -> None:
    own = bytearray(b"x" * 20_000)
    let_go(memoryview(own))
    assert own == b"x" * 20_000


@pytest.mark.parametrize(
    ("num_rows", "first_row"), [(8, 4), (4, 0), (8, 16), (24, 0), (8, -8), (0, 0)]
)
def test_rows_that_are_no_whole_panels_of_the_tensor_are_refused(
    num_rows: int, first_row: int
) -> None:
    """Of a tensor of 20 rows: panels end at multiples of 8 and at its end."""
    weights = _native.Weights()
    matrix = weights.add_matrix(4, [(0, 20)])
    weights.allocate()
    threads = _native.ThreadPool(1, pin=False)
    with pytest.raises(ValueError, match="cannot have"):
        weights.fill(threads, matrix, 0, 0, bytes(num_rows * 16), first_row=first_row)
    for first, count in ((0, 8), (8, 12)):
        weights.fill(threads, matrix, 0, 0, bytes(count * 16), first_row=first)


def test_of_many_pieces_the_first_wrong_one_is_told() -> None:
    """And why: it is no piece of the tensor, or a number in it is not finite."""
    weights = _native.Weights()
    matrix = weights.add_matrix(4, [(0, 8), (0, 16)])
    weights.allocate()
    threads = _native.ThreadPool(2, pin=False)
    sound, infinite = bytes(8 * 16), struct.pack("<f", float("inf")) + bytes(8 * 16 - 4)
    pieces = [
        (matrix, 0, 0, sound, 0, 0),
        (matrix, 1, 0, sound, 0, 0),
        (matrix, 1, 0, infinite, 0, 8),
        (matrix, 0, 0, infinite, 0, 0),
    ]
    assert weights.fill_all(threads, pieces[:2]) == (2, "")
    assert weights.fill_all(threads, pieces) == (2, "it holds a number that is not finite")
    assert weights.fill_all(threads, []) == (0, "")
    count, why = weights.fill_all(threads, [pieces[0], (matrix, 1, 0, sound, 0, 4)])
    assert count == 1
    assert "cannot have 128 bytes from row 4 on" in why
