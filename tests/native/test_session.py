"""Steps of the native back end, driven plan by plan."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from octavo import _native
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan, StepResult
from octavo.foundation import env
from octavo.runner.native_runner import NativeRunner
from tests.support.random_checkpoint import VOCAB_SIZE, RandomCheckpoint, tensor_of, tiny_facts
from tests.support.step_driver import RunnerSizes, StepDriver, generate, start_runner

SIZES = RunnerSizes(
    max_model_len=160,
    num_blocks=40,
    max_num_seqs=3,
    max_num_batched_tokens=96,
    num_host_slots=4,
    threads=2,
)
PROMPT = [(5 * i * i + i + 3) % VOCAB_SIZE for i in range(21)]
CHECKPOINT = RandomCheckpoint()
POISON = VOCAB_SIZE - 1  # token of `poisoned` whose embedding is NaN


def start(checkpoint: RandomCheckpoint = CHECKPOINT, sizes: RunnerSizes = SIZES) -> NativeRunner:
    runner = start_runner(NativeRunner, checkpoint, sizes)
    assert isinstance(runner, NativeRunner)
    return runner


def poisoned() -> RandomCheckpoint:
    """A model that computes NaN for sequences in which one token occurs.

    Its embedding is as large as a number can be, and embeddings are scaled up.
    """
    checkpoint = RandomCheckpoint(tiny_facts(embedding_scale=2.0))
    name = "model.embed_tokens.weight"
    table = list(checkpoint.tensors[name].data.cast("f"))
    hidden = checkpoint.facts.hidden_size
    table[POISON * hidden :] = [3e38] * hidden
    changed = tensor_of(name, (VOCAB_SIZE, hidden), table)
    checkpoint.tensors = {**checkpoint.tensors, name: changed}
    return checkpoint


@pytest.fixture
def runner() -> Iterator[NativeRunner]:
    runner = start()
    yield runner
    runner.close()


def new_row(**changes: Any) -> NewRow:
    fields: dict[str, Any] = {
        "row": 0,
        "request_id": "a",
        "token_ids": PROMPT,
        "num_prompt_tokens": len(PROMPT),
        "num_computed_tokens": 0,
        "block_ids": [[0, 1, 2]],
        "sampling": SamplingSpec(),
    }
    return NewRow(**{**fields, **changes})


def whole_prompt(**changes: Any) -> dict[str, Any]:
    """The lists of a plan that computes a new row at once."""
    lists: dict[str, Any] = {
        "new_rows": [new_row()],
        "rows": [0],
        "num_tokens": [len(PROMPT)],
        "samples": [True],
    }
    return {**lists, **changes}


def run(runner: NativeRunner, **lists: Any) -> StepResult:
    result = runner.run(StepPlan(step_id=1, **lists))
    result.sample_s = 0.0  # what is compared is what was computed
    return result


def table_change(
    *, row: int = 0, group: int = 0, place: int = 3, block: int = 5, **lists: Any
) -> dict[str, Any]:
    """The lists of a plan that fills row 0 with three blocks and changes a block table."""
    change = {
        "new_rows": [new_row()],
        "table_rows": [row],
        "table_groups": [group],
        "table_places": [place],
        "table_block_ids": [block],
    }
    return {**change, **lists}


def fork(
    *,
    rows: Sequence[int] = (0, 1),
    num_tokens: Sequence[int] = (21, 0),
    samples: Sequence[bool] = (True, True),
    **changes: Any,
) -> dict[str, Any]:
    """The lists of a plan in which row 1 is a fork of row 0."""
    twin = {"row": 1, "twin_row": 0, "num_computed_tokens": len(PROMPT), **changes}
    return {
        "new_rows": [new_row(), new_row(**twin)],
        "rows": list(rows),
        "num_tokens": list(num_tokens),
        "samples": list(samples),
    }


def drafts(guesses: list[int], **lists: Any) -> dict[str, Any]:
    """The lists of a plan that computes a new row and tests guesses of its next tokens."""
    return whole_prompt(
        **{
            "num_tokens": [len(PROMPT) + len(guesses)],
            "draft_rows": [0],
            "draft_token_ids": [guesses],
            **lists,
        }
    )


WRONG_PLANS: dict[str, tuple[dict[str, Any], str]] = {
    "frees a row that is none": ({"freed_rows": [3]}, "row 3: there are 3 rows"),
    "fills a row that is none": ({"new_rows": [new_row(row=-1)]}, "row -1: there are 3 rows"),
    "fills a row twice": ({"new_rows": [new_row(), new_row()]}, "holds a request already"),
    "brings no tokens": ({"new_rows": [new_row(token_ids=[])]}, "0 tokens do not fit"),
    "brings too many": ({"new_rows": [new_row(token_ids=[1] * 161)]}, "161 tokens do not fit"),
    "brings a token above": (
        {"new_rows": [new_row(token_ids=[1, 70], num_prompt_tokens=1)]},
        "token 70 is outside",
    ),
    "brings a token below": (
        {"new_rows": [new_row(token_ids=[-1, 1], num_prompt_tokens=1)]},
        "token -1 is outside",
    ),
    "has no prompt": ({"new_rows": [new_row(num_prompt_tokens=0)]}, "between one and all"),
    "has a longer prompt": ({"new_rows": [new_row(num_prompt_tokens=22)]}, "between one and all"),
    "has nothing to do": ({"new_rows": [new_row(num_computed_tokens=21)]}, "left to compute"),
    "has computed less than nothing": (
        {"new_rows": [new_row(num_computed_tokens=-1)]},
        "left to compute",
    ),
    "has a block too high": (
        {"new_rows": [new_row(block_ids=[[40]])]},
        "block 40: the pool has 40",
    ),
    "has a block too low": ({"new_rows": [new_row(block_ids=[[-1]])]}, "block -1: the pool has 40"),
    "has biases without values": (
        {"new_rows": [new_row(sampling=SamplingSpec(bias_token_ids=[1]))]},
        "bias_values must be equally long",
    ),
    "brings a table too many": ({"new_rows": [new_row(block_ids=[[0], [1]])]}, "2 block tables"),
    "brings no table": ({"new_rows": [new_row(block_ids=[])]}, "0 block tables for 1 KV groups"),
    "changes an empty row": (table_change(row=2), "row 2: holds no request"),
    "brings a block that is none": (table_change(block=40), "block 40: the pool has 40"),
    "releases a block that all layers see": (table_change(block=-1), "block -1: the pool has 40"),
    "changes a group that is none": (table_change(group=1), "group 1: there are 1 KV groups"),
    "changes a place beyond the end": (table_change(place=4), "place 4 of a block table of 3"),
    "changes a place before the beginning": (table_change(place=-1), "place -1 of a block table"),
    "brings more blocks than a context": (
        table_change(place=20, new_rows=[new_row(block_ids=[list(range(20))])]),
        "needs no more than 20 blocks",
    ),
    "changes half a place": ({"table_rows": [0]}, "must be equally long"),
    "replaces half a token": ({"replaced_rows": [0]}, "must be equally long"),
    "replaces a token of an empty row": (
        {"replaced_rows": [0], "replaced_token_ids": [1]},
        "row 0: holds no request",
    ),
    "replaces a token of the prompt": (
        {"new_rows": [new_row()], "replaced_rows": [0], "replaced_token_ids": [1]},
        "cannot be replaced",
    ),
    "replaces by a token that is none": (
        {
            "new_rows": [new_row(num_prompt_tokens=20)],
            "replaced_rows": [0],
            "replaced_token_ids": [70],
        },
        "token 70 is outside",
    ),
    "copies half a pair": ({"copy_from": [0]}, "must be equally long"),
    "copies from nowhere": ({"copy_from": [40], "copy_to": [0]}, "block 40"),
    "copies to nowhere": ({"copy_from": [0], "copy_to": [-1]}, "block -1"),
    "swaps half a pair out": ({"swap_out_from": [0]}, "must be equally long"),
    "swaps half a pair in": ({"swap_in_from": [0]}, "must be equally long"),
    "swaps a block out that is none": ({"swap_out_from": [40], "swap_out_to": [0]}, "block 40"),
    "swaps a block in that is none": ({"swap_in_from": [0], "swap_in_to": [-1]}, "block -1"),
    "swaps to a slot that is none": (
        {"swap_out_from": [0], "swap_out_to": [4]},
        "host slot 4: there are 4 slots",
    ),
    "swaps from a slot that is none": ({"swap_in_from": [-1], "swap_in_to": [0]}, "host slot -1"),
    "forks a row that does not sample": (
        fork(num_tokens=[20, 0], samples=[False, True]),
        "does not sample",
    ),
    "forks before the twin": (
        fork(rows=[1, 0], num_tokens=[0, 21], samples=[True, True]),
        "does not sample in this step, or comes later",
    ),
    "forks a row that is none": (fork(twin_row=7), "row 7: there are 3 rows"),
    "forks a row that is empty": (fork(twin_row=2), "row 2: holds no request"),
    "forks a row of other tokens": (
        fork(token_ids=[*PROMPT[:-1], 1]),
        "its tokens are not its twin's",
    ),
    "forks and computes": (fork(num_tokens=[21, 1]), "computes nothing and samples"),
    "forks and does not sample": (fork(samples=[True, False]), "computes nothing and samples"),
    "forks before the last token": (
        fork(num_computed_tokens=20),
        "has all its known tokens computed",
    ),
    "forks outside the step": (
        fork(rows=[0], num_tokens=[21], samples=[True]),
        "row 1: a fork takes part in its first step",
    ),
    "computes an empty row": ({"rows": [1], "num_tokens": [1], "samples": [True]}, "row 1"),
    "computes a row twice": (
        whole_prompt(rows=[0, 0], num_tokens=[5, 16], samples=[False, True]),
        "row 0: is listed twice",
    ),
    "computes no token": (whole_prompt(num_tokens=[0]), "0 tokens to compute"),
    "computes unknown tokens": (whole_prompt(num_tokens=[22]), "22 tokens to compute, but 21"),
    "samples too early": (whole_prompt(num_tokens=[20]), "samples exactly when"),
    "does not sample": (whole_prompt(samples=[False]), "samples exactly when"),
    "has lists of different lengths": (whole_prompt(samples=[]), "must be equally long"),
    "has too few blocks": (
        whole_prompt(new_rows=[new_row(block_ids=[[0, 1]])]),
        "row 0: its block table is too short",
    ),
    "masks half a row": (whole_prompt(mask_rows=[0]), "must be equally long"),
    "masks a row that does not sample": (
        whole_prompt(num_tokens=[20], samples=[False], mask_rows=[0], masks=[b"\xff" * 9]),
        "row 0: has a mask and does not sample",
    ),
    "masks less than the vocabulary": (
        whole_prompt(mask_rows=[0], masks=[b"\xff" * 8]),
        "row 0: its mask is shorter than the vocabulary",
    ),
    "guesses more rows than it has lists": (
        whole_prompt(draft_rows=[0]),
        "draft_rows and draft_token_ids must be equally long",
    ),
    "guesses nothing": (drafts([]), "row 0: its list of drafts is empty"),
    "guesses a token above": (drafts([70]), "row 0: token 70 is outside"),
    "guesses for a row that does not sample": (
        drafts([5], num_tokens=[20], samples=[False]),
        "row 0: has drafts: it samples",
    ),
    "guesses for a row outside the step": (
        drafts([5], rows=[], num_tokens=[], samples=[]),
        "a row with drafts takes no part",
    ),
    "guesses for a row twice": (
        drafts([5], draft_rows=[0, 0], draft_token_ids=[[5], [6]]),
        "row 0: has drafts",
    ),
    "guesses and computes no more": (drafts([5], num_tokens=[21]), "samples exactly when"),
    "guesses under a mask": (
        drafts([5], mask_rows=[0], masks=[b"\xff" * 9]),
        "row 0: has a mask and drafts",
    ),
    "guesses under a penalty": (
        drafts([5], new_rows=[new_row(sampling=SamplingSpec(presence_penalty=0.5))]),
        "row 0: has penalties",
    ),
    "guesses beyond its blocks": (
        drafts([5] * 4, num_tokens=[25]),
        "row 0: its block table is too short",
    ),
    "guesses beyond the context": (
        drafts(
            [5, 5],
            new_rows=[
                new_row(token_ids=[1] * 159, num_computed_tokens=158, block_ids=[list(range(20))])
            ],
            num_tokens=[3],
        ),
        "row 0: computes tokens beyond a context of 160",
    ),
    "computes more than a step may": (
        whole_prompt(
            new_rows=[new_row(token_ids=[1] * 97, block_ids=[list(range(13))])], num_tokens=[97]
        ),
        "more than 96 tokens",
    ),
}


@pytest.mark.parametrize("fault", WRONG_PLANS)
def test_a_plan_that_contradicts_the_rows_is_refused_before_anything_is_computed(
    fault: str, runner: NativeRunner
) -> None:
    """Our own fault, so it ends the step; but memory is never misread."""
    lists, message = WRONG_PLANS[fault]

    with pytest.raises(ValueError, match=message):
        run(runner, **lists)


def test_all_instruction_sets_compute_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may move to another machine and continues with the same logprobs."""
    results = {}
    spec = SamplingSpec(num_logprobs=VOCAB_SIZE, num_prompt_logprobs=VOCAB_SIZE)
    for isa in _native.available_isas():
        monkeypatch.setenv(env.CPU_ISA.name, isa)
        runner = start()
        results[isa] = run(runner, **whole_prompt(new_rows=[new_row(sampling=spec)]))
        runner.close()

    assert len(PROMPT) - 1 == len(results["scalar"].prompt_logprobs[0])
    for isa, result in results.items():
        assert results["scalar"] == result, isa


