"""kill -9 of a server while it offloads KV blocks to disk, and files that are damaged afterwards.

    python -m benchmarks.stress.kill_offload --out benchmarks/results/FILE

A server with a small pool and a small `--kv-offload-dir` gets prompts from a fixed set, which push
each other out of the pool, and is killed at a random moment, every second time in the middle of a
file where that can be met. The next one starts on the same folder: it
must start, leave no unfinished file, keep within its limit, and every answer, whatever comes from
the folder, must be the one of a server without it. Afterwards the same with a folder whose files
were damaged at random: bits flipped, cut short, longer, zeroed, exchanged, replaced by folders or
links, deleted; before a start, and under a server that runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import write_results
from benchmarks.stress.prompts import probes
from benchmarks.stress.served import Served, end_servers_on_term, token_lists

NUM_PROMPTS = 48
MAX_LEN = 480  # tokens of a prompt
TRIES = 300  # to kill it in the middle of a file
LIMIT_GB = 0.05  # half of what all prompts need, so that files are deleted and written again
POOL = ("--max-model-len", "640", "--num-gpu-blocks-override", "24", "--swap-space", "0.01")
DAMAGES = ("flip", "cut", "longer", "zeroes", "exchange", "folder", "link", "delete", "empty")

Known = list[tuple[dict[str, Any], list[list[int]]]]


class Trial:
    """One folder, the servers that come and go on it, and what was seen."""

    def __init__(self, model: str, folder: Path, seed: int, known: Known) -> None:
        self._model = model
        self._folder = folder
        self._known = known
        self.chance = random.Random(seed)  # noqa: S311 - a load
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()

    def start(self) -> Served:
        """A server on the folder, looked at before the first request."""
        flags = ("--kv-offload-dir", str(self._folder), "--kv-offload-gb", str(LIMIT_GB))
        server = Served(self._model, (*POOL, *flags))
        self.counts["starts"] += 1
        if left := self.unfinished():
            self.faults.append(f"unfinished files after a start: {left[:3]}")
        return server

    def files(self) -> list[Path]:
        """The blocks that are kept."""
        paths = sorted(self._folder.rglob("*.kv"))
        return [path for path in paths if path.is_file() and not path.is_symlink()]

    def unfinished(self) -> list[str]:
        """Files that were being written."""
        return [path.name for path in self._folder.rglob(".*") if path.is_file()]

    async def ask(self, server: Served, count: int) -> None:
        """`count` of the known requests, a few at a time, compared."""
        wanted = iter(self.chance.sample(self._known, min(count, len(self._known))))

        async def client() -> None:
            for body, tokens in wanted:
                found = token_lists(await server.post("/v1/completions", body))
                self.counts["answers"] += 1
                if found != tokens:
                    self.faults.append(f"wrong answer to {json.dumps(body)}: {found}")

        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(client())

    async def note(self, server: Served) -> None:
        """What the tier did for this server; call it before the server ends."""
        metrics = await server.metrics()
        self.counts["tokens_from_disk"] += int(metrics["vllm:external_prefix_cache_hits_total"])
        self.faults += server.complaints
        num_bytes = sum(path.stat().st_size for path in self.files())
        if num_bytes > LIMIT_GB * 1e9:
            self.faults.append(f"the folder holds {num_bytes} bytes, more than {LIMIT_GB} GB")

    async def killed_round(self, longest_s: float) -> None:
        """Start, compare, then offload until a random moment, and kill."""
        server = self.start()
        try:
            await self.ask(server, 6)
            await self.note(server)
            load = asyncio.create_task(self.ask(server, len(self._known)))
            await asyncio.wait([load], timeout=self.chance.uniform(0, longest_s))
            self.counts["killed_under_load"] += not load.done()
            if self.chance.random() < 0.5:
                await self._stop_in_a_file(server)
        finally:
            server.kill()
        await asyncio.gather(load, return_exceptions=True)
        self.counts["killed"] += 1
        self.counts["unfinished_at_kill"] += len(self.unfinished())
        self.counts["files_at_kill"] += len(self.files())

    async def _stop_in_a_file(self, server: Served) -> None:
        """Hold the server while it writes a file, if some tries meet such a moment."""
        for _ in range(TRIES):
            server.process.send_signal(signal.SIGSTOP)
            if self.unfinished():
                return
            server.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(self.chance.uniform(0, 0.004))

    async def damaged_round(self) -> None:
        """Damage half of the files before the start, and half of the rest under the server."""
        self._damage_some(0.5)
        server = self.start()
        try:
            await self.ask(server, len(self._known) // 2)
            self._damage_some(0.5)
            await self.ask(server, len(self._known))
            await self.note(server)
        finally:
            exit_code = server.stop()
        if exit_code:
            self.faults.append(f"a server ended with {exit_code}: {server.lines[-5:]}")
        dropped = sum("a kept KV block is not used" in line for line in server.lines)
        self.counts["damaged_files_found"] += dropped

    def _damage_some(self, share: float) -> None:
        files = self.files()
        for path in files:
            if self.chance.random() < share:
                kind = self.chance.choice(DAMAGES)
                self.counts[f"damage: {kind}"] += 1
                damage(path, kind, self.chance, files)


def damage(path: Path, kind: str, chance: random.Random, others: list[Path]) -> None:
    """Do one thing to one file. A server may delete it meanwhile."""
    other = chance.choice(others)
    try:
        data = bytearray(path.read_bytes())
        place = chance.randrange(max(1, len(data)))
        if kind == "flip" and data:
            data[place] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del data[place:]
        elif kind == "longer":
            data += bytes(chance.randint(1, 5000))
        elif kind == "zeroes":
            data[place : place + 4096] = bytes(len(data[place : place + 4096]))
        elif kind == "empty":
            data.clear()
        elif kind == "exchange":
            data[:] = other.read_bytes()
        else:
            path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(other)
        elif kind != "delete":
            path.write_bytes(data)
    except OSError:  # deleted meanwhile, or the other one is a folder by now
        return


async def answers_without(model: str, bodies: list[dict[str, Any]]) -> Known:
    """Each request with its answer from a server without a tier, one at a time."""
    server = Served(model, ("--no-enable-prefix-caching",))
    try:
        return [(body, token_lists(await server.post("/v1/completions", body))) for body in bodies]
    finally:
        server.stop()


async def _main(options: argparse.Namespace) -> int:
    bodies = probes(options.seed, MAX_LEN, NUM_PROMPTS, num_tokens=6)
    known = await answers_without(options.model, bodies)
    folder = Path(tempfile.mkdtemp(prefix="octavo-kill-"))
    trial = Trial(options.model, folder, options.seed, known)
    try:
        for number in range(options.kills):
            await trial.killed_round(options.longest_s)
            print(f"kill {number + 1}: {dict(trial.counts)} {trial.faults}", flush=True)
        for number in range(options.damages):
            await trial.damaged_round()
            print(f"damage {number + 1}: {dict(trial.counts)} {trial.faults}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if options.out:  # of a run that was cut short too
            found = {"counts": dict(trial.counts), "faults": trial.faults}
            write_results(options.out, {"benchmark": "kill_offload", "seed": options.seed} | found)
    return len(trial.faults)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write; the exit code is 1 when anything was wrong."""
    end_servers_on_term()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stress.kill_offload")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--damages", type=int, default=8, help="Rounds with damaged files.")
    parser.add_argument("--longest-s", type=float, default=3.0, help="Load before a kill, at most.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    return 1 if asyncio.run(_main(parser.parse_args(arguments))) else 0


if __name__ == "__main__":
    sys.exit(main())
