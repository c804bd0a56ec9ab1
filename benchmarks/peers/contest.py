"""Starts the workers of those who take part, measures their starts, and hands them to the rounds.

Owns: command lines, environment variables, limits that hold for everybody.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.engines import Engine
from benchmarks.peers.environments import clean_environment
from benchmarks.peers.measure import SLOW_START_S, Looker, Record, run_rounds, summarise
from benchmarks.peers.process import Worker, WorkerError
from benchmarks.peers.workloads import SHAPES, START_PROMPT_LEN, Shape, prompts
from benchmarks.record import ROOT
from octavo.cli.bench.roofs import read_bandwidth

MAX_LEN = 1024  # tokens of a sequence
KV_BYTES = 1 << 30
START_TIMEOUT_S = 900.0
# Whose answers the others are compared with: the first of these that ran.
REFERENCES = ("transformers fp32", "octavo exact, fp32")


@dataclass(frozen=True, slots=True)
class Entrant:
    """An engine that can run: with which interpreter, on which weights."""

    engine: Engine
    python: Path
    model: Path
    vocab_size: int


class Contest:
    """All entrants on this machine, with `threads` compute threads each."""

    def __init__(self, entrants: Sequence[Entrant], threads: int, logs: Path) -> None:
        self._entrants = entrants
        self._threads = threads
        self._logs = logs
        logs.mkdir(parents=True, exist_ok=True)

    def run(
        self, num_rounds: int, num_starts: int, shapes: Sequence[Shape] = SHAPES
    ) -> dict[str, Any]:
        """The part of the results file that holds measurements."""
        records = {entrant.engine.name: Record() for entrant in self._entrants}
        look = Looker(lambda: read_bandwidth(self._threads))
        workers: dict[str, Worker] = {}
        try:
            for entrant in self._entrants:
                self._measure_starts(entrant, records[entrant.engine.name], num_starts)
            for entrant in self._entrants:
                worker = self._settled(entrant, records[entrant.engine.name])
                if worker is not None:
                    workers[entrant.engine.name] = worker
            print(f"{len(workers)} engines are loaded; {num_rounds} rounds ...", flush=True)
            vocab_size = min((entrant.vocab_size for entrant in self._entrants), default=0)
            run_rounds(
                workers,
                records,
                look,
                vocab_size=vocab_size,
                num_rounds=num_rounds,
                shapes=shapes,
                report=lambda line: print(line, flush=True),
            )
        finally:
            for worker in workers.values():
                worker.close()
        reference = next((name for name in REFERENCES if records.get(name, Record()).answers), None)
        return {
            "threads": self._threads,
            "read_gb_s": round(look().read_gb_s, 2),
            "reference": reference,
            "shapes": {
                shape.name: [shape.num_requests, shape.prompt_len, shape.new_len]
                for shape in shapes
            },
            "engines": summarise(records, reference),
        }

    def _measure_starts(self, entrant: Entrant, record: Record, num_starts: int) -> None:
        """Process start to first token, after one start that fills the page cache."""
        print(f"starting {entrant.engine.name} ...", flush=True)
        for number in range(num_starts + 1):
            try:
                seconds = self._start_once(entrant, record)
            except WorkerError as error:
                record.failure = str(error)
                return
            if number:
                record.starts_s.append(seconds)
            elif seconds > SLOW_START_S:
                record.starts_s.append(seconds)
                return

    def _start_once(self, entrant: Entrant, record: Record) -> float:
        worker = self._spawn(entrant)
        try:
            shape = Shape("start", 1, START_PROMPT_LEN, 1)
            worker.send(prompts(shape, entrant.vocab_size, 0), shape.new_len)
            record.about = worker.receive_about(START_TIMEOUT_S)
            worker.receive(START_TIMEOUT_S)
            return time.perf_counter() - worker.start_s
        finally:
            worker.close()

    def _settled(self, entrant: Entrant, record: Record) -> Worker | None:
        """A worker that is loaded and paused; None, and a failure noted, if it cannot be had."""
        if record.failure:
            return None
        worker = self._spawn(entrant)
        try:
            record.about = worker.receive_about(START_TIMEOUT_S)
        except WorkerError as error:
            record.failure = str(error)
            worker.close()
            return None
        worker.pause()
        return worker

    def _spawn(self, entrant: Entrant) -> Worker:
        engine, threads = entrant.engine, self._threads
        command = [str(entrant.python), "-m", f"benchmarks.peers.workers.{engine.worker}"]
        command += ["--model", str(entrant.model), "--options", json.dumps(dict(engine.options))]
        command += ["--threads", str(threads), "--max-len", str(MAX_LEN)]
        command += ["--max-batch", str(max(shape.num_requests for shape in SHAPES))]
        command += ["--kv-bytes", str(KV_BYTES)]
        more = {
            name: value.format(threads=threads, cores=_cores(threads))
            for name, value in engine.environment.items()
        }
        more |= {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        environment = clean_environment(more)
        environment["PYTHONPATH"] = str(ROOT)
        if engine.is_ours:
            environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        log = self._logs / f"{engine.name.replace(' ', '-').replace(',', '')}.log"
        return Worker(command, environment, ROOT, log)


def _cores(threads: int) -> str:
    """The first cores that this process may use, as vLLM wants them: 0-1, or 0,2,5."""
    usable = sorted(os.sched_getaffinity(0))[:threads] if hasattr(os, "sched_getaffinity") else []
    return ",".join(map(str, usable)) or f"0-{threads - 1}"
