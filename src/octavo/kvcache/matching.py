"""Matching: the longest beginning of a prompt whose KV entries exist.

Owns: what a hit needs in each KV group, full blocks and the common part of one more.
Does not know: reference counts, free blocks.
Used by: kvcache.manager.

A hit of P tokens lets the request begin with the token at position P. So a group with a window
needs only the blocks that this token sees; the ones before are never read again. P ends at the
border of a block, or inside one: then each group copies a block that agrees up to there. If a block
is missing in the window before P, every shorter hit that ends behind that block sees it too, so the
next candidate ends inside it or at its border. Searching downward finds the longest hit.

A block that only the tier has counts as found. Copies come from the pool alone.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from octavo.contracts.kv_plan import KVGroup
from octavo.kvcache.block_table import GONE, BlockTable
from octavo.kvcache.prefix_index import PrefixIndex
from octavo.kvcache.tier_link import TierLink

IN_TIER = -2
"""In a match, instead of a block id: the content is in the tier below."""

_BLOCK_PER_COPY = 8  # a copy that saves less than this part of a block is not worth its move


class PrefixMatch(NamedTuple):
    """A findable beginning. Nothing is taken; it is true until the next call that takes."""

    num_tokens: int  # may end inside a block
    block_ids: list[list[int]]  # for each group and full block: its id, GONE or IN_TIER
    copied: list[int]  # for each group the block to copy the rest from; empty: nothing to copy
    num_from_tier: int = 0  # entries IN_TIER

    def held(self) -> set[int]:
        """Blocks of the pool that an admission with this match holds or reads."""
        return {block_id for ids in self.block_ids for block_id in ids if block_id >= 0}.union(
            self.copied
        )


def no_match(num_groups: int) -> PrefixMatch:
    """Nothing was found."""
    return PrefixMatch(0, [[] for _ in range(num_groups)], [])


class PrefixSearch:
    """A search over one index and, below it, maybe a tier."""

    def __init__(
        self, index: PrefixIndex, groups: Sequence[KVGroup], block_size: int, link: TierLink | None
    ) -> None:
        self._index = index
        self._groups = groups
        self._block_size = block_size
        self._link = link
        self._unbounded = [group for group, kind in enumerate(groups) if not kind.window]
        self._windowed = [group for group, kind in enumerate(groups) if kind.window]
        self._least_copied = max(1, block_size // _BLOCK_PER_COPY)

    def longest(
        self, table: BlockTable, num_tokens: int, without_content: Set[int], num_slots: int
    ) -> PrefixMatch:
        """The longest match of at most the first `num_tokens` tokens, of which one more is known.

        Blocks `without_content` get it in the coming step: they can be shared but not copied. No
        more than `num_slots` blocks come from the tier.
        """
        match = self._longest(table, num_tokens, without_content)
        while match.num_from_tier > num_slots:
            place = _place_beyond(match, num_slots)  # it may still be copied in part
            limit = min(num_tokens, (place + 1) * self._block_size - 1)
            match = self._longest(table, limit, without_content)
        return match

    def _longest(
        self, table: BlockTable, num_tokens: int, without_content: Set[int]
    ) -> PrefixMatch:
        """The same with any number of slots."""
        num_full = self._unbounded_run(table, num_tokens // self._block_size)
        while True:
            num_copied, copied = self._common_part(table, num_full, num_tokens, without_content)
            end = num_full * self._block_size + num_copied
            missing = self._missing(table, num_full, end)
            if missing is None:
                return self._match(table, num_full, end, copied)
            num_full = missing

    def _find(self, table: BlockTable, group: int, place: int) -> int | None:
        """The block with the content of `place`, or IN_TIER."""
        block_hash = table.hash_of(place)
        block_id = self._index.find(group, block_hash)
        if block_id is None and self._link is not None and self._link.has(group, block_hash):
            return IN_TIER
        return block_id

    def _unbounded_run(self, table: BlockTable, limit: int) -> int:
        """Full blocks from the start that all groups without a window have."""
        if not self._unbounded:
            return limit
        for place in range(limit):
            for group in self._unbounded:
                if self._find(table, group, place) is None:
                    return place
        return limit

    def _missing(self, table: BlockTable, num_full: int, end: int) -> int | None:
        """A full block that a group with a window needs for a hit of `end` and lacks."""
        for group in self._windowed:
            first = self._groups[group].first_place(end, self._block_size)
            for place in range(num_full - 1, first - 1, -1):
                if self._find(table, group, place) is None:
                    return place
        return None

    def _common_part(
        self, table: BlockTable, place: int, num_tokens: int, without_content: Set[int]
    ) -> tuple[int, list[int]]:
        """Tokens of the block at `place` that every group has, and the blocks to copy from."""
        least = self._least_copied
        num_wanted = min(self._block_size, num_tokens - place * self._block_size)
        if num_wanted < least:
            return 0, []
        num_common, copied = num_wanted, []
        for group in range(len(self._groups)):
            length, block_id = self._best_child(table, group, place, num_wanted, without_content)
            if length < least:
                return 0, []
            num_common = min(num_common, length)
            copied.append(block_id)
        return num_common, copied

    def _best_child(
        self,
        table: BlockTable,
        group: int,
        place: int,
        num_wanted: int,
        without_content: Set[int],
    ) -> tuple[int, int]:
        """The block that has most of the first `num_wanted` tokens of `place`, how many first."""
        tokens = table.tokens_of(place)
        if len(tokens) == self._block_size:  # the exact block, however many siblings it has
            block_id = self._index.find(group, table.hash_of(place))
            if block_id is not None and block_id not in without_content:
                return num_wanted, block_id
        best, best_id = 0, GONE
        for block_id, others in self._index.children(group, table.parent_of(place)):
            if block_id in without_content or others[0] != tokens[0]:
                continue
            length = 0
            for mine, other in zip(tokens[:num_wanted], others, strict=False):
                if mine != other:
                    break
                length += 1
            if length > best:
                best, best_id = length, block_id
                if length == num_wanted:
                    break
        return best, best_id

    def _match(self, table: BlockTable, num_full: int, end: int, copied: list[int]) -> PrefixMatch:
        """Write the hit out: no group holds blocks that the next token does not see."""
        block_ids, num_from_tier = [], 0
        for group, kind in enumerate(self._groups):
            first = min(num_full, kind.first_place(end, self._block_size))
            ids = [GONE] * first
            for place in range(first, num_full):
                block_id = self._find(table, group, place)
                assert block_id is not None, f"place {place} of group {group} vanished"
                num_from_tier += block_id == IN_TIER
                ids.append(block_id)
            block_ids.append(ids)
        return PrefixMatch(end, block_ids, copied, num_from_tier)


def _place_beyond(match: PrefixMatch, num_slots: int) -> int:
    """The first place whose tier entries find no slot."""
    for place in range(max(map(len, match.block_ids))):
        num_slots -= sum([ids[place] == IN_TIER for ids in match.block_ids])
        if num_slots < 0:
            return place
    raise AssertionError("there are slots for all")
