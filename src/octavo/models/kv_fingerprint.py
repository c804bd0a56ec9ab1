"""What the bytes of a KV block depend on, besides tokens and weights, as one line of text.

Blocks that outlive the process (`--kv-offload-dir`) are found again only under an equal line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.config.model_facts import ModelFacts
from octavo.contracts.kv_plan import KVGroup
from octavo.ops.rope import rope_table
from octavo.version import version


def kv_fingerprint(
    facts: ModelFacts,
    *,
    max_model_len: int,
    block_size: int,
    kv_type: str,
    groups: Sequence[KVGroup],
    arithmetic: str,
) -> str:
    """`arithmetic` names whatever may change a bit: back end, kernels, types of weights.

    The version counts because kernels change with it; the context length only by way of the
    rotary frequencies that are settled for it.
    """
    layout = [group.layers for group in groups]
    ropes = [rope_table(rope, max_model_len) for rope in (facts.rope, facts.local_rope) if rope]
    kept = replace(
        facts, max_position=0, eos_token_ids=(), bos_token_id=None, generation_defaults={}
    )
    return repr((version(), arithmetic, kv_type, block_size, layout, ropes, kept))
