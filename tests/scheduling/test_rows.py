"""The row ledger: rows in use, rows to report as freed."""

from __future__ import annotations

from octavo.scheduling.rows import RowLedger


def test_low_rows_are_given_first_and_a_freed_row_at_once_again():
    rows = RowLedger(3)
    assert [rows.take(), rows.take()] == [0, 1]
    rows.give_back(0)
    assert rows.take() == 0
    assert rows.num_free == 1
    assert {2} == rows.free_rows


def test_freed_rows_are_reported_once():
    rows = RowLedger(2)
    rows.take()
    rows.give_back(0)
    assert rows.take_freed() == [0]
    assert rows.take_freed() == []


def test_after_a_failed_step_rows_are_reported_again_but_not_twice_in_one_plan():
    rows = RowLedger(3)
    rows.give_back(rows.take())
    rows.free_again([2, 0])
    assert rows.take_freed() == [0, 2]
