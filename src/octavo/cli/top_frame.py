"""The frame of `octavo top`: two readings of a server become lines of text.

Pure: no terminal, no clock. Colours are added last and only when asked for, so that widths are
those of the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from octavo.cli.top_reading import Reading
from octavo.foundation.quantities import format_count

MOST_MAP_LINES = 8
LEAST_TABLE_LINES = 4  # headline and three requests
# a block's state in /debug/kv -> what stands for it, and its colour
CELLS: Mapping[str, tuple[str, str]] = {
    "s": ("#", "35"),  # shared by several requests
    "u": ("=", "32"),  # used by one
    "c": ("-", "36"),  # free, but its content can still be found
    ".": (".", "90"),  # free and empty
}
LEGEND = "= used  # shared  - cached  . free"
_COLUMNS = (
    ("STATE", 9),
    ("PROMPT", 8),
    ("GEN", 7),
    ("COMPUTED", 9),
    ("CACHED", 7),
    ("AGE", 8),
    ("PRE", 4),
    ("SWAP", 5),
    ("TENANT", 9),
)


def frame(
    now: Reading, before: Reading | None, size: tuple[int, int], *, is_coloured: bool = False
) -> list[str]:
    """Lines for a terminal of (columns, lines). Rates need the reading before."""
    width, height = size
    lines = [*_summary(now, before), *_pool(now, width)]
    num_map_lines = max(1, min(MOST_MAP_LINES, height - len(lines) - 2 - LEAST_TABLE_LINES))
    cells = block_map(now.blocks, width, num_map_lines)
    table = _table(now.view["requests"], max(0, height - len(lines) - len(cells) - 2))
    shown = [_cut(line, width) for line in lines]
    shown += [_paint(line) if is_coloured else _draw(line) for line in cells]
    shown += [_cut(LEGEND, width), "", *(_cut(line, width) for line in table)]
    return shown[:height]


def waiting_frame(message: str, size: tuple[int, int]) -> list[str]:
    """What is shown while the server does not answer."""
    return [_cut(line, size[0]) for line in ("octavo top", "", message, "trying again ...")]


def block_map(states: str, width: int, num_lines: int) -> list[str]:
    """Lines of block states; where there are too many blocks a cell stands for several.

    Such a cell has the state of most of its blocks.
    """
    num_cells = max(1, width * num_lines)
    each = -(-len(states) // num_cells) or 1
    cells = [
        Counter(states[begin : begin + each]).most_common(1)[0][0]
        for begin in range(0, len(states), each)
    ]
    return ["".join(cells[begin : begin + width]) for begin in range(0, len(cells), width)]


def _summary(now: Reading, before: Reading | None) -> list[str]:
    states = Counter(request["state"] for request in now.view["requests"])
    count = now.counters.get
    queries = count("prefix_cache_queries", 0.0)
    hits = count("prefix_cache_hits", 0.0) + count("external_prefix_cache_hits", 0.0)
    return [
        f"requests  running {states['running']}  waiting {states['waiting']}  "
        f"preempted {states['preempted']}  swapped {states['swapped']}  |  since the start: "
        f"preemptions {count('num_preemptions', 0):.0f}  swaps {count('num_swaps', 0):.0f}",
        f"rates     in {_rate(now, before, 'prompt_tokens')} tok/s  "
        f"out {_rate(now, before, 'generation_tokens')} tok/s  {_step(now, before)}  "
        f"hits {_share(hits, queries)}",
    ]


def _pool(now: Reading, width: int) -> list[str]:
    kv, num_blocks, states = now.view["kv"], len(now.blocks), Counter(now.blocks)
    num_wasted = kv["num_allocated_slots"] - kv["num_live_slots"]
    used, cached = states["u"] + states["s"], states["c"]
    lines = [
        f"blocks    used {_share(used, num_blocks)}  shared {_share(states['s'], num_blocks)}  "
        f"cached {_share(cached, num_blocks)}  free {_share(states['.'], num_blocks)}  of "
        f"{format_count(num_blocks)} with {kv['block_size']} tokens;  "
        f"empty slots in used blocks {_share(num_wasted, kv['num_allocated_slots'])}",
    ]
    if kv["num_host_slots"]:
        taken = kv["num_used_host_slots"]
        lines.append(
            f"swap      used {_share(taken, kv['num_host_slots'])} of "
            f"{format_count(kv['num_host_slots'])} slots"
        )
    return [*lines, _bar(states, num_blocks, width)]


def _bar(states: Mapping[str, int], num_blocks: int, width: int) -> str:
    """The pool as one line, in shares."""
    room = max(1, width - 2)
    shares = ((state, states[state] * room // max(1, num_blocks)) for state in "suc")
    bar = "".join(CELLS[state][0] * size for state, size in shares)
    return f"[{bar.ljust(room, '.')}]"


def _table(requests: Sequence[Mapping[str, Any]], num_lines: int) -> list[str]:
    """A headline and as many requests as there are lines for; the last line counts the others."""
    id_width = min(36, max([len(str(request["id"])) for request in requests], default=2))
    head = "ID".ljust(id_width) + "".join(name.rjust(width) for name, width in _COLUMNS)
    rows = [_row(request, id_width) for request in requests]
    room = max(0, num_lines - 1)
    if len(rows) > room:
        kept = max(0, room - 1)
        rows = [*rows[:kept], f"... and {len(rows) - kept} more"]
    return [head, *rows]


def _row(request: Mapping[str, Any], id_width: int) -> str:
    values = (
        request["state"],
        str(request["prompt_tokens"]),
        str(request["generated_tokens"]),
        str(request["computed_tokens"]),
        str(request["cached_tokens"]),
        _age(request["age_s"]),
        str(request["preemptions"]),
        str(request["swaps"]),
        str(request["tenant"])[:8] or "-",
    )
    name = str(request["id"])
    shown = name if len(name) <= id_width else name[: id_width - 1] + "~"
    return shown.ljust(id_width) + "".join(
        value.rjust(width) for value, (_, width) in zip(values, _COLUMNS, strict=True)
    )


def _rate(now: Reading, before: Reading | None, name: str) -> str:
    if before is None or now.time_s <= before.time_s:
        return "-"
    gained = now.counters.get(name, 0.0) - before.counters.get(name, 0.0)
    return f"{max(0.0, gained) / (now.time_s - before.time_s):.1f}"


def _step(now: Reading, before: Reading | None) -> str:
    """Mean time of the steps since the reading before, or since the start."""
    new, old = now.view["steps"], before.view["steps"] if before is not None else {}
    num_steps = new["count"] - old.get("count", 0)
    if num_steps <= 0:
        return "step -"
    python_s, compute_s = (new[name] - old.get(name, 0.0) for name in ("python_s", "compute_s"))
    total_ms = 1e3 * (python_s + compute_s) / num_steps
    return f"step {total_ms:.2f} ms (python {1e3 * python_s / num_steps:.2f})"


def _age(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _draw(line: str) -> str:
    return "".join(CELLS[state][0] for state in line)


def _paint(line: str) -> str:
    """The same with one colour code for each run of equal states."""
    runs = ((state, len(list(run))) for state, run in groupby(line))
    return "".join(f"\x1b[{CELLS[state][1]}m{CELLS[state][0] * size}" for state, size in runs) + (
        "\x1b[0m"
    )


def _cut(line: str, width: int) -> str:
    """A line that fits, without control characters that an id may carry."""
    clean = "".join(letter if letter.isprintable() else "?" for letter in line)
    return clean[:width]
