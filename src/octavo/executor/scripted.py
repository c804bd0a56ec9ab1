"""Scripted executor: tokens from a script, no model, and a strict check of every plan.

Owns: rows and their block tables as a runner keeps them, a stand-in for KV memory and host slots.
Does not know: queues, policies, hashes. It believes nothing that the scheduler says about sharing.
Used by: tests of everything above the executor.

A real KV entry depends on the token, its position, every token before it and the layer. Here an
entry *is* a digest of exactly that, with the KV group for the layer. A step first moves blocks,
then writes the entries of all its rows, then each row reads all entries that it attends to, those
inside the window of each group, as a layer of a model does. A state is the digest of the last token
that it has taken in, and only the next token can be added to it. A wrong prefix hit, a reused
block, a lost copy or swap, or a token that was never computed is a wrong digest, and raises
PlanError. If no run raises, sharing and preemption have not changed an answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence

from octavo.contracts.grammar import Mask, bits_of
from octavo.contracts.kv_plan import KVGroup, KVPlan, MemoryPlan
from octavo.contracts.kv_tier import KVTier
from octavo.contracts.progress import ReportProgress
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan, StepResult
from octavo.executor.scripted_row import EMPTY, ScriptedRow, logprobs_of, prompt_logprobs

Script = Callable[[str, Sequence[int], int], int]
"""(request_id, known token ids, number of prompt tokens) -> the next token id.

Must be a function of its arguments alone: a preempted request asks for the same token again.
"""

Candidates = Callable[[Sequence[int], int], list[tuple[int, float]]]
"""(known token ids, k) -> the k best next tokens with their log-probabilities, best first.

