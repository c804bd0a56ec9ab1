"""The disk tier: what is stored comes back, also after a restart, within its bound."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.kvtier import kv_files
from octavo.kvtier.kv_files import KVFiles
from tests.kvtier.slots import FILE_BYTES, Tier, content, kept_files, key


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[Tier]:
    """A tier with room for all that a test stores."""
    made = Tier(tmp_path)
    yield made
    made.files.close()


def test_a_stored_block_comes_back_with_the_same_bytes(tier: Tier):
    tier.keep(key(1), key(2), key(1, group=3))

    assert tier.has(key(1))
    assert tier.has(key(2))
    assert tier.has(key(1, group=3))
    assert not tier.has(key(3))


def test_blocks_survive_a_restart(tmp_path: Path):
    first = Tier(tmp_path)
    first.keep(key(1), key(2))
    first.files.close()

    second = Tier(tmp_path)
    assert key(1) in second.files
    assert second.has(key(1))
    assert second.has(key(2))
    assert second.files.num_bytes == 2 * FILE_BYTES
    second.files.close()


def test_close_finishes_what_was_stored(tmp_path: Path):
    first = Tier(tmp_path, num_slots=50)
    for number in range(50):
        first.slots[number][:] = content(key(number))
        first.files.store(key(number), number)
    first.files.close()
    first.files.close()

    second = Tier(tmp_path)
    assert all(second.has(key(number)) for number in range(50))
    second.files.close()


def test_a_store_after_close_gives_its_slot_back(tmp_path: Path):
    tier = Tier(tmp_path)
    tier.files.close()
    tier.files.store(key(1), 2)
    assert tier.files.take_stored() == [2]
    assert not tier.has(key(1))


def test_storing_a_block_twice_keeps_one_file(tier: Tier, tmp_path: Path):
    tier.keep(key(1), key(1))
    assert len(kept_files(tmp_path)) == 1
    assert tier.files.num_bytes == FILE_BYTES


def test_files_and_folders_are_the_users_alone(tier: Tier, tmp_path: Path):
    tier.keep(key(1))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in kept_files(tmp_path)}
    assert modes == {0o600}
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert {0o700} == {stat.S_IMODE(path.stat().st_mode) for path in folders}
    assert len(folders) == 2


class HeldTier(Tier):
    """A tier whose writer waits before it reads a slot, until it is let go."""

    def __init__(self, folder: Path, num_slots: int = 4) -> None:
        self.go = threading.Event()
        self.is_reading = threading.Event()
        self.slots = [bytearray(1000) for _ in range(num_slots)]
        self.files = KVFiles(folder, 1 << 30, b"model", self._view)

    def _view(self, slot: int) -> memoryview:
        if threading.current_thread().name == "octavo-kv-files":
            self.is_reading.set()
            assert self.go.wait(60)
        return memoryview(self.slots[slot])


def test_a_block_that_waits_to_be_written_is_found_already(tmp_path: Path):
    tier = HeldTier(tmp_path)
    for number in (0, 1):
        tier.slots[number][:] = content(key(number))
        tier.files.store(key(number), number)
    assert tier.is_reading.wait(60)

    assert tier.has(key(0))
    assert tier.has(key(1))
    assert tier.files.take_stored() == []
    tier.go.set()
    tier.files.close()
    assert sorted(tier.files.take_stored()) == [0, 1]


def test_stores_beyond_the_queue_are_dropped_and_their_slots_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kv_files, "MAX_QUEUED", 1)
    tier = HeldTier(tmp_path)
    tier.files.store(key(0), 0)
    assert tier.is_reading.wait(60)
    tier.files.store(key(1), 1)
    tier.files.store(key(2), 2)

    assert tier.files.take_stored() == [2]
    assert key(2) not in tier.files
    tier.go.set()
    tier.files.close()


def test_clear_forgets_what_is_kept_what_waits_and_what_is_being_written(tmp_path: Path):
    tier = HeldTier(tmp_path)
    tier.go.set()
    tier.keep(key(7))
    tier.go.clear()
    tier.is_reading.clear()
    tier.files.store(key(0), 0)
    assert tier.is_reading.wait(60)
    tier.files.store(key(1), 1)

    tier.files.clear()
    assert tier.files.take_stored() == [1]
    assert not any(key(number) in tier.files for number in (0, 1, 7))
    tier.go.set()
    assert tier.files.wait(60)

    assert tier.files.take_stored() == [0]
    assert not tier.has(key(0))
    assert kept_files(tmp_path) == []
    assert tier.files.num_bytes == 0
    tier.keep(key(0))
    assert tier.has(key(0))
    tier.files.close()


def test_clear_leaves_other_models_alone(tmp_path: Path):
    other = Tier(tmp_path, fingerprint=b"other")
    other.keep(key(1))
    tier = Tier(tmp_path)
    tier.keep(key(1))
    tier.files.clear()
    assert not tier.has(key(1))
    assert other.has(key(1))
    for each in (tier, other):
        each.files.close()


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path):
    tier = Tier(tmp_path, max_bytes=3 * FILE_BYTES)
    tier.keep(key(1), key(2), key(3))
    assert tier.has(key(1))
    tier.keep(key(4))

    assert [tier.has(key(number)) for number in (1, 2, 3, 4)] == [True, False, True, True]
    assert len(kept_files(tmp_path)) == 3
    tier.files.close()


def test_the_order_of_use_survives_a_restart(tmp_path: Path):
    first = Tier(tmp_path)
    first.keep(key(1), key(2), key(3))
    assert first.has(key(1))
    first.files.close()

    second = Tier(tmp_path, max_bytes=3 * FILE_BYTES)
    second.keep(key(4))
    assert [second.has(key(number)) for number in (1, 2, 3, 4)] == [True, False, True, True]
    second.files.close()


def test_the_bound_holds_at_every_moment(tmp_path: Path):
    max_bytes = 5 * FILE_BYTES + 17
    tier = Tier(tmp_path, max_bytes=max_bytes)
    for number in range(40):
        tier.keep(key(number))
        assert sum(path.stat().st_size for path in kept_files(tmp_path)) <= max_bytes
    assert tier.files.num_bytes == 5 * FILE_BYTES
    tier.files.close()


def test_a_smaller_bound_is_met_at_the_start(tmp_path: Path):
    first = Tier(tmp_path)
    first.keep(*map(key, range(10)))
    first.files.close()

    second = Tier(tmp_path, max_bytes=4 * FILE_BYTES)
    assert [second.has(key(number)) for number in range(10)] == [False] * 6 + [True] * 4
    assert len(kept_files(tmp_path)) == 4
    second.files.close()


def test_files_of_other_models_count_and_go_first_if_they_are_older(tmp_path: Path):
    other = Tier(tmp_path, fingerprint=b"other")
    other.keep(key(1), key(2))
    other.files.close()

    tier = Tier(tmp_path, max_bytes=3 * FILE_BYTES)
    assert tier.files.num_bytes == 2 * FILE_BYTES
    tier.keep(key(1), key(2))
    assert tier.files.num_bytes == 3 * FILE_BYTES
    assert tier.has(key(1))
    tier.files.close()

    other = Tier(tmp_path, fingerprint=b"other")
    assert not other.has(key(1))
    assert other.has(key(2))
    other.files.close()


def test_a_limit_that_holds_no_block_is_refused_and_costs_nobody_his_place(tmp_path: Path):
    small = Tier(tmp_path, slot_bytes=10)
    small.keep(key(1))
    with pytest.raises(ConfigError, match=r"--kv-offload-gb holds not even .*at least 0\.001"):
        Tier(tmp_path, max_bytes=500, fingerprint=b"large")
    assert small.has(key(1))
    small.files.close()


def test_a_limit_beyond_what_the_disk_has_is_told_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Other programs may need that disk; what cannot be written is a miss."""
    Tier(tmp_path).files.close()
    assert caplog.messages == []
    Tier(tmp_path, max_bytes=1 << 60).files.close()
    [told] = caplog.messages
    assert told.startswith("--kv-offload-gb may keep 1048576.0 TiB in ")
    assert "but the disk has room for " in told


