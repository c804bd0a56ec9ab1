"""Clients that go away in every state of their request: what stays behind in the server?

    python -m benchmarks.stress.disconnects --out benchmarks/results/FILE

Under each of several settings a server with a small pool, swap space and few rows gets random
requests from many clients at a time. Each leaves at a random moment: with half of its body sent,
while it waits, during its prompt, after some chunks of its stream, while it is preempted or swapped
out. What the request did then is read from `/debug/kv` just before. Others stay, and their answers
are compared with those of a server that computes one request at a time and caches nothing. In the
end no request, block or host slot may be held, the gauges must be zero, the same questions must get
the same answers, and memory must not have grown between the second quarter and the last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.record import write_results
from benchmarks.stress.prompts import Mix, probes
from benchmarks.stress.served import Served, end_servers_on_term, read_head, token_lists

IDLE_TIMEOUT_S = 60.0
PATIENCE_S = 8.0  # with which a client waits for the state in which it means to leave
WANTED = ("prefill", "decoding", "preempted", "swapped", "swapped")
KEYS = ("one", "two", "three")
ADMIN_KEY = "admin"
MAX_LEN = 600  # tokens of a prompt
POOL = ("--max-model-len", "1024", "--num-gpu-blocks-override", "40", "--max-num-seqs", "12")
SETTINGS: dict[str, tuple[str, ...]] = {
    "auto": (*POOL, "--swap-space", "0.02", "--preemption-mode", "auto"),
    "swap, priority": (
        *(*POOL, "--swap-space", "0.02", "--preemption-mode", "swap"),
        *("--scheduling-policy", "priority"),
    ),
    "swap, fair": (
        *(*POOL, "--swap-space", "0.01", "--preemption-mode", "swap"),
        *("--scheduling-policy", "fair", "--api-key", *KEYS, "--admin-api-key", ADMIN_KEY),
    ),
    "recompute, no cache": (*POOL, "--no-enable-prefix-caching"),
}


@dataclass(slots=True)
class Tally:
    """What happened under one setting."""

    left_while: Counter[str] = field(default_factory=Counter)
    left_by: Counter[str] = field(default_factory=Counter)
    num_stayed: int = 0
    faults: list[str] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)


class Crowd:
    """The clients of one server."""

    def __init__(
        self,
        server: Served,
        seed: int,
        expected: list[tuple[dict[str, Any], list[list[int]]]],
        *,
        has_priorities: bool,
    ) -> None:
        self._server = server
        self._has_priorities = has_priorities
        self._expected = expected
        self._chance = random.Random(seed)  # noqa: S311 - a load
        self._mix = Mix(self._chance, MAX_LEN)
        self._serial = 0
        self.tally = Tally()

    async def disconnect(self, count: int, width: int) -> None:
        """`count` clients leave, `width` at a time; one in five that come stays to the end."""
        left = iter(range(count))
        quarter = max(1, count // 4)

        async def client() -> None:
            for number in left:
                if number % quarter == 0:
                    self.tally.rss_mib.append(round(self._server.rss_mib, 1))
                await self._leave()
                if self._chance.random() < 0.25:
                    await self.stay(*self._chance.choice(self._expected))

        async with asyncio.TaskGroup() as group:
            for _ in range(width):
                group.create_task(client())
        self.tally.rss_mib.append(round(self._server.rss_mib, 1))

    async def stay(self, body: dict[str, Any], tokens: list[list[int]]) -> None:
        """Ask something whose answer is known."""
        self.tally.num_stayed += 1
        key = self._chance.choice(KEYS)
        answer = await self._server.post("/v1/completions", body | self._priority(), key=key)
        if token_lists(answer) != tokens:
            self.tally.faults.append(f"wrong answer to {json.dumps(body)}: {token_lists(answer)}")

    async def _leave(self) -> None:
        chance = self._chance
        self._serial += 1
        name = f"leaver-{self._serial}-left"
        is_chat = chance.random() < 0.3
        body = self._mix.chat(300) if is_chat else self._mix.completion(300)
        body |= {"request_id": name} | self._priority()
        streams = chance.random() < 0.5 and not body.get("use_beam_search")
        body["stream"] = streams
        path = "/v1/chat/completions" if is_chat else "/v1/completions"
        when = chance.choice(("half sent", "sent", "moment", "chunks", *WANTED))
        if when == "chunks" and not streams:
            when = "moment"
        key, is_cut = chance.choice(KEYS), when == "half sent"
        async with self._server.sent("POST", path, body, key=key, cut=is_cut) as reader:
            if when == "moment":
                await asyncio.sleep(chance.expovariate(1.5))
            elif when == "chunks":
                await self._read_chunks(reader, chance.randint(1, 60))
            elif when in WANTED:
                await self._wait_for(name, when)
            state = when if when.endswith("sent") else await self._state_of(name)
        self.tally.left_while[state] += 1
        kind = "beams" if body.get("use_beam_search") else f"{'chat' if is_chat else 'completion'}"
        self.tally.left_by[f"{kind}{', stream' if streams else ''}"] += 1

    def _priority(self) -> dict[str, int]:
        return {"priority": self._chance.randint(-2, 2)} if self._has_priorities else {}

    async def _read_chunks(self, reader: asyncio.StreamReader, count: int) -> None:
        status, _ = await read_head(reader)
        if status != 200:
            self.tally.faults.append(f"a stream was answered {status}")
        for _ in range(3 * count):
            if not await reader.readline():
                return

    async def _wait_for(self, name: str, wanted: str) -> None:
        """Until a request is in this state, or over."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            state = await self._state_of(name)
            if wanted in state:
                return
            await asyncio.sleep(0.02)

    async def _state_of(self, name: str) -> str:
        """What the choices of a request do, in one word; `over` for none that is live."""
        view = await self._server.blocks(key=ADMIN_KEY)
        states = set()
        for request in view["requests"]:
            if name in request["id"]:
                state = request["state"]
                if state == "running":
                    is_prompt = request["computed_tokens"] < request["prompt_tokens"]
                    state = "prefill" if is_prompt else "decoding"
                states.add(state)
        return "+".join(sorted(states)) or "over"


