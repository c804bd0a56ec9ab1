"""What `octavo top` reads from a server: one view of its blocks and one of its counters."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.cli.client import Client, ServerError

TIMEOUT_S = 5.0
_SAMPLE = re.compile(r"^(?:vllm|octavo):(\w+?)(?:_total)?(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reading:
    """A server at one moment."""

    time_s: float  # of a clock that only this process reads
    view: Mapping[str, Any]  # /debug/kv
    blocks: str  # the state of each, see `states_of`
    counters: Mapping[str, float]  # /metrics by name, without prefix; labels summed up


def read(client: Client) -> Reading:
    """Ask the server. Raises ServerError, also for an answer of another form."""
    text = client.get("/metrics", TIMEOUT_S).decode("utf-8", "replace")
    body = client.get("/debug/kv", TIMEOUT_S)
    try:
        view = json.loads(body)
        blocks = states_of(view["kv"])
        _ = view["requests"], view["steps"]["count"]
    except (ValueError, LookupError, TypeError):
        raise ServerError("/debug/kv does not answer like octavo's server") from None
    return Reading(time.monotonic(), view, blocks, counters_of(text))


def states_of(kv: Mapping[str, Any]) -> str:
    """One letter for each block: s shared, u used by one, c free but findable, "." free."""
    states = ["."] * kv["num_blocks"]
    for block_id in kv["findable_blocks"]:
        states[int(block_id)] = "c"
    for table in kv["tables"].values():
        for ids in table["block_ids"]:
            for block_id in ids:
                if block_id >= 0:
                    states[block_id] = "u"
    for block_id in kv["shared_blocks"]:
        states[int(block_id)] = "s"
    return "".join(states)


def counters_of(text: str) -> dict[str, float]:
    """Prometheus text -> the values by name."""
    counters: dict[str, float] = {}
    for name, value in _SAMPLE.findall(text):
        try:
            counters[name] = counters.get(name, 0.0) + float(value)
        except ValueError:
            continue
    return counters
