"""Row ledger: which rows of the runner are taken, and which the runner must still be told are free.

Owns: the free rows, the rows freed since the last plan.
Does not know: what the runner keeps in a row.
"""

from __future__ import annotations

from collections.abc import Iterable


class RowLedger:
    """Rows 0 to `num_rows - 1`.

    A freed row may be given out again at once: a plan frees rows before it fills new ones.
    """

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self._free = list(range(num_rows - 1, -1, -1))  # a stack, row 0 on top
        self._freed: list[int] = []

    @property
    def num_free(self) -> int:
        """Rows that `take` can give."""
        return len(self._free)

    @property
    def free_rows(self) -> frozenset[int]:
        """The rows that nobody has."""
        return frozenset(self._free)

    def take(self) -> int:
        """Give a free row out."""
        return self._free.pop()

    def give_back(self, row: int) -> None:
        """The request in this row has left it."""
        self._free.append(row)
        self._freed.append(row)

    def take_freed(self) -> list[int]:
        """The rows to list as freed in the plan that is being built."""
        freed, self._freed = self._freed, []
        return freed

    def free_again(self, rows: Iterable[int]) -> None:
        """Tell the runner again: it may not have come so far in a step that failed."""
        self._freed = sorted({*rows, *self._freed})
