"""Masks of a plan: which tokens a row may draw, on both back ends."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Collection

import msgspec
import pytest

from octavo.backends.torch.runner import TorchRunner
from octavo.contracts.grammar import ConstraintError, Mask, MaskSource
from octavo.contracts.step import SamplingSpec
from octavo.foundation.machine import cpu_count
from octavo.runner.native_runner import NativeRunner
from tests.support.random_checkpoint import VOCAB_SIZE, RandomCheckpoint
from tests.support.step_driver import MakeRunner, RunnerSizes, StepDriver, start_runner

BACKENDS: dict[str, MakeRunner] = {"native": NativeRunner, "torch": TorchRunner}
SIZES = RunnerSizes()
PROMPT = [(5 * i * i + i + 3) % VOCAB_SIZE for i in range(13)]
SEEDED = SamplingSpec(temperature=1.5, seed=4, num_logprobs=2)
EVERY = range(VOCAB_SIZE)


def mask_of(token_ids: Collection[int]) -> bytes:
    bits = sum(1 << token for token in set(token_ids))
    return bits.to_bytes(-(-VOCAB_SIZE // 32) * 4, "little")


Fill = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint8), ctypes.c_size_t
)
CountFitting = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_size_t
)


class Pending:
    """A mask that is made when somebody asks for it; None is one that cannot be made.

    `judges`: it can be asked about single tokens as well.
    """

    def __init__(
        self,
        token_ids: Collection[int] | None,
        on_fill: Callable[[], object] = lambda: None,
        *,
        judges: bool = False,
    ) -> None:
        self.num_fills = 0
        self.asked: list[int] = []
        self._token_ids = token_ids
        self._on_fill = on_fill
        self._functions = Fill(self._fill), CountFitting(self._count_fitting)  # while addresses are
        fill, count_fitting = (ctypes.cast(f, ctypes.c_void_p).value for f in self._functions)
        self._source = MaskSource(
            fill=fill,
            count_fitting=count_fitting if judges else None,
            state=7,
            num_bytes=len(mask_of([])),
            only=-1,
            told=-1,
        )
        self.source = ctypes.addressof(self._source)

    def bits(self) -> bytes:
        """See `PendingMask`."""
        self.num_fills += 1
        self._on_fill()
        if self._token_ids is None:
            raise ConstraintError("became too complex")
        return mask_of(self._token_ids)

    def _fill(self, state: int, bits: ctypes.Array[ctypes.c_uint8], num_bytes: int) -> int:
        try:
            made = self.bits()
        except ConstraintError:
            return -1
        assert (state, num_bytes) == (7, len(made))
        ctypes.memmove(bits, made, num_bytes)
        return 0

    def _count_fitting(self, state: int, tokens: ctypes.Array[ctypes.c_uint32], count: int) -> int:
        assert (state, count) == (7, 1)
        self.asked.append(tokens[0])
        return -1 if self._token_ids is None else int(tokens[0] in self._token_ids)


@pytest.fixture(params=list(BACKENDS))
def driver(request: pytest.FixtureRequest) -> StepDriver:
    return StepDriver(start_runner(BACKENDS[request.param], RandomCheckpoint(), SIZES), SIZES)


def draw(driver: StepDriver, spec: SamplingSpec, *masks: Collection[int] | None) -> list[int]:
    """A token after PROMPT for each mask, and from which log-probabilities."""
    row = driver.add(PROMPT, spec)
    for mask in masks:
        if mask is not None:
            driver.plan.mask_rows, driver.plan.masks = [row], [mask_of(mask)]
        result = driver.step({row: driver.remaining(row)})
        assert not result.errors
    return driver.finish(row)[len(PROMPT) :]


@pytest.mark.parametrize("token", [0, 7, 8, 63, VOCAB_SIZE - 1])
def test_the_only_token_that_may_be_drawn_is_drawn(driver: StepDriver, token: int) -> None:
    """Whatever its place in the mask."""
    assert draw(driver, SEEDED, [token], [token]) == [token, token]


def test_a_mask_of_everything_changes_nothing(driver: StepDriver) -> None:
    """Nor does one with the bits behind the vocabulary."""
    assert draw(driver, SEEDED, *[EVERY] * 6) == draw(driver, SEEDED, *[None] * 6)
    row = driver.add(PROMPT, SEEDED)
    driver.plan.mask_rows, driver.plan.masks = [row], [b"\xff" * 20]
    driver.step({row: 13})
    assert driver.finish(row)[13:] == draw(driver, SEEDED, None)


def test_a_mask_is_as_good_as_a_list_of_allowed_tokens(driver: StepDriver) -> None:
    """It holds for its own step only."""
    allowed = [3, 9, 21, 33, 64]
    greedy, listed = SamplingSpec(), SamplingSpec(allowed_token_ids=allowed)
    assert draw(driver, greedy, *[allowed] * 5) == draw(driver, listed, *[None] * 5)
    free = draw(driver, greedy, allowed, None)
    assert free[:1] == draw(driver, listed, None)
    assert set(draw(driver, SEEDED, *[allowed] * 20)) <= set(allowed)


def test_log_probabilities_are_those_before_the_mask(driver: StepDriver) -> None:
    """The best tokens are listed although they could not be drawn."""
    greedy = SamplingSpec(num_logprobs=2)
    row = driver.add(PROMPT, greedy)
    free = driver.step({row: 13}).logprobs[row][0]
    worst = next(token for token in EVERY if token not in free.token_ids)
    masked_row = driver.add(PROMPT, greedy)
    driver.plan.mask_rows, driver.plan.masks = [masked_row], [mask_of([worst])]
    masked = driver.step({masked_row: 13}).logprobs[masked_row][0]

    assert masked.token_ids == [worst, *free.token_ids[1:]]
    assert masked.logprobs[1:] == pytest.approx(free.logprobs[1:], abs=1e-5)


def test_a_fork_has_a_mask_of_its_own(driver: StepDriver) -> None:
    """Though it takes the logits of its twin."""
    first = driver.add(PROMPT, SEEDED)
    second = driver.fork(first)
    driver.plan.mask_rows, driver.plan.masks = [second, first], [mask_of([5]), mask_of([6])]
    driver.step({first: 13, second: 0})

    assert (driver.tokens(first)[13:], driver.tokens(second)[13:]) == ([6], [5])


def test_a_mask_that_leaves_nothing_fails_its_row_alone(driver: StepDriver) -> None:
    """The neighbour gets its token."""
    hopeless, healthy = driver.add(PROMPT), driver.add(PROMPT)
    driver.plan.mask_rows, driver.plan.masks = [hopeless], [mask_of([])]
    result = driver.step({hopeless: 13, healthy: 13})

    assert list(result.errors) == [hopeless]
    assert len(driver.tokens(healthy)) == 14


def test_a_mask_that_is_still_to_be_made_is_made_once_and_holds_for_its_step(
    driver: StepDriver,
) -> None:
    """Whoever makes it: more masks than threads, step after step."""
    rows = [driver.add(PROMPT, SEEDED) for _ in range(3)]
    for step in range(20):
        masks = [Pending([(11 * step + row) % VOCAB_SIZE]) for row in rows]
        driver.plan.mask_rows, driver.plan.masks = list(rows), list(masks)
        driver.step({row: driver.remaining(row) for row in rows})
        assert [mask.num_fills for mask in masks] == [1, 1, 1]

    for row in rows:
        expected = [(11 * step + row) % VOCAB_SIZE for step in range(20)]
        assert driver.tokens(row)[13:] == expected


def test_masks_that_are_made_and_others_go_together(driver: StepDriver) -> None:
    first, second, free = (driver.add(PROMPT, SEEDED) for _ in range(3))
    driver.plan.mask_rows, driver.plan.masks = [first, second], [mask_of([5]), Pending([6])]
    driver.step({first: 13, second: 13, free: 13})

    assert (driver.tokens(first)[13:], driver.tokens(second)[13:]) == ([5], [6])
    assert driver.tokens(free)[13:] == draw(driver, SEEDED, None)


def test_a_mask_that_cannot_be_made_fails_its_row_alone(driver: StepDriver) -> None:
    hopeless, healthy = driver.add(PROMPT, SEEDED), driver.add(PROMPT, SEEDED)
    driver.plan.mask_rows = [hopeless, healthy]
    driver.plan.masks = [Pending(None), Pending([9])]
    result = driver.step({hopeless: 13, healthy: 13})

    assert list(result.errors) == [hopeless]
    assert "became too complex" in result.errors[hopeless]
    assert driver.tokens(healthy)[13:] == [9]


def test_two_masks_are_made_at_the_same_time() -> None:
    """By different threads: each of them waits for the other to have begun."""
    both = threading.Barrier(2, timeout=30)
    sizes = RunnerSizes(threads=2)
    driver = StepDriver(start_runner(NativeRunner, RandomCheckpoint(), sizes), sizes)
    rows = [driver.add(PROMPT, SEEDED) for _ in range(2)]
    driver.plan.mask_rows = rows
    driver.plan.masks = [Pending([row + 3], both.wait) for row in rows]
    driver.step(dict.fromkeys(rows, 13))

    assert [driver.tokens(row)[13:] for row in rows] == [[row + 3] for row in rows]


def judged_driver() -> StepDriver:
    """Of a runner whose threads have all cores."""
    sizes = RunnerSizes(threads=cpu_count())
    return StepDriver(start_runner(NativeRunner, RandomCheckpoint(), sizes), sizes)


def test_a_token_that_is_allowed_costs_one_question_and_no_mask() -> None:
    driver = judged_driver()
    row = driver.add(PROMPT, SamplingSpec())
    mask = Pending(EVERY, judges=True)
    driver.plan.mask_rows, driver.plan.masks = [row], [mask]
    driver.step({row: 13})

    assert driver.tokens(row)[13:] == mask.asked == draw(driver, SamplingSpec(), None)
    assert mask.num_fills == 0


def test_where_the_best_token_is_refused_the_next_best_one_is_drawn() -> None:
    driver = judged_driver()
    row = driver.add(PROMPT, SamplingSpec(num_logprobs=8))
    ranked = driver.step({row: 13}).logprobs[row][0].token_ids[1:]
    driver.finish(row)
    for place in range(8):
        masks = [
            Pending(set(EVERY) - set(ranked[:place]), judges=judges) for judges in (True, False)
        ]
        rows = [driver.add(PROMPT, SamplingSpec()) for _ in masks]
        driver.plan.mask_rows, driver.plan.masks = rows, list(masks)
        driver.step(dict.fromkeys(rows, 13))
        assert [driver.finish(row)[13:] for row in rows] == [[ranked[place]]] * 2
        assert masks[0].asked == ranked[: min(place + 1, 4)]
        assert masks[0].num_fills == (place >= 4)


@pytest.mark.parametrize(
    "spec",
    [
        SamplingSpec(),
        SamplingSpec(temperature=1.5),
        SamplingSpec(temperature=1.0, top_k=9),
        SamplingSpec(temperature=1.0, top_p=0.8),
        SamplingSpec(temperature=1.0, min_p=0.1),
        SamplingSpec(temperature=1.0, presence_penalty=1.0, bias_token_ids=[5], bias_values=[3.0]),
    ],
)
def test_answers_are_the_same_whether_tokens_or_masks_are_asked_for(spec: SamplingSpec) -> None:
    """Seed by seed."""
    driver = judged_driver()
    for seed in range(12):
        seeded = msgspec.structs.replace(spec, seed=seed)
        rows = [driver.add(PROMPT, seeded) for _ in range(3)]
        for step in range(6):
            allowed = [token for token in EVERY if (token * 7 + step + seed) % 5 > 1]
            masks: list[Mask] = [Pending(allowed, judges=True), Pending(allowed), mask_of(allowed)]
            driver.plan.mask_rows, driver.plan.masks = list(rows), masks
            driver.step({row: driver.remaining(row) for row in rows})
        answers = [driver.finish(row) for row in rows]
        assert answers == [answers[0]] * 3
