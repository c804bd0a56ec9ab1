"""Rounds: every engine in turn, again and again, with a look at the machine before and after.

Owns: the order of the runs, which of them count, medians, the comparison of answers.
Does not know: how an engine is started or what it is.

The rules are those of part G.4 of the performance notes: one warm-up, engines interleaved, medians
with smallest and largest, and runs during which the machine was not itself do not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.peers.process import Answer, WorkerError
from benchmarks.peers.workloads import BATCH_8, SHAPES, Shape, prompts, rates
from benchmarks.record import spread

MAX_DRIFT = 0.07  # of the read bandwidth around a run, from the median of all
MAX_STEAL = 0.02  # of the processor time around a run
AGREEMENT_LEN = 32  # first tokens of an answer that are compared
MIN_AGREEMENT = 0.95  # below, the runs of an exact engine are not valid
SLOW_START_S = 30.0  # a start that takes longer is measured once
CALL_TIMEOUT_S = 1800.0


class Contestant(Protocol):
    """A running engine that is paused between its turns."""

    def ask(self, prompts: Sequence[Sequence[int]], new_len: int, timeout_s: float) -> Answer: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Conditions:
    """The machine at one moment."""

    read_gb_s: float
    steal: float  # share of the processor time since the look before


@dataclass(slots=True)
class Turn:
    """One engine in one round."""

    seconds: dict[str, float]  # by shape
    before: Conditions
    after: Conditions


@dataclass(slots=True)
class Record:
    """What is known of one engine. `failure` ends its part."""

    about: dict[str, str] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    answers: list[list[int]] = field(default_factory=list)  # of BATCH_8 in the first round
    failure: str = ""


def run_rounds(
    contestants: Mapping[str, Contestant],
    records: Mapping[str, Record],
    look: Callable[[], Conditions],
    *,
    vocab_size: int,
    num_rounds: int,
    shapes: Sequence[Shape] = SHAPES,
    report: Callable[[str], None] = lambda line: None,
) -> None:
    """Fill the records, a warm-up first. All contestants are paused at the begin and at the end.

    The order of the engines turns by one place from round to round. `report` hears of every turn.
    """
    names = list(contestants)
    for number in range(num_rounds + 1):
        shift = number % max(1, len(names))
        for name in names[shift:] + names[:shift]:
            record, contestant = records[name], contestants[name]
            if record.failure:
                continue
            before = look()
            contestant.resume()
            try:
                seconds = _turn(contestant, record, number, vocab_size, shapes)
            except WorkerError as error:
                record.failure = str(error)
                report(f"round {number}: {name} failed: {error}")
                continue
            finally:
                contestant.pause()
            report(f"round {number}: {name} {sum(seconds.values()):.1f} s")
            if number:
                record.turns.append(Turn(seconds, before, look()))


def summarise(records: Mapping[str, Record], reference: str | None) -> dict[str, dict[str, Any]]:
    """One entry an engine, as the results file keeps it.

    `reference` names the record whose answers the others are compared with.
    """
    bandwidth = _median_bandwidth(records)
    wanted = records[reference].answers if reference is not None else []
    found: dict[str, dict[str, Any]] = {}
    for name, record in records.items():
        entry: dict[str, Any] = {"about": record.about}
        if record.failure:
            entry["failure"] = record.failure
        counted = [turn for turn in record.turns if _was_quiet(turn, bandwidth)]
        if 2 * len(counted) < len(record.turns):  # a noisy machine: say so, and take all
            counted = record.turns
        entry["num_turns"] = len(record.turns)
        entry["num_counted"] = len(counted)
        entry["num_disturbed"] = sum(not _was_quiet(turn, bandwidth) for turn in record.turns)
        columns = _columns(counted)
        if record.starts_s:
            columns["start_s"] = spread(record.starts_s)
        entry["columns"] = columns
        if wanted and record.answers:
            entry["agreement"] = agreement(record.answers, wanted)
        found[name] = entry
    return found


def agreement(answers: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> float:
    """Share of the first tokens of each answer up to the first that differs.

    After that token two answers go on from different texts, so their tokens say nothing.
    """
    num_equal = num_all = 0
    for mine, theirs in zip(answers, wanted, strict=True):
        length = min(AGREEMENT_LEN, len(mine), len(theirs))
        pairs = zip(mine[:length], theirs[:length], strict=True)
        place = next((at for at, (a, b) in enumerate(pairs) if a != b), length)
        num_equal += place
        num_all += length
    return num_equal / num_all if num_all else 1.0


def processor_times() -> tuple[float, float]:
    """(stolen, all) processor time of the machine so far in ticks; zeros where it is not told."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except (OSError, IndexError):
        return 0.0, 0.0
    ticks = [float(word) for word in first.split()[1:9]]  # user ... steal
    return ticks[7], sum(ticks)


class Looker:
    """Makes `Conditions`: measures the bandwidth, reads what was stolen since the last look."""

    def __init__(self, bandwidth_gb_s: Callable[[], float]) -> None:
        self._bandwidth_gb_s = bandwidth_gb_s
        self._last = processor_times()

    def __call__(self) -> Conditions:
        time.sleep(0.05)  # what ran just now has to let go of the cores
        read_gb_s = self._bandwidth_gb_s()
        stolen, total = processor_times()
        steal = (stolen - self._last[0]) / max(1.0, total - self._last[1])
        self._last = (stolen, total)
        return Conditions(read_gb_s, steal)


def _turn(
    contestant: Contestant,
    record: Record,
    number: int,
    vocab_size: int,
    shapes: Sequence[Shape],
) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for shape in shapes:
        answer = contestant.ask(
            prompts(shape, vocab_size, number), shape.new_len, timeout_s=CALL_TIMEOUT_S
        )
        seconds[shape.name] = answer.seconds
        if number == 0 and shape == BATCH_8:
            record.answers = answer.token_ids
    return seconds


def _columns(turns: Sequence[Turn]) -> dict[str, dict[str, float]]:
    by_column: dict[str, list[float]] = {}
    for turn in turns:
        for name, value in rates(turn.seconds).items():
            by_column.setdefault(name, []).append(value)
    return {name: spread(values) for name, values in by_column.items()}


def _median_bandwidth(records: Mapping[str, Record]) -> float:
    seen = [
        look.read_gb_s
        for record in records.values()
        for turn in record.turns
        for look in (turn.before, turn.after)
    ]
    return statistics.median(seen) if seen else 0.0


def _was_quiet(turn: Turn, bandwidth: float) -> bool:
    drifts = [abs(look.read_gb_s / bandwidth - 1) for look in (turn.before, turn.after)]
    return max(drifts) <= MAX_DRIFT and turn.after.steal <= MAX_STEAL
