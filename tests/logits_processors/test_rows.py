"""Logits processors on both back ends: what they see, when, and whom they touch."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from octavo.backends.torch.runner import TorchRunner
from octavo.contracts.step import UNANSWERABLE, SamplingSpec
from octavo.runner.native_runner import NativeRunner
from tests.support.logits_processors import LateWatcher, OnlyToken, Watcher
from tests.support.random_checkpoint import VOCAB_SIZE, RandomCheckpoint
from tests.support.step_driver import MakeRunner, RunnerSizes, StepDriver, generate, start_runner

BACKENDS: dict[str, MakeRunner] = {"native": NativeRunner, "torch": TorchRunner}
PROMPT = [(5 * i * i + i + 3) % VOCAB_SIZE for i in range(13)]
OTHERS = [PROMPT[i : i + 9] for i in range(3)]
MakeDriver = Callable[..., StepDriver]


@pytest.fixture(params=list(BACKENDS))
def make_driver(request: pytest.FixtureRequest) -> Iterator[MakeDriver]:
    """Classes of processors -> a driver of a runner that has them."""
    Watcher.seen.clear()

    def make(*classes: Any) -> StepDriver:
        threads = 2 if request.param == "native" else 1
        sizes = RunnerSizes(logits_processors=classes, threads=threads)
        return StepDriver(start_runner(BACKENDS[request.param], RandomCheckpoint(), sizes), sizes)

    yield make
    Watcher.edit = None


def asks(_spec: SamplingSpec | None = None, **extra_args: Any) -> SamplingSpec:
    """A spec of a request with these arguments, drawn greedily or as `_spec` says."""
    fields = {
        name: getattr(_spec or SamplingSpec(), name) for name in SamplingSpec.__struct_fields__
    }
    return SamplingSpec(**(fields | {"processor_params": {"extra_args": extra_args}}))


SEEDED = SamplingSpec(temperature=1.5, seed=4)


@pytest.mark.parametrize("spec", [SamplingSpec(), SEEDED], ids=["greedy", "seeded"])
def test_the_only_token_that_is_left_is_drawn(make_driver: MakeDriver, spec: SamplingSpec) -> None:
    """At every position."""
    driver = make_driver(OnlyToken)

    assert generate(driver, PROMPT, 3, asks(spec, only_token=17)) == [17, 17, 17]


def test_rows_beside_a_processed_one_draw_as_without_it(make_driver: MakeDriver) -> None:
    """Bit for bit, and so does the processed one without them."""
    plain, mixed = make_driver(), make_driver(OnlyToken)
    alone = [generate(plain, prompt, 4, SEEDED) for prompt in OTHERS]
    rows = [mixed.add(prompt, SEEDED) for prompt in OTHERS]
    processed = mixed.add(PROMPT, asks(SEEDED, only_token=9))

    for _ in range(4):
        mixed.step({row: mixed.remaining(row) for row in (rows[0], processed, *rows[1:])})

    assert mixed.finish(processed)[13:] == [9] * 4
    assert [mixed.finish(row)[9:] for row in rows] == alone


def test_a_request_that_asks_for_nothing_is_not_processed(make_driver: MakeDriver) -> None:
    """Though the processor is loaded and was asked."""
    driver = make_driver(Watcher)
    specs = (SEEDED, asks(SEEDED), asks(SEEDED, watched=False))

    drawn = [generate(driver, PROMPT, 3, spec) for spec in specs]

    assert drawn[0] == drawn[1] == drawn[2]
    assert not Watcher.seen


def test_a_processor_sees_the_tokens_so_far(make_driver: MakeDriver) -> None:
    """Prompt and answer apart, and after a preemption those that the request came back with."""
    driver = make_driver(Watcher)
    row = driver.add(PROMPT, asks(watched=True))
    for _ in range(2):
        driver.step({row: driver.remaining(row)})
    first, second = driver.finish(row)[13:]
    row = driver.add([*PROMPT, first, second], asks(watched=True), num_prompt=13)
    driver.step({row: 15})

    assert [(prompt, output) for prompt, output, _ in Watcher.seen] == [
        (PROMPT, []),
        (PROMPT, [first]),
        (PROMPT, [first, second]),
    ]


def test_a_processor_works_after_the_bias_and_before_penalties(make_driver: MakeDriver) -> None:
    """It sees the one, not the others; those apply to what it leaves."""
    driver = make_driver(Watcher)
    banned, biased, repeated = 5, 8, PROMPT[0]
    spec = SamplingSpec(
        bias_token_ids=[biased],
        bias_values=[3.0],
        bad_words=[[banned]],
        repetition_penalty=1e6,
        num_logprobs=VOCAB_SIZE,
    )

    def raise_repeated(logits: memoryview) -> None:
        logits[:] = array("f", [1.0]) * VOCAB_SIZE
        logits[repeated] = 2.0
        logits[31] = 1.5

    generate(driver, PROMPT, 1, asks(watched=True))
    Watcher.edit = raise_repeated
    drawn = generate(driver, PROMPT, 1, asks(spec, watched=True))

    plain, edited = (logits for _, _, logits in Watcher.seen)
    assert edited[banned] == -math.inf
    assert edited[biased] == pytest.approx(plain[biased] + 3.0, abs=1e-4)
    assert edited[repeated] == pytest.approx(plain[repeated], abs=1e-4)
    assert drawn == [31]  # the penalty took the repeated one back


def test_one_that_keeps_the_best_token_works_after_temperature(make_driver: MakeDriver) -> None:
    """And after min_p; greedy rows do without it."""
    driver = make_driver(Watcher, LateWatcher)
    spec = SamplingSpec(temperature=2.0, min_p=0.3, seed=3)

    generate(driver, PROMPT, 1, asks(spec, watched=True))
    [early, late] = [logits for _, _, logits in Watcher.seen]
    generate(driver, PROMPT, 1, asks(watched=True))

    best = max(early)
    is_kept = [value / 2 >= best / 2 + math.log(0.3) for value in early]
    assert late == pytest.approx(
        [value / 2 if kept else -math.inf for value, kept in zip(early, is_kept, strict=True)]
    )
    assert 0 < sum(is_kept) < VOCAB_SIZE
    assert len(Watcher.seen) == 3


def test_top_k_and_top_p_count_what_a_late_processor_left(make_driver: MakeDriver) -> None:
    """As if the model had made these logits."""
    driver = make_driver(LateWatcher)

    def only_three(logits: memoryview) -> None:
        logits[:] = array("f", [-math.inf]) * VOCAB_SIZE
        logits[3], logits[4], logits[5] = 0.0, 1.5, -5.0

    Watcher.edit = only_three
    drawn = generate(driver, PROMPT, 6, asks(SamplingSpec(temperature=9.0, top_p=0.8), watched=1))
    free = generate(driver, PROMPT, 25, asks(SamplingSpec(temperature=9.0), watched=1))

    assert set(drawn) == {4}
    assert {3, 4} <= set(free) <= {3, 4, 5}


def test_a_late_processor_that_does_nothing_leaves_the_draw(make_driver: MakeDriver) -> None:
    """Temperature and min_p in numbers are the same distribution as without them."""
    driver = make_driver(LateWatcher)
    spec = SamplingSpec(temperature=0.7, min_p=0.05, top_p=0.9, top_k=20, seed=11)

    assert generate(driver, PROMPT, 12, asks(spec, watched=1)) == generate(
        driver, PROMPT, 12, asks(spec)
    )


def test_logprobs_are_those_of_the_model(make_driver: MakeDriver) -> None:
    """As with every other change to logits."""
    driver = make_driver(OnlyToken)
    spec = SamplingSpec(num_logprobs=VOCAB_SIZE)
    entries = []
    for wanted in (asks(spec), asks(spec, only_token=40)):
        row = driver.add(PROMPT, wanted)
        (entry,) = driver.step({row: 13}).logprobs[row]
        entries.append(dict(zip(entry.token_ids, entry.logprobs, strict=True)))

    assert entries[0] == entries[1]


def test_a_processor_cannot_break_a_grammar(make_driver: MakeDriver) -> None:
    """What the mask forbids stays forbidden, whatever a processor writes."""
    driver = make_driver(Watcher)

    def flatten(logits: memoryview) -> None:
        logits[:] = array("f", [0.0]) * VOCAB_SIZE

    Watcher.edit = flatten
    row = driver.add(PROMPT, asks(watched=True))
    driver.plan.mask_rows, driver.plan.masks = (
        [row],
        [(1 << 50).to_bytes(-(-VOCAB_SIZE // 32) * 4, "little")],
    )
    driver.step({row: 13})

    assert driver.tokens(row)[-1] == 50


@pytest.mark.parametrize("fault", ["fault", "late fault"])
def test_what_a_processor_raises_ends_its_request_alone(
    make_driver: MakeDriver, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it is made, or in the middle; neighbours draw what they draw."""
    driver = make_driver(OnlyToken)
    alone = generate(make_driver(), OTHERS[0], 3, SEEDED)
    good, bad = driver.add(OTHERS[0], SEEDED), driver.add(PROMPT, asks(only_token=fault))
    faults = {}

    for _ in range(3):
        rows = [row for row in (bad, good) if row not in faults]
        faults |= driver.step({row: driver.remaining(row) for row in rows}).errors

    [message] = faults.values()
    assert list(faults) == [bad]
    assert message.startswith("the logits processor OnlyToken failed: LookupError(")
    assert driver.finish(good)[9:] == alone
    assert "logits processor OnlyToken" in caplog.text