async def judge(crowd: Crowd, server: Served, blank: dict[str, Any]) -> dict[str, Any]:
    """Everything that must hold once all clients are gone."""
    tally = crowd.tally
    view = await server.wait_idle(IDLE_TIMEOUT_S, key=ADMIN_KEY)
    kv, metrics = view["kv"], await server.metrics(key=KEYS[0])
    for name in ("num_used_blocks", "num_used_host_slots", "num_allocated_slots"):
        if kv[name]:
            tally.faults.append(f"{name} is {kv[name]} at the end")
    if view["requests"] or kv["tables"] or kv["shared_blocks"]:
        tally.faults.append(f"requests are left: {view['requests']}")
    if kv["num_cached_blocks"] + kv["num_blank_blocks"] != blank["kv"]["num_blocks"]:
        tally.faults.append("free blocks are not as before")
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        if metrics[f"vllm:{name}"]:
            tally.faults.append(f"{name} is {metrics[f'vllm:{name}']} at the end")
    counts = {
        name.partition(":")[2]: metrics[name]
        for name in metrics
        if any(word in name for word in ("preemptions_total", "num_swaps_total", "blocks_total"))
    }
    return {"counts": counts, "kept_cached_blocks": kv["num_cached_blocks"]}


async def run_setting(
    model: str, name: str, options: argparse.Namespace, expected: list[Any]
) -> dict[str, Any]:
    """One server, its crowd, and the verdict."""
    begin_s = time.monotonic()
    server = Served(model, SETTINGS[name])
    try:
        crowd = Crowd(server, options.seed, expected, has_priorities="priority" in SETTINGS[name])
        # Grammars take their memory now, not when the server is idle for the first time.
        formed = {"structured_outputs": {"choice": ["Hi"]}, "prompt": "Hi", "max_tokens": 4}
        await server.post("/v1/completions", formed, key=KEYS[0])
        blank = await server.blocks(key=ADMIN_KEY)
        await crowd.disconnect(options.count // len(SETTINGS), options.clients)
        found = await judge(crowd, server, blank)
        for body, tokens in expected:
            await crowd.stay(body, tokens)
        view = await server.wait_idle(IDLE_TIMEOUT_S, key=ADMIN_KEY)
        tally = crowd.tally
        if view["kv"]["num_used_blocks"]:
            tally.faults.append("blocks are held after the last answers")
        growth_mib = tally.rss_mib[-1] - tally.rss_mib[len(tally.rss_mib) // 2]
        if growth_mib > options.most_growth_mib:
            tally.faults.append(f"memory grew by {growth_mib:.1f} MiB in the second half")
        tally.faults += server.complaints
    finally:
        exit_code = server.stop()
    if exit_code:
        tally.faults.append(f"the server ended with {exit_code}")
    return found | {
        "flags": SETTINGS[name],
        "left_while": dict(tally.left_while),
        "left_by": dict(tally.left_by),
        "stayed": tally.num_stayed,
        "rss_mib": tally.rss_mib,
        "faults": tally.faults,
        "seconds": round(time.monotonic() - begin_s, 1),
    }


async def alone(model: str, bodies: list[dict[str, Any]]) -> list[tuple[dict[str, Any], Any]]:
    """Each request with the answer that it gets when nothing else runs and nothing is cached."""
    server = Served(model, ("--no-enable-prefix-caching",))
    try:
        return [(body, token_lists(await server.post("/v1/completions", body))) for body in bodies]
    finally:
        server.stop()


async def _main(options: argparse.Namespace) -> int:
    expected = await alone(options.model, probes(options.seed, 300, 12))
    found = {}
    for name in options.settings:
        found[name] = await run_setting(options.model, name, options, expected)
        print(name, json.dumps(found[name], indent=1), flush=True)
    if options.out:
        write_results(options.out, {"benchmark": "disconnects", "seed": options.seed} | found)
    return sum(len(one["faults"]) for one in found.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write; the exit code is 1 when anything was wrong."""
    end_servers_on_term()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stress.disconnects")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--count", type=int, default=500, help="Clients that leave, in all.")
    parser.add_argument("--clients", type=int, default=16, help="At a time.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--most-growth-mib", type=float, default=24.0)
    parser.add_argument("--out", type=Path)
    return 1 if asyncio.run(_main(parser.parse_args(arguments))) else 0


if __name__ == "__main__":
    sys.exit(main())
