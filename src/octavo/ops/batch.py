"""StepBatch: one step as the ops see it, for back ends that run an op at a time.

The native program keeps the same facts in its own arrays; tests build a StepBatch by hand to
compare the eager native ops with the reference.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchRow:
    """The consecutive tokens that one sequence computes in this step."""

    first_token: int  # index into the step's tokens
    num_tokens: int
    context_len: int  # tokens of this sequence computed before this step
    block_ids: tuple[int, ...]  # its block table, covering context_len + num_tokens


@dataclass(frozen=True, slots=True)
class StepBatch:
    """All tokens of a step, row after row."""

    token_ids: tuple[int, ...]  # [num_tokens]
    positions: tuple[int, ...]  # [num_tokens], context_len + offset within the row
    rows: tuple[BatchRow, ...]
    wanted: tuple[int, ...]  # token indices whose logits are wanted
    block_size: int
    segments: tuple[int, ...] = ()  # [num_tokens] 0 or 1; empty: all 0
    # Wanted row i stands for the tokens wanted_first[i] .. wanted[i]; empty: for the last alone
    wanted_first: tuple[int, ...] = ()
