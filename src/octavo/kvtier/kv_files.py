"""KVFiles: the tier of KV blocks on disk, a `KVTier`.

Owns: which blocks are kept, the order of their last use, the thread that writes.
Does not know: requests, what a key means, what is in a slot.
Used by: the executor that has the host slots.

One thread, the engine's, makes all calls; a second one, ours, writes. A hit is read by the caller.
Several processes may share a folder: each has its own view of it, a file that another one deleted
is a miss, and what others wrote is noticed, and counted, whenever a 16th of the limit was written
here. So the bound on the folder is exact for one process and within a 16th for each further one.

Nothing here raises for the state of a disk. What goes wrong is logged, once for each kind, and the
block is a miss.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from octavo.contracts.kv_tier import TierKey
from octavo.errors import ConfigError
from octavo.foundation.quantities import format_bytes, format_count
from octavo.kvtier.block_file import KEY_BYTES, DamagedFileError, read_block, write_block
from octavo.kvtier.folder import (
    FLAG,
    LIMIT_FLAG,
    block_name,
    file_bytes,
    model_name,
    open_folder,
    remove_model,
    scan,
    temporary_for,
)

logger = logging.getLogger(__name__)

MAX_QUEUED = 1024  # stores that wait; the host slots are usually fewer
CLOSE_TIMEOUT_S = 10.0
_RESCANS = 16  # so often is the folder looked at while it is filled once


class KVFiles:
    """Blocks of one model and layout, in a folder that is shared with other models."""

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        fingerprint: bytes,
        slot_view: Callable[[int], memoryview],
    ) -> None:
        """Look at what is there, make room, start to write.

        `fingerprint` differs wherever the bytes of a block would: weights, cache type, layout,
        kernels. `max_bytes` bounds all files, those of other models too. `slot_view` gives the
        writable bytes of a host slot, always as many; the view keeps their memory alive.

        Raises ConfigError, naming the flag, for a folder that cannot be used, or for a limit that
        is less than a block.
        """
        self._folder = folder
        self._max_bytes = max_bytes
        self._fingerprint = sha256(b"octavo kv files 1" + fingerprint).digest()
        self._model = model_name(self._fingerprint)
        self._slot_view = slot_view
        self._token = secrets.token_hex(4)
        open_folder(folder, self._model)
        # All that follows is shared by the two threads and read or changed under this lock, which
        # is never held while a file is touched.
        self._changed = threading.Condition()
        self._kept: OrderedDict[str, int] = (
            OrderedDict()
        )  # name -> bytes; least recently used first
        self._num_bytes = 0
        self._queue: deque[tuple[TierKey, int]] = deque()
        self._pending: dict[TierKey, int] = {}  # queued or being written -> slot
        self._is_writing = False
        self._written: list[int] = []  # slots that `take_stored` names next
        self._num_clears = 0
        self._is_closed = False
        # Of the writing thread alone.
        self._since_scan = 0
        self._complaints: set[int | None] = set()
        self._check_limit()
        self._look_again()
        self._make_room(0)
        self._warn_of_small_disk()
        if self._kept:
            logger.info(
                "%s holds %s KV blocks, %s",
                folder,
                format_count(len(self._kept)),
                format_bytes(self._num_bytes),
            )
        self._writer = threading.Thread(
            target=self._write_queue, name="octavo-kv-files", daemon=True
        )
        self._writer.start()

    @property
    def num_bytes(self) -> int:
        """Size of all files that are kept, as far as this process knows."""
        return self._num_bytes

    def __contains__(self, key: object) -> bool:
        """See `KVTier`."""
        assert isinstance(key, bytes)
        with self._changed:
            return key in self._pending or block_name(self._model, key) in self._kept

    def load(self, key: TierKey, slot: int) -> bool:
        """See `KVTier`. A block that waits to be written comes from its slot."""
        name = block_name(self._model, key)
        with self._changed:
            source = self._pending.get(key)
            is_kept = name in self._kept
        if source is not None:  # stays as it is until `take_stored` has named it
            self._slot_view(slot)[:] = self._slot_view(source)
            return True
        if not is_kept:
            return False
        try:
            read_block(self._folder / name, self._fingerprint, key, self._slot_view(slot))
        except (OSError, DamagedFileError) as error:
            self._drop(name, error)
            return False
        with self._changed:
            if name in self._kept:
                self._kept.move_to_end(name)
        return True

    def store(self, key: TierKey, slot: int) -> None:
        """See `KVTier`. Dropped if too many wait already, or after `close`."""
        assert len(key) == KEY_BYTES, f"a key has {KEY_BYTES} bytes, got {len(key)}"
        with self._changed:
            if self._is_closed or key in self._pending or len(self._queue) >= MAX_QUEUED:
                self._written.append(slot)
                return
            self._pending[key] = slot
            self._queue.append((key, slot))
            self._changed.notify_all()

    def take_stored(self) -> Sequence[int]:
        """See `KVTier`."""
        with self._changed:
            taken, self._written = self._written, []
        return taken

    def wait(self, timeout_s: float) -> bool:
        """Until all that was stored has been written, or failed; whether that came true."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._queue and not self._is_writing, timeout_s
            )

    def clear(self) -> None:
        """See `KVTier`. Other models' blocks stay."""
        with self._changed:
            self._num_clears += 1
            self._written += [slot for _, slot in self._queue]
            self._queue.clear()
            self._pending.clear()
            for name in [name for name in self._kept if name.startswith(self._model)]:
                self._num_bytes -= self._kept.pop(name)
            self._changed.notify_all()
        remove_model(self._folder, self._model)

    def close(self) -> None:
        """See `KVTier`. Gives up after some seconds: what is not written is a miss."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._writer.join(CLOSE_TIMEOUT_S)
        if self._writer.is_alive():
            with self._changed:
                num_left = len(self._queue)
                self._queue.clear()
            logger.warning("%s %s is slow: %d blocks are not kept", FLAG, self._folder, num_left)

    def _check_limit(self) -> None:
        """Raises ConfigError for a limit that holds no block."""
        block_bytes = file_bytes(self._slot_view(0).nbytes)
        if block_bytes > self._max_bytes:
            raise ConfigError(
                f"{LIMIT_FLAG} holds not even one KV block, whose file has "
                f"{format_bytes(block_bytes)}; give at least {-(-block_bytes // 10**6) / 1000:g}"
            )

    def _warn_of_small_disk(self) -> None:
        """Say by name that the limit is more than the disk has beside the files of others."""
        with suppress(OSError):
            room = shutil.disk_usage(self._folder).free + self._num_bytes
            if room < self._max_bytes:
                logger.warning(
                    "%s may keep %s in %s, but the disk has room for %s; lower it",
                    LIMIT_FLAG,
                    format_bytes(self._max_bytes),
                    self._folder,
                    format_bytes(room),
                )

    # ---- the writing thread

    def _write_queue(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closed)
                if not self._queue:
                    return
                key, slot = self._queue.popleft()
                self._is_writing = True
                num_clears = self._num_clears
            try:
                self._write(key, slot, num_clears)
            except OSError as error:
                self._complain(error)
            except Exception as error:  # border: a fault of ours must not stop the slots' return
                logger.exception("a KV block was not kept: %r", error)
            with self._changed:
                if self._pending.get(key) == slot:  # not cleared, and maybe stored again, meanwhile
                    del self._pending[key]
                self._written.append(slot)
                self._is_writing = False
                self._changed.notify_all()

    def _write(self, key: TierKey, slot: int, num_clears: int) -> None:
        payload = self._slot_view(slot)
        num_bytes = file_bytes(len(payload))
        name = block_name(self._model, key)
        with self._changed:
            if name in self._kept:  # the same bytes; a hit will tell if they are damaged
                self._kept.move_to_end(name)
                return
        if self._since_scan >= self._max_bytes // _RESCANS:
            self._look_again()
        self._make_room(num_bytes)
        final = self._folder / name
        write_block(final, temporary_for(final, self._token), self._fingerprint, key, payload)
        self._since_scan += num_bytes
        with self._changed:
            is_wanted = num_clears == self._num_clears
            if is_wanted:
                self._num_bytes += num_bytes - self._kept.pop(name, 0)
                self._kept[name] = num_bytes
        if not is_wanted:
            final.unlink(missing_ok=True)

    def _make_room(self, num_bytes: int) -> None:
        """Delete what was not used for longest until a block of so many bytes fits, or none."""
        while True:
            with self._changed:
                if self._num_bytes + num_bytes <= self._max_bytes:
                    return
                name, freed = self._kept.popitem(last=False)
                self._num_bytes -= freed
            self._unlink(name)

    def _look_again(self) -> None:
        """Take over what the folder holds now, other processes' files included."""
        with self._changed:
            num_clears = self._num_clears
        found = scan(self._folder)
        self._since_scan = 0
        with self._changed:
            if num_clears != self._num_clears:
                return  # seen before the clearing; the next look will do
            self._kept = OrderedDict((kept.name, kept.num_bytes) for kept in found)
            self._num_bytes = sum(self._kept.values())

    # ---- either thread

    def _drop(self, name: str, error: OSError | DamagedFileError) -> None:
        """A file could not be used: forget it, and delete it if it is there."""
        with self._changed:
            self._num_bytes -= self._kept.pop(name, 0)
        if isinstance(error, FileNotFoundError):  # another process needed the room
            return
        logger.warning("a kept KV block is not used, %s: %s", error, self._folder / name)
        self._unlink(name)

    def _unlink(self, name: str) -> None:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        """Once for each kind of error: a full disk would fill the log too."""
        if error.errno not in self._complaints:
            self._complaints.add(error.errno)
            logger.warning("KV blocks are not kept in %s: %s", self._folder, error)