Must be a function of its arguments alone.
"""

Block = list[int]
"""The entries of a block or of a host slot, one for each token."""


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


class ScriptedExecutor:
    """An `Executor` without a model. Raises PlanError for a plan that a runner could not run."""

    def __init__(  # noqa: PLR0913 - one keyword per property
        self,
        script: Script,
        kv_plan: KVPlan,
        *,
        max_model_len: int = 1 << 20,
        max_num_seqs: int = 1 << 20,
        max_num_batched_tokens: int = 1 << 20,
        step_compute_s: float = 0.0,
        step_swap_s: float = 0.0,
        step_sample_s: float = 0.0,
        candidates: Candidates | None = None,
        tier: Callable[[list[Block]], KVTier] | None = None,
        before_run: Callable[[StepPlan], None] | None = None,
    ) -> None:
        """`before_run` sees every plan; it may block, to hold the engine in a step.

        `step_compute_s` and `step_swap_s` are the times that a step, or one with swaps, claims to
        take, `step_sample_s` that of drawing its tokens. `candidates` are the log-probabilities of
        rows that ask for them. `tier` makes a tier that loads into and stores from the list of host
        slots that it is given.
        """
        self._script = script
        self._kv_plan = kv_plan
        self._max_model_len = max_model_len
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._step_compute_s, self._compute_s = step_compute_s, 0.0
        self._step_swap_s = step_swap_s
        self._step_sample_s = step_sample_s
        self._candidates = candidates
        self._obeys_masks = False
        self._before_run = before_run
        self._entries = _empty_blocks(kv_plan.num_blocks, kv_plan.block_size)
        self._slots = _empty_blocks(kv_plan.num_host_slots, kv_plan.block_size)
        self._tier = None if tier is None else tier(self._slots)
        self._rows: dict[int, ScriptedRow] = {}
        self._row_faults: dict[str, str] = {}
        self._run_faults: list[tuple[Exception, bool]] = []
        self._has_lost_step = False
        self._last_step_id = -1

    @property
    def compute_s(self) -> float:
        """See `Executor`: `step_compute_s` for each step."""
        return self._compute_s

    def kv_tier(self) -> KVTier | None:
        """See `Executor`."""
        return self._tier

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
        """Forget all rows, close the tier."""
        self._rows.clear()
        if self._tier is not None:
            self._tier.close()

    def obey_masks(self) -> None:
        """From now on the lowest token inside takes the place of a script's outside its mask."""
        self._obeys_masks = True

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
        self._move_blocks(plan)
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
            self._lose_moves(plan)
            self._write(plan, plan.rows)
        self._has_lost_step = True
        raise error

    # ---- the plan

    def _check_form(self, plan: StepPlan) -> None:
        """Parallel lists are parallel, limits hold, steps come in order."""
        _demand(plan.step_id > self._last_step_id, f"step {plan.step_id} is not a later one")
        self._last_step_id = plan.step_id
        _demand(len(plan.rows) == len(plan.num_tokens) == len(plan.samples), "rows not parallel")
        tables = (plan.table_rows, plan.table_groups, plan.table_places, plan.table_block_ids)
        _demand(len({len(one) for one in tables}) == 1, "changes of tables not parallel")
        _demand(len(plan.replaced_rows) == len(plan.replaced_token_ids), "tokens not parallel")
        _demand(len(plan.mask_rows) == len(plan.masks), "masks not parallel")
        sampling = {row for row, samples in zip(plan.rows, plan.samples, strict=True) if samples}
        _demand(sampling.issuperset(plan.mask_rows), "a mask for a row that does not sample")
        _demand(len(plan.draft_rows) == len(plan.draft_token_ids), "drafts not parallel")
        drafted = set(plan.draft_rows)
        in_order = [row for row in plan.rows if row in drafted and row in sampling]
        _demand(in_order == plan.draft_rows, "drafts for a row that does not sample, or disordered")
        _demand(all(plan.draft_token_ids), "an empty list of drafts")
        _demand(drafted.isdisjoint(plan.mask_rows), "a row with a mask and drafts")
        _demand(bool(plan.rows or plan.swap_out_to), "an empty plan was sent")
        _demand(len(set(plan.rows)) == len(plan.rows), f"a row twice: {plan.rows}")
        _demand(
            plan.total_tokens <= self._max_num_batched_tokens,
            f"{plan.total_tokens} tokens in a step, limit {self._max_num_batched_tokens}",
        )

    def _change_rows(self, plan: StepPlan) -> None:
        """Free rows, fill new rows, change block tables, replace tokens: in this order."""
        for number in plan.freed_rows:
            # A runner that lost a step may not have filled the row that is freed now.
            is_known = number in self._rows or self._has_lost_step
            _demand(is_known, f"row {number} is freed but was free")
            self._rows.pop(number, None)
        for new in plan.new_rows:
            self._enter(new, plan)
        for number, group, place, block_id in zip(
            plan.table_rows,
            plan.table_groups,
            plan.table_places,
            plan.table_block_ids,
            strict=True,
        ):
            ids = self._row(number).block_ids[group]
            _demand(0 <= block_id < len(self._entries), f"no block {block_id}")
            _demand(0 <= place <= len(ids), f"row {number} has {len(ids)} blocks, no place {place}")
            ids[place : place + 1] = [block_id]
        for number, token_id in zip(plan.replaced_rows, plan.replaced_token_ids, strict=True):
            row = self._row(number)
            _demand(row.num_computed < len(row.token_ids), f"row {number}: its token is computed")
            _demand(len(row.token_ids) > row.num_prompt, f"row {number} has sampled nothing")
            row.replace_newest(token_id)
        for number, drafts in zip(plan.draft_rows, plan.draft_token_ids, strict=True):
            _demand(not _has_penalties(self._row(number).sampling), f"row {number} has penalties")
            self._row(number).drafts = drafts

    def _enter(self, new: NewRow, plan: StepPlan) -> None:
        """Fill a new row; a twin follows the row whose logits it samples from."""
        _demand(0 <= new.row < self._max_num_seqs, f"no row {new.row}")
        _demand(new.row not in self._rows, f"row {new.row} is filled but was not free")
        _demand(new.row in plan.rows, f"row {new.row} enters but computes nothing")
        _demand(len(new.block_ids) == len(self._groups), f"{len(new.block_ids)} block tables")
        num_left = len(new.token_ids) - new.num_computed_tokens
        if new.twin_row < 0:
            _demand(0 < num_left <= len(new.token_ids), f"nothing to compute: {new}")
        else:
            twin = self._row(new.twin_row)
            _demand(num_left == 0, f"a twin with {num_left} tokens to compute: {new}")
            _demand(twin.token_ids == new.token_ids, f"a twin of other tokens: {new}")
            place = plan.rows.index(new.row)
            _demand(new.twin_row in plan.rows[:place], f"a twin before the row it follows: {new}")
            _demand(plan.samples[plan.rows.index(new.twin_row)], f"its twin does not sample: {new}")
        self._rows[new.row] = ScriptedRow(new)

    @property
    def _groups(self) -> tuple[KVGroup, ...]:
        return self._kv_plan.groups

    def _move_blocks(self, plan: StepPlan) -> None:
        """Swap out, swap in, copy: in this order."""
        blocks, slots = self._entries, self._slots
        for kind, sources, targets, source_ids, target_ids in (
            ("out", blocks, slots, plan.swap_out_from, plan.swap_out_to),
            ("in", slots, blocks, plan.swap_in_from, plan.swap_in_to),
            ("copy", blocks, blocks, plan.copy_from, plan.copy_to),
        ):
            _demand(len(source_ids) == len(target_ids), f"moves ({kind}) not parallel")
            for source, target in zip(source_ids, target_ids, strict=True):
                _demand(0 <= source < len(sources), f"move ({kind}) from {source}")
                _demand(0 <= target < len(targets), f"move ({kind}) to {target}")
                targets[target] = list(sources[source])

    def _lose_moves(self, plan: StepPlan) -> None:
        """What a lost step should have moved is garbage."""
        for blocks, targets in (
            (self._slots, plan.swap_out_to),
            (self._entries, plan.swap_in_to),
            (self._entries, plan.copy_to),
        ):
            for target in targets:
                blocks[target] = [_garbage_of(plan)] * self._kv_plan.block_size

    def _row(self, row: int) -> ScriptedRow:
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
        for number, num_tokens, samples in zip(
            plan.rows, plan.num_tokens, plan.samples, strict=True
        ):
            row = self._row(number)
            begin, end = row.num_computed, row.num_computed + num_tokens
            name = f"row {number} ({row.request_id})"
            is_twin = any(new.row == number and new.twin_row >= 0 for new in plan.new_rows)
            _demand(is_twin or num_tokens >= 1, f"{name} computes no tokens")
            num_known = len(row.token_ids) + len(row.drafts)
            _demand(end <= num_known, f"{name} computes tokens that nobody knows")
            is_complete = end == num_known
            is_pooled = row.pooling is not None
            _demand(samples == (is_complete and not is_pooled), f"{name}: samples is {samples}")
            is_whole = begin == 0 and is_complete
            _demand(row.pooling in (None, "last") or is_whole, f"{name} must be whole: {begin}")
            _demand(end <= self._max_model_len, f"{name} is longer than the context")
            garbage = _garbage_of(plan) if number in failed_rows else None
            self._write_entries(name, row, begin, end, garbage)
            row.num_computed = end

    def _write_entries(
        self, name: str, row: ScriptedRow, begin: int, end: int, garbage: int | None
    ) -> None:
        """The entries of tokens [begin, end) in every group, or garbage in their place."""
        block_size, digests = self._kv_plan.block_size, row.digest_until(end)
        for group, ids in enumerate(row.block_ids):
            if self._groups[group].num_state_blocks:
                if garbage is None and 0 < begin < end:
                    self._read_state(name, row, group, begin, garbage)
                for place, block_id in enumerate(ids if begin < end else ()):
                    entry = _piece(digests[end - 1], group, place) if garbage is None else garbage
                    self._entries[block_id] = [entry] * block_size
                continue
            _demand(end <= len(ids) * block_size, f"{name} has too few blocks in group {group}")
            for position in range(begin, end):
                block_id = ids[position // block_size]
                _demand(block_id >= 0, f"{name} writes where it has no block in group {group}")
                entry = _entry(digests[position], group) if garbage is None else garbage
                self._entries[block_id][position % block_size] = entry

    def _read(self, plan: StepPlan) -> set[int]:
        """Every row attends to all its tokens. Returns the rows that met garbage of this step.

        A row that shares a block with a row that fails in the same step reads garbage and writes
        garbage; the scheduler learns of the failure afterwards and must drop both.
        """
        spoiled: set[int] = set()
        for number, num_tokens in zip(plan.rows, plan.num_tokens, strict=True):
            row = self._row(number)
            begin = row.num_computed - max(num_tokens, 1)
            name = f"row {number} ({row.request_id})"
            has_met = [
                self._read_group(name, row, group, begin, _garbage_of(plan))
                for group in range(len(self._groups))
            ]
            if any(has_met):
                spoiled.add(number)
                begin = row.num_computed - num_tokens
                self._write_entries(name, row, begin, row.num_computed, _garbage_of(plan))
        return spoiled

    def _read_group(
        self, name: str, row: ScriptedRow, group: int, begin: int, garbage: int
    ) -> bool:
        """Read what tokens from `begin` on see in one group. True if it is garbage of this step."""
        if self._groups[group].num_state_blocks:
            return self._read_state(name, row, group, row.num_computed, garbage)
        block_size, window = self._kv_plan.block_size, self._groups[group].window
        digests, ids = row.digest_until(row.num_computed), row.block_ids[group]
        first = max(0, begin - window + 1) if window else 0
        for position in range(first, row.num_computed):
            block_id = ids[position // block_size]
            _demand(block_id >= 0, f"{name} has no block at position {position}, group {group}")
            entry = self._entries[block_id][position % block_size]
            if entry == garbage:
                return True
            _demand(
                entry == _entry(digests[position], group),
                f"{name} attends to position {position} of group {group} in block {block_id}, "
                "which holds something else",
            )
        return False

    def _read_state(
        self, name: str, row: ScriptedRow, group: int, end: int, garbage: int | None
    ) -> bool:
        """The state of a group must be that after token `end - 1`. True if it is `garbage`."""
        ids = row.block_ids[group]
        _demand(len(ids) == self._groups[group].num_state_blocks, f"{name}: a state in {ids}")
        for place, block_id in enumerate(ids):
            found = self._entries[block_id][0]
            if found == garbage:
                return True
            _demand(
                found == _piece(row.digest_until(end)[-1], group, place),
                f"{name} has a state in block {block_id} that is not the one of {end} tokens",
            )
        return False

    # ---- the tokens

    def _sample(self, plan: StepPlan, errors: dict[int, str], spoiled: set[int]) -> StepResult:
        """One token from the script for each row that samples."""
        result = StepResult(
            step_id=plan.step_id, sampled=[], errors=errors, sample_s=self._step_sample_s
        )
        masks = dict(zip(plan.mask_rows, plan.masks, strict=True))
        for number, num_tokens, samples in zip(
            plan.rows, plan.num_tokens, plan.samples, strict=True
        ):
            row = self._row(number)
            if row.sampling.num_prompt_logprobs >= 0:
                result.prompt_logprobs[number] = prompt_logprobs(row, num_tokens)
            is_complete = row.num_computed >= len(row.token_ids)
            if row.pooling is not None and is_complete and number not in errors:
                # As many numbers as the model has vectors for it, each the sum of the prompt.
                count = row.num_prompt if row.pooling == "all" else 1
                result.pooled[number] = array("f", [sum(row.token_ids)] * count).tobytes()
            if not samples:
                continue
            drafts = row.drafts
            is_bad = number in spoiled or number in errors
            result.sampled.append(self._draw(number, masks.get(number), result, is_bad=is_bad))
            num_accepted = 0
            while num_accepted < len(drafts) and row.token_ids[-1] == drafts[num_accepted]:
                num_accepted += 1
                result.sampled.append(self._draw(number, None, result))
            if drafts:
                row.drop_drafts(num_accepted)
                result.accepted.append(num_accepted)
        if plan.swap_out_to or plan.swap_in_to:
            result.swap_s = self._step_swap_s
        return result

    def _draw(
        self, number: int, mask: Mask | None, result: StepResult, *, is_bad: bool = False
    ) -> int:
        """Append the next token to a row, -1 if it failed, and its log-probabilities."""
        row, token_id = self._row(number), -1
        if not is_bad:
            token_id = self._script(row.request_id, row.token_ids, row.num_prompt)
            if mask is not None:
                token_id = self._masked(token_id, mask, row.request_id)
        num_logprobs = row.sampling.num_logprobs
        if num_logprobs >= 0:
            best = None
            if self._candidates is not None and token_id >= 0:
                best = self._candidates(row.token_ids, num_logprobs)
                token_id = best[0][0] if row.sampling.temperature == 0 else token_id
            asked = [(other, -0.5) for other in row.sampling.logprob_token_ids]
            entry = logprobs_of(token_id, num_logprobs, asked or best)
            result.logprobs.setdefault(number, []).append(entry)
        row.token_ids.append(token_id)
        return token_id

    def _masked(self, token_id: int, mask: Mask, request_id: str) -> int:
        """The script's token, or one that the mask allows."""
        allowed = int.from_bytes(bits_of(mask), "little")
        _demand(allowed != 0, f"{request_id}: the mask allows no token")
        if allowed >> token_id & 1:
            return token_id
        _demand(self._obeys_masks, f"{request_id}: token {token_id} is outside the mask")
        return (allowed & -allowed).bit_length() - 1


def _has_penalties(spec: SamplingSpec) -> bool:
    return (spec.repetition_penalty, spec.presence_penalty, spec.frequency_penalty) != (1, 0, 0)


def _garbage_of(plan: StepPlan) -> int:
    """What a failed row writes in this step, and what is written after reading that."""
    return -1 - plan.step_id


def _empty_blocks(count: int, block_size: int) -> list[Block]:
    return [[EMPTY] * block_size for _ in range(count)]


def _entry(digest: int, group: int) -> int:
    """The same token has different entries in different groups."""
    return digest if not group else abs(hash((digest, group))) + 1


def _piece(digest: int, group: int, place: int) -> int:
    """A part of a state."""
    return _entry(digest, (place + 1 << 8) + group)


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise PlanError(message)
