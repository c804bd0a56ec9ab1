"""Attention for transformers' models: two implementations under names that its interface knows.

`PROBE` notes what a model asks for and computes nothing; `PAGED` writes to and reads from our KV
cache. Both find whom they serve on the module that calls them, so any number of models may live in
one process. Does not know how a model was made or where its weights are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface

from octavo.backends.torch.reference import TorchOps
from octavo.backends.torch.weights import Stack
from octavo.errors import UnsupportedModelError
from octavo.ops.ops import AttentionSpec
from octavo.ops.weights import Vector

PAGED, PROBE = "octavo_paged", "octavo_probe"
_FAR = (1_000, 30_011, 1_000_003)  # places beyond every window that a layer may have


def refusal(reason: str) -> UnsupportedModelError:
    """The error of a model that does not let us."""
    return UnsupportedModelError(f"transformers' code of this model cannot be served: {reason}")


@dataclass(frozen=True, slots=True)
class Sight:
    """Which earlier tokens a layer sees: all, the last `window` ones, or those of its chunk."""

    window: int = 0
    is_chunked: bool = False

    def __getattr__(self, name: str) -> Any:
        """Code that takes this for a tensor changes its mask, or looks into it."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise refusal(f"its code computes with its mask ({name})")

    def __getitem__(self, place: object) -> Any:
        raise refusal(f"its code computes with its mask (at {place!r})")


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """What one call of a pass asks for. A layer that calls twice is two of them."""

    module: str  # name of the module that calls
    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    scale: float
    sight: Sight
    soft_cap: float | None

    def spec(self, layer: int, num_kv_heads: int, head_dim: int) -> AttentionSpec:
        """As an op of ours over a cache with so many heads of this size, filled up with zeros."""
        return AttentionSpec(
            layer=layer,
            num_heads=self.num_heads // self.num_kv_heads * num_kv_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            scale=self.scale,
            window=self.sight.window or None,
            is_chunked=self.sight.is_chunked,
            soft_cap=self.soft_cap,
        )


class Attends(Protocol):
    """Whom a module finds in its attribute `octavo`."""

    def attend(
        self,
        module: torch.nn.Module,
        qkv: tuple[Tensor, Tensor, Tensor],
        mask: object,
        scale: float | None,
        asked: dict[str, Any],
    ) -> Tensor:
        """q, k, v: [1, heads, tokens, size each]; the result: [1, tokens, heads, size of v]."""


class PagedAttention:
    """The attention of one loaded model, pass after pass. Calls come in the order of the probe."""

    def __init__(self, calls: Sequence[AttentionCall], model: torch.nn.Module) -> None:
        modules = dict(model.named_modules())
        self._callers = [modules[call.module] for call in calls]
        for module in self._callers:
            module.octavo = self
        self._num_kv_heads = max(call.num_kv_heads for call in calls)
        self._head_dim = max(max(call.key_dim, call.value_dim) for call in calls)
        self._specs = [
            call.spec(layer, self._num_kv_heads, self._head_dim) for layer, call in enumerate(calls)
        ]
        self.tensors: dict[Stack, Tensor] = {}  # of the ops: what modules bring to attention
        self._ops: TorchOps | None = None
        self._next = 0

    def begin(self, ops: TorchOps) -> None:
        """The next calls belong to a pass over the tokens of `ops`."""
        self._ops, self._next = ops, 0

    def end(self) -> None:
        """All calls of the pass were made."""
        assert self._next == len(self._specs), (self._next, len(self._specs))
        self._ops = None

    def attend(
        self,
        module: torch.nn.Module,
        qkv: tuple[Tensor, Tensor, Tensor],
        mask: object,
        scale: float | None,
        asked: dict[str, Any],
    ) -> Tensor:
        """See `Attends`. The arithmetic is that of our own models, in float32."""
        layer, self._next = self._next, self._next + 1
        assert self._ops is not None, "begin() comes first"
        assert self._callers[layer] is module, f"call {layer} is not that of the probe"
        spec = self._specs[layer]
        q, k, v = qkv
        num_heads, num_kv_heads = q.shape[1], k.shape[1]
        result = self._ops.attention(
            self._columns(q, num_heads // num_kv_heads * self._num_kv_heads),
            self._columns(k, self._num_kv_heads),
            self._columns(v, self._num_kv_heads),
            spec,
            self._sinks(layer, asked.get("s_aux"), spec),
        )
        heads = result.reshape(1, len(result), -1, self._head_dim)
        return heads[:, :, :num_heads, : v.shape[3]].to(q.dtype)

    def _columns(self, x: Tensor, num_heads: int) -> Tensor:
        """[1, heads, tokens, size] as [tokens, num_heads * head_dim] of the cache."""
        missing = (0, self._head_dim - x.shape[3], 0, 0, 0, num_heads - x.shape[1])
        return functional.pad(x[0].float(), missing).transpose(0, 1).flatten(1)

    def _sinks(self, layer: int, sinks: Tensor | None, spec: AttentionSpec) -> Vector | None:
        if sinks is None:
            return None
        handle = Stack((f"sinks of {layer}",))
        self.tensors[handle] = functional.pad(sinks.float(), (0, spec.num_heads - len(sinks)))
        return Vector(spec.num_heads, handle)


def sight_of(
    mask_function: Callable[..., Tensor], local_size: int | None, chunk_size: int | None
) -> Sight | None:
    """What a mask of transformers' lets a layer see; None where it is none of the three.

    `mask_function` says of batch, head, query and key whether the one sees the other. One that
    depends on the numbers of a batch cannot be asked; then `chunk_size` of the model decides.
    """
    size = local_size or 0
    near = {place for k in (0, 1, 2, 3) for place in range(k * size - 1, k * size + 2)}
    places = torch.tensor(sorted(place for place in near | set(_FAR) if place >= 0))
    queries, keys = places[:, None], places[None, :]
    try:
        visible = mask_function(0, 0, queries, keys)
    except RuntimeError:  # of numbers that a probe does not have
        return Sight(size, is_chunked=True) if size and size == chunk_size else None
    visible = visible.expand(len(places), len(places))
    causal = keys <= queries
    if torch.equal(visible, causal):
        return Sight()
    if size and torch.equal(visible, causal & (queries - keys < size)):
        return Sight(size)
    if size and torch.equal(visible, causal & (queries // size == keys // size)):
        return Sight(size, is_chunked=True)
    return None


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object = None,
    scaling: float | None = None,
    **asked: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function, under both names."""
    whom: Any = module.octavo
    return whom.attend(module, (query, key, value), attention_mask, scaling, asked), None


def _probed_mask(*, mask_function: Callable[..., Tensor], **asked: Any) -> object:
    """transformers' mask function under the name of the probe: it gives what the mask means."""
    chunk_size = getattr(asked.get("config"), "attention_chunk_size", None)
    return sight_of(mask_function, asked.get("local_size"), chunk_size) or NO_SIGHT


NO_SIGHT = object()
"""What the probe finds where a mask is of no shape that we have."""

AttentionInterface.register(PROBE, _attention)
AttentionInterface.register(PAGED, _attention)  # without a mask function: no mask is made
AttentionMaskInterface.register(PROBE, _probed_mask)
