"""The KV manager on a disk tier: what a pool evicts comes back, in the next process too."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

from octavo.contracts.kv_plan import KVGroup, KVPlan
from octavo.kvcache.invariants import check_pool
from octavo.kvcache.manager import KVManager
from octavo.kvtier.kv_files import KVFiles
from tests.kvtier.slots import kept_files

BLOCK_SIZE = 4
BYTES = BLOCK_SIZE * 8  # an entry is 8 bytes
GROUPS = (KVGroup(), KVGroup(window=6))


class Machine:
    """A pool whose entries say what they are: group, position and a digest of the tokens so far."""

    def __init__(self, folder: Path, *, num_slots: int = 8, max_bytes: int = 1 << 30) -> None:
        num_blocks = 16
        self.blocks = [bytearray(BYTES) for _ in range(num_blocks)]
        self.slots = [bytearray(BYTES) for _ in range(num_slots)]
        self.files = KVFiles(folder, max_bytes, b"toy", lambda slot: memoryview(self.slots[slot]))
        plan = KVPlan(
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            bytes_per_block=BYTES,
            groups=GROUPS,
            num_host_slots=len(self.slots),
        )
        self.kv = KVManager(plan, tier=self.files)

    def answer(self, prompt: list[int]) -> int:
        """Compute a prompt in one step; how many of its tokens needed no computing."""
        table = self.kv.open_table(array("i", prompt))
        num_cached = self.kv.admit(table, len(prompt), self.kv.match(table))
        assert num_cached is not None
        self.kv.announce(table, len(prompt))
        self.move()
        for position in range(num_cached, len(prompt)):
            for group, ids in enumerate(table.block_ids):
                begin = position % BLOCK_SIZE * 8
                block = self.blocks[ids[position // BLOCK_SIZE]]
                block[begin : begin + 8] = entry(prompt, group, position)
        self.check(prompt, table.block_ids)
        self.kv.commit()
        self.kv.free(table, len(prompt))
        assert self.files.wait(60)
        return num_cached

    def move(self) -> None:
        """What a runner does before it computes."""
        moves = self.kv.take_moves()
        for source, target in zip(moves.swap_out_from, moves.swap_out_to, strict=True):
            self.slots[target][:] = self.blocks[source]
        for source, target in zip(moves.swap_in_from, moves.swap_in_to, strict=True):
            self.blocks[target][:] = self.slots[source]
        for source, target in zip(moves.copy_from, moves.copy_to, strict=True):
            self.blocks[target][:] = self.blocks[source]

    def check(self, prompt: list[int], tables: list[list[int]]) -> None:
        """All that the last token sees is right."""
        for group, ids in enumerate(tables):
            window = GROUPS[group].window or len(prompt)
            for position in range(max(0, len(prompt) - window), len(prompt)):
                begin = position % BLOCK_SIZE * 8
                held = self.blocks[ids[position // BLOCK_SIZE]][begin : begin + 8]
                assert held == entry(prompt, group, position)

    def end(self, *, saves: bool = True) -> None:
        """Send all that is findable down, as an engine does that stops in peace."""
        while saves and (self.kv.stage_unstored() or self.kv.slots.num_free < len(self.slots)):
            self.move()
            self.kv.commit()
            assert self.files.wait(60)
        check_pool(self.kv, [])
        self.files.close()


def entry(prompt: list[int], group: int, position: int) -> bytes:
    return (hash((tuple(prompt[: position + 1]), group)) % (1 << 64)).to_bytes(8, "little")


def test_the_prefix_cache_survives_a_restart(tmp_path: Path):
    first = Machine(tmp_path)
    assert first.answer([*range(20), 7]) == 0
    first.end()

    second = Machine(tmp_path)
    assert second.answer([*range(20), 8]) == 20
    second.end()


def test_what_the_pool_evicted_comes_back(tmp_path: Path):
    machine = Machine(tmp_path)
    machine.answer(list(range(21)))
    machine.answer(list(range(100, 121)))
    machine.answer(list(range(200, 221)))
    machine.answer(list(range(300, 321)))
    assert machine.answer(list(range(21))) > 0
    machine.end()


def test_damaged_files_are_computed_again(tmp_path: Path):
    first = Machine(tmp_path)
    first.answer(list(range(21)))
    first.end()
    for path in kept_files(tmp_path):
        image = bytearray(path.read_bytes())
        image[-1] ^= 1
        path.write_bytes(image)

    second = Machine(tmp_path)
    assert second.answer(list(range(21))) == 0
    second.end()


def test_answers_are_right_whatever_the_disk_does(tmp_path: Path):
    """Files vanish and are damaged, processes end without saving, the tier and the pool are small.

    `Machine.check` looks at every entry that an answer depends on.
    """
    random_ = random.Random(3)
    num_cached = 0
    for _ in range(12):
        machine = Machine(tmp_path, num_slots=random_.randrange(1, 9), max_bytes=30 * (BYTES + 92))
        for _ in range(25):
            prompt = [random_.randrange(2)] * random_.randrange(1, 16)
            prompt += [random_.randrange(2) for _ in range(random_.randrange(1, 10))]
            num_cached += machine.answer(prompt)
            for path in kept_files(tmp_path):
                harm = random_.random()
                if harm < 0.02:
                    path.unlink()
                elif harm < 0.04:
                    image = bytearray(path.read_bytes())
                    image[random_.randrange(len(image))] ^= 4
                    path.write_bytes(image)
        machine.end(saves=random_.random() < 0.5)
    assert num_cached > 500
