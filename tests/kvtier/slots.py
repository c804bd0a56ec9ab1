"""Host slots of a tier under test, and blocks whose bytes follow from their key."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from octavo.contracts.kv_tier import TierKey, tier_key
from octavo.kvtier.kv_files import KVFiles

SLOT_BYTES = 1000
FILE_BYTES = SLOT_BYTES + 92
PLENTY = 1 << 30
A_WHILE_S = 60.0


def key(number: int, group: int = 0) -> TierKey:
    """The key of block `number`."""
    return tier_key(sha256(b"%d" % number).digest(), group)


def content(of: TierKey, num_bytes: int = SLOT_BYTES) -> bytes:
    """What a block holds: different for each key."""
    return (sha256(of).digest() * (num_bytes // 32 + 1))[:num_bytes]


class Tier:
    """A tier and its slots."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = PLENTY,
        fingerprint: bytes = b"model",
        num_slots: int = 4,
        slot_bytes: int = SLOT_BYTES,
    ) -> None:
        self.slots = [bytearray(slot_bytes) for _ in range(num_slots)]
        self.files = KVFiles(
            folder, max_bytes, fingerprint, lambda slot: memoryview(self.slots[slot])
        )

    def keep(self, *keys: TierKey) -> None:
        """Store blocks one by one, and wait until each is on disk."""
        for each in keys:
            self.slots[0][:] = content(each, len(self.slots[0]))
            self.files.store(each, 0)
            assert self.files.wait(A_WHILE_S)
            assert self.files.take_stored() == [0]

    def has(self, of: TierKey) -> bool:
        """Whether a load succeeds. One that does must bring the right bytes."""
        slot = len(self.slots) - 1
        self.slots[slot][:] = bytes(len(self.slots[slot]))
        if not self.files.load(of, slot):
            assert of not in self.files
            return False
        assert self.slots[slot] == content(of, len(self.slots[slot]))
        return True


def kept_files(folder: Path) -> list[Path]:
    """All files below a folder, least recently used first."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)
