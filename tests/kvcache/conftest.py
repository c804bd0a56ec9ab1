"""Fixtures of the KV manager's tests."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest

from octavo.contracts.kv_plan import KVPlan
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.invariants import check_pool
from octavo.kvcache.manager import KVManager, TableEdit
from octavo.kvcache.moves import BlockMoves
from tests.kvcache.kv_machine import SlowMachine, SlowTier
from tests.support.builders import make_groups


class Tables:
    """A KV manager, all tables that a test opens, and a machine that runs its steps.

    Everything is checked after each step and when the test ends.
    """

    def __init__(
        self,
        num_blocks: int = 8,
        *,
        block_size: int = 4,
        windows: Sequence[int] = (0,),
        num_host_slots: int = 0,
        tier: SlowTier | None = None,
        **options: bool,
    ) -> None:
        plan = KVPlan(
            num_blocks=num_blocks,
            block_size=block_size,
            bytes_per_block=1,
            groups=make_groups(windows),
            num_host_slots=num_host_slots,
        )
        self.kv = KVManager(plan, tier=tier, **options)
        self.machine = SlowMachine(self.kv, tier)
        self.opened: list[BlockTable] = []
        self.rows: list[tuple[BlockTable, int, int]] = []  # of the coming step

    def open(self, token_ids: Iterable[int], **options: object) -> BlockTable:
        table = self.kv.open_table(array("i", token_ids), **options)  # type: ignore[arg-type]
        self.opened.append(table)
        return table

    def admit(self, table: BlockTable, end: int | None = None) -> int:
        """Grant an empty table its tokens up to `end` (all); returns those from the cache."""
        num_tokens = len(table.token_ids)
        num_computed = self.kv.admit(table, num_tokens, self.kv.match(table))
        assert num_computed is not None
        self.grant(table, num_computed, end or num_tokens)
        return num_computed

    def grow(self, table: BlockTable, num_computed: int, end: int) -> list[TableEdit]:
        """Reserve and grant tokens of a running table."""
        edits = self.kv.reserve(table, num_computed, end)
        assert edits is not None
        self.grant(table, num_computed, end)
        return edits

    def grant(self, table: BlockTable, num_computed: int, end: int) -> None:
        self.kv.announce(table, end)
        self.rows.append((table, num_computed, end))

    def fork(self, table: BlockTable, *more: int) -> BlockTable:
        """A child that has seen all tokens of a table, and maybe others after them."""
        child = self.kv.fork(table, array("i", [*table.token_ids, *more]))
        self.opened.append(child)
        return child

    def run(self) -> BlockMoves:
        """Run the step; returns the moves that its plan carried."""
        moves = self.kv.take_moves()
        self.machine.move(moves)
        self.machine.compute(self.rows)
        self.rows.clear()
        self.kv.commit()
        self.check()
        return moves

    def compute(self, token_ids: Iterable[int], **options: object) -> BlockTable:
        """A table of a request whose tokens were all computed in one step."""
        table = self.open(token_ids, **options)
        self.admit(table)
        self.run()
        return table

    def free(self, *tables: BlockTable) -> None:
        for table in tables:
            self.kv.free(table)

    def num_matched(self, token_ids: Iterable[int], **options: object) -> int:
        """Tokens of a prompt that are findable."""
        return self.kv.match(self.open(token_ids, **options)).num_tokens

    def check(self) -> None:
        check_pool(self.kv, self.opened)
        if not self.rows:
            self.machine.check_findable()


@pytest.fixture
def make_tables() -> Iterator[Callable[..., Tables]]:
    """Makes `Tables`; the options are those of its constructor."""
    made: list[Tables] = []

    def make(*args: int, **options: object) -> Tables:
        made.append(Tables(*args, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for tables in made:
        check_pool(tables.kv, tables.opened)


@pytest.fixture
def tables(make_tables: Callable[..., Tables]) -> Tables:
    """Eight blocks of four tokens, one group without a window."""
    return make_tables()
