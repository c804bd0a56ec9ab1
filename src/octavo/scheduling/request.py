"""Request: one sequence inside the engine core, from `add` to its last delta.

Owns: the known tokens, how many of them are computed, the status and its legal moves.
Does not know: queues, budgets, blocks beyond the table that the KV manager keeps in it.

    WAITING ----> RUNNING ----> FINISHED
       |          |     ^           ^
       |          v     |           |
       |        PREEMPTED ----------+
       +----------------------------+
"""

from __future__ import annotations

from array import array
from copy import copy
from enum import Enum

from octavo.contracts.block_hash import salt_keys
from octavo.contracts.request import EngineRequest
from octavo.contracts.step import SamplingSpec, TokenLogprobs
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.manager import KVManager
from octavo.scheduling.beam_ranking import BeamRanking
from octavo.scheduling.drafting import Drafting
from octavo.scheduling.guide import Guide
from octavo.scheduling.policy import SortKey


class Status(Enum):
    """Where a request stands."""

    WAITING = "waiting"  # never ran: no row, no blocks
    RUNNING = "running"  # has a row and blocks
    PREEMPTED = "preempted"  # ran, gave its row and blocks back, waits to be computed or moved back
    FINISHED = "finished"  # the last delta is made; it may still be in the step in flight


_LEGAL_MOVES = {
    Status.WAITING: (Status.RUNNING, Status.FINISHED),
    Status.RUNNING: (Status.PREEMPTED, Status.FINISHED),
    Status.PREEMPTED: (Status.RUNNING, Status.FINISHED),
    Status.FINISHED: (),
}


class Request:
    """One sequence. Made once when added, changed by the scheduler only.

    Tokens are 4 bytes each. `row` exists only while the request is RUNNING.

    A beam search is one request in the queues that holds neither row nor blocks. Its beams do: they
    are requests too, in no queue.
    """

    __slots__ = (
        "arrival_s",
        "deadline_s",
        "drafting",
        "eos_token_ids",
        "family",
        "guide",
        "id",
        "max_num_tokens",
        "member_of",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_preemptions",
        "num_prompt_logprobs_sent",
        "num_prompt_tokens",
        "num_swaps",
        "num_times_passed",
        "order",
        "party",
        "pooling",
        "priority",
        "row",
        "sampling",
        "search",
        "second_segment",
        "status",
        "stop_token_ids",
        "table",
        "tenant",
        "token_ids",
    )

    row: int

    def __init__(
        self,
        source: EngineRequest,
        order: SortKey,
        max_model_len: int,
        kv: KVManager,
    ) -> None:
        """Take `source` in. `order` is its place among all requests, by the policy."""
        self.id = source.request_id
        self.order = order
        self.priority = source.priority
        self.party = source.party  # who leaves a full queue with it
        self.tenant = source.tenant
        self.arrival_s = source.arrival_s
        self.deadline_s = source.deadline_s
        self.sampling: SamplingSpec = source.sampling
        self.pooling = source.pooling  # vectors of the prompt instead of an answer
        self.second_segment = source.second_segment
        self.token_ids = array("i", source.prompt_token_ids)  # the prompt, then the output
        self.num_prompt_tokens = len(self.token_ids)
        # Intake keeps prompt + max_tokens within the context; the minimum guards the runner's rows.
        self.max_num_tokens = min(self.num_prompt_tokens + source.max_tokens, max_model_len)
        self.eos_token_ids = frozenset(source.eos_token_ids)
        self.stop_token_ids = frozenset(source.stop_token_ids)
        self.guide: Guide | None = None  # the form that the answer must have
        self.drafting: Drafting | None = None  # guesses of its next tokens
        self.status = Status.WAITING
        self.family: Family | None = None  # the other choices of the same prompt
        self.search: Search | None = None  # a beam search, of which this is the handle
        self.member_of: Search | None = None  # a beam of it
        self.num_computed_tokens = 0  # kept while swapped out, else 0 while waiting
        self.num_cached_tokens = 0  # prompt tokens from the prefix cache at first admission
        self.num_preemptions = 0
        self.num_swaps = 0  # preemptions that moved the blocks instead of dropping them
        self.num_times_passed = 0  # later ones that were admitted because this one did not fit
        self.num_prompt_logprobs_sent = 0
        self.table: BlockTable = kv.open_table(
            self.token_ids,
            root_keys=root_keys(source),
            reads_cache=not source.skip_prefix_cache,
        )

    def branch(self, token_ids: array[int], kv: KVManager) -> Request:
        """Another sequence with the same computed tokens, which shares all blocks. Has no row yet.

        All known tokens but the last are computed.
        """
        child = copy(self)
        if hasattr(child, "row"):
            del child.row
        child.token_ids = token_ids
        child.table = kv.fork(self.table, token_ids)
        child.num_computed_tokens = len(token_ids) - 1
        child.status = Status.WAITING
        child.search, child.member_of = None, self.member_of or self.search
        return child

    @property
    def holders(self) -> list[Request]:
        """Who holds rows and blocks for it: itself, or the beams of a search."""
        return [self] if self.search is None else self.search.members

    @property
    def num_rows(self) -> int:
        """Rows that it needs to run: one, or those of all beams that a search will have."""
        return 1 if self.search is None else self.search.ranking.spec.beam_width

    @property
    def lead(self) -> Request:
        """Whose tokens decide about its admission: itself, or the first beam of a search."""
        return self if self.search is None else self.search.members[0]

    @property
    def num_tokens(self) -> int:
        """Known tokens: prompt and output so far; of a search those of its best beam."""
        return len(self.lead.token_ids)

    @property
    def num_missing_tokens(self) -> int:
        """Known tokens that are not computed. Between steps: 1 for a request that decodes."""
        lead = self.lead
        return len(lead.token_ids) - lead.num_computed_tokens

    @property
    def num_decoding_rows(self) -> int:
        """Rows that need one token in each step: none of them ever waits for a prompt."""
        if self.search is not None:
            return self.search.num_decoding_rows
        return int(len(self.token_ids) - self.num_computed_tokens == 1)

    def move_to(self, status: Status) -> None:
        """Change the status. An illegal move is a fault of the scheduler."""
        assert status in _LEGAL_MOVES[self.status], f"{self}: illegal move to {status.name}"
        self.status = status

    def __repr__(self) -> str:
        return (
            f"Request({self.id}, {self.status.name}, {self.num_computed_tokens} of "
            f"{self.num_tokens} tokens computed, {self.num_prompt_tokens} of them prompt)"
        )


