"""octavo bench serve: requests to a running server, timed as a client sees them."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from octavo.cli.bench.datasets import Sample, add_dataset_options, make_samples
from octavo.cli.bench.load import Arrivals, Target, run_load, send
from octavo.cli.bench.metrics import (
    TIMES,
    TITLES,
    RequestTimes,
    parse_goodput,
    parse_percentile_metrics,
    parse_percentiles,
    raw_times,
    summarise,
)
from octavo.cli.bench.roofs import measure_roofs
from octavo.cli.bench.server_counter import ServerCounter
from octavo.cli.client import Client
from octavo.config.cli_args import Parser
from octavo.errors import ConfigError, OctavoError
from octavo.foundation import env
from octavo.foundation.machine import cpu_count

_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1", "[::1]")
_ENDPOINTS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}
_SYNTHETIC = ("random", "prefix_repetition")


class BenchmarkFailedError(OctavoError):
    """Nothing could be measured."""


def run(arguments: Sequence[str]) -> int:
    """Measure, print, write; 1 when a request failed."""
    parsed = _parser().parse_args(arguments)
    if parsed.preset:
        # A preset needs all of the above for its phases.
        from octavo.cli.bench.presets import run_preset  # noqa: PLC0415

        return run_preset(parsed, target_of(parsed))
    objectives = parse_goodput(parsed.goodput or ())
    arrivals = Arrivals(
        parsed.request_rate, parsed.burstiness, parsed.max_concurrency, seed=parsed.seed
    )
    target = target_of(parsed)
    samples = _prompts_for(target, make_samples(parsed, counter_of(parsed, target)), parsed)
    _warm_up(target, samples[0], parsed.num_warmups)
    print_roofs(parsed.base_url)
    requests, duration_s = asyncio.run(run_load(target, samples, arrivals))
    result = _head(parsed, target, arrivals) | summarise(
        requests,
        duration_s,
        percentiles=parse_percentiles(parsed.metric_percentiles),
        metrics=parse_percentile_metrics(parsed.percentile_metrics),
        objectives=objectives,
    )
    print_result(result, "Serving Benchmark Result")
    print_errors(requests)
    if parsed.save_result or parsed.append_result:
        _save(parsed, result | (raw_times(requests) if parsed.save_detailed else {}))
    return 0 if result["completed"] and not result["failed"] else 1


def target_of(parsed: argparse.Namespace) -> Target:
    """The server of the options. Raises ConfigError, ServerError."""
    if parsed.base_url is None:
        parsed.base_url = f"http://{parsed.host}:{parsed.port}"
    key = parsed.api_key or env.flag_value("--api-key")
    client = Client(parsed.base_url, key)
    headers = dict(_header(pair) for pair in parsed.header or ())
    if key:
        headers.setdefault("Authorization", f"Bearer {key}")
    ignores_eos = parsed.ignore_eos
    if ignores_eos is None:
        ignores_eos = bool(parsed.preset) or parsed.dataset_name in _SYNTHETIC
    try:
        extra = json.loads(parsed.extra_body) if parsed.extra_body else {}
    except ValueError:
        raise ConfigError(
            f"--extra-body must be a JSON object, got {parsed.extra_body!r}"
        ) from None
    sampling = {"temperature": parsed.temperature, "top_p": parsed.top_p, "top_k": parsed.top_k}
    return Target(
        base_url=parsed.base_url,
        endpoint=parsed.endpoint or _ENDPOINTS[parsed.backend],
        model=parsed.model or client.model(),
        headers=headers,
        is_chat=parsed.backend == "openai-chat",
        ignore_eos=ignores_eos,
        extra_body={k: v for k, v in sampling.items() if v is not None} | extra,
    )


def counter_of(parsed: argparse.Namespace, target: Target) -> ServerCounter:
    """The server's tokenizer."""
    return ServerCounter(target.base_url, target.model, target.headers, parsed.vocab_size)


def print_roofs(base_url: str) -> None:
    """One line about this machine, if the server is on it."""
    if any(f"//{host}" in base_url for host in _LOCAL_HOSTS):
        print(measure_roofs(cpu_count()).line(), flush=True)


def print_result(result: dict[str, Any], title: str) -> None:
    """The table of `vllm bench serve`."""
    print(f"{f' {title} ':=^50}")
    for name, label in _LINES.items():
        value = result.get(name)
        if value is not None and not (name == "request_rate" and value == "inf"):
            shown = f"{value:<10.2f}" if isinstance(value, float) else f"{value:<10}"
            print(f"{label:<40} {shown}")
    for name in TIMES:
        if f"mean_{name}_ms" not in result:
            continue
        short, long = TITLES[name]
        print(f"{long:-^50}")
        ending = f"_{name}_ms"
        for key in (key for key in result if key.endswith(ending) and not key.startswith("std_")):
            label = f"{key.removesuffix(ending).capitalize()} {short} (ms):"
            print(f"{label:<40} {result[key]:<10.2f}")
    print("=" * 50)


def print_errors(requests: Sequence[RequestTimes], most: int = 5) -> None:
    """The first different errors."""
    errors = list(dict.fromkeys(request.error for request in requests if request.error))
    for error in errors[:most]:
        print(f"failed: {error}")


