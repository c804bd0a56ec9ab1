"""Capacity: what a model of this shape takes on one or several devices, and whom it serves there.

Owns the sum. It is that of `runner/memory_plan.py`, made from a shape instead of a loaded model:
the same groups of layers, the same blocks. Does not know files, names of devices or how it is
printed.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.engine import AUTO_LENGTH
from octavo.contracts.kv_plan import LOGIT_ROWS, KVPlan
from octavo.errors import ConfigError
from octavo.models.kv_groups import kv_groups, with_state
from octavo.ops.kv_types import KvType, kv_type
from octavo.sizing.model_shape import ModelShape

_CONTEXTS = (1024, 4096, 16384, 65536, 262144)  # for which users are counted besides the longest
_FLOAT_BYTES = 4  # activations


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One of the equal devices that share a model."""

    memory_bytes: int
    utilization: float = 0.9  # share of it that is used
    tensor_parallel_size: int = 1  # how many of them there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is to be served."""

    max_model_len: int | None = None  # None: what the checkpoint promises; AUTO_LENGTH: what fits
    kv_cache_dtype: str = "auto"
    block_size: int = 32
    max_num_batched_tokens: int = 512

    @property
    def kv_type(self) -> KvType:
        """How keys and values are stored."""
        return kv_type(self.kv_cache_dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The answer. Bytes are those of one device."""

    usable_bytes: int
    weight_bytes: int
    workspace_bytes: int  # an estimate
    kv_bytes: int  # what is left; negative where not even the weights fit
    kv_bytes_per_token: int
    kv: KVPlan | None  # None: an encoder, which keeps nothing
    max_model_len: int
    users: dict[int, int]  # context -> requests of that length that fit at once

    @property
    def fits(self) -> bool:
        """Whether one request of the longest context can be served."""
        return self.kv_bytes >= 0 and (self.kv is None or self.users[self.max_model_len] >= 1)

    @property
    def num_tokens(self) -> int | None:
        """Tokens of a single request that takes all blocks; None: as many as it likes."""
        if self.kv is None:
            return None
        return self.kv.num_tokens if any(group.is_unbounded for group in self.kv.groups) else None


def plan_capacity(shape: ModelShape, device: Device, wishes: Wishes) -> Capacity:
    """What fits. Raises ConfigError for a context or a number of devices that cannot be."""
    size = device.tensor_parallel_size
    _check_split(shape, size)
    longest = shape.max_position
    if wishes.max_model_len not in (None, AUTO_LENGTH):
        longest = wishes.max_model_len
    if longest > shape.max_position:
        raise ConfigError(
            f"--max-model-len {longest} is beyond the {shape.max_position} tokens that this model "
            f"was made for; use at most --max-model-len {shape.max_position}"
        )
    usable = int(device.memory_bytes * device.utilization)
    weights = -(-shape.weight_bytes // size)
    workspace = _workspace_bytes(shape, wishes.max_num_batched_tokens, size)
    left = usable - weights - workspace
    kv = None if shape.keeps_nothing else _kv_plan(shape, wishes, size, longest, left)
    if kv is not None and wishes.max_model_len == AUTO_LENGTH:
        longest = max(1, min(longest, kv.num_tokens))
    return Capacity(
        usable_bytes=usable,
        weight_bytes=weights,
        workspace_bytes=workspace,
        kv_bytes=left,
        kv_bytes_per_token=shape.kv_bytes_per_token(wishes.kv_type, size),
        kv=kv,
        max_model_len=longest,
        users={} if kv is None else _users(kv, longest),
    )


def fewest_devices(shape: ModelShape, device: Device, wishes: Wishes, most: int = 64) -> int | None:
    """The smallest number of such devices on which a request of the longest context fits."""
    for size in range(1, most + 1):
        try:
            many = Device(
                memory_bytes=device.memory_bytes,
                utilization=device.utilization,
                tensor_parallel_size=size,
            )
            if plan_capacity(shape, many, wishes).fits:
                return size
        except ConfigError:
            continue  # heads cannot be divided by so many
    return None


def _kv_plan(shape: ModelShape, wishes: Wishes, size: int, longest: int, num_bytes: int) -> KVPlan:
    shapes = [(entry.num_heads, entry.head_dim) for entry in shape.entries]
    groups = kv_groups(shape.windows, shapes, longest)
    # Lanes hold layers of one shape, or one group holds all layers.
    widest = max((group.layers for group in groups), key=len, default=())
    per_token = sum(shape.entries[i].num_bytes(wishes.kv_type, size) for i in widest)
    groups, bytes_per_block = with_state(
        groups, per_token * wishes.block_size, shape.state_bytes_per_device(size)
    )
    return KVPlan(
        num_blocks=max(0, num_bytes // bytes_per_block),
        block_size=wishes.block_size,
        bytes_per_block=bytes_per_block,
        groups=groups,
    )


def _users(kv: KVPlan, longest: int) -> dict[int, int]:
    contexts = [context for context in _CONTEXTS if context < longest]
    return {
        context: kv.num_blocks // kv.num_blocks_for(context) for context in (*contexts, longest)
    }


def _workspace_bytes(shape: ModelShape, num_tokens: int, size: int) -> int:
    """Activations of a step and logits: the residual stream twice, what one layer holds at once."""
    attention = shape.num_heads * max((entry.head_dim for entry in shape.entries), default=0)
    inner = max(3 * attention, 2 * shape.intermediate_size)
    per_token = 3 * shape.hidden_size + -(-inner // size)
    logits = LOGIT_ROWS * -(-shape.vocab_size // size)
    return _FLOAT_BYTES * (num_tokens * per_token + logits)


def _check_split(shape: ModelShape, size: int) -> None:
    if shape.num_heads % size:
        raise ConfigError(
            f"--tensor-parallel-size {size} does not divide the {shape.num_heads} attention heads "
            "of this model"
        )
    for entry in shape.entries:
        heads = entry.num_heads
        if not entry.is_latent and heads % size and size % heads:
            raise ConfigError(
                f"--tensor-parallel-size {size} neither divides the {heads} KV heads of this model "
                "nor is a multiple of them"
            )
