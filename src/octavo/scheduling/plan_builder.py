"""Plan builder: grants become a StepPlan.

Owns: the parallel lists of the plan, and which request each entry belongs to.
Does not know: why a request was granted its tokens.

Rows that the runner knows are listed as differences (row number, tokens, appended blocks); only a
request that enters a row is written out in full.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.contracts.step import NewRow, StepPlan
from octavo.scheduling.request import Request


class PlanBuilder:
    """Collects the grants of one step, in order."""

    __slots__ = ("plan", "requests")

    def __init__(self, step_id: int) -> None:
        self.plan = StepPlan(step_id=step_id)
        self.requests: list[Request] = []  # parallel to `plan.rows`

    def grant(self, request: Request, num_tokens: int) -> None:
        """`request` computes `num_tokens` of its missing tokens, and samples if none is left."""
        plan = self.plan
        plan.rows.append(request.row)
        plan.num_tokens.append(num_tokens)
        plan.samples.append(num_tokens == len(request.token_ids) - request.num_computed_tokens)
        self.requests.append(request)

    def append_blocks(self, row: int, first_place: int, block_ids: Iterable[int]) -> None:
        """The block table of a known row grows."""
        for place, block_id in enumerate(block_ids, first_place):
            self.plan.table_rows.append(row)
            self.plan.table_groups.append(0)
            self.plan.table_places.append(place)
            self.plan.table_block_ids.append(block_id)

    def enter(self, request: Request) -> None:
        """`request` enters its row with this step."""
        new_row = NewRow(
            row=request.row,
            request_id=request.id,
            token_ids=request.token_ids.tolist(),
            num_prompt_tokens=request.num_prompt_tokens,
            num_computed_tokens=request.num_computed_tokens,
            block_ids=[list(request.table.block_ids)],
            sampling=request.sampling,
        )
        self.plan.new_rows.append(new_row)