def test_more_wanted_rows_than_fit_the_buffer_of_logits_are_computed_in_slices() -> None:
    """Logprobs of a long prompt are the same as from many short steps."""
    sizes = RunnerSizes(max_model_len=200, max_num_batched_tokens=160, num_blocks=30)
    prompt = [(3 * i * i + 7 * i) % VOCAB_SIZE for i in range(150)]
    spec = SamplingSpec(num_logprobs=3, num_prompt_logprobs=3)
    found = []
    for chunk in (150, 40):
        driver = StepDriver(start(sizes=sizes), sizes)
        row = driver.add(prompt, spec)
        entries = []
        while driver.remaining(row):
            result = driver.step({row: min(chunk, driver.remaining(row))})
            entries += result.prompt_logprobs.get(row, [])
            if result.sampled:
                break
        found.append((entries, result.logprobs[row], result.sampled))

    assert 149 == len(found[0][0])
    assert found[1] == found[0]


def test_a_row_whose_logits_are_not_numbers_fails_alone() -> None:
    """Its neighbours get what they get without it, and the row can be freed as usual."""
    driver = StepDriver(start(poisoned()), SIZES)
    expected = generate(driver, PROMPT, 5)
    good, bad = driver.add(PROMPT), driver.add([*PROMPT[:4], POISON])
    result = driver.step({good: len(PROMPT), bad: 5})

    assert {bad} == set(result.errors)
    assert "NaN" in result.errors[bad]
    assert 2 == len(result.sampled)
    driver.finish(bad)
    for _ in range(4):
        driver.step({good: 1})
    assert expected == driver.finish(good)[len(PROMPT) :]


