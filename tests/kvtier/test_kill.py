"""kill -9 while blocks are written: the next start is clean, and what it finds is right."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kvtier.slots import Tier, kept_files, key

ROOT = Path(__file__).parents[2]
NUM_KEYS = 60
SLOT_BYTES = 120_000
MAX_BYTES = 40 * SLOT_BYTES  # less than all: it deletes as well
# Stores blocks for ever. Its kernel takes at most 1,000 bytes of a write, and it says a byte on its
# output for each that it took and for each block.
WRITER = f"""
import itertools, os, sys
from pathlib import Path
from tests.kvtier.slots import Tier, content, key

write = os.write
def write_a_part(descriptor, data):
    num_written = write(descriptor, data[:1000])
    write(1, b".")
    return num_written
os.write = write_a_part

tier = Tier(Path(sys.argv[1]), max_bytes={MAX_BYTES}, slot_bytes={SLOT_BYTES})
for number in itertools.count():
    of = key(number % {NUM_KEYS})
    tier.slots[0][:] = content(of, {SLOT_BYTES})
    tier.files.store(of, 0)
    tier.files.wait(60)
    tier.files.take_stored()
    write(1, b"!")
"""


@contextmanager
def running_writer(folder: Path, num_marks: int) -> Iterator[subprocess.Popen[bytes]]:
    """A writer that has said so many bytes, and is killed at the end."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, cwd=ROOT, bufsize=0
    )
    assert writer.stdout is not None
    try:
        hear(writer, num_marks)
        yield writer
    finally:
        writer.kill()
        writer.stdout.close()
        status = writer.wait()
    assert status == -signal.SIGKILL


def hear(writer: subprocess.Popen[bytes], num_marks: int) -> None:
    assert writer.stdout is not None
    for _ in range(num_marks):
        assert writer.stdout.read(1), "the writer ended"


def unfinished(folder: Path) -> list[Path]:
    return [path for path in kept_files(folder) if path.suffix != ".kv"]


def test_a_writer_may_be_killed_at_any_point(tmp_path: Path):
    """Fifty times: no load brings wrong bytes, nothing unfinished stays, the bound holds."""
    random_ = random.Random(5)
    num_cut = num_found = 0
    for _ in range(50):
        with running_writer(tmp_path, random_.randrange(1, 5000)):
            pass
        num_cut += len(unfinished(tmp_path))
        tier = Tier(tmp_path, max_bytes=MAX_BYTES, slot_bytes=SLOT_BYTES)
        files = kept_files(tmp_path)
        assert unfinished(tmp_path) == []
        assert tier.files.num_bytes == sum(path.stat().st_size for path in files) <= MAX_BYTES
        found = [tier.has(key(number)) for number in range(NUM_KEYS)]  # checks the bytes
        assert sum(found) == len(files), "what has its name is whole"
        num_found += sum(found)
        tier.files.close()
    assert num_cut > 5, "kills did not fall into writes"
    assert num_found > 50


def test_a_start_beside_a_living_writer_leaves_its_unfinished_file(tmp_path: Path):
    with running_writer(tmp_path, 5) as writer:
        while True:
            writer.send_signal(signal.SIGSTOP)
            os.waitpid(writer.pid, os.WUNTRACED)
            if unfinished(tmp_path):
                break
            writer.send_signal(signal.SIGCONT)
            hear(writer, 1)
        held = unfinished(tmp_path)
        Tier(tmp_path, slot_bytes=SLOT_BYTES).files.close()
        assert unfinished(tmp_path) == held


def test_a_start_leaves_a_file_that_has_just_been_made(tmp_path: Path):
    """Its writer holds the folder until the file is locked: made here by hand, in the middle."""
    with running_writer(tmp_path, 500):
        pass
    shelf = kept_files(tmp_path)[0].parent
    made = shelf / f".{'0' * 72}.00000000.tmp"
    folder = os.open(shelf, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    made.touch()
    Tier(tmp_path, slot_bytes=SLOT_BYTES).files.close()
    assert made.exists()

    os.close(folder)  # and now it is a dead one's
    Tier(tmp_path, slot_bytes=SLOT_BYTES).files.close()
    assert not made.exists()
