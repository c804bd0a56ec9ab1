"""Files that are not what they should be: every kind of damage is a miss, and is cleared away."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.kvtier.block_file import HEADER_BYTES
from tests.kvtier.slots import FILE_BYTES, Tier, content, kept_files, key


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """The one file of a tier that was closed; it holds block 1."""
    tier = Tier(tmp_path)
    tier.keep(key(1))
    tier.files.close()
    return kept_files(tmp_path)[0]


def assert_missed_and_deleted(folder: Path, path: Path) -> None:
    tier = Tier(folder)
    assert key(1) in tier.files
    assert not tier.has(key(1))
    assert not path.exists()
    assert tier.files.num_bytes == 0
    tier.keep(key(1))
    assert tier.has(key(1))
    tier.files.close()


def test_a_flipped_bit_anywhere_is_found(whole: Path, tmp_path: Path):
    """Every byte of the header, and some of the payload."""
    image = whole.read_bytes()
    assert len(image) == FILE_BYTES
    random_ = random.Random(1)
    places = [*range(HEADER_BYTES), HEADER_BYTES, FILE_BYTES - 1]
    places += [random_.randrange(HEADER_BYTES, FILE_BYTES) for _ in range(40)]
    tier = Tier(tmp_path)
    for place in places:
        tier.keep(key(1))
        changed = bytearray(image)
        changed[place] ^= 1 << random_.randrange(8)
        whole.write_bytes(changed)
        assert not tier.has(key(1)), place
        assert not whole.exists()
    tier.files.close()


def test_a_file_cut_at_any_byte_is_found(whole: Path, tmp_path: Path):
    image = whole.read_bytes()
    tier = Tier(tmp_path)
    for length in [*range(HEADER_BYTES + 3), *range(HEADER_BYTES + 3, FILE_BYTES, 97)]:
        tier.keep(key(1))
        whole.write_bytes(image[:length])
        assert not tier.has(key(1)), length
        assert not whole.exists()
    tier.files.close()


@pytest.mark.parametrize("more", [b"\0", b"x" * 5000])
def test_a_file_that_is_too_long_is_found(whole: Path, tmp_path: Path, more: bytes):
    with whole.open("ab") as file:
        file.write(more)
    assert_missed_and_deleted(tmp_path, whole)


def test_a_stretch_of_zeros_is_found(whole: Path, tmp_path: Path):
    """What a file system may leave when the power goes: the length is right, the data is not."""
    os.truncate(whole, HEADER_BYTES + 100)
    os.truncate(whole, FILE_BYTES)
    assert_missed_and_deleted(tmp_path, whole)


def test_another_blocks_file_under_this_name_is_found(whole: Path, tmp_path: Path):
    tier = Tier(tmp_path)
    tier.keep(key(2))
    tier.files.close()
    other = next(path for path in kept_files(tmp_path) if path != whole)
    other.replace(whole)
    assert_missed_and_deleted(tmp_path, whole)


def test_another_models_file_under_this_name_is_found(whole: Path, tmp_path: Path):
    other = Tier(tmp_path / "other", fingerprint=b"other")
    other.keep(key(1))
    other.files.close()
    kept_files(tmp_path / "other")[0].replace(whole)
    assert_missed_and_deleted(tmp_path, whole)


def test_a_block_of_another_size_is_found(whole: Path, tmp_path: Path):
    other = Tier(tmp_path, slot_bytes=500)
    assert not other.has(key(1))
    assert not whole.exists()
    other.files.close()


def test_a_folder_or_a_link_under_this_name_is_a_miss(whole: Path, tmp_path: Path):
    tier = Tier(tmp_path)
    image = tmp_path / "elsewhere"
    whole.rename(image)
    whole.symlink_to(image)
    assert not tier.has(key(1))
    assert image.exists()
    tier.keep(key(1))
    whole.unlink()
    whole.mkdir()
    assert not tier.has(key(1))
    tier.files.close()


def test_a_pipe_under_this_name_is_a_miss_and_waits_for_nobody(whole: Path, tmp_path: Path):
    """Nor does one under the name of an unfinished file hold up a start."""
    whole.unlink()
    os.mkfifo(whole)
    os.mkfifo(whole.with_name(f".{whole.stem}.0123abcd.tmp"))
    assert_missed_and_deleted(tmp_path, whole)


def test_what_dead_writers_left_unfinished_goes_and_the_livings_stays(tmp_path: Path):
    """A temporary file is locked while it is written."""
    tier = Tier(tmp_path)
    tier.keep(key(1))
    tier.files.close()
    final = kept_files(tmp_path)[0]
    dead = final.with_name(f".{final.stem}.0123abcd.tmp")
    living = final.with_name(f".{final.stem}.4567abcd.tmp")
    dead.write_bytes(b"half")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; file = open(sys.argv[1], 'wb'); fcntl.flock(file, fcntl.LOCK_EX);"
            "print('held', flush=True); sys.stdin.read()",
            str(living),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"

    Tier(tmp_path).files.close()
    assert [final, living] == sorted(kept_files(tmp_path), reverse=True)
    holder.communicate()
    Tier(tmp_path).files.close()
    assert [final] == kept_files(tmp_path)


def test_a_full_disk_is_said_once_and_everything_is_a_miss(tmp_path: Path):
    """A limit on the size of files stands for the disk: writing fails after some bytes."""
    script = """
import logging, resource, sys
from pathlib import Path
from tests.kvtier.slots import Tier, kept_files, key
logging.basicConfig(level="WARNING", format="%(message)s")
folder = Path(sys.argv[1])
tier = Tier(folder)
resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))
tier.keep(*map(key, range(5)))
assert not any(map(tier.has, map(key, range(5))))
assert kept_files(folder) == []
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
tier.keep(key(6))
assert tier.has(key(6))
tier.files.close()
"""
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("File too large") == 1


def test_a_folder_that_is_removed_under_a_tier_is_a_miss(tmp_path: Path):
    folder = tmp_path / "kv"
    tier = Tier(folder)
    tier.keep(key(1))
    folder.rename(tmp_path / "gone")
    assert not tier.has(key(1))
    tier.keep(key(2))
    assert not tier.has(key(2))
    (tmp_path / "gone").rename(folder)
    tier.keep(key(3))
    assert tier.has(key(3))
    tier.files.close()


def test_a_damaged_block_does_not_reach_who_reads_another_slot(whole: Path, tmp_path: Path):
    image = bytearray(whole.read_bytes())
    image[-1] ^= 1
    whole.write_bytes(image)
    tier = Tier(tmp_path)
    tier.slots[1][:] = content(key(5))
    assert not tier.files.load(key(1), 0)
    assert tier.slots[1] == content(key(5))
    tier.files.close()
