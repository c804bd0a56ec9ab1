"""Scripted executor: tokens from a script, no model, and a strict check of every plan.

Owns: rows and their block tables as a runner keeps them, and a stand-in for KV memory.
Does not know: queues, policies, hashes. It believes nothing that the scheduler says about sharing.
Used by: tests of everything above the executor.

A real KV entry depends on the token, its position and every token before it. Here an entry *is* a
digest of exactly that. A step first writes the entries of all its rows, then each row reads all
entries that it attends to, as a layer of a model does. A wrong prefix hit, a reused block, a lost
copy or a token that was never computed is a wrong digest, and raises PlanError. If no run raises,
sharing and preemption have not changed an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from octavo.contracts.kv_plan import KVPlan, MemoryPlan
from octavo.contracts.progress import ReportProgress
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan, StepResult, TokenLogprobs

Script = Callable[[str, Sequence[int], int], int]
"""(request_id, known token ids, number of prompt tokens) -> the next token id.

Must be a function of its arguments alone: a preempted request asks for the same token again.
"""

_EMPTY = 0  # digest before the first token; also what an entry holds that was never written


class PlanError(AssertionError):
    """The plan breaks the contract of `contracts/step.py`."""


def answers(tokens_by_request: Mapping[str, Sequence[int]], after_end: int = 0) -> Script:
    """A script that answers each request with its list, then with `after_end` for ever."""

    def next_token(request_id: str, token_ids: Sequence[int], num_prompt_tokens: int) -> int:
        answer = tokens_by_request[request_id]
        place = len(token_ids) - num_prompt_tokens
        return answer[place] if place < len(answer) else after_end

    return next_token


def hash_of_history(vocab_size: int) -> Script:
    """A script whose next token depends on all tokens before it and on nothing else."""

    def next_token(_request_id: str, token_ids: Sequence[int], _num_prompt_tokens: int) -> int:
        return hash(tuple(token_ids)) % vocab_size

    return next_token


class _Row:
    """What a runner keeps of one request."""

    __slots__ = (
        "block_ids",
        "digests",
        "num_computed",
        "num_prompt",
        "request_id",
        "sampling",
        "token_ids",
    )

    def __init__(self, new: NewRow) -> None:
        self.request_id = new.request_id
        self.token_ids = list(new.token_ids)
        self.num_prompt = new.num_prompt_tokens
        self.num_computed = new.num_computed_tokens
        self.block_ids = list(new.block_ids[0])
        self.sampling: SamplingSpec = new.sampling
        self.digests: list[int] = []  # right entries of the first tokens

    def digest_until(self, num_tokens: int) -> list[int]:
        """The entries that the first `num_tokens` tokens should have."""
        for position in range(len(self.digests), num_tokens):
            before = self.digests[-1] if self.digests else _EMPTY
            digest = hash((before, position, self.token_ids[position]))
            self.digests.append(abs(digest) + 1)  # neither empty nor garbage
        return self.digests[:num_tokens]


class ScriptedExecutor:
    """An `Executor` without a model. Raises PlanError for a plan that a runner could not run."""

    def __init__(
        self,
        script: Script,
        kv_plan: KVPlan,
        *,
        max_model_len: int = 1 << 20,
        max_num_seqs: int = 1 << 20,
        max_num_batched_tokens: int = 1 << 20,
        step_compute_s: float = 0.0,
        before_run: Callable[[StepPlan], None] | None = None,
    ) -> None:
        """`before_run` sees every plan; it may block, to hold the engine in a step."""
        self._script = script
        self._kv_plan = kv_plan
        self._max_model_len = max_model_len
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._step_compute_s, self._compute_s = step_compute_s, 0.0
        self._before_run = before_run
        self._entries = [[_EMPTY] * kv_plan.block_size for _ in range(kv_plan.num_blocks)]
        self._rows: dict[int, _Row] = {}
        self._row_faults: dict[str, str] = {}
        self._run_faults: list[tuple[Exception, bool]] = []
        self._has_lost_step = False
        self._last_step_id = -1

    @property
    def compute_s(self) -> float:
        """See `Executor`: `step_compute_s` for each step."""
        return self._compute_s

    def describe(self) -> str:
        """See `Executor`."""
        return "scripted"

    def start(self, report: ReportProgress) -> MemoryPlan:
        """A memory plan around the KV plan; nothing is loaded."""
        report("ready", 1.0)
        kv_bytes = self._kv_plan.num_blocks * self._kv_plan.bytes_per_block
        return MemoryPlan(
            limit_bytes=kv_bytes,
            usable_bytes=kv_bytes,
            weights_bytes=0,
            workspace_bytes=0,
            kv=self._kv_plan,
            max_model_len=self._max_model_len,
        )

    def stop(self) -> None:
        """Forget all rows."""
        self._rows.clear()

    def fail_row(self, request_id: str, message: str) -> None:
        """The next step that computes this request reports `message` as its row's error."""
        self._row_faults[request_id] = message

    def fail_run(self, error: Exception, *, before_changes: bool = False) -> None:
        """The next `run` raises `error`, and leaves garbage in the entries that it should write.

        With `before_changes` it raises at once, before it has freed or filled a row.
        """
        self._run_faults.append((error, before_changes))

    def run(self, plan: StepPlan) -> StepResult:
        """Check the plan, write and read the entries, sample by the script."""
        if self._before_run is not None:
            self._before_run(plan)
        self._check_form(plan)
        if self._run_faults:
            self._lose_step(plan)
        self._change_rows(plan)
        self._has_lost_step = False
        errors = self._take_row_faults(plan)
        self._write(plan, errors)
        spoiled = self._read(plan)
        self._compute_s += self._step_compute_s
        return self._sample(plan, errors, spoiled)

    def _lose_step(self, plan: StepPlan) -> None:
        error, before_changes = self._run_faults.pop(0)
        if not before_changes:
            self._change_rows(plan)
            self._write(plan, plan.rows)
        self._has_lost_step = True
        raise error

    # ---- the plan

    def _check_form(self, plan: StepPlan) -> None:
        """Parallel lists are parallel, limits hold, steps come in order."""
        _demand(plan.step_id > self._last_step_id, f"step {plan.step_id} is not a later one")
        self._last_step_id = plan.step_id
        _demand(len(plan.rows) == len(plan.num_tokens) == len(plan.samples), "rows not parallel")
        _demand(len(plan.table_rows) == len(plan.table_block_ids), "appended not parallel")
        _demand(len(plan.copy_from) == len(plan.copy_to), "copies not parallel")
        _demand(bool(plan.rows), "an empty plan was sent")
        _demand(len(set(plan.rows)) == len(plan.rows), f"a row twice: {plan.rows}")
        _demand(min(plan.num_tokens) >= 1, f"a row without tokens: {plan.num_tokens}")
        _demand(
            plan.total_tokens <= self._max_num_batched_tokens,
            f"{plan.total_tokens} tokens in a step, limit {self._max_num_batched_tokens}",
        )

    def _change_rows(self, plan: StepPlan) -> None:
        """Free rows, fill new rows, append blocks, copy blocks: in this order."""
        for row in plan.freed_rows:
            # A runner that lost a step may not have filled the row that is freed now.
            _demand(row in self._rows or self._has_lost_step, f"row {row} is freed but was free")
            self._rows.pop(row, None)
        for new in plan.new_rows:
            _demand(0 <= new.row < self._max_num_seqs, f"no row {new.row}")
            _demand(new.row not in self._rows, f"row {new.row} is filled but was not free")
            _demand(new.row in plan.rows, f"row {new.row} enters but computes nothing")
            _demand(0 <= new.num_computed_tokens < len(new.token_ids), f"nothing to compute: {new}")
            self._rows[new.row] = _Row(new)
        for row, block_id in zip(plan.table_rows, plan.table_block_ids, strict=True):
            self._row(row).block_ids.append(block_id)
        for source, target in zip(plan.copy_from, plan.copy_to, strict=True):
            self._entries[target] = list(self._entries[source])

    def _row(self, row: int) -> _Row:
        _demand(row in self._rows, f"row {row} is not known")
        return self._rows[row]

    def _take_row_faults(self, plan: StepPlan) -> dict[int, str]:
        """The injected errors that hit this step."""
        errors = {}
        for row in plan.rows:
            message = self._row_faults.pop(self._row(row).request_id, None)
            if message is not None:
                errors[row] = message
        return errors

    # ---- the entries

    def _write(self, plan: StepPlan, failed_rows: Collection[int]) -> None:
        """Write the entries of all rows; a failed row writes garbage."""
        block_size, garbage = self._kv_plan.block_size, _garbage_of(plan)
        for number, num_tokens, samples in zip(
            plan.rows, plan.num_tokens, plan.samples, strict=True
        ):
            row = self._row(number)
            begin, end = row.num_computed, row.num_computed + num_tokens
            name = f"row {number} ({row.request_id})"
            _demand(end <= len(row.token_ids), f"{name} computes tokens that nobody knows")
            _demand(samples == (end == len(row.token_ids)), f"{name}: samples is {samples}")
            _demand(end <= len(row.block_ids) * block_size, f"{name} has too few blocks")
            _demand(end <= self._max_model_len, f"{name} is longer than the context")
            digests = row.digest_until(end)
            for position in range(begin, end):
                block = self._entries[row.block_ids[position // block_size]]
                is_failed = number in failed_rows
                block[position % block_size] = garbage if is_failed else digests[position]
            row.num_computed = end

    def _read(self, plan: StepPlan) -> set[int]:
        """Every row attends to all its tokens. Returns the rows that met garbage of this step.

        A row that shares a block with a row that fails in the same step reads garbage and writes
        garbage; the scheduler learns of the failure afterwards and must drop both.
        """
        spoiled: set[int] = set()
        garbage = _garbage_of(plan)
        for number, num_tokens in zip(plan.rows, plan.num_tokens, strict=True):
            row = self._row(number)
            expected, actual = row.digest_until(row.num_computed), self._entries_of(row)
            if actual == expected:
                continue
            place = next(i for i, entry in enumerate(actual) if entry != expected[i])
            _demand(
                actual[place] == garbage,
                f"row {number} ({row.request_id}) attends to position {place} in block "
                f"{row.block_ids[place // self._kv_plan.block_size]}, which holds something else",
            )
            spoiled.add(number)
            self._spoil(row, num_tokens, garbage)
        return spoiled

    def _entries_of(self, row: _Row) -> list[int]:
        """What the row's block table leads to, for its computed tokens."""
        entries: list[int] = []
        for block_id in row.block_ids[: -(-row.num_computed // self._kv_plan.block_size)]:
            entries += self._entries[block_id]
        return entries[: row.num_computed]

    def _spoil(self, row: _Row, num_tokens: int, garbage: int) -> None:
        """The row's newest `num_tokens` entries were computed from garbage."""
        block_size = self._kv_plan.block_size
        for position in range(row.num_computed - num_tokens, row.num_computed):
            block = self._entries[row.block_ids[position // block_size]]
            block[position % block_size] = garbage

    # ---- the tokens

    def _sample(self, plan: StepPlan, errors: dict[int, str], spoiled: set[int]) -> StepResult:
        """One token from the script for each row that samples."""
        result = StepResult(step_id=plan.step_id, sampled=[], errors=errors)
        for number, num_tokens, samples in zip(
            plan.rows, plan.num_tokens, plan.samples, strict=True
        ):
            row = self._row(number)
            if row.sampling.num_prompt_logprobs >= 0:
                result.prompt_logprobs[number] = _prompt_logprobs(row, num_tokens)
            if not samples:
                continue
            token_id = -1
            if number not in spoiled and number not in errors:
                token_id = self._script(row.request_id, row.token_ids, row.num_prompt)
            row.token_ids.append(token_id)
            result.sampled.append(token_id)
            if row.sampling.num_logprobs >= 0:
                result.logprobs[number] = _logprobs(token_id, row.sampling.num_logprobs)
        return result


def _garbage_of(plan: StepPlan) -> int:
    """What a failed row writes in this step, and what is written after reading that."""
    return -1 - plan.step_id


def _prompt_logprobs(row: _Row, num_tokens: int) -> list[TokenLogprobs]:
    """Entries for the prompt tokens that follow a token computed in this step."""
    begin = row.num_computed - num_tokens + 1
    end = min(row.num_computed + 1, row.num_prompt)
    num_best = row.sampling.num_prompt_logprobs
    return [_logprobs(row.token_ids[position], num_best) for position in range(begin, end)]


def _logprobs(token_id: int, num_best: int) -> TokenLogprobs:
    """A placeholder of the right shape: the token itself is the best one, the next ids follow."""
    best = [token_id + place for place in range(num_best)]
    return TokenLogprobs([token_id, *best], [-0.5, *(-0.5 - place for place in range(num_best))], 1)


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise PlanError(message)
