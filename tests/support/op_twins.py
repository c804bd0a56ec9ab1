"""The same op over the same batch on the reference and on the native back end."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from octavo import _native
from octavo.backends.native.eager import EagerMachine, EagerOps, Floats
from octavo.backends.native.weights import NativeWeights
from octavo.backends.torch.kv_cache import TorchKvCache
from octavo.backends.torch.reference import TorchOps
from octavo.backends.torch.weights import TorchWeights
from octavo.ops.batch import BatchRow, StepBatch
from octavo.ops.kv_types import KvType
from octavo.ops.weights import Weights
from octavo.weights.checkpoint import TensorView

CPU = torch.device("cpu")

AskWeights = Callable[[Weights], Any]  # asks for weights, gives handles
RunOp = Callable[..., Any]  # (ops, handles, *inputs) -> a result of that back end


class OpTwins:
    """Two machines with equal weights and equal KV pools."""

    def __init__(
        self,
        *,
        isa: str = "",
        num_threads: int = 2,
        tensors: Mapping[str, TensorView] | None = None,
        ask: AskWeights = lambda weights: None,
        num_kv_heads: int = 1,
        head_dim: int = 8,
        block_size: int = 8,
        kv_type: KvType = KvType.F32,
        activation_dtype: str = "float32",
    ) -> None:
        num_blocks = 64
        torch_weights = TorchWeights(tensors or {}, activation_dtype=activation_dtype)
        self._torch_handles = ask(torch_weights)
        self._torch_tensors = torch_weights.load(CPU, lambda done: None)
        self._torch_cache = TorchKvCache(
            groups=[[0]],
            num_blocks=num_blocks,
            block_size=block_size,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            type=kv_type,
            device=CPU,
        )
        threads = _native.ThreadPool(num_threads, pin=False)
        native_weights = NativeWeights(tensors or {})
        self._native_handles = ask(native_weights)
        native_weights.load(threads, lambda done: None)
        kv = _native.KvPool(kv_type, num_blocks, block_size, [(num_kv_heads, head_dim)])
        kernels = _native.find_kernels(isa)
        machine = EagerMachine(native_weights.native, kv, kernels, threads)
        if activation_dtype != "float32":
            machine = replace(machine, rounded=native_weights.rounded_inputs(activation_dtype))
        self._machine = machine

    def reference(self, run: RunOp, batch: StepBatch, *inputs: Tensor) -> Tensor:
        """What the definition says."""
        ops = TorchOps(self._torch_tensors, self._torch_cache, batch, CPU)
        result: Tensor = run(ops, self._torch_handles, *inputs)
        return result

    def native(self, run: RunOp, batch: StepBatch, *inputs: Tensor) -> Tensor:
        """What the kernels compute."""
        ops = EagerOps(batch, self._machine)
        floats = [ops.floats(_values(tensor), tensor.shape[1]) for tensor in inputs]
        result: Floats = run(ops, self._native_handles, *floats)
        return torch.tensor(result.data.tolist()).reshape(result.num_rows, result.width)

    def assert_close(
        self, run: RunOp, batch: StepBatch, *inputs: Tensor, rtol: float = 1e-5, atol: float = 2e-5
    ) -> None:
        """Both agree but for the order of float32 sums."""
        expected = self.reference(run, batch, *inputs)
        actual = self.native(run, batch, *inputs)
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def _values(tensor: Tensor) -> array[float]:
    return array("f", tensor.flatten().tolist())


def plain_batch(num_tokens: int, *, first_position: int = 0) -> StepBatch:
    """One sequence from its beginning, for ops that look at rows only."""
    tokens = range(num_tokens)
    row = BatchRow(0, num_tokens, 0, tuple(range(-(-num_tokens // 8))))
    return StepBatch(
        token_ids=tuple((5 * i + 2) % 7 for i in tokens),
        positions=tuple(first_position + 3 * i for i in tokens),
        rows=(row,),
        wanted=tuple(tokens[::2]),
        block_size=8,
    )
