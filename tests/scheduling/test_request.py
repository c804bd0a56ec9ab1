"""Request: what is known, what is computed, which moves are legal."""

from __future__ import annotations

import itertools
import sys
from array import array

import pytest

from octavo.scheduling.request import Request, Status
from tests.support.builders import make_kv, make_request

LEGAL = {
    (Status.WAITING, Status.RUNNING),
    (Status.WAITING, Status.FINISHED),
    (Status.RUNNING, Status.PREEMPTED),
    (Status.RUNNING, Status.FINISHED),
    (Status.PREEMPTED, Status.RUNNING),
    (Status.PREEMPTED, Status.FINISHED),
}


def build(max_model_len: int = 1000, **fields: object) -> Request:
    return Request(make_request(**fields), (0,), max_model_len, make_kv())  # type: ignore[arg-type]


@pytest.mark.parametrize(("before", "after"), list(itertools.product(Status, Status)))
def test_only_the_drawn_moves_are_legal(before: Status, after: Status):
    """The drawing is in the module's docstring."""
    request = build()
    request.status = before
    if (before, after) in LEGAL:
        request.move_to(after)
        assert request.status is after
        return
    with pytest.raises(AssertionError, match=f"illegal move to {after.name}"):
        request.move_to(after)


def test_the_block_table_sees_tokens_that_are_appended():
    """Request and table share one array; nothing is copied per token."""
    request = build(prompt=range(3))
    request.token_ids.append(77)
    assert request.table.token_ids.tolist() == [0, 1, 2, 77]
    assert request.num_tokens == 4
    assert request.num_missing_tokens == 4


def test_the_context_caps_the_length():
    assert build(prompt=range(10), max_tokens=5).max_num_tokens == 15
    assert build(prompt=range(10), max_tokens=5, max_model_len=12).max_num_tokens == 12


def test_a_waiting_request_has_no_row():
    """Not even a placeholder that somebody could use by mistake."""
    with pytest.raises(AttributeError):
        _ = build().row


def test_a_long_prompt_costs_four_bytes_a_token():
    request = build(prompt=range(10_000))
    assert sys.getsizeof(request.token_ids) < 41_000


def test_the_text_form_says_how_far_a_request_is():
    assert repr(build(prompt=range(3))) == (
        "Request(a, WAITING, 0 of 3 tokens computed, 3 of them prompt)"
    )


def test_a_branch_shares_the_blocks_and_has_tokens_of_its_own():
    kv = make_kv()
    request = Request(make_request(prompt=range(6)), (0,), 1000, kv)
    kv.admit(request.table, 6)
    request.row = 3
    child = request.branch(array("i", range(7)), kv)
    assert child.table.block_ids == request.table.block_ids
    assert (child.num_tokens, child.num_computed_tokens) == (7, 6)
    assert child.status is Status.WAITING
    with pytest.raises(AttributeError):
        _ = child.row
    child.token_ids.append(9)
    assert request.num_tokens == 6


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"tenant": "x"}),
        ({"tenant": "x"}, {"tenant": "y"}),
        ({"tenant": "x"}, {"cache_salt": "x"}),
        ({"cache_salt": "x"}, {"cache_salt": "x", "tenant": "x"}),
    ],
)
def test_tenants_and_salts_colour_the_hashes(one: dict[str, str], other: dict[str, str]):
    assert build(**one).table.root != build(**other).table.root