class Family:
    """The choices of one prompt. See `families.py` for who changes it."""

    __slots__ = ("first_id", "held", "leader", "members", "num_cached_tokens", "snapshot")

    def __init__(self, first: Request) -> None:
        self.first_id = first.id
        self.members = [first]  # live ones
        self.held: list[Request] = []  # members that wait, in no queue, for the leader's prompt
        self.leader: Request | None = first  # computes the prompt; None once that is planned
        self.num_cached_tokens = 0  # prompt tokens that the leader found in the cache
        self.snapshot: BlockTable | None = None  # the computed prompt, for members without a row


class Search:
    """One beam search. See `beams.py` for who changes it."""

    __slots__ = (
        "entries",
        "handle",
        "has_outgrown",
        "is_resumed",
        "members",
        "ranking",
        "replaced",
    )

    def __init__(self, handle: Request, ranking: BeamRanking) -> None:
        self.handle = handle  # the request in the queues
        self.ranking = ranking
        self.members: list[Request] = []  # parallel to `ranking.beams`
        self.entries: list[TokenLogprobs | None] = []  # for each member, once it has sampled
        self.replaced: list[Request] = []  # members whose newest token the runner does not know
        self.is_resumed = False  # blocks that forks shared may be several now
        self.has_outgrown = False  # the pool is too small for it even alone

    def interrupt(self) -> None:
        """All beams left their rows: what they sampled for the coming step is forgotten."""
        self.entries = [None] * len(self.members)
        self.replaced = []
        self.is_resumed = True

    @property
    def num_decoding_rows(self) -> int:
        """Beams in rows that need one token in the next step.

        A fork that has no row yet is not among them: it can wait, and must not keep tokens from
        those who would make room for it.
        """
        return sum(
            entry is None and member.status is Status.RUNNING and member.num_missing_tokens == 1
            for member, entry in zip(self.members, self.entries, strict=True)
        )


def root_keys(source: EngineRequest) -> tuple[bytes, ...]:
    """What colours the hashes: prompts of different salts or tenants never share blocks."""
    tenant = (b"tenant:" + source.tenant.encode(),) if source.tenant else ()
    return salt_keys(source.cache_salt) + tenant
