"""Kernel rows: every product of every weight type at every number of tokens, beside the roofs.

    python -m benchmarks.kernels                        all rows, a few minutes
    python -m benchmarks.kernels --types Q4_1 --tokens 1 32

A row says GB/s of stored weights, Gop/s, and the larger of both as a share of its roof. Matrices
are walked through until they exceed `--memory`, so that weights come from memory as in a model, or
from a cache that is larger than most. Other operations are timed per token at the width of a model.
Roofs are those of `octavo bench`: read bandwidth, and the best product of our own kernels found
among the rows themselves, for each type of activations apart.
"""

from __future__ import annotations

import argparse
import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import write_results
from octavo import _native
from octavo._native import Rounding, Rows, View
from octavo.cli.bench.products import Product, product_seconds, random_floats
from octavo.cli.bench.roofs import read_bandwidth
from octavo.foundation import env
from octavo.foundation.machine import cpu_count
from octavo.weights.checkpoint import WeightType

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 512)
_BLOCK = 32
_REPEATS = 32  # of a small operation in one program, so that its call does not count
_Build = Callable[[_native.Program, View, View, View], None]


def product_rows(
    types: Sequence[WeightType],
    tokens: Sequence[int],
    *,
    shape: tuple[int, int],
    memory_bytes: int,
    threads: int,
    num_runs: int,
) -> list[dict[str, Any]]:
    """One row for each (type, activations, tokens); `shape` is [rows, columns]."""
    kernels, pool = _kernels(), _native.ThreadPool(threads, False)
    found = []
    for weight in types:
        for activations, rounding in _activations_of(weight):
            for num_tokens in tokens:
                product = Product(weight, *shape, num_tokens, rounding)
                copies = max(2, -(-memory_bytes // product.weight_bytes))
                # Many tokens are slow and do not read from memory: fewer matrices tell the same.
                copies = max(2, copies // max(1, num_tokens // 8))
                runs = product_seconds(product, kernels, pool, copies=copies, num_runs=num_runs)
                seconds = statistics.median(runs)
                found.append(
                    {
                        "op": "linear",
                        "type": weight.name,
                        "activations": activations,
                        "tokens": num_tokens,
                        "us": 1e6 * seconds,
                        "gb_s": product.weight_bytes / seconds / 1e9,
                        "gop_s": product.num_ops / seconds / 1e9,
                    }
                )
    return found


def add_shares(rows: Sequence[dict[str, Any]], read_gb_s: float) -> dict[str, float]:
    """Write each row's share of its nearest roof into it; returns the roofs."""
    roofs = {"read_gb_s": read_gb_s}
    for kind in ("float32", "bfloat16", "int8"):
        rates = [row["gop_s"] for row in rows if row.get("activations") == kind]
        if rates:
            roofs[f"{kind}_gop_s"] = max(rates)
    for row in rows:
        by_ops = row["gop_s"] / roofs[f"{row['activations']}_gop_s"] if "activations" in row else 0
        row["share"] = max(row["gb_s"] / read_gb_s, by_ops)
    return roofs


def small_rows(tokens: Sequence[int], width: int, threads: int, num_runs: int) -> list[Any]:
    """Operations without a matrix. GB/s counts what they read and write as float32."""
    weights = _native.Weights()
    norm = weights.add_vector(array("f", [1.0] * width))
    weights.allocate()
    everywhere = Rows.TOKENS
    silu = _native.Activation.SILU
    half = width // 2

    def gate(program: _native.Program, x: View, y: View, out: View) -> None:
        program.gated(everywhere, True, silu, x, View(out.offset, out.stride, half))

    builds: dict[str, tuple[_Build, float]] = {
        "rms_norm": (lambda p, x, y, out: p.norm(everywhere, True, norm, 1e-5, x, out), 2.0),
        "quantise": (
            lambda p, x, y, out: p.round_rows(everywhere, True, x, _int8(out, width)),
            1.25,
        ),
        "silu_gate": (gate, 1.5),
        "silu": (lambda p, x, y, out: p.activation(everywhere, True, silu, x, out), 2.0),
        "add": (lambda p, x, y, out: p.add(everywhere, True, x, y, out), 3.0),
    }
    found = []
    for name, (build, floats) in builds.items():
        for num_tokens in tokens:
            seconds = _small_seconds(weights, build, num_tokens, width, threads, num_runs)
            num_bytes = 4.0 * floats * width * num_tokens
            found.append(
                {
                    "op": name,
                    "tokens": num_tokens,
                    "width": width,
                    "us": 1e6 * seconds,
                    "gb_s": num_bytes / seconds / 1e9,
                    "gop_s": 0.0,
                }
            )
    return found


def attention_rows(
    contexts: Sequence[int], heads: tuple[int, int, int], threads: int, num_runs: int
) -> list[Any]:
    """One token against a context, and a whole prompt; `heads` is (query, KV, head size)."""
    found = []
    for name, kv_type in (("BF16", WeightType.BF16), ("F32", WeightType.F32)):
        for context in contexts:
            for num_tokens in (1, context):
                seconds = _attention_seconds(kv_type, num_tokens, context, heads, threads, num_runs)
                pairs = context if num_tokens == 1 else context * (context + 1) / 2
                num_bytes = 2 * context * heads[1] * heads[2] * kv_type.block_bytes
                found.append(
                    {
                        "op": "attention",
                        "type": name,
                        "tokens": num_tokens,
                        "context": context,
                        "us": 1e6 * seconds,
                        "gb_s": num_bytes / seconds / 1e9,
                        "gop_s": 4.0 * pairs * heads[0] * heads[2] / seconds / 1e9,
                    }
                )
    return found


def _attention_seconds(
    kv_type: WeightType,
    num_tokens: int,
    context: int,
    heads: tuple[int, int, int],
    threads: int,
    num_runs: int,
) -> float:
    """Of one layer, from a program of several layers with keys and values of their own."""
    num_heads, num_kv_heads, size = heads
    num_layers = 8
    widths = [num_heads * size, num_kv_heads * size, num_kv_heads * size, num_heads * size]
    views, offset = [], 0
    for width in widths:
        views.append(View(offset, width, width))
        offset += width * num_tokens
    weights = _native.Weights()
    weights.allocate()
    program = _native.Program(weights, offset, num_tokens, 1)
    for layer in range(num_layers):
        shape = (layer, *heads, size**-0.5)
        window, soft_cap, is_chunked, is_causal, no_sinks = 0, 0.0, False, True, -1
        masks = (window, soft_cap, is_chunked, is_causal, no_sinks, [])
        program.attention(Rows.TOKENS, True, *shape, *masks, *views)
    num_blocks = -(-context // _BLOCK)
    kv = _native.KvPool(kv_type, num_blocks, _BLOCK, [(num_kv_heads, size)] * num_layers)
    row = (0, num_tokens, context - num_tokens, list(range(num_blocks)))
    forward = _native.Forward(
        program,
        _kernels(),
        _native.ThreadPool(threads, False),
        kv,
        max_rows=1,
        max_len=num_blocks * _BLOCK,
    )
    for view in views[:3]:
        values = array("f", random_floats(num_tokens * view.width))
        forward.write(view, Rows.TOKENS, values)
    positions = list(range(context - num_tokens, context))
    return _median_run(forward, num_tokens, positions, row, num_runs) / num_layers


def _small_seconds(
    weights: _native.Weights,
    build: _Build,
    num_tokens: int,
    width: int,
    threads: int,
    num_runs: int,
) -> float:
    size = num_tokens * width
    x, y, out = (View(place * size, width, width) for place in range(3))
    program = _native.Program(weights, 3 * size, num_tokens, 1)
    for _ in range(_REPEATS):
        build(program, x, y, out)
    num_blocks = -(-num_tokens // _BLOCK)
    kv = _native.KvPool(WeightType.BF16, num_blocks, _BLOCK, [(1, 8)])
    pool = _native.ThreadPool(threads, False)
    forward = _native.Forward(
        program, _kernels(), pool, kv, max_rows=1, max_len=num_blocks * _BLOCK
    )
    for view in (x, y):
        forward.write(view, Rows.TOKENS, array("f", random_floats(size)))
    row = (0, num_tokens, 0, list(range(num_blocks)))
    return _median_run(forward, num_tokens, list(range(num_tokens)), row, num_runs) / _REPEATS


def _median_run(
    forward: _native.Forward,
    num_tokens: int,
    positions: Sequence[int],
    row: _native.RowTuple,
    num_runs: int,
) -> float:
    seconds = []
    for number in range(num_runs + 1):
        begin_s = time.perf_counter()
        forward.run([0] * num_tokens, positions, [row], [])
        if number:
            seconds.append(time.perf_counter() - begin_s)
    return statistics.median(seconds)


def _int8(out: View, width: int) -> View:
    return View(out.offset, out.stride, _native.rounded_row_floats(Rounding.INT8, width))


def _activations_of(weight: WeightType) -> list[tuple[str, Rounding | None]]:
    found: list[tuple[str, Rounding | None]] = [("float32", None)]
    roundings = (("bfloat16", Rounding.BFLOAT16), ("int8", Rounding.INT8))
    return found + [(name, rounding) for name, rounding in roundings if weight.takes(name)]


def _kernels() -> _native.Kernels:
    return _native.find_kernels(env.value(env.CPU_ISA) or "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    options = _parser().parse_args(arguments)
    threads = options.threads or cpu_count()
    read_gb_s = read_bandwidth(threads)
    rows = product_rows(
        [WeightType[name] for name in options.types],
        options.tokens,
        shape=(options.rows, options.cols),
        memory_bytes=options.memory << 20,
        threads=threads,
        num_runs=options.runs,
    )
    heads = (options.heads, options.kv_heads, options.head_dim)
    rows += small_rows(options.tokens, options.cols, threads, options.runs)
    rows += attention_rows(options.contexts, heads, threads, options.runs)
    roofs = add_shares(rows, read_gb_s)
    print(f"{_kernels().name}, {threads} threads; roofs: {roofs}")
    print(
        f"{'op':<10} {'type':<5} {'act':<8} {'tokens':>6} {'us':>10} {'GB/s':>7} {'Gop/s':>7} roof"
    )
    for row in rows:
        print(
            f"{row['op']:<10} {row.get('type', ''):<5} {row.get('activations', ''):<8} "
            f"{row['tokens']:>6} {row['us']:>10.1f} {row['gb_s']:>7.1f} {row['gop_s']:>7.0f} "
            f"{row['share']:>4.0%}"
        )
    if options.out:
        document = {"benchmark": "kernels", "isa": _kernels().name, "threads": threads}
        write_results(options.out, {**document, "roofs": roofs, "rows": rows})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels")
    names = [weight.name for weight in WeightType]
    parser.add_argument("--types", nargs="+", choices=names, default=names)
    parser.add_argument("--tokens", nargs="+", type=int, default=list(TOKENS))
    parser.add_argument("--contexts", nargs="*", type=int, default=[128, 512, 2048])
    parser.add_argument("--rows", type=int, default=1536, help="Of every matrix [1536].")
    parser.add_argument("--cols", type=int, default=768, help="A multiple of 256 [768].")
    parser.add_argument("--heads", type=int, default=9, help="Query heads [9].")
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--memory", type=int, default=128, help="MiB of matrices [128].")
    parser.add_argument("--runs", type=int, default=5, help="Measured runs of each row [5].")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path)
    return parser


if __name__ == "__main__":
    main()