_LINES = {
    "completed": "Successful requests:",
    "failed": "Failed requests:",
    "max_concurrency": "Maximum request concurrency:",
    "request_rate": "Request rate configured (RPS):",
    "duration": "Benchmark duration (s):",
    "total_input_tokens": "Total input tokens:",
    "total_output_tokens": "Total generated tokens:",
    "request_throughput": "Request throughput (req/s):",
    "request_goodput": "Request goodput (req/s):",
    "output_throughput": "Output token throughput (tok/s):",
    "max_output_tokens_per_s": "Peak output token throughput (tok/s):",
    "max_concurrent_requests": "Peak concurrent requests:",
    "total_token_throughput": "Total token throughput (tok/s):",
}


def _prompts_for(target: Target, samples: list[Sample], parsed: argparse.Namespace) -> list[Sample]:
    """A chat takes texts: token ids are turned into the text that the server makes of them."""
    if not target.is_chat:
        return samples
    counter = counter_of(parsed, target)
    return [
        sample
        if isinstance(sample.prompt, str)
        else replace(sample, prompt=counter.decode(sample.prompt))
        for sample in samples
    ]


def _warm_up(target: Target, sample: Sample, count: int) -> None:
    """One request that must succeed, and `count` more. Raises BenchmarkFailedError."""
    for _ in range(1 + count):
        seen = asyncio.run(send(target, sample, target.body(sample), time.perf_counter()))
        if seen.error:
            raise BenchmarkFailedError(f"the first request failed: {seen.error}")


def _head(parsed: argparse.Namespace, target: Target, arrivals: Arrivals) -> dict[str, Any]:
    """What was asked for, as vLLM's result files begin."""
    return {
        "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
        "backend": parsed.backend,
        "label": parsed.label,
        "model_id": target.model,
        "tokenizer_id": target.model,
        "num_prompts": parsed.num_prompts,
        "request_rate": "inf" if math.isinf(arrivals.rate) else arrivals.rate,
        "burstiness": arrivals.burstiness,
        "max_concurrency": arrivals.max_concurrency,
    }


def _save(parsed: argparse.Namespace, result: dict[str, Any]) -> None:
    for pair in parsed.metadata or ():
        name, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"--metadata takes KEY=VALUE, got {pair!r}")
        result[name] = text
    limit = f"-concurrency{parsed.max_concurrency}" if parsed.max_concurrency else ""
    model = result["model_id"].split("/")[-1].replace(":", "-")
    label = parsed.label or parsed.backend
    name = f"{label}-{parsed.request_rate}qps{limit}-{model}-{result['date']}.json"
    path = Path(parsed.result_dir or ".") / (parsed.result_filename or name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a" if parsed.append_result else "w", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    print(f"written to {path}")


def _header(pair: str) -> tuple[str, str]:
    name, equals, text = pair.partition("=")
    if not equals:
        raise ConfigError(f"--header takes KEY=VALUE, got {pair!r}")
    return name, text


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="octavo bench serve", description="Measure a running server.")
    add = parser.add_argument
    add("--preset", help="A workload with settings of its own: w1, w3, w4, w5, w6 or w8.")
    add("--backend", choices=list(_ENDPOINTS), default="openai", help="Kind of API [openai].")
    add("--base-url", help="The server, instead of --host and --port.")
    add("--host", default="127.0.0.1", help="Its host [127.0.0.1].")
    add("--port", type=int, default=8000, help="Its port [8000].")
    add("--endpoint", help="Path of the API; default: as --backend says.")
    add("--api-key", help="Its key; also OCTAVO_API_KEY.")
    add("--header", nargs="*", metavar="KEY=VALUE", help="Further headers.")
    add("--model", help="Model name; default: the first the server lists.")
    add("--vocab-size", type=int, help="Random token ids are below it; default: 1000.")
    add_dataset_options(parser, num_prompts=1000)
    add("--request-rate", type=float, default=math.inf, help="Requests per second [inf].")
    add("--burstiness", type=float, default=1.0, help="1: Poisson; less: bursts [1].")
    add("--max-concurrency", type=int, help="Most requests in flight.")
    add("--num-warmups", type=int, default=0, help="Requests before the clock starts [0].")
    add(
        "--ignore-eos",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="Answers have their full length; default: for synthetic requests.",
    )
    add("--temperature", type=float, help="Of every request [0].")
    add("--top-p", type=float, help="Of every request.")
    add("--top-k", type=int, help="Of every request.")
    add("--extra-body", metavar="JSON", help="Further fields of every request.")
    add("--goodput", nargs="+", metavar="NAME:MS", help="Objectives, such as ttft:3000 tpot:200.")
    add("--percentile-metrics", default="ttft,tpot,itl", help="Times to show [ttft,tpot,itl].")
    add("--metric-percentiles", default="99", help="Percentiles to show [99].")
    add("--save-result", action="store_true", help="Write a JSON file.")
    add("--append-result", action="store_true", help="Add a line to the file instead.")
    add("--save-detailed", action="store_true", help="With the times of every request.")
    add("--result-dir", help="Its folder.")
    add("--result-filename", help="Its name.")
    add("--label", help="Begin of its name [the backend].")
    add("--metadata", nargs="*", metavar="KEY=VALUE", help="Further keys of the file.")
    return parser
