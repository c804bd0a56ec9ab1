"""KV manager: the only door to the blocks.

Owns: the pool, the prefix index, the host slots, the moves and promises of the step in flight.
Does not know: queues, budgets, rows, what is in a block.
Used by: scheduling.

Layers are grouped by their window, those that carry a state are a group of their own (`KVPlan`);
a request has a block table for each group, and all groups take their blocks from one pool. With
states there is no prefix caching. The life of a block in the hands of one request:

    match      the beginning of the request that is findable, maybe up to the middle of a block
    admit      take it and as many free blocks as the tokens need
    reserve    before later steps: make room, give back what left a window, stop sharing what is
               written next (copy-on-write)
    announce   the next step leaves the first n tokens computed: blocks that are full then are
               findable from now on, *before* the step runs, so that equal prompts of a step share
    commit     the step ran: what was announced is true, moves are made
    publish    more was computed than announced, for guesses of tokens turned out to be right
    retract    the step ran but not for this request: what it announced was never computed
    free       give all blocks back; the findable ones stay findable until they are reused

    fork       another table with the same blocks; the first to write into a shared one copies it
    swap_out   move the blocks to host slots; swap_in brings them back

Copies and swaps are recorded in `moves`; `take_moves` hands them to the plan, which makes them
before it computes. Why sharing within a step is right: for each layer, a step writes the KV entries
of all its rows before the attention of any row reads them. The sharer computes in the step of the
owner or later. Such a block cannot be copied in that step, for copies come before computing.

Nobody writes into a block that another request reads: full blocks are shared as they are, the last
known token is always computed in a block of its own, and `reserve` copies what a fork shares.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from octavo.contracts.block_hash import root_hash
from octavo.contracts.kv_plan import KVPlan
from octavo.contracts.kv_tier import KVTier
from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.copy_on_write import CopyOnWrite
from octavo.kvcache.events import AnyKVEvent, EventLog
from octavo.kvcache.host_slots import HostSlots
from octavo.kvcache.loading import TierLoads
from octavo.kvcache.matching import IN_TIER, PrefixMatch, PrefixSearch, no_match
from octavo.kvcache.moves import BlockMoves, StepMoves
from octavo.kvcache.prefix_index import Content, PrefixIndex
from octavo.kvcache.promises import Promises
from octavo.kvcache.snapshot import KVSnapshot, Occupancy, measure_occupancy, take_snapshot
from octavo.kvcache.swapping import Swapping
from octavo.kvcache.tier_link import TierLink
from octavo.kvcache.windows import Windows


class TableEdit(NamedTuple):
    """The table of a group has another block at a place, or one more at its end."""

    group: int
    place: int
    block_id: int


class KVManager:
    """Blocks of one engine. `invariants.check_pool` holds between any two calls."""

    def __init__(
        self,
        kv_plan: KVPlan,
        *,
        enable_prefix_caching: bool = True,
        tier: KVTier | None = None,
        collects_events: bool = False,
    ) -> None:
        """`tier` takes what the pool evicts; it needs host slots and prefix caching."""
        self.kv_plan = kv_plan
        self.block_size, self.groups = kv_plan.block_size, kv_plan.groups
        self.index = PrefixIndex(len(self.groups))
        self.pool = BlockPool(kv_plan.num_blocks, self.index)
        self.slots = HostSlots(kv_plan.num_host_slots)
        self.moves = StepMoves(self.pool, self.slots)
        self.swapping = Swapping(self.index, self.slots, self.moves, self.groups, self.block_size)
        self.link = TierLink(tier, self.slots, self.moves) if tier is not None else None
        self.promises = Promises(self.pool, self.index)  # announced since the last commit
        self._search = PrefixSearch(self.index, self.groups, self.block_size, self.link)
        self._loads = TierLoads(self.slots, self.link)
        self._copy_on_write = CopyOnWrite(self.groups, self.pool, self.index, self.moves)
        self._no_match = no_match(len(self.groups))
        self._windows = Windows(self.groups, self.block_size, self.pool)
        self.keeps_past = kv_plan.state_group is None  # else nobody comes back to an earlier token
        self._enable_prefix_caching = enable_prefix_caching and self.keeps_past
        self._plain_root = root_hash(kv_plan.block_size)
        self._events = EventLog(self.block_size, len(self.groups)) if collects_events else None
        if self.link is not None or self._events is not None:
            self.pool.on_evict = self._evicted
        self.pool.on_forget = self._events.removed if self._events is not None else None

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self.pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds, the findable ones included."""
        return self.pool.num_free

    @property
    def num_used_blocks(self) -> int:
        """Blocks that some request or move holds."""
        return self.pool.num_used

    def num_blocks_for(self, num_tokens: int) -> int:
        """Most blocks that a request of `num_tokens` holds between steps, over all groups."""
        return self.kv_plan.num_blocks_for(num_tokens)

    def open_table(
        self, token_ids: array[int], *, root_keys: Sequence[bytes] = (), reads_cache: bool = True
    ) -> BlockTable:
        """An empty table for a request. `token_ids` is shared: it grows as the request does.

        Tables with different `root_keys` (salt, tenant) never share what they compute.
        """
        root = root_hash(self.block_size, root_keys) if root_keys else self._plain_root
        return BlockTable(
            token_ids,
            self.block_size,
            root,
            num_groups=len(self.groups),
            reads_cache=reads_cache and self._enable_prefix_caching,
        )

    # ---- a request enters

    def match(self, table: BlockTable) -> PrefixMatch:
        """The longest findable beginning of an empty table, without taking it.

        At most the known tokens less one: the logits of the last one are needed.
        """
        return self._match(table, len(table.token_ids) - 1)

    def shortfall(
        self,
        table: BlockTable,
        num_tokens: int,
        match: PrefixMatch | None = None,
        *,
        chunk_end: int | None = None,
    ) -> int:
        """Blocks that are missing for `admit` with these arguments; 0 or less if it succeeds.

        For a swapped-out table: for `swap_in`, and `reserve` up to `num_tokens` after it.
        """
        held: Sequence[Sequence[int]] = table.block_ids
        reused: Iterable[int] = ()
        num_moved = 0
        if table.is_swapped:
            num_moved, reused = self.swapping.num_blocks_to_return(table)
            num_moved += self.swapping.num_copies_after(table)
            held = table.slots
        elif match is not None:
            num_moved, reused = match.num_from_tier, match.held()
            held = match.block_ids
        idle = self._num_idle(reused)
        assert match is None or chunk_end is None or chunk_end > match.num_tokens, "an empty chunk"
        num_grown = _num_grown(held, self._ends(num_tokens, chunk_end))
        return num_moved + num_grown - (self.pool.num_free - idle)

    def admit(
        self,
        table: BlockTable,
        num_tokens: int,
        match: PrefixMatch | None = None,
        *,
        chunk_end: int | None = None,
    ) -> int | None:
        """Fill an empty table for `num_tokens` tokens; returns how many need no computing.

        `match` comes from `match` just before. Fewer tokens than it says are there if the tier
        fails to give one back. None if there are not enough free blocks: nothing has changed then.

        Groups with a window get blocks only for the first `chunk_end` tokens (all, if not given),
        so that a long prompt does not hold what it will not see any more. Before the step that goes
        beyond, call `reserve`.
        """
        assert table.is_empty, "only an empty table is admitted"
        match = match or self._no_match
        lost = self._loads.load(table, match)
        while lost is not None:
            limit = min(len(table.token_ids), (lost + 1) * self.block_size) - 1
            match = self._match(table, limit)
            lost = self._loads.load(table, match)
        if self.shortfall(table, num_tokens, match, chunk_end=chunk_end) > 0:
            self._loads.give_back()
            return None
        self._fill(table, match, self._ends(num_tokens, chunk_end))
        return match.num_tokens

    def fork(self, table: BlockTable, token_ids: array[int]) -> BlockTable:
        """A table of another sequence that shares every block, the partial last one too.

        The computed tokens of both are equal. Before either computes again, `reserve` is due.
        """
        assert not table.is_swapped, "a swapped-out table has no blocks to share"
        child = BlockTable(
            token_ids,
            self.block_size,
            table.root,
            num_groups=len(self.groups),
            reads_cache=table.reads_cache,
        )
        child.block_ids = [list(ids) for ids in table.block_ids]
        num_full = table.num_announced
        while num_full and child.tokens_of(num_full - 1) != table.tokens_of(num_full - 1):
            num_full -= 1  # the parent computes its last token again, and the child another one
        child.hashes = table.hashes[:num_full]
        child.num_announced = num_full
        self.pool.share(child.held_blocks())
        child.is_forked = table.is_forked = True
        return child

    # ---- a request runs

    def reserve(
        self, table: BlockTable, num_computed: int, num_tokens: int
    ) -> list[TableEdit] | None:
        """Get ready for a step that computes tokens [num_computed, num_tokens) of a table.

        Gives back blocks behind the windows of token `num_computed` (they become GONE; the runner
        need not know), takes what is missing, and replaces blocks that others share by copies where
        the step writes. Takes all or nothing: None if there are not enough free blocks.

        Due at the first token of a block, and at once where `table.is_forked`.
        """
        self._windows.release_passed(table, num_computed)
        cow, shared = self._copy_on_write, list[tuple[int, int]]()
        if table.is_forked:
            shared = cow.shared_places(table, num_computed, num_tokens)
        ends = self._ends(num_tokens)
        if len(shared) + _num_grown(table.block_ids, ends) > self.pool.num_free:
            return None
        if table.is_forked:
            cow.replace(table, shared, num_computed, self._take_one)
            cow.own(table, num_computed, num_tokens)
        edits = [TableEdit(group, place, table.block_ids[group][place]) for group, place in shared]
        for group, ids in enumerate(table.block_ids):
            new = self.pool.take(max(0, ends[group] - len(ids)))
            edits += [TableEdit(group, place, one) for place, one in enumerate(new, len(ids))]
            ids.extend(new)
        return edits

    def fitting(self, table: BlockTable, num_computed: int, num_tokens: int) -> int:
        """The largest number up to `num_tokens` for which `reserve` would succeed.

        `num_computed` or less if not even for one token.
        """
        num_free = self.pool.num_free + self._windows.num_passed(table, num_computed)
        while num_tokens > num_computed:
            shared = self._copy_on_write.shared_places(table, num_computed, num_tokens)
            if len(shared) + _num_grown(table.block_ids, self._ends(num_tokens)) <= num_free:
                break
            num_tokens = (num_tokens - 1) // self.block_size * self.block_size
        return num_tokens

    def announce(self, table: BlockTable, num_tokens: int) -> None:
        """The next step leaves the first `num_tokens` tokens computed: full blocks are findable."""
        if not self._enable_prefix_caching:
            return
        for place in range(table.num_announced, num_tokens // self.block_size):
            self.promises.add(table, place)
            table.num_announced = place + 1

    def commit(self) -> None:
        """The step ran: all that was announced, and not retracted, is computed; moves are made."""
        assert not self.moves.num_pending, "moves were decided that no plan carries"
        self._keep_promises()
        self.swapping.leaving.clear()
        if self.link is not None:
            self.link.settle()
        self.moves.settle()

    def publish(self, table: BlockTable, num_tokens: int) -> None:
        """The first `num_tokens` tokens are computed, more than were announced: drafts turned out
        to be right. Blocks that are full by that are findable from now on. Comes after `commit`.
        """
        self.announce(table, num_tokens)
        self._keep_promises()

    def retract(self, table: BlockTable) -> set[int]:
        """The step did not compute what `table` announced. Call before `commit`.

        Those blocks stop being findable. Returns their ids: whoever else holds one of them shares
        content that does not exist. (A fork made in this step shares more than these.)
        """
        return self.promises.break_of(table)

    def fail_step(self) -> None:
        """The step raised: call it instead of `commit`. Nobody knows what it computed or moved.

        All that it promised is forgotten. Tables that it swapped out have lost their content: they
        are empty from now on. The tables that computed in it are to be freed by the caller.
        """
        self.promises.break_all(self.promises.block_ids)
        self.swapping.drop_leaving()
        if self.link is not None:
            self.link.drop_staged()
        self.moves.settle()

    # ---- a request yields or ends

    def free(self, table: BlockTable, num_computed: int = 0) -> None:
        """Give all blocks or slots back, tail first: a chain's end is reused before its beginning.

        With `num_computed` the last block stays findable even if it is full only in part: the next
        turn of a conversation copies it.
        """
        if table.is_swapped:
            self.swapping.drop(table)
            return
        held = table.held_blocks()
        lost = self.moves.cancel(held)
        self.promises.break_all(lost)
        if num_computed % self.block_size and self._enable_prefix_caching and not lost:
            self._keep_last(table, num_computed)
        self._give_back(table, held)

    def forget(self, table: BlockTable) -> None:
        """Make all blocks of this table unfindable, because their content is not to be trusted."""
        held = table.held_blocks()
        self.promises.break_all(held)
        self.pool.forget(held)

    def swap_out(self, table: BlockTable, num_computed: int) -> bool:
        """Move the blocks of the first `num_computed` tokens to host slots, give all blocks back.

        False, and nothing changes, if there are not enough slots, or if something is in them only
        after the coming step.
        """
        if self.link is not None:
            self.link.poll()
        if not self.swapping.out(table, num_computed, self.promises.block_ids):
            return False
        self._give_back(table, table.held_blocks())
        return True

    def swap_in(self, table: BlockTable) -> bool:
        """Bring a swapped-out table back, ready for `reserve`. False if blocks are missing."""
        num_new, reused = self.swapping.num_blocks_to_return(table)
        if num_new > self.pool.num_free - self._num_idle(reused):
            return False
        self.swapping.back(table, self._take_one, self.pool.share)
        table.is_forked = True  # the last block may be shared
        return True

    def drop_swapped(self, table: BlockTable) -> None:
        """Give the slots of a swapped-out table back: it will be computed again."""
        self.swapping.drop(table)

    def num_blocks_freed_by(
        self, tables: Iterable[BlockTable], kept: Collection[int] = ()
    ) -> list[int]:
        """Entry i: blocks, other than the `kept` ones, that freeing tables 0 to i makes free.

        A block that several tables share is free when the last of its holders is.
        """
        return self.pool.num_freed_by((table.held_blocks() for table in tables), kept)

    # ---- the engine asks

    def take_moves(self) -> BlockMoves:
        """What the plan must carry: the moves since the last call."""
        return self.moves.take()

    def take_events(self) -> list[AnyKVEvent]:
        """Changes of the cache since the last call; none unless they are collected."""
        return self._events.take() if self._events is not None else []

    def occupancy(self, holdings: Iterable[tuple[BlockTable, int]]) -> Occupancy:
        """Allocated and live slots of the pool; `holdings` are all tables and computed tokens."""
        return measure_occupancy(self.pool.num_used, self.groups, self.block_size, holdings)

    def snapshot(self, holdings: Mapping[str, tuple[BlockTable, int]]) -> KVSnapshot:
        """The pool, for people; `holdings`: the table of each request and its computed tokens."""
        if self.link is not None:  # without a step nobody has asked which slots are free again
            self.link.poll()
        parts = self.pool, self.index, self.slots, self.groups, self.block_size
        return take_snapshot(*parts, holdings)

    def stage_unstored(self) -> int:
        """Send findable blocks that the tier lacks down, as many as there are free slots.

        For the end of an engine: repeat, with a plan of moves and a commit, until it returns 0.
        """
        if self.link is None:
            return 0
        self.link.poll()
        num_staged = 0
        for block_id, content in self.index:
            if not self.slots.num_free:
                break
            if block_id not in self.promises:
                num_staged += self.link.flush(block_id, content)
        return num_staged

    def reset(self, *, resets_tier: bool = True) -> bool:
        """Make every block unfindable, with `resets_tier` in the tier too.

        False, and nothing happens, while any block is in use.
        """
        if self.pool.num_used:
            return False
        self.pool.forget_all()
        if self.link is not None and resets_tier:
            self.link.clear()
        if self._events is not None:
            self._events.cleared()
        return True

    # ---- inside

    def _ends(self, num_tokens: int, chunk_end: int | None = None) -> list[int]:
        """For each group the places that have blocks when `num_tokens` tokens have."""
        chunk = num_tokens if chunk_end is None else min(num_tokens, chunk_end)
        return [
            group.written_places(0, chunk if group.window else num_tokens, self.block_size).stop
            for group in self.groups
        ]

    def _keep_promises(self) -> None:
        news = self.promises.keep()
        if self._events is not None:
            self._events.stored(*news)

    def _num_idle(self, block_ids: Iterable[int]) -> int:
        """How many of these nobody holds: sharing them makes the free ones fewer."""
        return sum([self.pool.ref_count(block_id) == 0 for block_id in block_ids])

    def _take_one(self) -> int:
        return self.pool.take(1)[0]

    def _give_back(self, table: BlockTable, held: list[int]) -> None:
        self.pool.release(held)
        table.block_ids = [[] for _ in self.groups]
        table.num_announced = 0
        table.is_forked = False

    def _match(self, table: BlockTable, limit: int) -> PrefixMatch:
        """The longest match up to `limit` tokens for whose tier entries there are slots."""
        if not table.reads_cache:
            return self._no_match
        if self.link is not None:
            self.link.poll()
        num_slots = self.slots.num_free + self._loads.num_held
        return self._search.longest(table, limit, self.promises.block_ids, num_slots)

    def _fill(self, table: BlockTable, match: PrefixMatch, ends: list[int]) -> None:
        """Take matched and new blocks; there are enough."""
        for ids in match.block_ids:
            self.pool.share([block_id for block_id in ids if block_id >= 0])
        self.pool.share(match.copied)  # the pins
        for group, matched in enumerate(match.block_ids):
            ids = table.block_ids[group]
            for place, found in enumerate(matched):
                ids.append(self._take_one() if found == IN_TIER else found)
                if found == IN_TIER:
                    self.moves.swap_in(self._loads.take(group, place), ids[place])
                    self.promises.add(table, place, group)
            ids.extend(self.pool.take(max(0, ends[group] - len(ids))))
            if match.copied:
                self.moves.copy(match.copied[group], ids[len(matched)])
        table.num_announced = len(match.block_ids[0])

    def _keep_last(self, table: BlockTable, num_computed: int) -> None:
        """Let the partial last block be found as a child of the block before it."""
        place = num_computed // self.block_size
        if place > table.num_announced:
            return
        tokens = table.token_ids[place * self.block_size : num_computed]
        parent = table.parent_of(place)
        for group, ids in enumerate(table.block_ids):
            if place >= len(ids) or ids[place] in self.index or ids[place] in self.moves.targets:
                continue
            children = self.index.children(group, parent)
            if not any(others[: len(tokens)] == tokens for _, others in children):
                self.index.add(Content(group, parent, None, tokens), ids[place])

    def _evicted(self, block_id: int, content: Content) -> None:
        """A findable block is reused."""
        if self.link is not None:
            self.link.offer(block_id, content)
        if self._events is not None:
            self._events.removed(content)


def _num_grown(held: Sequence[Sequence[int]], ends: Sequence[int]) -> int:
    """Places that are missing up to the ends, over all groups."""
    return sum([max(0, end - len(ids)) for ids, end in zip(held, ends, strict=True)])
