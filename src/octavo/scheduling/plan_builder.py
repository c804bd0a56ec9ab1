"""Plan builder: grants become a StepPlan.

Owns: the parallel lists of the plan, and which request each entry belongs to.
Does not know: why a request was granted its tokens.

Rows that the runner knows are listed as differences (row number, tokens, changes of block tables);
only a request that enters a row is written out in full.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.contracts.step import NewRow, StepPlan
from octavo.kvcache.manager import TableEdit
from octavo.kvcache.moves import BlockMoves
from octavo.scheduling.request import Request


class PlanBuilder:
    """Collects the grants of one step, in order."""

    __slots__ = ("plan", "requests")

    def __init__(self, step_id: int) -> None:
        self.plan = StepPlan(step_id=step_id)
        self.requests: list[Request] = []  # parallel to `plan.rows`

    def grant(self, request: Request, num_tokens: int) -> bool:
        """`request` computes `num_tokens` of its missing tokens, and samples if none is left.

        Returns whether it samples.
        """
        plan = self.plan
        samples = (
            num_tokens == len(request.token_ids) - request.num_computed_tokens
            and request.pooling is None
        )
        plan.rows.append(request.row)
        plan.num_tokens.append(num_tokens)
        plan.samples.append(samples)
        self.requests.append(request)
        if request.guide is not None and samples and request.guide.mask:
            plan.mask_rows.append(request.row)
            plan.masks.append(request.guide.mask)
        return samples

    def draft(self, place: int, token_ids: list[int]) -> None:
        """Entry `place` of the plan, which samples, tests guesses of its next tokens."""
        plan = self.plan
        plan.num_tokens[place] += len(token_ids)
        plan.draft_rows.append(plan.rows[place])
        plan.draft_token_ids.append(token_ids)

    def edit_table(self, row: int, edits: Iterable[TableEdit]) -> None:
        """Block tables of a known row change or grow."""
        plan = self.plan
        for group, place, block_id in edits:
            plan.table_rows.append(row)
            plan.table_groups.append(group)
            plan.table_places.append(place)
            plan.table_block_ids.append(block_id)

    def replace_token(self, request: Request) -> None:
        """The newest token of a known row is not the one that it sampled."""
        self.plan.replaced_rows.append(request.row)
        self.plan.replaced_token_ids.append(request.token_ids[-1])

    def enter(self, request: Request, twin_row: int = -1) -> None:
        """`request` enters its row with this step, maybe beside the row whose logits it samples."""
        new_row = NewRow(
            row=request.row,
            request_id=request.id,
            token_ids=request.token_ids.tolist(),
            num_prompt_tokens=request.num_prompt_tokens,
            num_computed_tokens=request.num_computed_tokens,
            block_ids=[list(ids) for ids in request.table.block_ids],
            sampling=request.sampling,
            twin_row=twin_row,
            pooling=request.pooling,
            second_segment=request.second_segment,
        )
        self.plan.new_rows.append(new_row)

    def close(self, freed_rows: list[int], moves: BlockMoves) -> StepPlan:
        """The finished plan."""
        plan = self.plan
        plan.freed_rows = freed_rows
        plan.swap_out_from, plan.swap_out_to = moves.swap_out_from, moves.swap_out_to
        plan.swap_in_from, plan.swap_in_to = moves.swap_in_from, moves.swap_in_to
        plan.copy_from, plan.copy_to = moves.copy_from, moves.copy_to
        return plan
