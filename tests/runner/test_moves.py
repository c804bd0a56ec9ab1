"""Swaps, forks, replaced tokens and windows: a row computes what it computes alone.

On both back ends. The native one gives the same bits; torch rounds differently for other numbers of
rows, so there it is the same tokens and nearly the same numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from octavo.backends.torch.runner import TorchRunner
from octavo.contracts.step import SamplingSpec
from octavo.errors import ConfigError
from octavo.runner.native_runner import NativeRunner
from tests.support.random_checkpoint import VOCAB_SIZE, RandomCheckpoint, tiny_facts
from tests.support.step_driver import (
    MakeRunner,
    RunnerSizes,
    StepDriver,
    all_logprobs,
    by_id,
    generate,
    start_runner,
)

BACKENDS: dict[str, MakeRunner] = {"native": NativeRunner, "torch": TorchRunner}
SIZES = RunnerSizes(num_blocks=120, num_host_slots=60, max_num_seqs=6, threads=2)
PROMPT = [(5 * i * i + i + 3) % VOCAB_SIZE for i in range(29)]
OTHER = [(3 * i * i + 2 * i) % VOCAB_SIZE for i in range(60)]
# By their windows: one group, three groups of one layer, two groups of two.
MODELS = {
    "llama": RandomCheckpoint(),
    "three windows": RandomCheckpoint(tiny_facts(num_layers=3, sliding_windows=(9, 0, 20))),
    "half windows": RandomCheckpoint(tiny_facts(num_layers=4, sliding_windows=(9, 0, 9, 0))),
}
SEEDED = SamplingSpec(temperature=0.9, seed=17, top_p=0.95, num_logprobs=VOCAB_SIZE)
GREEDY = SamplingSpec(num_logprobs=VOCAB_SIZE)


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def drive(backend: str, model: str, **changes: Any) -> StepDriver:
    sizes = RunnerSizes(**{**vars(SIZES), **changes})
    return StepDriver(start_runner(BACKENDS[backend], MODELS[model], sizes), sizes)


class Trace:
    """What some rows drew, step by step, and from which log-probabilities."""

    def __init__(self, driver: StepDriver) -> None:
        self._driver = driver
        self._entries: dict[str, list[Tensor]] = {}

    def step(self, **rows: int) -> None:
        """All remaining tokens of each row, by name."""
        driver = self._driver
        result = driver.step({row: driver.remaining(row) for row in rows.values()})
        assert not result.errors, result.errors
        for name, row in rows.items():
            self._entries.setdefault(name, []).append(by_id(result.logprobs[row][0], VOCAB_SIZE))

    def of(self, name: str) -> Tensor:
        return torch.stack(self._entries[name])


def alone(backend: str, model: str, spec: SamplingSpec, num_new: int) -> tuple[list[int], Tensor]:
    """PROMPT and its answer, and what each token was drawn from."""
    driver = drive(backend, model)
    trace, row = Trace(driver), driver.add(PROMPT, spec)
    for _ in range(num_new):
        trace.step(row=row)
    return driver.finish(row), trace.of("row")


def assert_same(backend: str, expected: Tensor, found: Tensor) -> None:
    tolerance = 0.0 if backend == "native" else 1e-4
    torch.testing.assert_close(found, expected, rtol=0.0, atol=tolerance)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_swapped_request_continues_as_if_nothing_had_happened(
    backend: str, model: str, where: str, tmp_path: Path
) -> None:
    """Its blocks go to host slots, serve another request, and it returns into other blocks."""
    if where == "file" and backend == "torch":
        pytest.skip("the torch back end keeps its swap space in memory")
    expected, numbers = alone(backend, model, SEEDED, 25)
    swap_dir = str(tmp_path) if where == "file" else None
    driver = drive(backend, model, num_blocks=40, swap_dir=swap_dir)
    trace, row = Trace(driver), driver.add(PROMPT, SEEDED)
    for _ in range(9):
        trace.step(row=row)
    swapped = driver.swap_out(row)
    for _ in range(2):
        generate(driver, OTHER, 30)
    row = driver.swap_in(swapped)
    for _ in range(16):
        trace.step(row=row)

    assert driver.finish(row) == expected
    assert_same(backend, numbers, trace.of("row"))
    assert not list(tmp_path.iterdir())  # the file has no name


def test_only_a_step_with_swaps_has_swap_time(backend: str) -> None:
    """Copies are no swaps."""
    driver = drive(backend, "llama")
    row = driver.add(PROMPT)
    assert driver.step({row: 29}, copies=[(0, 1)]).swap_s == 0.0
    driver.swap_out(row)
    other = driver.add(OTHER)

    assert driver.step({other: 60}).swap_s > 0.0


def test_blocks_go_out_and_in_before_they_are_copied(backend: str) -> None:
    """One step moves an answer's block through a slot and a second block into a third."""
    driver = drive(backend, "llama")
    row = driver.add(PROMPT, GREEDY)
    driver.step({row: 28})
    last = driver.step({row: 1}).logprobs[row][0]
    *kept, moved = driver.tables(row)[0]
    second, third = driver.take_block(), driver.take_block()
    plan = driver.plan
    plan.swap_out_from, plan.swap_out_to = [moved], [7]
    plan.swap_in_from, plan.swap_in_to = [7], [second]
    again = driver.add(PROMPT, GREEDY, num_computed=28, tables=[[*kept, third]])
    found = driver.step({again: 1}, copies=[(second, third)]).logprobs[again][0]

    assert_same(backend, by_id(last, VOCAB_SIZE), by_id(found, VOCAB_SIZE))


