"""The comparison with other engines: rounds, what counts, workers, what an environment may take."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.peers import __main__ as command
from benchmarks.peers.__main__ import verdict
from benchmarks.peers.engines import ENGINES, PEERS, Peer, Step
from benchmarks.peers.environments import Environments, SetupError
from benchmarks.peers.measure import Conditions, Record, Turn, agreement, run_rounds, summarise
from benchmarks.peers.process import Answer, Worker, WorkerError
from benchmarks.peers.report import leads, plot, table
from benchmarks.peers.workloads import BATCH_8, SHAPES, prompts, rates
from benchmarks.record import ROOT

WORKER = """
from benchmarks.peers.workers.protocol import serve
class Echo:
    about = {"version": "echo 1"}
    def __init__(self, path, options, limits):
        print("chatter on stdout")
        self.options = options
    def generate(self, prompts, new_len):
        if "fails" in self.options:
            raise RuntimeError("no more")
        return [[prompt[0]] * new_len for prompt in prompts]
serve(Echo)
"""


class Engine:
    """A contestant that takes a given time and notes when it was let go."""

    def __init__(self, name: str, seconds: float, events: list[str], failing: bool = False) -> None:
        self.name, self.seconds, self.events, self.failing = name, seconds, events, failing

    def ask(self, asked: Sequence[Sequence[int]], new_len: int, timeout_s: float) -> Answer:
        if self.failing:
            raise WorkerError("out of memory")
        self.events.append(f"{self.name} asked")
        return Answer(self.seconds, [[ids[0]] * new_len for ids in asked])

    def pause(self) -> None:
        self.events.append(f"{self.name} pauses")

    def resume(self) -> None:
        self.events.append(f"{self.name} goes on")


def calm() -> Conditions:
    """A machine that is always the same."""
    return Conditions(10.0, 0.0)


def run_two(num_rounds: int, *, failing: bool = False) -> tuple[dict[str, Record], list[str]]:
    """Rounds of two engines, the second of which is twice as slow or fails."""
    events: list[str] = []
    engines = {"a": Engine("a", 1.0, events), "b": Engine("b", 2.0, events, failing)}
    records = {"a": Record(), "b": Record()}
    run_rounds(engines, records, calm, vocab_size=1000, num_rounds=num_rounds, shapes=[BATCH_8])
    return records, events


def turn(seconds: float, read_gb_s: float = 10.0, steal: float = 0.0) -> Turn:
    """A turn of one shape under these conditions."""
    return Turn({BATCH_8.name: seconds}, calm(), Conditions(read_gb_s, steal))


def test_engines_take_turns_and_only_one_runs_at_a_time() -> None:
    """Whoever was first is last in the next round; the round that warms up does not count."""
    records, events = run_two(2)

    order = [event[0] for event in events if event.endswith("asked")]
    assert "abbaab" == "".join(order)
    assert [2, 2] == [len(record.turns) for record in records.values()]
    for place, event in enumerate(events):
        if event.endswith("asked"):
            name = event[0]
            assert [f"{name} goes on", f"{name} pauses"] == [events[place - 1], events[place + 1]]


def test_an_engine_that_fails_is_left_out_and_the_others_go_on() -> None:
    """Its message is in the results."""
    records, _ = run_two(2, failing=True)
    found = summarise(records, None)

    assert "out of memory" == found["b"]["failure"]
    assert {} == found["b"]["columns"]
    assert 2 == found["a"]["num_counted"]


def test_all_engines_get_the_same_tokens_and_each_round_other_ones() -> None:
    """Nothing special among them."""
    for shape in SHAPES:
        first, again, other = (prompts(shape, 1000, number) for number in (1, 1, 2))
        assert first == again != other
        assert shape.num_requests == len(first)
        assert {shape.prompt_len} == set(map(len, first))
        assert 256 <= min(map(min, first))
        assert max(map(max, first)) < 1000


def test_rates_follow_from_the_seconds_of_the_shapes() -> None:
    """End to end, and for one stream also without its prefill."""
    seconds = {"prefill_512": 2.0, "first_128": 1.0, "single_stream": 3.0, "b8": 4.0, "b32": 8.0}

    found = rates(seconds)

    assert 256.0 == found["prefill_512"]
    assert 128 / 3 == found["single_stream"]
    assert 127 / 2 == found["decode"]
    assert (128.0, 256.0) == (found["b8"], found["b32"])
    assert "decode" not in rates({"first_128": 3.0, "single_stream": 3.0})


def test_medians_are_over_quiet_turns() -> None:
    """A turn does not count when the bandwidth moved by 7 % or the hypervisor took 2 %."""
    turns = [turn(1.0), turn(2.0), turn(4.0), turn(8.0, read_gb_s=9.0), turn(9.0, steal=0.03)]
    found = summarise({"a": Record(turns=turns)}, None)["a"]

    assert (5, 3, 2) == (found["num_turns"], found["num_counted"], found["num_disturbed"])
    assert {"median": 256.0, "min": 128.0, "max": 512.0} == found["columns"]["b8"]


def test_on_a_machine_that_is_never_quiet_all_turns_count() -> None:
    """And the file says how many were disturbed."""
    turns = [turn(1.0, steal=0.5), turn(1.0, steal=0.5), turn(1.0)]
    found = summarise({"a": Record(turns=turns)}, None)["a"]

    assert (3, 2) == (found["num_counted"], found["num_disturbed"])


def test_answers_agree_until_they_differ() -> None:
    """What follows the first other token is another text, and says nothing."""
    wanted = [[1, 2, 3, 4], [5, 6, 7, 8]]

    assert 1.0 == agreement(wanted, wanted)
    assert 6 / 8 == agreement([[1, 2, 9, 4], [5, 6, 7, 8]], wanted)


def test_an_exact_engine_with_the_weights_of_the_file_must_agree() -> None:
    def entry(agreement: float, *, exact: bool, same_weights: bool) -> dict[str, object]:
        flags = {"is_exact": exact, "has_reference_weights": same_weights}
        return {"columns": {"b8": {"median": 1.0}}, "agreement": agreement, **flags}

    rounded = {
        "int8": entry(0.7, exact=False, same_weights=True),
        "bf16": entry(0.9, exact=True, same_weights=False),
    }

    assert verdict(rounded | {"fp32": entry(0.99, exact=True, same_weights=True)}) == 0
    assert verdict(rounded | {"fp32": entry(0.9, exact=True, same_weights=True)}) == 1


def test_leads_compare_the_best_of_ours_with_the_best_peer() -> None:
    """A start is better when it is shorter; exact engines are compared among themselves."""

    def entry(rate: float, start_s: float, *, ours: bool, exact: bool) -> dict[str, object]:
        spreads = {"b8": rate, "start_s": start_s}
        columns = {name: {"median": value} for name, value in spreads.items()}
        flags = {"is_ours": ours, "is_exact": exact, "num_counted": 1, "num_turns": 1}
        return {"columns": columns, **flags}

    engines = {
        "ours": entry(90.0, 0.5, ours=True, exact=False),
        "ours exact": entry(40.0, 0.5, ours=True, exact=True),
        "theirs": entry(30.0, 1.0, ours=False, exact=True),
    }

    assert {"b8": 3.0, "start_s": 2.0} == leads(engines, exact_only=False)
    assert pytest.approx(4 / 3) == leads(engines, exact_only=True)["b8"]
    assert "batch 8 3.00x" in table(engines)
    assert "batch 8" in plot(engines, "tiny")


def worker(tmp_path: Path, options: str = "{}") -> Worker:
    """A process that answers with the first token of each prompt."""
    (tmp_path / "echo.py").write_text(WORKER)
    words = f"--model m --threads 1 --max-len 8 --max-batch 2 --kv-bytes 1 --options {options}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(tmp_path / "echo.py"), *words.split()]
    return Worker(command, environment, ROOT, tmp_path / "log")


def test_a_worker_answers_what_was_asked_before_it_was_ready(tmp_path: Path) -> None:
    """So the time to the first token has no detour; what the engine prints stays out of the way."""
    running = worker(tmp_path)
    try:
        running.send([[4, 5], [6]], 3)
        assert {"version": "echo 1"} == running.receive_about(60)
        assert [[4, 4, 4], [6, 6, 6]] == running.receive(60).token_ids
        running.pause()
        running.resume()
        assert [[9]] == running.ask([[9]], 1, 60).token_ids
    finally:
        running.close()
    assert "chatter" in (tmp_path / "log").read_text()


def test_a_worker_that_is_paused_can_be_ended(tmp_path: Path) -> None:
    """Nothing may stay behind, stopped for ever."""
    running = worker(tmp_path)
    running.receive_about(60)
    running.pause()
    running.close()

    with pytest.raises(WorkerError, match="ended with code"):
        running.ask([[1]], 1, 60)


def test_the_fault_of_a_worker_is_its_message(tmp_path: Path) -> None:
    """Its kind included."""
    running = worker(tmp_path, '{"fails":1}')
    try:
        running.receive_about(60)
        with pytest.raises(WorkerError, match="RuntimeError: no more"):
            running.ask([[1]], 1, 60)
    finally:
        running.close()


def test_a_peer_that_cannot_be_set_up_keeps_its_reason(tmp_path: Path) -> None:
    """It is not tried again until its recipe changes."""
    environments = Environments(tmp_path)
    peer = Peer("nobody", (Step(("--no-index", "there-is-no-such-package-9")),), "nothing")

    for _ in range(2):
        with pytest.raises(SetupError, match="there-is-no-such-package-9"):
            environments.ensure(peer)

    assert environments.state(peer)
    assert environments.state(Peer("nobody", (), "other")) is None


def test_the_table_of_engines_is_sound(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Names are different, environments exist, and --list shows every row."""
    names = [engine.name for engine in ENGINES]
    assert len(names) == len(set(names))
    assert {engine.peer for engine in ENGINES} - {""} <= {peer.name for peer in PEERS}
    for engine in ENGINES:
        assert (ROOT / "benchmarks/peers/workers" / f"{engine.worker}.py").exists()

    assert 0 == command.main(["--list", "--cache", str(tmp_path)])
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)