def test_what_a_block_held_before_does_not_matter() -> None:
    """A block goes from request to request uncleaned, even when it holds NaN."""
    expected = generate(StepDriver(start(poisoned()), SIZES), PROMPT, 20)
    sizes = RunnerSizes(**{**vars(SIZES), "num_blocks": 6})
    driver = StepDriver(start(poisoned(), sizes), sizes)
    bad = driver.add([POISON] * 47)
    driver.step({bad: 47})
    driver.finish(bad)

    assert expected == generate(driver, PROMPT, 20)


def test_blocks_are_copied_in_plan_order_before_anything_is_computed(runner: NativeRunner) -> None:
    """A copy may read what an earlier one wrote; all layers are copied."""
    expected = run(runner, **whole_prompt()).sampled
    run(runner, freed_rows=[0])
    copies = {"copy_from": [0, 1, 2, 10], "copy_to": [10, 11, 12, 20]}
    moved = new_row(block_ids=[[20, 11, 12]], num_computed_tokens=20)
    result = run(runner, **whole_prompt(new_rows=[moved], num_tokens=[1], **copies))

    assert expected == result.sampled


def test_blocks_can_be_copied_without_computing(runner: NativeRunner) -> None:
    """A step that only copies is a step."""
    expected = run(runner, **whole_prompt()).sampled
    assert [] == run(runner, freed_rows=[0], copy_from=[0, 1, 2], copy_to=[5, 6, 7]).sampled
    moved = new_row(block_ids=[[5, 6, 7]], num_computed_tokens=20)

    assert expected == run(runner, **whole_prompt(new_rows=[moved], num_tokens=[1])).sampled


