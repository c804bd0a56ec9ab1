"""How KV memory is divided. Exists only after the model's shape is known."""

from __future__ import annotations

import msgspec

# Logits are made for so many rows at a time: enough to run the output matrix at full speed, few
# enough that prompt logprobs of a long prompt do not need a gigabyte.
LOGIT_ROWS = 64
_ALWAYS = 1 << 40  # more tokens or blocks than any machine has


class KVGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Layers whose memory of a request lives in the same blocks.

    Mostly attention layers with their keys and values. All of them have KV entries of one shape,
    and every such group has as many layers as a block has *lanes* (the last group may have fewer),
    so that any block of the pool can serve any group. A request has one block table for each group.

    One group may be of another kind: a *state group*, of layers that carry a state from token to
    token. The state of all of them is cut into pieces of a block's size. A request holds these
    blocks from its first token to its end, and every step writes all of them.
    """

    layers: tuple[int, ...] = ()  # indices of attention layers; layer i lies in lane i of a block
    window: int = 0  # a token sees itself and the `window - 1` tokens before it; 0: all before it
    num_state_blocks: int = 0  # blocks of a request in a state group; 0: keys and values

    @property
    def is_unbounded(self) -> bool:
        """Whether a request holds more blocks of the group the longer it is, without end."""
        return not (self.window or self.num_state_blocks)

    def written_places(self, begin: int, end: int, block_size: int) -> range:
        """Places in a block table that a step writes when it computes tokens [begin, end).

        A table that is ready for `end` tokens is as long as the range goes.
        """
        if self.num_state_blocks:
            return range(self.num_state_blocks)
        return range(begin // block_size, -(-end // block_size))

    def most_blocks(self, num_tokens: int, block_size: int) -> int:
        """Most blocks that a request of `num_tokens` holds between steps.

        A group with a window keeps the blocks that its next token sees and the one it writes,
        wherever in a block the window begins; a chunk of prefill holds more for the length of its
        step.
        """
        length = self.written_places(0, num_tokens, block_size).stop
        return min(length, -(-(self.window - 1) // block_size) + 1) if self.window else length

    def first_place(self, position: int, block_size: int) -> int:
        """The first block that the token at `position` sees; later tokens see no earlier one."""
        if not self.window:
            return 0
        return max(0, position - self.window + 1) // block_size

    def held_places(self, position: int, block_size: int) -> range:
        """Places that a request holds while it computes the token at `position` alone."""
        end = self.written_places(position, position + 1, block_size).stop
        return range(self.first_place(position, block_size), end)


class KVPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The pool of one engine. Block ids run from 0 to `num_blocks - 1`."""

    num_blocks: int
    block_size: int  # tokens in a block
    bytes_per_block: int  # over the layers of one group
    groups: tuple[KVGroup, ...] = (KVGroup(),)
    num_host_slots: int = 0  # blocks of host memory: swap space, and the way to the disk tier

    @property
    def state_group(self) -> int | None:
        """Which group is the one of states; None: the model has no states."""
        found = [idx for idx, group in enumerate(self.groups) if group.num_state_blocks]
        return found[0] if found else None

    @property
    def num_written_blocks(self) -> int:
        """Blocks that a step writes when it computes one token of a request, over all groups."""
        return sum(max(1, group.num_state_blocks) for group in self.groups)

    def num_blocks_for(self, num_tokens: int) -> int:
        """Most blocks that a request of `num_tokens` holds at once, over all groups."""
        return sum(group.most_blocks(num_tokens, self.block_size) for group in self.groups)

    @property
    def num_tokens(self) -> int:
        """Longest request that fits in the pool alone; without an unbounded group any does."""
        spare = self.num_blocks - sum(group.num_state_blocks for group in self.groups)
        tables = [group for group in self.groups if not group.num_state_blocks]
        bounds = [group.most_blocks(_ALWAYS, self.block_size) for group in tables if group.window]
        left, num_unbounded = spare - sum(bounds), len(tables) - len(bounds)
        if not num_unbounded and left >= 0:
            return _ALWAYS
        whole = max(0, left) // num_unbounded if num_unbounded else 0
        shared = max(0, spare) // max(1, len(tables))  # before any window is full
        return max(whole, min([shared, *bounds])) * self.block_size


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
