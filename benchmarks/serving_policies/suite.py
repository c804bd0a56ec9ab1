"""All comparisons of the page, by name, and the command that runs them and writes the page.

    python -m benchmarks.serving_policies.suite --list
    python -m benchmarks.serving_policies.suite --only chat-gpu instruct-gpu
    python -m benchmarks.serving_policies.suite

Virtual comparisons take minutes, those on the engine a quarter of an hour on two cores. Each is a command
of its own, which its results file repeats.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.record import RESULTS, ROOT
from benchmarks.serving_policies.__main__ import main as compare
from benchmarks.serving_policies.page import PAGE, write_page
from benchmarks.simulator.fit import main as fit_cost_model

COST_MODEL = "benchmarks/results/cost-model-smollm2-135m.json"
_SMALL_POOL = "--kv-slots 2048 --max-model-len 512 --max-num-batched-tokens 512"
_ENGINE = f"--machine engine --model smollm2:135m {_SMALL_POOL}"
_FITTED = f"--machine {COST_MODEL} {_SMALL_POOL}"
COMPARISONS = {
    "chat-gpu": "--workload chat --num-requests 1000 "
    "--rates 0.1,0.25,0.5,0.75,1,1.25,1.5,1.75,2,2.25,2.5,2.75,3,3.5,4,4.5,5",
    "instruct-gpu": "--workload instruct --num-requests 2000 "
    "--rates 0.5,1,2,4,8,16,24,32,48,56,64,72,80,96",
    "parallel-gpu": "--workload instruct --num-requests 1000 --rates 2,4,8,12,16,20,24,32,40 "
    "--policies orca-max,orca-oracle,orca-oracle-first-fit,paged --n 2,4,6,8",
    "beam-gpu": "--workload instruct --num-requests 1000 --rates 2,4,8,12,16,20,24,32,40 "
    "--policies orca-max,orca-oracle,orca-oracle-first-fit,paged --beam-width 2,4,6",
    "prefix-gpu": "--workload instruct --num-requests 1000 --rates 1,2,4,8,16,32,48,64,80,96,128 "
    "--policies orca-oracle,orca-oracle-first-fit,paged --prefix-len 80,341,1024",
    "instruct-fitted": f"{_FITTED} --workload instruct --num-requests 300 "
    "--rates 2,4,8,12,16,20,24,28,32,36,40,48",
    "instruct-engine": f"{_ENGINE} --workload instruct --num-requests 240 --seeds 1 "
    "--rates 8,16,24,32,40 --policies static,orca-max,orca-oracle,orca-oracle-first-fit,paged",
    "parallel-engine": f"{_ENGINE} --workload instruct --num-requests 30 --seeds 1 --rates 2 "
    "--policies paged --n 2,4,6,8",
    "beam-engine": f"{_ENGINE} --workload instruct --num-requests 30 --seeds 1 --rates 1 "
    "--policies paged --beam-width 2,4,6",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparisons that were named, or all, then write the page from all results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_policies.suite")
    parser.add_argument("--only", nargs="+", choices=list(COMPARISONS), default=list(COMPARISONS))
    parser.add_argument("--list", action="store_true", help="Print the commands and end.")
    options = parser.parse_args(arguments)
    for name in options.only:
        flags = f"{COMPARISONS[name]} --out {RESULTS.relative_to(ROOT)}/serving-{name}.json"
        print(f"python -m benchmarks.serving_policies {flags}", flush=True)
        if options.list:
            continue
        if COST_MODEL in flags and not (ROOT / COST_MODEL).exists():
            fit_cost_model(["--out", COST_MODEL])
        compare(flags.split())
    if not options.list:
        found = [RESULTS / f"serving-{name}.json" for name in COMPARISONS]
        write_page([path for path in found if path.exists()], PAGE)


if __name__ == "__main__":
    main()