def test_what_a_processor_writes_may_leave_nothing_to_draw(make_driver: MakeDriver) -> None:
    """That ends its request, with words."""
    driver = make_driver(Watcher)

    def remove_all(logits: memoryview) -> None:
        logits[:] = array("f", [-math.inf]) * VOCAB_SIZE

    Watcher.edit = remove_all
    row = driver.add(PROMPT, asks(watched=True))

    assert driver.step({row: 13}).errors[row].startswith(UNANSWERABLE)


@pytest.mark.parametrize(
    "edit",
    [
        lambda logits: np.frombuffer(logits, dtype=np.float32).__setitem__(7, 99.0),
        lambda logits: torch.frombuffer(logits, dtype=torch.float32).__setitem__(7, 99.0),
        lambda logits: array("f", [0.0] * 7 + [1.0] + [0.0] * (VOCAB_SIZE - 8)),
        lambda logits: torch.eye(VOCAB_SIZE)[7],
        lambda logits: logits.__setitem__(7, 99.0) or logits,
    ],
    ids=["numpy in place", "torch in place", "array", "tensor", "the buffer"],
)
def test_logits_may_be_changed_in_place_or_returned(
    make_driver: MakeDriver, edit: Callable[[memoryview], Any]
) -> None:
    """With whatever library the processor likes."""
    driver = make_driver(Watcher)
    assert generate(driver, PROMPT, 1, asks(watched=True)) != [7]

    Watcher.edit = edit

    assert generate(driver, PROMPT, 1, asks(watched=True)) == [7]


@pytest.mark.parametrize("returned", [array("f", [1.0]), array("d", [1.0] * VOCAB_SIZE), 5])
def test_something_else_that_is_returned_is_refused(make_driver: MakeDriver, returned: Any) -> None:
    """Rather than read as logits."""
    driver = make_driver(Watcher)
    Watcher.edit = lambda logits: returned
    row = driver.add(PROMPT, asks(watched=True))

    assert "Watcher failed" in driver.step({row: 13}).errors[row]


def test_a_view_that_is_kept_does_no_harm(make_driver: MakeDriver) -> None:
    """It is a buffer beside the model's own memory."""
    driver = make_driver(Watcher)
    kept: list[memoryview] = []
    Watcher.edit = kept.append
    expected = generate(make_driver(), PROMPT, 3)
    row = driver.add(PROMPT, asks(watched=True))
    for _ in range(3):
        driver.step({row: driver.remaining(row)})
        kept[0][:] = array("f", [math.nan]) * VOCAB_SIZE

    assert driver.finish(row)[13:] == expected
