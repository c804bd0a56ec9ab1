"""What flows into the matrices of a model while it reads a text: for `weights/quant/scaling.py`.

Runs the model on the native back end, one op at a time, and sums what each product is given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from octavo import _native
from octavo.backends.native.eager import EagerMachine, EagerOps, Floats
from octavo.backends.native.weights import NativeWeights
from octavo.errors import ConfigError
from octavo.models.registry import model_class
from octavo.ops.batch import BatchRow, StepBatch
from octavo.ops.kv_types import KvType
from octavo.ops.weights import Linear
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.quant.scaling import Seen

NUM_TOKENS = 512  # of a text that are read together
MOST_TOKENS = 2048
LEAST_TOKENS = 64
BLOCK_SIZE = 32


class _NamingWeights(NativeWeights):
    """Remembers which tensors a matrix is made of."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint.tensors)
        self.names: dict[object, list[str]] = {}

    def linear(
        self, names: list[str], out_features: list[int], in_features: int, *, bias: bool = False
    ) -> Linear:
        """See `ops.weights.Weights`."""
        made = super().linear(names, out_features, in_features, bias=bias)
        self.names[made.handle] = names
        return made


class _WatchingOps(EagerOps):
    """Sums the inputs of products."""

    def __init__(
        self, batch: StepBatch, machine: EagerMachine, watch: Callable[[Linear, Floats], None]
    ) -> None:
        super().__init__(batch, machine)
        self._watch = watch

    def linear(self, x: Floats, weight: Linear) -> Floats:
        """See `ops.ops.Ops`."""
        self._watch(weight, x)
        return super().linear(x, weight)


def watch_activations(
    checkpoint: Checkpoint, text: str, *, num_threads: int, report: Callable[[float], None]
) -> dict[str, Seen]:
    """By the name of a matrix what it was given, over the first 2,048 tokens of `text`.

    `report` is told the share done. Raises ConfigError for a text of fewer than 64 tokens.
    """
    ids = checkpoint.load_tokenizer().encode(text)[:MOST_TOKENS]
    if len(ids) < LEAST_TOKENS:
        raise ConfigError(
            f"the calibration text has {len(ids)} tokens; at least {LEAST_TOKENS} are needed, "
            f"{MOST_TOKENS} are used"
        )
    facts, threads = checkpoint.facts, _native.ThreadPool(num_threads, pin=False)
    weights = _NamingWeights(checkpoint)
    model = model_class(facts.architecture)(facts, weights, NUM_TOKENS)
    weights.load(threads, lambda done: report(done / 2))
    layers = [(facts.num_kv_heads, facts.head_dim)] * len(facts.attention_layers)
    kv = _native.KvPool(KvType.F32, NUM_TOKENS // BLOCK_SIZE, BLOCK_SIZE, layers)
    machine = EagerMachine(weights.native, kv, _native.find_kernels(""), threads)
    seen: dict[str, Seen] = defaultdict(Seen)

    def watch(weight: Linear, x: Floats) -> None:
        for name in weights.names.get(weight.handle, ()):
            seen[name].add(x.data, x.width)

    for first in range(0, len(ids), NUM_TOKENS):
        part = ids[first : first + NUM_TOKENS]
        model.forward(_WatchingOps(_batch(part), machine, watch))
        report(0.5 + (first + len(part)) / len(ids) / 2)
    return dict(seen)


def _batch(ids: list[int]) -> StepBatch:
    """One sequence from its beginning."""
    blocks = tuple(range(NUM_TOKENS // BLOCK_SIZE))
    return StepBatch(
        token_ids=tuple(ids),
        positions=tuple(range(len(ids))),
        rows=(BatchRow(0, len(ids), 0, blocks),),
        wanted=(len(ids) - 1,),
        block_size=BLOCK_SIZE,
    )
