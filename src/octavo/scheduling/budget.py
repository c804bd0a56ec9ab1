"""Step budget: how many tokens this step may still compute.

Owns: the count, how a long gap is cut into chunks, how several gaps share a step.
Does not know: blocks, queues, why a step is limited.

Three limits bound a chunk besides the step itself: what pacing leaves for prompts while rows
decode (`limit_prefill`), `long_prefill_token_threshold` for each prompt, and
`max_num_partial_prefills` prompts that are half computed when the step ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from octavo.config.engine import SchedulerConfig
from octavo.scheduling.request import Request


class StepBudget:
    """Tokens of one step. Made for each plan."""

    __slots__ = (
        "_allows_chunks",
        "_is_paced",
        "_longest_chunk",
        "_max_num_partial",
        "_max_num_tokens",
        "_shares",
        "_shares_by_tenant",
        "is_probe",
        "num_kept",
        "num_partial",
        "num_prefill_tokens",
        "num_prefill_tokens_left",
        "num_tokens_left",
    )

    def __init__(self, config: SchedulerConfig, *, shares_by_tenant: bool = False) -> None:
        self._allows_chunks = config.enable_chunked_prefill
        self._max_num_tokens = config.max_num_batched_tokens
        self._longest_chunk = config.long_prefill_token_threshold or self._max_num_tokens
        self._max_num_partial = config.max_num_partial_prefills
        self._shares_by_tenant = shares_by_tenant
        self._is_paced = False  # chunks are small
        self._shares: dict[str, int] = {}  # tokens left to each sharer, once `share` was called
        self.num_tokens_left = self._max_num_tokens
        self.num_kept = 0  # of these, for rows that decode and whose turn is still to come
        self.num_prefill_tokens_left = self._max_num_tokens
        self.num_prefill_tokens = 0  # spent on chunks
        self.num_partial = 0  # prompts that stay half computed
        self.is_probe = False  # decoding alone is to be measured: nothing is computed beside it

    @property
    def has_room_for_prompts(self) -> bool:
        """Whether any further chunk may be granted."""
        return self.num_tokens_left > 0 and self.num_prefill_tokens_left > 0

    def sharer_of(self, request: Request) -> str:
        """Whose share of the step a request uses: its own, or its tenant's if chunks are large."""
        return request.tenant if self._shares_by_tenant and not self._is_paced else request.id

    def limit_prefill(self, num_tokens: int) -> None:
        """All chunks of this step together compute at most so many tokens.

        Without chunked prefill a prompt cannot be cut: then 0 keeps all out, and any other limit is
        ignored.
        """
        self.is_probe |= not num_tokens
        if self._allows_chunks or not num_tokens:
            self._is_paced = True
            self.num_prefill_tokens_left = min(self.num_prefill_tokens_left, num_tokens)

    def share(
        self, wanted: Sequence[tuple[str, int]], num_kept: int, tenants: Sequence[str] = ()
    ) -> None:
        """Cut the tokens for prompts into equal shares; who wants less leaves the rest to others.

        `wanted` are (sharer, tokens), a sharer may occur several times; `num_kept` tokens belong to
        rows that decode. With `tenants`, one for each entry, the tenants get equal shares first.
        `next_chunk` respects the shares from now on; whoever is not among the sharers is bound by
        the step alone.
        """
        groups: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for tenant, one in zip(tenants or [""] * len(wanted), wanted, strict=True):
            groups[tenant].append(one)
        num_left = max(0, min(self.num_prefill_tokens_left, self.num_tokens_left - num_kept))
        sums = [(tenant, sum([num for _, num in group])) for tenant, group in groups.items()]
        for tenant, share in _equal_shares(sums, num_left).items():
            self._shares |= _equal_shares(groups[tenant], share)

    def first_chunk(self, num_missing: int) -> int:
        """How many of its missing tokens a request would compute if it were admitted now.

        0 means not in this step. Without chunked prefill it is all or nothing, except for a gap
        longer than any step: a request that was preempted late must be able to come back.
        """
        room = min(self.num_tokens_left, self.num_prefill_tokens_left)
        if not self._allows_chunks:
            fits = num_missing <= room or num_missing > self._max_num_tokens
            return min(num_missing, room) if fits else 0
        num_tokens = min(num_missing, room, self._longest_chunk)
        is_full = self._max_num_partial is not None and self.num_partial >= self._max_num_partial
        return 0 if is_full and num_tokens < num_missing else num_tokens

    def next_chunk(self, num_missing: int, num_kept: int, sharer: str = "") -> int:
        """The same for a running request, when `num_kept` tokens are kept for rows that decode."""
        room = min(self.num_tokens_left - num_kept, self.num_prefill_tokens_left)
        if self._allows_chunks:
            room = min(room, self._longest_chunk)
        if self._shares:
            room = min(room, self._shares.get(sharer, room))
        return max(0, min(num_missing, room))

    def spend(self, num_tokens: int) -> None:
        """Take tokens off the budget."""
        self.num_tokens_left -= num_tokens
        assert self.num_tokens_left >= 0, f"budget overdrawn by {-self.num_tokens_left} tokens"

    def spend_on_prompt(self, num_tokens: int, num_missing: int, sharer: str = "") -> None:
        """The same for a chunk of a gap of `num_missing` tokens; 0 tokens if it must wait."""
        self.spend(num_tokens)
        self.num_prefill_tokens += num_tokens
        self.num_prefill_tokens_left -= num_tokens
        self.num_partial += num_tokens < num_missing
        if sharer in self._shares:
            self._shares[sharer] -= num_tokens


def _equal_shares(wanted: Sequence[tuple[str, int]], num_tokens: int) -> dict[str, int]:
    """What each gets of so many tokens; who wants less than others leaves the rest to them."""
    wants: defaultdict[str, int] = defaultdict(int)
    for name, num_wanted in wanted:
        wants[name] += num_wanted
    shares: dict[str, int] = {}
    for place, name in enumerate(sorted(wants, key=wants.__getitem__)):
        # Rounded up, so that a step too small for all serves the most modest ones.
        shares[name] = min(wants[name], -(-num_tokens // (len(wants) - place)))
        num_tokens -= shares[name]
    return shares
