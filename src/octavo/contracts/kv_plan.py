"""How KV memory is divided. Exists only after the model's shape is known."""

from __future__ import annotations

import msgspec

_ALWAYS = 1 << 40  # more tokens or blocks than any machine has


class KVGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Attention layers whose keys and values live in the same blocks.

    All layers of all groups have KV entries of one shape, and every group has as many layers as a
    block has *lanes* (the last group may have fewer), so that any block of the pool can serve any
    group. A request has one block table for each group.
    """

    layers: tuple[int, ...] = ()  # indices of attention layers; layer i lies in lane i of a block
    window: int = 0  # a token sees itself and the `window - 1` tokens before it; 0: all before it

    def first_place(self, position: int, block_size: int) -> int:
        """The first block that the token at `position` sees; later tokens see no earlier one."""
        if not self.window:
            return 0
        return max(0, position - self.window + 1) // block_size


class KVPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The pool of one engine. Block ids run from 0 to `num_blocks - 1`."""

    num_blocks: int
    block_size: int  # tokens in a block
    bytes_per_block: int  # over the layers of one group
    groups: tuple[KVGroup, ...] = (KVGroup(),)
    num_host_slots: int = 0  # blocks of host memory: swap space, and the way to the disk tier

    def num_blocks_for(self, num_tokens: int) -> int:
        """Most blocks that a request of `num_tokens` holds at once, over all groups.

        A group with a window keeps the blocks that its next token sees and the one it writes; a
        chunk of prefill holds more for the length of its step.
        """
        total = -(-num_tokens // self.block_size)
        return sum(min(total, self._most_blocks(group)) for group in self.groups)

    @property
    def num_tokens(self) -> int:
        """Longest request that fits in the pool alone; one that sees only windows always does."""
        spare, num_unbounded = self.num_blocks, 0
        for group in self.groups:
            if group.window:
                spare -= self._most_blocks(group)
            else:
                num_unbounded += 1
        if not num_unbounded and spare >= 0:
            return _ALWAYS
        whole = max(0, spare) // num_unbounded if num_unbounded else 0
        shared = self.num_blocks // len(self.groups)  # before any window is full
        return max(whole, min(shared, self._smallest_window_blocks())) * self.block_size

    def _most_blocks(self, group: KVGroup) -> int:
        """Blocks of a group that are in use at once: a window that begins anywhere in a block."""
        if not group.window:
            return _ALWAYS
        return -(-(group.window - 1) // self.block_size) + 1

    def _smallest_window_blocks(self) -> int:
        return min(self._most_blocks(group) for group in self.groups)


class MemoryNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes besides the KV pool. All sizes in bytes."""

    weights_bytes: int
    workspace_bytes: int  # activations, logits, scratch at the largest step
    bytes_per_block: int  # one KV block over the layers of one group
    kv_groups: tuple[KVGroup, ...] = (KVGroup(),)


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The sum that the start banner prints. All sizes in bytes."""

    limit_bytes: int  # what this machine or container lets us have
    usable_bytes: int  # limit times --gpu-memory-utilization
    weights_bytes: int
    workspace_bytes: int  # activations, logits, scratch
    kv: KVPlan
    max_model_len: int

    @property
    def max_concurrency(self) -> float:
        """Requests of full context length that fit in the pool at once."""
        return self.kv.num_blocks / self.kv.num_blocks_for(self.max_model_len)