@pytest.mark.parametrize("model", MODELS)
def test_forks_draw_what_requests_of_their_own_would_draw(backend: str, model: str) -> None:
    """They share all blocks, and copy the last one before they write into it."""
    specs = {
        "first": GREEDY,
        "second": SEEDED,
        "third": SamplingSpec(temperature=1.2, seed=5, top_k=20, num_logprobs=VOCAB_SIZE),
    }
    driver = drive(backend, model)
    trace = Trace(driver)
    rows = {"first": driver.add(PROMPT, GREEDY)}
    driver.step({rows["first"]: 11})
    for name in ("second", "third"):
        rows[name] = driver.fork(rows["first"], specs[name])
    for _ in range(14):
        trace.step(**rows)

    for name, row in rows.items():
        expected, numbers = alone(backend, model, specs[name], 14)
        assert driver.finish(row) == expected, name
        assert_same(backend, numbers, trace.of(name))


def test_a_fork_of_a_request_that_comes_back_shares_its_output(backend: str) -> None:
    """After a preemption the last known token may be an output token."""
    expected, _ = alone(backend, "llama", SEEDED, 12)
    driver = drive(backend, "llama")
    first = driver.add(expected[:34], SEEDED, num_prompt=29)
    second = driver.fork(first)
    driver.step({first: 34, second: 0})
    for _ in range(6):
        driver.step({first: 1, second: 1})

    assert driver.finish(first) == expected
    assert driver.finish(second) == expected


@pytest.mark.parametrize("penalty", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_a_replaced_token_counts_as_if_it_had_been_drawn(backend: str, penalty: str) -> None:
    """The one that was drawn is forgotten, by the penalties too."""
    penalties: dict[str, Any] = {penalty: 1.9}
    spec = SamplingSpec(temperature=0.3, seed=3, **penalties)
    driver = drive(backend, "llama")
    row = driver.add(PROMPT, spec)
    driver.step({row: 29})
    for token in (7, 7, PROMPT[0], 11):
        driver.replace_newest(row, token)
        driver.step({row: 1})
    while len(driver.tokens(row)) < 60:
        driver.step({row: 1})
    found = driver.finish(row)

    assert found[29:33] == [7, 7, PROMPT[0], 11]
    again = driver.add(found[:33], spec, num_prompt=29)
    driver.step({again: 33})
    while len(driver.tokens(again)) < 60:
        driver.step({again: 1})
    assert driver.finish(again) == found


@pytest.mark.parametrize("model", ["three windows", "half windows"])
@pytest.mark.parametrize("chunk", [1, 5, 12])
def test_attention_never_looks_at_what_a_window_has_passed(
    backend: str, model: str, chunk: int
) -> None:
    """Released blocks are filled with NaN at once; a prompt computed whole has them all."""
    tokens = [*PROMPT, *OTHER[:35]]
    expected = all_logprobs(drive(backend, model), tokens, [64], VOCAB_SIZE)
    runner = start_runner(BACKENDS[backend], MODELS[model], SIZES)
    poison = runner.host_slot(0)
    poison[:] = b"\xff" * len(poison)
    driver = StepDriver(runner, SIZES, poison_slot=0)
    chunks = [chunk] * (64 // chunk) + ([64 % chunk] if 64 % chunk else [])

    assert_same(backend, expected, all_logprobs(driver, tokens, chunks, VOCAB_SIZE))
    assert driver.num_poisoned > 5


def test_a_window_may_not_be_entered_before_its_blocks() -> None:
    """Token 29 sees tokens 21 to 29: places 2 and 3 of the block table."""
    driver = drive("native", "three windows")
    row = driver.add(PROMPT)
    driver.step({row: 29})
    full, nine, twenty = driver.tables(row)
    tables = [full, [-1, -1, -1, nine[3]], twenty]
    late = driver.add(PROMPT, num_computed=28, tables=tables)

    with pytest.raises(ValueError, match="token 28 sees place 2 of the block table of group 1"):
        driver.step({late: 1})


def test_host_slots_outlive_the_runner(backend: str) -> None:
    """A writer that is late still reads memory."""
    runner = start_runner(BACKENDS[backend], MODELS["llama"], SIZES)
    slot = runner.host_slot(3)
    slot[:3] = b"abc"
    runner.close()

    assert len(slot) == runner.needs.bytes_per_block
    assert bytes(slot[:4]) == b"abc\x00"


def test_a_swap_file_that_cannot_be_made_is_refused_by_its_flag(tmp_path: Path) -> None:
    """With what the system says."""
    with pytest.raises(ConfigError, match=r"--swap-dir: .*missing: No such file.*--swap-space"):
        drive("native", "llama", swap_dir=str(tmp_path / "missing"))


def test_the_torch_back_end_has_no_swap_file(tmp_path: Path) -> None:
    """It says so, instead of taking memory that was not planned."""
    with pytest.raises(ConfigError, match="--swap-dir needs the native back end"):
        drive("torch", "llama", swap_dir=str(tmp_path))