def test_another_model_or_layout_never_sees_a_block(tmp_path: Path):
    tier = Tier(tmp_path)
    tier.keep(key(1))
    other = Tier(tmp_path, fingerprint=b"model, other layout")
    assert not other.has(key(1))
    assert tier.has(key(1))
    for each in (tier, other):
        each.files.close()


def test_two_tiers_share_a_folder(tmp_path: Path):
    """Each has its own view of it; what the other one deletes is a miss."""
    first, second = Tier(tmp_path), Tier(tmp_path, max_bytes=2 * FILE_BYTES)
    first.keep(key(1))
    third = Tier(tmp_path)
    assert third.has(key(1))
    third.files.clear()

    assert key(1) in first.files
    assert not first.has(key(1))
    first.keep(key(1))
    assert first.has(key(1))
    second.keep(key(2), key(3), key(4))
    assert second.has(key(4))
    for each in (first, second, third):
        each.files.close()


def test_what_other_processes_write_counts_from_the_next_look_on(tmp_path: Path):
    """With a bound of few blocks, every store looks."""
    first = Tier(tmp_path, max_bytes=4 * FILE_BYTES)
    second = Tier(tmp_path, max_bytes=4 * FILE_BYTES)
    for number in range(0, 40, 2):
        first.keep(key(number))
        second.keep(key(number + 1))
    first.keep(key(100), key(101))

    assert len(kept_files(tmp_path)) == 4
    assert key(39) in first.files
    assert first.has(key(39))
    for each in (first, second):
        each.files.close()


def test_a_file_that_vanished_is_a_miss(tier: Tier, tmp_path: Path):
    tier.keep(key(1), key(2))
    kept_files(tmp_path)[0].unlink()
    assert key(1) in tier.files
    assert not tier.has(key(1))
    assert tier.has(key(2))
    assert tier.files.num_bytes == FILE_BYTES


def test_strangers_in_the_folder_stay(tmp_path: Path):
    notes = tmp_path / "notes.kv"
    notes.write_text("mine")
    tier = Tier(tmp_path, max_bytes=FILE_BYTES)
    tier.keep(key(1), key(2))
    tier.files.clear()
    assert notes.read_text() == "mine"
    tier.files.close()


def test_a_folder_that_cannot_be_one_is_refused_by_its_flag(tmp_path: Path):
    path = tmp_path / "file"
    path.touch()
    for folder in (path, path / "below", Path("/proc/octavo")):
        with pytest.raises(ConfigError, match=r"--kv-offload-dir .*(file|octavo)"):
            Tier(folder)
