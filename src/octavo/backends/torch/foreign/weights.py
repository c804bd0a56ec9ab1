"""The numbers of a model of transformers', read by transformers, and the model over our ops.

Owns the reading, and what must hold of what was read. Does not know plans.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM

from octavo.backends.torch.foreign.attention import PAGED, PagedAttention
from octavo.backends.torch.foreign.checkpoint import ForeignCheckpoint
from octavo.backends.torch.foreign.probe import takes_wanted_rows
from octavo.backends.torch.reference import TorchOps
from octavo.backends.torch.weights import Stack
from octavo.errors import CorruptFileError
from octavo.ops.ops import Ops
from octavo.weights.inventory import listed

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ForeignWeights:
    """A model that is not read yet, and is once `load` was called."""

    has_rounded_inputs = False

    def __init__(self, checkpoint: ForeignCheckpoint, dtype: torch.dtype | None) -> None:
        """`dtype`: of all weights and activations; None: as the checkpoint says."""
        self._checkpoint = checkpoint
        stored = getattr(torch, checkpoint.facts.dtype)
        self.dtype: torch.dtype = dtype or stored
        self.num_bytes = checkpoint.weights_bytes * self.dtype.itemsize // stored.itemsize
        self._module: Any = None
        self._chooses = False  # whether it makes logits of chosen tokens only
        self._attention: PagedAttention | None = None

    def verify(self) -> None:
        """Names are compared when the weights are read: some are made of several tensors."""

    def load(self, device: torch.device, report: Callable[[float], None]) -> dict[Stack, Tensor]:
        """Read everything onto `device`.

        Raises CorruptFileError that lists tensors that are missing or of a wrong shape.
        """
        checkpoint = self._checkpoint
        assert checkpoint.probed is not None, checkpoint.name
        report(0.0)
        with _without_progress_bar():
            module, found = AutoModelForCausalLM.from_pretrained(
                checkpoint.folder,
                config=checkpoint.config,
                dtype=self.dtype,
                attn_implementation=PAGED,
                trust_remote_code=checkpoint.trusts_code,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
            )
        _check(found, checkpoint.name)
        self._module = module.to(device).eval()
        self._chooses = takes_wanted_rows(self._module)
        self._attention = PagedAttention(checkpoint.probed.calls, self._module)
        report(1.0)
        return self.tensors

    @property
    def tensors(self) -> dict[Stack, Tensor]:
        """For the ops of a pass."""
        assert self._attention is not None, "load() comes first"
        return self._attention.tensors

    def settle(self, longest: int) -> None:
        """Rotary frequencies that follow the longest sequence of a pass become those of `longest`.

        So a sequence does not depend on who is computed beside it.
        """
        for module in self._module.modules():
            kinds = getattr(module, "rope_type", None)
            if isinstance(kinds, str):
                if _follows(kinds):
                    _rotate_once(module, longest)
                    module.rope_type = "default"
            elif isinstance(kinds, dict):
                for kind_of_layer, kind in kinds.items():
                    if _follows(kind):
                        _rotate_once(module, longest, kind_of_layer)
                module.rope_type = {
                    layer: "default" if _follows(kind) else kind for layer, kind in kinds.items()
                }

    def forward(self, ops: TorchOps) -> Tensor:
        """Logits of the wanted rows: [num_wanted, vocab_size] in float32."""
        assert self._attention is not None, "load() comes before forward()"
        self._attention.begin(ops)
        logits: Tensor = self._module(
            input_ids=ops.token_ids[None],
            position_ids=ops.positions[None],
            use_cache=False,
            **({"logits_to_keep": ops.wanted} if self._chooses else {}),
        ).logits[0]
        self._attention.end()
        return (logits if self._chooses else logits[ops.wanted]).float()

    def close(self) -> None:
        """Give the memory back."""
        self._module = self._attention = None


class ForeignModel:
    """A `CausalLM` of the torch back end."""

    def __init__(self, weights: ForeignWeights) -> None:
        self._weights = weights

    def forward(self, ops: Ops[T]) -> T:
        """From the step's tokens to the logits of the wanted rows."""
        return cast(T, self._weights.forward(cast(TorchOps, ops)))


def _follows(kind: object) -> bool:
    """Whether frequencies of this kind depend on the sequences of a pass."""
    return isinstance(kind, str) and ("dynamic" in kind or kind == "longrope")


def _rotate_once(module: Any, longest: int, kind_of_layer: str | None = None) -> None:
    device = next(module.buffers()).device
    more = {} if kind_of_layer is None else {"layer_type": kind_of_layer}
    module(
        torch.zeros(1, 1, 1, device=device),
        position_ids=torch.tensor([[longest - 1]], device=device),
        **more,
    )


def _check(found: dict[str, Any], name: str) -> None:
    faults = []
    if found["missing_keys"]:
        faults.append(f"the model files have no tensor {listed(sorted(found['missing_keys']))}")
    if found["mismatched_keys"]:
        names = [str(entry[0]) for entry in found["mismatched_keys"]]
        faults.append(f"another shape than the model needs has {listed(sorted(names))}")
    if faults:
        raise CorruptFileError(f"{name}: {'; '.join(faults)}")
    if found["unexpected_keys"]:
        logger.warning(
            "%s: transformers' code has no use for %s",
            name,
            listed(sorted(found["unexpected_keys"])),
        )


@contextmanager
def _without_progress_bar() -> Iterator[None]:
    """transformers draws one of its own."""
    bars = transformers.utils.logging
    was_on = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            bars.enable_progress_bar()