def test_an_empty_step_is_a_step(runner: NativeRunner) -> None:
    """Nothing in, nothing out."""
    assert StepResult(step_id=1, sampled=[]) == run(runner)


def test_a_row_is_freed_before_it_is_filled_again(runner: NativeRunner) -> None:
    """One plan may do both."""
    expected = run(runner, **whole_prompt()).sampled

    assert expected == run(runner, freed_rows=[0], **whole_prompt()).sampled


def test_two_engines_in_one_process_run_at_the_same_time() -> None:
    """Each has threads, rows and memory of its own."""
    other = RandomCheckpoint(tiny_facts(num_layers=3), seed=9)
    expected = [generate(StepDriver(start(c), SIZES), PROMPT, 40) for c in (CHECKPOINT, other)]
    drivers = [StepDriver(start(c), SIZES) for c in (CHECKPOINT, other)]
    found: list[list[int]] = [[], []]

    def use(index: int) -> None:
        found[index] = generate(drivers[index], PROMPT, 40)

    threads = [threading.Thread(target=use, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert expected[0] != expected[1]
    assert expected == found


def test_any_number_of_threads_computes_the_same_bits() -> None:
    """More threads than rows, panels or cores as well."""
    spec = SamplingSpec(num_logprobs=VOCAB_SIZE, num_prompt_logprobs=VOCAB_SIZE)
    results = []
    for threads in (1, 2, 3, 7):
        runner = start(sizes=RunnerSizes(**{**vars(SIZES), "threads": threads}))
        results.append(run(runner, **whole_prompt(new_rows=[new_row(sampling=spec)])))
        runner.close()

    assert results[:1] * 4 == results


def test_native_time_is_counted(runner: NativeRunner) -> None:
    """What is left of a step's time is Python's."""
    before = runner.compute_s
    result = runner.run(StepPlan(step_id=1, **whole_prompt()))

    assert 0 < result.sample_s < runner.compute_s - before


def test_an_empty_row_may_be_freed(runner: NativeRunner) -> None:
    """After a step that failed nobody knows which rows it had freed, so they are freed again."""
    expected = run(runner, **whole_prompt()).sampled

    assert expected == run(runner, freed_rows=[0, 0, 1], **whole_prompt()).sampled


def test_a_guess_that_leads_to_no_numbers_is_a_fault_only_if_it_was_right() -> None:
    """What is computed behind a wrong guess means nothing."""
    driver = StepDriver(start(poisoned()), SIZES)
    expected = generate(driver, PROMPT, 3)
    row = driver.add(PROMPT)
    driver.step({row: len(PROMPT)})
    result = driver.step({row: 1}, drafts={row: [POISON, POISON]})

    assert not result.errors
    assert result.accepted == [0]
    assert driver.finish(row)[len(PROMPT) :] == expected[:2]
