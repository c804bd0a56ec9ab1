"""How many guesses a request makes, by how many of them were right and what they cost."""

from __future__ import annotations

from octavo.config.speculative import LookupConfig
from octavo.scheduling.drafting import Drafting
from octavo.scheduling.pacing import MeasuredSpeed

CHEAP, DEAR = 0.1, 0.9


def make_drafting(num_drafts: int = 4) -> Drafting:
    return Drafting(LookupConfig(num_drafts=num_drafts, longest=3, shortest=1))


def test_a_request_whose_guesses_are_right_makes_all_that_are_allowed() -> None:
    drafting = make_drafting()
    for _ in range(10):
        wanted = drafting.num_wanted(CHEAP)
        drafting.note(wanted, wanted)
    assert drafting.num_wanted(CHEAP) == 4


def test_guesses_that_cost_as_much_as_they_bring_are_made_only_while_most_are_right() -> None:
    """The first one is a trial; then a right guess is worth nine tenths of a token or nothing."""
    drafting = make_drafting()
    assert drafting.num_wanted(DEAR) == 1
    for _ in range(200):
        wanted = drafting.num_wanted(DEAR)
        if wanted:
            drafting.note(wanted, wanted)
    assert drafting.num_wanted(DEAR) == 4
    drafting.note(4, 1)
    assert drafting.num_wanted(DEAR) < 2


def test_a_request_that_guesses_badly_loses_little() -> None:
    """Pauses double up to 64 steps, so a thousand steps have but a few wrong guesses."""
    drafting, num_tested, gaps, since = make_drafting(), 0, list[int](), 0
    for _ in range(1000):
        since += 1
        wanted = drafting.num_wanted(CHEAP)
        if wanted:
            drafting.note(wanted, 0)
            num_tested += wanted
            gaps.append(since)
            since = 0
    assert num_tested < 40
    assert gaps[-1] == 65
    assert gaps == sorted(gaps)


def test_a_request_that_begins_to_repeat_drafts_again() -> None:
    drafting = make_drafting()
    for _ in range(300):
        wanted = drafting.num_wanted(CHEAP)
        if wanted:
            drafting.note(wanted, 0)
    for _ in range(300):
        wanted = drafting.num_wanted(CHEAP)
        if wanted:
            drafting.note(wanted, wanted)
    assert drafting.num_wanted(CHEAP) == 4


def test_a_token_is_cheap_where_steps_read_weights_and_dear_where_they_are_arithmetic() -> None:
    """One row takes 2 ms, of which 0.3 are its own; with 32 rows nearly all is arithmetic."""
    speed = MeasuredSpeed()
    assert speed.token_price(1) is None
    for _ in range(5):
        speed.note_step(100, 0, 0.030)
        speed.note_step(0, 1, 0.0020)
        speed.note_step(0, 32, 0.0113)
    alone, batch = speed.token_price(1), speed.token_price(32)
    assert alone is not None
    assert batch is not None
    assert 0.14 < alone < 0.16
    assert 0.8 < batch <= 1.0
